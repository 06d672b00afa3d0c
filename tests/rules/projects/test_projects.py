"""What a file is called by its project: the keys of locks, on one machine and on several."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from fleetd.domain.core.context import LockScope
from fleetd.engine.projects import Projects
from fleetd.engine.repositories import MOST_KNOWN, RETRY_S
from fleetd.host import git as asked
from fleetd.host.file_system import FileSystem
from fleetd.protocol.errors import LockConflict, Unavailable
from fleetd.protocol.requests.lock import LockAcquire, LockCheck
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from tests.support import shared_store
from tests.support.fleet import Fleet
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")
HERE, THERE = "a" * 16, "b" * 16
alone = pytest.mark.skipif(bool(shared_store.SERVER), reason="there every machine has a name")


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what Git is asked from now on."""
    seen: list[str] = []
    ask = asked.ask

    async def heard(directory: Path, *arguments: str, **more: object) -> str | None:
        seen.append(arguments[0])
        return await ask(directory, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(asked, "ask", heard)
    return seen


async def key(
    path: Path, machine: str = "", scope: LockScope = "project", **named: list[str]
) -> str:
    return await Projects(named, machine, FileSystem(inline=True)).key(str(path), scope)


def clone(repository: Path, directory: Path, url: str) -> Path:
    git(directory.parent, "clone", "--quiet", str(repository), directory.name)
    git(directory, "remote", "set-url", "origin", url)
    return directory.resolve()


@pytest.fixture
def clones(repository: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two clones of one project, each with its own way to it."""
    return (
        clone(repository, tmp_path / "one", "git@git.example:Acme/Widget.git"),
        clone(repository, tmp_path / "two", "https://me:hunter2@git.example/Acme/Widget"),
    )


async def test_worktrees_share_the_key_of_a_file(repository: Path, worktree: Path) -> None:
    keys = {await key(d / "src" / "a.py") for d in (repository, worktree)}
    assert keys == {f"project:{(repository / '.git')}:src/a.py"}


async def test_worktrees_share_the_key_of_a_file_in_a_directory_that_is_still_to_be_made(
    repository: Path, worktree: Path
) -> None:
    keys = {await key(d / "new" / "deep" / "b.py") for d in (repository, worktree)}
    assert keys == {f"project:{(repository / '.git')}:new/deep/b.py"}


async def test_clones_of_one_remote_share_the_key(repository: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        git(tmp_path, "clone", "--quiet", str(repository), name)
    keys = {await key(tmp_path / name / "src/a.py") for name in ("one", "two")}
    assert keys == {f"project:{repository}:src/a.py"}


async def test_a_key_holds_no_credentials(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://me:hunter2@example.org/r.git")
    assert await key(repository / "src/a.py") == "project:https://example.org/r.git:src/a.py"
    assert await key(repository / "src/a.py", HERE) == "project:example.org/r:src/a.py"


async def test_without_a_repository_the_path_is_the_key(tmp_path: Path) -> None:
    assert await key(tmp_path / "a.py") == str(tmp_path / "a.py")


async def test_clones_on_two_machines_share_the_key(clones: tuple[Path, Path]) -> None:
    one, two = clones
    assert await key(one / "src/a.py", HERE) == "project:git.example/Acme/Widget:src/a.py"
    assert await key(two / "src/a.py", THERE) == "project:git.example/Acme/Widget:src/a.py"


async def test_what_other_machines_cannot_mean_is_this_machines(
    repository: Path, tmp_path: Path
) -> None:
    outside, inside = tmp_path / "a.py", repository / "src/a.py"
    common = repository / ".git"
    assert await key(outside, HERE) == f"machine:{HERE}:{outside}"
    assert await key(inside, HERE) == f"machine:{HERE}:project:{common}:src/a.py"
    assert await key(inside, HERE, "machine") == f"machine:{HERE}:{inside}"
    git(repository, "remote", "add", "origin", "/srv/widget.git")
    assert await key(inside, HERE) == f"machine:{HERE}:project:/srv/widget.git:src/a.py"


async def test_git_keeps_its_own_files_for_each_clone(clones: tuple[Path, Path]) -> None:
    one, _ = clones
    inside = one / ".git" / "config"
    assert await key(inside) == str(inside)
    assert await key(inside, HERE) == f"machine:{HERE}:{inside}"
    assert await key(inside, HERE, widget=[str(one)]) == f"machine:{HERE}:{inside}"
    assert await key(one / ".github/x", HERE) == "project:git.example/Acme/Widget:.github/x"


async def test_a_file_in_a_submodule_is_of_its_own_project(
    repository: Path, clones: tuple[Path, Path], tmp_path: Path
) -> None:
    one, _ = clones
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "--quiet")
    git(library, "commit", "--quiet", "--allow-empty", "--message=Begin")
    allow = ("-c", "protocol.file.allow=always")
    git(one, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git(one / "lib", "remote", "set-url", "origin", "git@git.example:Acme/Library.git")
    assert await key(one / "lib/b.c", HERE) == "project:git.example/Acme/Library:b.c"


async def test_origin_names_a_project_else_the_first_remote_that_can(repository: Path) -> None:
    file = repository / "src/a.py"
    git(repository, "remote", "add", "zoe", "git@git.example:Zoe/Widget.git")
    assert await key(file, HERE) == "project:git.example/Zoe/Widget:src/a.py"
    git(repository, "remote", "add", "bob", "git@git.example:Bob/Widget.git")
    assert await key(file, HERE) == "project:git.example/Bob/Widget:src/a.py"
    git(repository, "remote", "add", "origin", "git@git.example:Acme/Widget.git")
    assert await key(file, HERE) == "project:git.example/Acme/Widget:src/a.py"
    git(repository, "remote", "set-url", "origin", "/srv/mirror.git")
    assert await key(file, HERE) == "project:git.example/Bob/Widget:src/a.py"


async def test_a_short_way_to_write_a_url_is_written_out(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "work:Acme/Widget")
    git(repository, "config", "url.ssh://git@git.example:2222/.insteadOf", "work:")
    git(repository, "config", "url.https://elsewhere.example/.insteadOf", "wo")
    name = "git.example:2222/Acme/Widget"
    assert await key(repository / "src/a.py", HERE) == f"project:{name}:src/a.py"


async def test_a_configured_name_comes_before_the_remote_and_the_nearest_before_others(
    clones: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = clones
    named = {"widget": [str(one), str(two)], "source": [str(one / "src")], "bare": [str(tmp_path)]}
    for machine in ("", HERE):
        assert await key(two / "src/a.py", machine, **named) == "project:widget:src/a.py"
        assert await key(one / "src/a.py", machine, **named) == "project:source:a.py"
        assert await key(one / "b.py", machine, **named) == "project:widget:b.py"
        assert await key(tmp_path / "x/b.py", machine, **named) == "project:bare:x/b.py"
    assert await key(one / "b.py", HERE, "machine", **named) == f"machine:{HERE}:{one / 'b.py'}"


async def test_a_worktree_has_the_name_that_its_repository_was_given(
    repository: Path, worktree: Path
) -> None:
    named = {"widget": [str(repository)]}
    for machine in ("", HERE):
        assert await key(worktree / "src/a.py", machine, **named) == "project:widget:src/a.py"


async def test_a_directory_is_known_by_its_project_and_those_above(
    clones: tuple[Path, Path], tmp_path: Path
) -> None:
    one, _ = clones
    (tmp_path / "link").symlink_to(one)
    projects, name = Projects({}, HERE, FileSystem(inline=True)), "git.example/Acme/Widget"
    for directory in (one / "src" / "x", tmp_path / "link" / "src" / "x"):
        assert await projects.shared_names(str(directory)) == (
            f"{name}:src/x",
            f"{name}:src",
            f"{name}:.",
        )
    assert await projects.shared_names(str(one)) == (f"{name}:.",)
    assert await Projects({}, "", FileSystem(inline=True)).shared_names(str(one)) == ()
    assert await projects.shared_names(str(tmp_path)) == ()
    assert await projects.shared_names(None) == ()
    assert await projects.shared_names("src") == ()


async def test_git_is_asked_once_and_again_when_its_settings_have_changed(
    clones: tuple[Path, Path], questions: list[str]
) -> None:
    one, two = clones
    projects = Projects({}, HERE, FileSystem(inline=True))
    first = [await projects.key(str(one / name), "project") for name in ("a", "b", "src/c")]
    assert len(questions) == 3
    git(one, "remote", "set-url", "origin", "git@git.example:Acme/Gadget.git")
    assert await projects.key(str(one / "a"), "project") == "project:git.example/Acme/Gadget:a"
    assert first[0] == "project:git.example/Acme/Widget:a"
    assert len(questions) == 6
    assert await projects.key(str(two / "a"), "project") == first[0]
    assert len(questions) == 9


async def test_git_is_not_asked_where_nothing_depends_on_it(
    clones: tuple[Path, Path], questions: list[str], tmp_path: Path
) -> None:
    one, _ = clones
    await key(one / "a", HERE, "machine")
    await key(one / "a", HERE, widget=[str(one)])
    await key(tmp_path / "no repository", HERE)
    assert questions == []


async def test_what_is_known_of_repositories_does_not_grow_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(asked, "ask", nothing)
    projects = Projects({}, HERE, FileSystem(inline=True))
    for number in range(MOST_KNOWN + 1):
        (tmp_path / str(number) / ".git").mkdir(parents=True)
        await projects.key(str(tmp_path / str(number) / "a"), "project")
    assert len(projects._repositories._known) == 1


async def test_many_who_begin_at_once_ask_git_once(
    clones: tuple[Path, Path], questions: list[str]
) -> None:
    one, _ = clones
    projects, found = Projects({}, HERE, FileSystem(inline=True)), list[tuple[str, ...]]()

    async def begin() -> None:
        found.append(await projects.shared_names(str(one)))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(begin)
    assert {*found} == {("git.example/Acme/Widget:.",)}
    assert len(found) == 20
    assert len(questions) == 3


async def test_who_asks_now_and_then_waits_for_a_hanging_git_once_a_minute(
    clones: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    one, _ = clones
    waited: list[float] = []

    async def hang(*_: object) -> None:
        waited.append(trio.current_time())
        await trio.sleep_forever()

    monkeypatch.setattr(asked, "ask", hang)
    monkeypatch.setattr(asked, "SECONDS", 0.5)
    projects = Projects({}, HERE, FileSystem(inline=True))
    began = trio.current_time()
    for _ in range(10):
        assert await projects.shared_names(str(one)) == ()
    assert trio.current_time() - began == pytest.approx(0.5)
    await trio.sleep(RETRY_S)
    assert await projects.shared_names(str(one)) == ()
    assert len(waited) == 2


async def test_without_git_a_shared_file_is_not_guessed(
    clones: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, _ = clones
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="Git cannot be run") as error:
        await key(one / "src/a.py", HERE)
    assert "[projects]" in error.value.hint
    assert await Projects({}, HERE, FileSystem(inline=True)).shared_names(str(one)) == ()
    assert await key(one / "src/a.py", HERE, widget=[str(one)]) == "project:widget:src/a.py"
    assert await key(tmp_path / "a.py", HERE) == f"machine:{HERE}:{tmp_path / 'a.py'}"
    assert await key(one / "src/a.py") == str(one / "src/a.py")


@pytest.mark.parametrize(("machine", "hint"), [("", "without lock_scope"), (HERE, "[projects]")])
async def test_a_git_that_is_too_slow_is_an_error_that_says_what_needs_none(
    clones: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    machine: str,
    hint: str,
) -> None:
    one, _ = clones
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(asked, "SECONDS", 0.05)
    with pytest.raises(Unavailable, match="Git did not report") as error:
        await key(one / "src/a.py", machine)
    assert hint in error.value.hint
    assert await Projects({}, HERE, FileSystem(inline=True)).shared_names(str(one)) == ()


@pytest.mark.parametrize("machine", ["", HERE])
async def test_a_key_tells_where_its_file_is_here_as_far_as_that_is_known(
    clones: tuple[Path, Path], tmp_path: Path, machine: str
) -> None:
    one, two = clones
    named = {"widget": [str(one)], "other": [str(tmp_path / "other")]}
    projects = Projects(named, machine, FileSystem(inline=True))
    assert await projects.paths("project:widget:src", None) == (str(one / "src"),)
    assert await projects.paths(f"machine:{HERE}:/srv/x", None) == ("/srv/x",)
    by_git = await projects.key(str(two / "src/a.py"), "project")
    assert await projects.paths(by_git, str(two)) == (str(two / "src/a.py"),)
    assert await projects.paths(by_git, str(one)) == ()
    assert await projects.paths(by_git, None) == ()


async def scoped(fleet: Fleet, directory: Path, scope: str | None = None) -> str:
    metadata = {"lock_scope": scope} if scope else {}
    mission = await fleet.do(MissionCreate("m", project_dir=str(directory), metadata=metadata))
    return (await fleet.do(MissionStart(mission.id))).id


async def test_two_worktrees_share_locks_when_the_mission_says_so(
    fleet: Fleet, repository: Path, worktree: Path
) -> None:
    here = await scoped(fleet, repository, "project")
    there = await scoped(fleet, worktree, "project")
    held = await fleet.do(LockAcquire("one", "src/a.py", mission_id=here))
    with pytest.raises(LockConflict) as error:
        await fleet.do(LockAcquire("two", "src/a.py", mission_id=there))
    assert error.value.values["existing_lock"].held_by == "one"
    assert (await fleet.do(LockAcquire("two", "src/b.py", mission_id=there))).held_by == "two"
    for directory in (repository, worktree):
        check = LockCheck(str(directory / "src" / "a.py"), held.fencing_token)
        assert (await fleet.do(check)).valid


@pytest.mark.parametrize("scope", ["machine", pytest.param(None, marks=alone)])
async def test_two_worktrees_have_locks_of_their_own_otherwise(
    fleet: Fleet, repository: Path, worktree: Path, scope: str | None
) -> None:
    here = await scoped(fleet, repository, scope)
    there = await scoped(fleet, worktree, scope)
    first = await fleet.do(LockAcquire("one", "src/a.py", mission_id=here))
    second = await fleet.do(LockAcquire("two", "src/a.py", mission_id=there))
    assert (first.held_by, second.held_by) == ("one", "two")
