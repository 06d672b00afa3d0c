"""A repository of one commit, and what was made from it."""

from pathlib import Path

import pytest

from tests.support.git import git


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not turn a slow Git into another answer."""
    monkeypatch.setattr("fleetd.host.git.SECONDS", 30)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "repository"
    (directory / "src").mkdir(parents=True)
    git(directory, "init", "--quiet", "--initial-branch=main")
    (directory / "src" / "a.py").write_text("a = 1\n")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message=Begin")
    return directory


@pytest.fixture
def worktree(repository: Path, tmp_path: Path) -> Path:
    git(repository, "worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "worktree"))
    return tmp_path.resolve() / "worktree"
