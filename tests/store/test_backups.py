"""Checkpoint files: whole or not there, private, and nothing else is ever touched or read."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetd.store.backups import FILE_MAX, BackupFile, Backups, Listing
from fleetd.wire.errors import Corrupt

MISSION, FIRST, SECOND = "msn-00000001", "chk-00000001", "chk-00000002"
CALLS = ("open", "fsync", "rename", "symlink", "unlink", "mkdir", "close")


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return Backups(tmp_path / "flightline" / "checkpoints")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


class Recorder:
    """Notes the calls that reach the disk, and can end the process, as it were, before one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self._names: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(name))

    def _watched(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in ("open", "close", "mkdir"):
                result = self._real[name](*args, **kwargs)
                if name == "open":
                    self._names[result] = Path(args[0]).name
                elif name == "mkdir":
                    self.calls.append(f"mkdir {Path(args[0]).name}")
                return result
            self.calls.append(f"{name} {self._described(name, args)}")
            if self.fail_at is not None and len(self.calls) >= self.fail_at:
                raise KilledError
            return self._real[name](*args, **kwargs)

        return call

    def _described(self, name: str, args: tuple[Any, ...]) -> str:
        if name == "fsync":
            return _kind(self._names[args[0]])
        return " -> ".join(_kind(str(arg)) for arg in args if isinstance(arg, str))


class KilledError(Exception):
    """Stands for the end of the process at this point: nothing after it happens."""


def _kind(name: str) -> str:
    return "temp" if name.startswith(".tmp-") else name


def files(backups: Backups) -> set[str]:
    return {str(p.relative_to(backups.root)) for p in backups.root.rglob("*") if not p.is_dir()}


def test_a_file_is_written_synced_renamed_and_only_then_is_it_the_latest(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    recorder = Recorder(monkeypatch)
    backups.write(MISSION, SECOND, b"two", SECOND)
    assert recorder.calls == [
        "fsync temp",
        f"rename temp -> {SECOND}.json",
        f"fsync {MISSION}",
        f"symlink {SECOND}.json -> temp",
        "rename temp -> latest.json",
        f"fsync {MISSION}",
    ]


def test_the_first_file_of_a_mission_makes_its_directory_last(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups.root.mkdir(parents=True)
    recorder = Recorder(monkeypatch)
    backups.write(MISSION, FIRST, b"one", FIRST)
    assert recorder.calls[:2] == [f"mkdir {MISSION}", "fsync checkpoints"]


@pytest.mark.usefixtures("no_umask")
def test_nobody_else_may_read_them_whatever_the_umask(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    mode = stat.S_IMODE
    assert mode(backups.path_of(MISSION, FIRST).stat().st_mode) == 0o600
    assert mode((backups.root / MISSION).stat().st_mode) == 0o700
    assert mode(backups.root.stat().st_mode) == 0o700


def test_latest_is_a_relative_link_beside_the_file(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    link = backups.root / MISSION / "latest.json"
    assert os.readlink(link) == f"{FIRST}.json"
    backups.write(MISSION, SECOND, b"two", SECOND)
    assert os.readlink(link) == f"{SECOND}.json"
    assert link.read_bytes() == b"two"
    assert files(backups) == {f"{MISSION}/{n}.json" for n in (FIRST, SECOND, "latest")}


def test_a_link_that_dangles_or_leads_elsewhere_is_replaced(
    backups: Backups, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("keep me")
    backups.write(MISSION, FIRST, b"one", FIRST)
    link = backups.root / MISSION / "latest.json"
    for target in ("nowhere.json", "latest.json", str(tmp_path / "precious")):
        link.unlink()
        link.symlink_to(target)
        backups.write(MISSION, FIRST, b"one", FIRST)
        assert os.readlink(link) == f"{FIRST}.json"
    assert (tmp_path / "precious").read_text() == "keep me"


def test_writing_again_replaces_the_whole_file(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"a long one", FIRST)
    backups.write(MISSION, FIRST, b"short", FIRST)
    assert backups.read(MISSION, FIRST) == b"short"


@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_at_any_step_leaves_a_whole_file_or_the_one_before(
    backups: Backups, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        recorder.fail_at = step
        with pytest.raises(KilledError):
            backups.write(MISSION, SECOND, b"two", SECOND)
    assert backups.read(MISSION, FIRST) == b"one"
    assert backups.read(MISSION, SECOND) == (None if step <= 2 else b"two")
    link = backups.root / MISSION / "latest.json"
    assert link.read_bytes() == (b"one" if step <= 5 else b"two")
    backups.sweep()
    backups.write(MISSION, SECOND, b"two", SECOND)
    assert files(backups) == {f"{MISSION}/{n}.json" for n in (FIRST, SECOND, "latest")}
    assert link.read_bytes() == b"two"


@pytest.mark.parametrize("step", range(1, 6))
def test_a_kill_while_a_file_is_removed_is_finished_by_the_next_try(
    backups: Backups, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    backups.write(MISSION, SECOND, b"two", SECOND)
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        recorder.fail_at = step
        with pytest.raises(KilledError):
            backups.remove(MISSION, [SECOND], FIRST)
    assert backups.read(MISSION, FIRST) == b"one"
    backups.sweep()
    backups.remove(MISSION, [SECOND], FIRST)
    assert files(backups) == {f"{MISSION}/{FIRST}.json", f"{MISSION}/latest.json"}
    assert os.readlink(backups.root / MISSION / "latest.json") == f"{FIRST}.json"


def test_a_disk_without_room_leaves_no_temp_file(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            backups.write(MISSION, SECOND, b"two", SECOND)
    assert files(backups) == {f"{MISSION}/{FIRST}.json", f"{MISSION}/latest.json"}


@pytest.mark.parametrize(
    "name", ["../escape", "chk-1/../../x", "chk-", "", ".", "chk-1\n", "CHK-1", "chk-\x00", "/etc"]
)
def test_an_id_that_is_a_path_never_becomes_one(backups: Backups, name: str) -> None:
    backups.root.mkdir(parents=True)
    for attempt in (
        lambda: backups.write(name, FIRST, b"x", None),
        lambda: backups.write(MISSION, name, b"x", None),
        lambda: backups.write(MISSION, FIRST, b"x", name),
        lambda: backups.read(name, FIRST),
        lambda: backups.read(MISSION, name),
        lambda: backups.remove(MISSION, [name], None),
        lambda: backups.remove(name, [FIRST], None),
        lambda: backups.path_of(MISSION, name),
    ):
        with pytest.raises(ValueError, match="not an id"):
            attempt()
        (backups.root / MISSION).mkdir(exist_ok=True)
    assert {p.parent.parent for p in backups.root.rglob("*.json")} <= {backups.root}


def test_a_mission_directory_that_is_a_link_is_not_followed(
    backups: Backups, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{FIRST}.json").write_bytes(b"planted")
    (elsewhere / ".tmp-precious").write_bytes(b"keep me")
    backups.root.mkdir(parents=True)
    (backups.root / MISSION).symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        backups.write(MISSION, SECOND, b"two", SECOND)
    with pytest.raises(OSError, match="Not a directory"):
        backups.read(MISSION, FIRST)
    with pytest.raises(OSError, match="Not a directory"):
        backups.remove(MISSION, [FIRST], None)
    assert backups.sweep() == 0
    assert {path.name for path in elsewhere.iterdir()} == {f"{FIRST}.json", ".tmp-precious"}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(FILE_MAX + 1)


def _link(path: Path) -> None:
    target = path.with_name("chk-00000009.json")
    target.write_bytes(b"planted")
    path.symlink_to(target.name)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("put", [_fifo, _huge, _link, _loop, Path.mkdir])
def test_what_is_no_regular_file_is_corrupt_and_hangs_nobody(
    backups: Backups, put: Callable[[Path], None]
) -> None:
    (backups.root / MISSION).mkdir(parents=True)
    put(backups.path_of(MISSION, FIRST))
    with pytest.raises(Corrupt) as error:
        backups.read(MISSION, FIRST)
    assert error.value.values == {"path": str(backups.path_of(MISSION, FIRST))}
    assert "verify --all --repair" in error.value.hint


@pytest.mark.parametrize("put", [_fifo, _link, _loop, _huge])
def test_writing_puts_a_regular_file_in_the_place_of_anything_but_a_directory(
    backups: Backups, put: Callable[[Path], None]
) -> None:
    (backups.root / MISSION).mkdir(parents=True)
    put(backups.path_of(MISSION, FIRST))
    backups.write(MISSION, FIRST, b"one", FIRST)
    assert backups.read(MISSION, FIRST) == b"one"


def test_a_file_that_is_not_there_is_none(backups: Backups) -> None:
    assert backups.read(MISSION, FIRST) is None
    backups.write(MISSION, FIRST, b"one", FIRST)
    assert backups.read(MISSION, SECOND) is None
    assert backups.find(SECOND) is None
    assert backups.find(FIRST) == BackupFile(MISSION, FIRST)


def test_the_sweep_removes_temp_files_and_nothing_else(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    mission = backups.root / MISSION
    (mission / ".tmp-0123").write_bytes(b"half")
    (mission / ".tmp-link").symlink_to("chk-00000001.json")
    (mission / ".tmp-directory").mkdir()
    (mission / "notes.txt").write_text("a person's")
    (backups.root / ".tmp-mine").write_text("not in a mission's directory")
    (backups.root / "other").mkdir()
    (backups.root / "other" / ".tmp-other").write_text("not a mission's")
    before = files(backups)
    assert backups.sweep() == 2
    assert before - files(backups) == {f"{MISSION}/.tmp-0123", f"{MISSION}/.tmp-link"}
    assert (mission / ".tmp-directory").is_dir()


def test_the_sweep_of_nothing_is_nothing(backups: Backups) -> None:
    assert backups.sweep() == 0
    assert list(backups.files()) == []
    assert not backups.root.exists()


def test_only_what_is_named_like_a_checkpoint_is_one(backups: Backups) -> None:
    backups.write(MISSION, SECOND, b"two", SECOND)
    backups.write(MISSION, FIRST, b"one", SECOND)
    for name in ("notes.json", "chk-1.txt", ".tmp-1", "CHK-1.json", "chk-00000001"):
        (backups.root / MISSION / name).write_text("x")
    (backups.root / "Other").mkdir()
    (backups.root / "Other" / "chk-00000003.json").write_text("x")
    assert list(backups.files()) == [BackupFile(MISSION, FIRST), BackupFile(MISSION, SECOND)]


def test_removing_the_newest_points_latest_at_the_one_before(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    backups.write(MISSION, SECOND, b"two", SECOND)
    backups.remove(MISSION, [SECOND], FIRST)
    assert os.readlink(backups.root / MISSION / "latest.json") == f"{FIRST}.json"
    backups.remove(MISSION, [SECOND], FIRST)
    assert files(backups) == {f"{MISSION}/{FIRST}.json", f"{MISSION}/latest.json"}


def test_removing_the_last_takes_the_link_and_the_empty_directory_too(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    backups.remove(MISSION, [FIRST], None)
    assert list(backups.root.iterdir()) == []
    backups.remove(MISSION, [FIRST], None)
    backups.write(MISSION, SECOND, b"two", SECOND)
    (backups.root / MISSION / "notes.txt").write_text("a person's")
    backups.remove(MISSION, [SECOND], None)
    assert files(backups) == {f"{MISSION}/notes.txt"}


def put_directory(place: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("a person's")


def put_fifo(place: Path) -> None:
    os.mkfifo(place)


def put_file(place: Path) -> None:
    place.write_text("a person's")


def put_link(place: Path) -> None:
    place.symlink_to("notes.txt")


@pytest.mark.parametrize(
    ("name", "put"),
    [
        *((f"{FIRST}.json", put) for put in (put_directory, put_fifo, put_link)),
        *(("latest.json", put) for put in (put_directory, put_fifo, put_file)),
    ],
)
def test_what_stands_in_the_place_is_moved_aside_and_named(
    backups: Backups, name: str, put: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    (backups.root / MISSION).mkdir(parents=True)
    put(backups.root / MISSION / name)
    before = os.lstat(backups.root / MISSION / name).st_ino

    backups.write(MISSION, FIRST, b"one", FIRST)

    assert backups.read(MISSION, FIRST) == b"one"
    assert os.readlink(backups.root / MISSION / "latest.json") == f"{FIRST}.json"
    (aside,) = (backups.root / MISSION).glob(f"{name}.aside-*")
    assert os.lstat(aside).st_ino == before
    assert f"{MISSION}/{name} stood in the place of a checkpoint file" in caplog.text
    assert aside.name in caplog.text
    assert backups.list(MISSION).files == {FIRST}
    assert list(backups.files()) == [BackupFile(MISSION, FIRST)]


def test_a_directory_in_the_place_does_not_stop_a_removal(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    backups.path_of(MISSION, FIRST).unlink()
    put_directory(backups.path_of(MISSION, FIRST))
    backups.remove(MISSION, [FIRST], None)
    (aside,) = (backups.root / MISSION).iterdir()
    assert (aside / "notes.txt").read_text() == "a person's"


def test_without_a_checkpoint_only_a_link_is_removed(backups: Backups) -> None:
    backups.write(MISSION, FIRST, b"one", FIRST)
    backups.set_latest(MISSION, None)
    assert files(backups) == {f"{MISSION}/{FIRST}.json"}
    put_file(backups.root / MISSION / "latest.json")
    backups.set_latest(MISSION, None)
    assert (backups.root / MISSION / "latest.json").read_text() == "a person's"


def test_a_listing_tells_the_names_apart_without_reading_a_file(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backups.list(MISSION) == Listing()
    backups.write(MISSION, FIRST, b"one", FIRST)
    put_directory(backups.path_of(MISSION, SECOND))
    put_file(backups.root / MISSION / "notes.json")
    put_file(backups.root / MISSION / ".tmp-0123")
    put_file(backups.root / MISSION / f"{SECOND}.json.aside-0123")

    def never(*_: object) -> bytes:
        raise AssertionError("a file was read")

    monkeypatch.setattr("fleetd.store.backups.read_file", never)
    assert backups.list(MISSION) == Listing(
        files=frozenset({FIRST}),
        blocked=frozenset({SECOND}),
        foreign=[f"{SECOND}.json.aside-0123", "notes.json"],
        latest=f"{FIRST}.json",
        latest_kind="a symlink",
    )


@pytest.mark.parametrize(
    ("put", "trouble"),
    [
        (lambda _: None, "is missing"),
        (put_directory, "is a directory"),
        (put_file, "is a file"),
        (put_fifo, "is no file"),
        (lambda place: place.symlink_to("latest.json"), "points at itself"),
        (lambda place: place.symlink_to(f"{FIRST}.json"), f"points at {FIRST}.json"),
        (
            lambda place: place.symlink_to("chk-9.json"),
            "points at chk-9.json, which is not there",
        ),
        (lambda place: place.symlink_to(f"{SECOND}.json"), ""),
    ],
)
def test_what_is_wrong_with_latest_is_said(
    backups: Backups, put: Callable[[Path], None], trouble: str
) -> None:
    for checkpoint in (FIRST, SECOND):
        backups.write(MISSION, checkpoint, b"x", None)
    put(backups.root / MISSION / "latest.json")
    assert backups.list(MISSION).latest_trouble(SECOND) == trouble


def test_a_mission_that_is_no_directory_cannot_be_listed(backups: Backups, tmp_path: Path) -> None:
    backups.root.mkdir(parents=True)
    put_file(backups.root / MISSION)
    with pytest.raises(NotADirectoryError):
        backups.list(MISSION)
    (backups.root / MISSION).unlink()
    (backups.root / MISSION).symlink_to(tmp_path)
    with pytest.raises(OSError, match=MISSION):
        backups.list(MISSION)
