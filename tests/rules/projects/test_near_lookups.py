"""Short lookups on the database's file system are made on the event loop, all others on threads."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.host import file_system
from fleetd.host.file_system import FileSystem, PathUnanswered
from tests.support.hung_mount import hung_mount
from tests.support.small_disk import CannotMount

PathWork = Callable[[file_system.PathWalk], None]


@pytest.fixture
def here(tmp_path: Path) -> str:
    return str(tmp_path.resolve())


@pytest.fixture
def repository(here: str) -> Path:
    place = Path(here, ".git")
    place.mkdir()
    return place


@pytest.fixture
def threads(here: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Which of the calls below the test's directory were made on the event loop."""
    asked, lstat, loop = list[bool](), os.lstat, threading.current_thread()

    def noting(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(f"{here}/"):
            asked.append(threading.current_thread() is loop)
        return lstat(path, **more)

    monkeypatch.setattr(os, "lstat", noting)
    return asked


@pytest.fixture
def elsewhere(here: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a directory on another device, to which ``link`` leads."""
    other = Path(here, "other")
    other.mkdir()
    Path(here, "link").symlink_to(other)
    monkeypatch.setattr(file_system, "_mounts", lambda: {"/": "8:1", str(other): "0:42"})
    return str(other)


async def test_a_path_on_the_database_s_file_system_needs_no_thread(
    here: str, threads: list[bool]
) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here, "fleetd.db")):
        found = await files.look(f"{here}/a.py")
        assert (found[0].real, found[0].is_directory) == (f"{here}/a.py", False)
        assert set(threads) == {True}
    threads.clear()
    await files.look(f"{here}/a.py")
    assert set(threads) == {False}, "nobody watches the mounts any more"


async def test_a_long_piece_of_work_goes_to_a_thread(here: str, threads: list[bool]) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here)):
        await files.run(lambda walk: walk.facts(f"{here}/a.py"), here)
        await files.look(*(f"{here}/{number}" for number in range(9)))
    assert set(threads) == {False}


@pytest.mark.parametrize(("kind", "on_the_loop"), [("btrfs", True), ("nfs4", False)])
async def test_with_a_store_on_a_server_the_event_loop_waits_for_no_other_computer(
    here: str,
    threads: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    *,
    on_the_loop: bool,
) -> None:
    monkeypatch.setattr(file_system, "_mount_table", lambda: [("/", "0:42", kind)])
    files = FileSystem(inline=False)
    with files.near(Path(here), local_only=True):
        await files.look(f"{here}/a.py")
    assert set(threads) == {on_the_loop}


async def test_without_a_table_of_mounts_all_goes_to_threads(
    here: str, threads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "_MOUNTS", Path(here, "missing"))
    files = FileSystem(inline=False)
    with files.near(Path(here)):
        await files.look(f"{here}/a.py")
    assert set(threads) == {False}


async def test_a_link_to_another_file_system_is_followed_on_a_thread(
    here: str, elsewhere: str, threads: list[bool]
) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here)):
        assert (await files.look(f"{here}/link/a.py"))[0].real == f"{elsewhere}/a.py"
        assert (threads[0], threads[-1]) == (True, False)
        threads.clear()
        await files.look(f"{here}/a.py")
        assert set(threads) == {True}


@pytest.fixture
def passing(here: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], PathWork]:
    """Return what makes lookups that take so many seconds of a clock that moves only by them."""
    now = 1_000.0
    monkeypatch.setattr(file_system.time, "monotonic", lambda: now)

    def taking(seconds: float) -> PathWork:
        def work(walk: file_system.PathWalk) -> None:
            nonlocal now
            walk.facts(f"{here}/a.py")
            now += seconds

        return work

    return taking


@pytest.mark.parametrize(
    ("number", "took_s", "pause_s"), [(9, 0.006, 1.0), (1, 0.1, 2.0), (1, 100.0, 600.0)]
)
async def test_after_slow_lookups_threads_are_used_for_a_while(
    here: str,
    threads: list[bool],
    passing: Callable[[float], PathWork],
    number: int,
    took_s: float,
    pause_s: float,
) -> None:
    files = FileSystem(inline=False)

    async def is_near() -> bool:
        await files.run_short(passing(0), here)
        return threads[-1]

    with files.near(Path(here)):
        for _ in range(number):
            assert await is_near()
            await files.run_short(passing(took_s), here)
        passing(pause_s * 0.95)(file_system.PathWalk())
        assert not await is_near()
        passing(pause_s * 0.15)(file_system.PathWalk())
        assert await is_near()


async def test_a_slow_lookup_now_and_then_uses_no_thread(
    here: str, threads: list[bool], passing: Callable[[float], PathWork]
) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here)):
        for _ in range(100):
            await files.run_short(passing(0.006), here)
            passing(0.2)(file_system.PathWalk())
    assert False not in threads[::2], "of each two the first is the lookup's"


async def test_a_slow_lookup_that_leaves_or_fails_counts_too(
    here: str, elsewhere: str, threads: list[bool], passing: Callable[[float], PathWork]
) -> None:
    def leaving(walk: file_system.PathWalk) -> None:
        passing(0.04)(walk)
        walk.facts(f"{elsewhere}/a.py")

    def failing(walk: file_system.PathWalk) -> None:
        passing(0.04)(walk)
        raise ZeroDivisionError

    files = FileSystem(inline=False)
    with files.near(Path(here)):
        with pytest.raises(ZeroDivisionError):
            await files.run_short(failing, here)
        await files.look(f"{here}/b.py")
        assert threads[-1]
        await files.run_short(leaving, here)
        await files.look(f"{here}/b.py")
        assert not threads[-1]


async def test_a_known_link_to_another_file_system_is_read_on_a_thread(
    here: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, readlink, loop = list[bool](), os.readlink, threading.current_thread()

    def noting(path: Any, **more: Any) -> str:
        read.append(threading.current_thread() is loop)
        return readlink(path, **more)

    monkeypatch.setattr(os, "readlink", noting)
    await trio.Path(elsewhere, "link").symlink_to("a.py")
    files = FileSystem(inline=False)
    with files.near(Path(here)), files.remembering() as seen:
        await files.look(f"{elsewhere}/link")
        assert read == [False]
        await files.look(f"{elsewhere}/link/more")
        assert read == [False], "it is known where it leads"
        seen.targets.clear()
        await files.look(f"{elsewhere}/link/again")
        assert read == [False, False]


def test_what_is_known_is_reached(here: str) -> None:
    """An abandoned walk tells the real path, also of one that was remembered."""
    Path(here, "link").symlink_to(here)
    walk = file_system.PathWalk()
    walk.facts(f"{here}/link")
    walk.facts(f"{here}/b.py")
    walk.facts(f"{here}/link")
    assert (walk.asked, walk.reached, walk.at) == (f"{here}/link", here, None)


async def test_work_within_a_request_can_begin_anew(here: str) -> None:
    files = FileSystem(inline=True)
    with files.remembering() as seen:
        await files.look(f"{here}/a.py")
        with files.remembering(anew=True) as new:
            assert f"{here}/a.py" not in new.facts
        with files.remembering() as same:
            assert same is seen


async def test_within_a_request_a_path_is_asked_for_once(
    repository: Path, here: str, threads: list[bool]
) -> None:
    files = FileSystem(inline=False)

    def look(walk: file_system.PathWalk) -> tuple[str, str | None]:
        real = walk.facts(f"{here}/src/a.py").real
        return real, walk.root(f"{here}/src")

    with files.near(Path(here)):
        with files.remembering():
            assert await files.run_short(look, here) == (f"{here}/src/a.py", here)
            asked = len(threads)
            assert asked == len(["src", "src/a.py", "src/.git", ".git"])
            await trio.Path(repository).rmdir()
            assert await files.run_short(look, here) == (f"{here}/src/a.py", here)
            assert len(threads) == asked
        assert await files.run_short(look, here) == (f"{here}/src/a.py", None)


async def test_a_mount_made_later_is_noticed(here: str, threads: list[bool]) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here)):
        await files.look(f"{here}/hung/a.py")
        assert False not in threads
        try:
            with hung_mount(Path(here, "hung")) as place, trio.fail_after(10):
                with pytest.raises(PathUnanswered):
                    await files.look(f"{place}/a.py")
                assert False in threads
                assert (await files.look(f"{here}/b.py"))[0].real == f"{here}/b.py"
                assert threads[-1]
        except CannotMount as reason:
            pytest.skip(str(reason))


async def test_a_lookup_on_the_loop_can_be_cancelled_before_it_begins(
    here: str, threads: list[bool]
) -> None:
    files = FileSystem(inline=False)
    with files.near(Path(here)), trio.CancelScope() as scope:
        scope.cancel()
        await files.look(f"{here}/a.py")
    assert scope.cancelled_caught
    assert threads == []


def test_the_types_of_file_systems_are_read_from_the_kernel() -> None:
    assert file_system._kinds()["/proc"] == "proc"
    assert file_system._kinds().keys() == file_system._mounts().keys()
