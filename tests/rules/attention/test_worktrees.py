"""Edits outside of the work tree in which an agent began: told once, and listed for an hour."""

from pathlib import Path

import pytest

from fleetd.protocol.requests.attention import AttentionConflicts, OutsideEdit
from fleetd.protocol.requests.system import SystemForget
from tests.rules.attention.test_conflicts import ALICE, BOB, agent, edits, hook, prompts
from tests.support.fleet import HOUR, Fleet
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
def tree(fleet: Fleet, tmp_path: Path) -> Path:
    """Return a second work tree of the project's repository."""
    git(fleet.project, "init", "-q")
    git(fleet.project, "commit", "-q", "--allow-empty", "-m", "first")
    git(fleet.project, "worktree", "add", "-q", str(tmp_path / "tree"))
    return tmp_path / "tree"


async def outside(fleet: Fleet, whose: str | None = None) -> list[OutsideEdit]:
    asked = AttentionConflicts(agent_id=agent(whose) if whose else None)
    return (await fleet.do(asked)).outside


async def test_an_edit_of_another_work_tree_is_told_once_and_listed(
    fleet: Fleet, tree: Path
) -> None:
    await hook(fleet, ALICE, "SessionStart", source="startup", cwd=str(tree))
    assert await edits(fleet, ALICE, tree / "a.py", cwd=str(tree)) == ""
    told = await edits(fleet, ALICE, fleet.project / "a.py", cwd=str(tree))
    assert told == (
        f"{agent(ALICE)} began in the work tree {tree}, and changed {fleet.project}/a.py in another"
        f" one, {fleet.project}. If that was not meant, move the change."
    )
    for name in ("a.py", "b.py"):
        assert await edits(fleet, ALICE, fleet.project / name, cwd=str(tree)) == ""
    found = await outside(fleet)
    assert [(each.path, each.worktree, each.began_in) for each in found] == [
        (f"{fleet.project}/{name}", str(fleet.project), str(tree)) for name in ("b.py", "a.py")
    ]
    assert await outside(fleet, ALICE) == found
    await prompts(fleet, BOB)
    assert await outside(fleet, BOB) == []
    fleet.clock.pass_by(HOUR)
    assert await outside(fleet) == []


async def test_what_is_its_own_or_nobodys_is_not_outside(fleet: Fleet, tree: Path) -> None:
    inner = fleet.project / "vendor" / "lib"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    await hook(fleet, ALICE, "SessionStart", source="startup")
    # A repository inside of its own, a file in none, and the tree to which its CLI has moved.
    assert await edits(fleet, ALICE, inner / "a.py") == ""
    assert await edits(fleet, ALICE, fleet.project.parent / "notes.txt") == ""
    await hook(fleet, ALICE, "CwdChanged", cwd=str(tree), new_cwd=str(tree))
    assert await edits(fleet, ALICE, tree / "a.py", cwd=str(tree)) == ""
    assert await outside(fleet) == []


async def test_a_work_tree_inside_of_its_own_is_another_one(fleet: Fleet, tree: Path) -> None:
    nested = fleet.project / ".claude" / "worktrees" / "w"
    git(fleet.project, "worktree", "add", "-q", str(nested))
    await hook(fleet, ALICE, "SessionStart", source="startup")
    assert f"in another one, {nested}." in await edits(fleet, ALICE, nested / "a.py")
    assert [each.worktree for each in await outside(fleet, ALICE)] == [str(nested)]
    # Whoever began there is at home there, and nowhere else.
    await hook(fleet, BOB, "SessionStart", source="startup", cwd=str(nested))
    assert await edits(fleet, BOB, nested / "b.py", cwd=str(nested)) == ""
    assert f"in another one, {fleet.project}." in await edits(
        fleet, BOB, fleet.project / "b.py", cwd=str(nested)
    )


async def test_a_session_that_was_resumed_elsewhere_began_there(fleet: Fleet, tree: Path) -> None:
    await hook(fleet, ALICE, "SessionStart", source="startup")
    await hook(fleet, ALICE, "SessionStart", source="resume", cwd=str(tree))
    assert await edits(fleet, ALICE, tree / "a.py", cwd=str(tree)) == ""
    assert "began in the work tree" in await edits(
        fleet, ALICE, fleet.project / "a.py", cwd=str(tree)
    )


async def test_forgetting_a_project_forgets_what_was_changed_there(
    fleet: Fleet, tree: Path
) -> None:
    await hook(fleet, ALICE, "SessionStart", source="startup", cwd=str(tree))
    await edits(fleet, ALICE, fleet.project / "a.py", cwd=str(tree))
    assert len(await outside(fleet)) == 1
    await fleet.do(SystemForget(project_dir=str(fleet.project)))
    assert fleet.sql("SELECT * FROM outside_edits") == []
