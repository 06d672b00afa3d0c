"""What the file system and Git say: real paths, keys that worktrees share, a project's state."""

import os
import shutil
from pathlib import Path

import pytest

from fleetd.domain.core.context import WorkingTree
from fleetd.engine import repositories
from fleetd.engine.projects import Projects
from fleetd.host.file_system import FileSystem
from fleetd.protocol.errors import InvalidParams, LockConflict, Unavailable
from fleetd.protocol.requests.lock import LockAcquire
from tests.support.fleet import Fleet
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")


async def test_a_repository_is_described_by_branch_commit_and_changes(repository: Path) -> None:
    commit, author = git(repository, "log", "-1", "--format=%h%n%an").splitlines()
    told = f"{commit} by “{author}”: “Begin”"
    assert await repositories.working_tree(str(repository)) == WorkingTree("“main”", told)
    (repository / "src" / "a.py").write_text("a = 2\n")
    (repository / "new.py").write_text("b = 1\n")
    changed = (" M src/a.py", "?? new.py")
    tree = WorkingTree("“main”", told, changed)
    assert await repositories.working_tree(str(repository / "src")) == tree


async def test_many_changes_are_counted(repository: Path) -> None:
    for number in range(30):
        (repository / f"n{number:02}.py").write_text("x")
    tree = await repositories.working_tree(str(repository))
    assert tree is not None
    names = tuple(f"?? n{number:02}.py" for number in range(repositories.CHANGED_MAX))
    assert (tree.changed, tree.more) == (names, 10)


async def test_where_there_is_no_repository_nothing_is_said(tmp_path: Path) -> None:
    assert await repositories.working_tree(None) is None
    assert await repositories.working_tree(str(tmp_path)) is None
    assert await repositories.working_tree(str(tmp_path / "missing")) is None


async def test_a_repository_without_a_commit_has_a_branch_only(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    tree = WorkingTree("“main”, no commits yet")
    assert await repositories.working_tree(str(tmp_path)) == tree


async def test_no_program_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(trap))
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_bytes(trap.read_bytes())
    hook.chmod(0o755)
    for name in ("plain", "a=b"):
        git(repository, "config", f"filter.{name}.clean", f"{trap}; cat")
        git(repository, "config", f"filter.{name}.process", str(trap))
        git(repository, "config", f"filter.{name}.required", "true")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("*.py filter=plain\n*.md filter=a=b\n")
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(trap))
    (repository / "src" / "a.py").write_text("a = 3\n")
    tree = await repositories.working_tree(str(repository))
    assert tree is not None
    assert tree.changed == (" M src/a.py",)
    await Projects({}, "", FileSystem(inline=True)).key(str(repository / "src" / "a.py"), "project")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("how", ["uploadpack", "ext"])
async def test_what_a_repository_lacks_is_not_fetched_by_a_program_that_it_names(
    repository: Path, tmp_path: Path, how: str
) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    url = f"ext::{trap}" if how == "ext" else str(tmp_path)
    for key, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", url),
        ("remote.origin.uploadpack", str(trap)),
        ("protocol.ext.allow", "always"),
    ):
        git(repository, "config", key, value)
    tree = git(repository, "rev-parse", "HEAD^{tree}").strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    await repositories.working_tree(str(repository))
    await Projects({}, "", FileSystem(inline=True)).key(str(repository / "src" / "a.py"), "project")
    assert not (tmp_path / "sprung").exists()


async def test_git_that_does_not_answer_is_not_waited_for(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("fleetd.host.git.SECONDS", 0.05)
    assert await repositories.working_tree(str(repository)) is None
    # Another key than the right one would let two agents hold one file.
    with pytest.raises(Unavailable, match="Git did not report"):
        await Projects({}, "", FileSystem(inline=True)).key(
            str(repository / "src" / "a.py"), "project"
        )


async def test_a_briefing_waits_for_all_that_git_says_together_no_longer_than_for_one_answer(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert await repositories.working_tree(str(repository)) is not None
    real, slow = shutil.which("git"), tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {real} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("fleetd.host.git.SECONDS", 0.5)
    assert await repositories.working_tree(str(repository)) is None


async def test_a_path_that_nothing_is_relative_to_is_refused(fleet: Fleet) -> None:
    with pytest.raises(InvalidParams, match="a relative path") as error:
        await fleet.do(LockAcquire("one", "src/a.py"))
    assert error.value.values == {"field": "file"}


async def test_a_link_to_a_locked_file_is_that_file(fleet: Fleet, tmp_path: Path) -> None:
    (fleet.project / "a.py").write_text("a = 1\n")
    (fleet.project / "link.py").symlink_to("a.py")
    cwd = str(fleet.project)
    await fleet.do(LockAcquire("one", "a.py", cwd=cwd))
    with pytest.raises(LockConflict):
        await fleet.do(LockAcquire("two", "link.py", cwd=cwd))
    with pytest.raises(LockConflict):
        await fleet.do(LockAcquire("two", f"{cwd}//./a.py"))
