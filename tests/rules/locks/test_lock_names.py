"""What the file of a lock is called for who reads of it, and lists of one repository's locks."""

import json
import os
import re
from pathlib import Path

import pytest

from fleetd.engine.projects import Projects
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.agent import AgentList, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from tests.support import shared_store
from tests.support.fleet import Fleet
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")
HERE, THERE = "a" * 16, "b" * 16
alone = pytest.mark.skipif(bool(shared_store.SERVER), reason="there every machine has a name")


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another repository, in the home directory of whoever asks."""
    monkeypatch.setenv("HOME", str(tmp_path.resolve() / "home"))
    directory = tmp_path.resolve() / "home" / "project"
    (directory / "src").mkdir(parents=True)
    git(directory, "init", "--quiet")
    return directory


async def taken(fleet: Fleet, directory: Path | str, file: str, agent: str) -> Lock:
    fleet.clock.pass_by(1)  # lists are in the order of time
    return await fleet.do(LockAcquire(agent, file, cwd=str(directory)))


async def told(fleet: Fleet, directory: Path | str, **terms: object) -> list[str]:
    """Return what the files of the locks are called in a directory, oldest lock first."""
    page = await fleet.do(LockList(cwd=str(directory), **terms))  # type: ignore[arg-type]
    assert list(page.paths) == [lock.id for lock in page.locks]
    return list(page.paths.values())


async def test_a_lock_path_is_relative_to_the_callers_repository_root_or_starts_at_home(
    fleet: Fleet, repository: Path, other: Path
) -> None:
    await taken(fleet, repository / "src", "form.py", "one")
    await taken(fleet, other, "src/form.py", "two")
    await taken(fleet, "/srv", "form.py", "three")
    await taken(fleet, other.parent, "notes.txt", "four")
    mine, home = "src/form.py", str(repository / "src/form.py")
    theirs = "~/project/src/form.py"
    assert await told(fleet, repository) == [mine, theirs, "/srv/form.py", "~/notes.txt"]
    assert await told(fleet, repository / "src") == [mine, theirs, "/srv/form.py", "~/notes.txt"]
    assert await told(fleet, other) == [home, mine, "/srv/form.py", "~/notes.txt"]
    assert await told(fleet, "/") == [home, theirs, "/srv/form.py", "~/notes.txt"]
    assert (await fleet.do(LockList())).paths == {}


async def test_a_directory_in_no_repository_has_no_root_that_lock_paths_are_relative_to(
    fleet: Fleet, other: Path
) -> None:
    await taken(fleet, other, "src/form.py", "one")
    await taken(fleet, other.parent, "notes.txt", "one")
    both = ["~/project/src/form.py", "~/notes.txt"]
    assert await told(fleet, other.parent) == both
    # In a shared store the other one's lock is its project's.
    assert await told(fleet, other.parent, here=True) == both[1 if shared_store.SERVER else 0 :]


async def test_what_a_lock_is_called_names_the_same_file_when_it_is_handed_back(
    fleet: Fleet, repository: Path, other: Path
) -> None:
    for directory in (repository, other):
        await taken(fleet, directory, "src/form.py", "one")
    page = await fleet.do(LockList(cwd=str(repository)))
    for lock in page.locks:
        again = await taken(fleet, repository, page.paths[lock.id], "one")
        assert again.id == lock.id


async def test_a_list_of_locks_can_be_limited_to_the_repository_here(
    fleet: Fleet, repository: Path, other: Path, tmp_path: Path
) -> None:
    await taken(fleet, repository, "src/form.py", "one")
    await taken(fleet, other, "src/form.py", "two")
    beside = tmp_path / "repository-2"
    beside.mkdir()
    await taken(fleet, beside, "form.py", "three")
    assert await told(fleet, repository / "src", here=True) == ["src/form.py"]
    assert await told(fleet, other, here=True, held_by="two") == ["src/form.py"]
    assert await told(fleet, other, here=True, held_by="one") == []
    assert await told(fleet, beside, here=True) == [str(beside / "form.py")]
    assert len(await told(fleet, "/", here=True)) == (1 if shared_store.SERVER else 3)
    with pytest.raises(InvalidParams, match="cwd is missing") as refused:
        await fleet.do(LockList(here=True))
    assert refused.value.values["field"] == "cwd"


async def test_a_name_with_wildcards_is_no_pattern(fleet: Fleet, tmp_path: Path) -> None:
    for name in ("a_b", "axb", "a%b", "A_B"):
        (tmp_path / name).mkdir()
        await taken(fleet, tmp_path / name, "form.py", "one")
    page = await fleet.do(LockList(cwd=str(tmp_path / "a_b"), here=True))
    assert [Path(os.path.dirname(lock.normalized_path)).name for lock in page.locks] == ["a_b"]


@alone
async def test_worktrees_that_share_locks_call_their_file_the_same(
    fleet: Fleet, repository: Path, worktree: Path, other: Path
) -> None:
    made = await fleet.do(
        MissionCreate("m", project_dir=str(repository), metadata={"lock_scope": "project"})
    )
    await fleet.do(MissionStart(made.id))
    await fleet.do(LockAcquire("one", "src/a.py", mission_id=made.id))
    for directory in (repository, worktree):
        assert await told(fleet, directory) == ["src/a.py"]
        assert await told(fleet, directory, here=True) == ["src/a.py"]
    assert await told(fleet, other) == [str(repository / "src/a.py")]
    assert await told(fleet, other, here=True) == []


@alone
async def test_files_of_projects_and_of_other_machines_have_names_everywhere(
    fleet: Fleet, tmp_path: Path, other: Path
) -> None:
    for machine, directory in ((THERE, "/srv/widget"), (HERE, str(other.parents[1]))):
        fleet.engine.machine = machine
        fleet.engine.projects = Projects({"widget": [directory]}, machine, fleet.engine.files)
        await taken(fleet, directory, f"{machine[0]}.py", "one")
        await taken(fleet, "/opt", "form.py", "one")
    inside, away = ["b.py", f"/opt/form.py on {THERE}"], ["a.py", "/opt/form.py"]
    assert await told(fleet, tmp_path) == inside + away
    assert await told(fleet, tmp_path, here=True) == ["b.py", "a.py"]
    keys = [f"project:widget:{each}.py" for each in "ba"]
    assert await told(fleet, "/opt") == [keys[0], inside[1], keys[1], away[1]]
    assert await told(fleet, "/opt", here=True) == [away[1]]


async def test_a_briefing_calls_locks_as_seen_from_its_agents_repository(
    fleet: Fleet, repository: Path, other: Path
) -> None:
    made = await fleet.do(MissionCreate("m", project_dir=str(repository)))
    mission = await fleet.do(MissionStart(made.id))
    for agent, directory in (("one", repository), ("two", other)):
        await fleet.do(
            AgentRegister(agent, "specialist", mission_id=mission.id, cwd=str(directory))
        )
        for place in (repository / "src", other / "src"):
            await taken(fleet, place, f"{agent}.py", agent)
    checkpoint = await fleet.checkpoint(mission)

    async def locks(agent: str | None) -> tuple[set[str], set[str]]:
        """Return what a briefing says that its reader holds, and that others hold."""
        briefing = await fleet.do(RecoveryContextGet(mission.id, agent))
        restored = await fleet.restore(checkpoint, agent_id=agent, dry_run=True)
        found = []
        for prompt in (briefing.prompt, restored.prompt):
            own = re.findall(r"^- You hold (.*) for (?:9m 59s|10m 0s) more$", prompt, re.MULTILINE)
            others = re.findall(r"^- (?:one|two) holds (.*)$", prompt, re.MULTILINE)
            found.append((set(own), set(others)))
        assert found[0] == found[1]
        return found[0]

    ones, twos = {"src/one.py", "~/project/src/one.py"}, {"src/two.py", "~/project/src/two.py"}
    assert await locks("one") == (ones, twos)
    elsewhere = {str(repository / "src/two.py"), "src/two.py"}
    assert await locks("two") == (elsewhere, {str(repository / "src/one.py"), "src/one.py"})
    assert await locks(None) == (set(), ones | twos)


async def test_whose_locks_were_taken_over_is_told_their_paths_as_seen_from_its_repository(
    fleet: Fleet, repository: Path, other: Path
) -> None:
    async def prompted(text: str) -> str:
        """Return what an agent reads with its next prompt."""
        payload = {"session_id": "aaaaaaaa-1", "cwd": str(repository), "prompt": text}
        payload["hook_event_name"] = "UserPromptSubmit"
        asked = HookDeliver(f"delivery-{text}", "claude", json.dumps(payload))
        return (await fleet.do(asked)).stdout

    await prompted("begin")
    (agent,) = (await fleet.do(AgentList())).agents
    for directory in (repository, other):
        await taken(fleet, directory, "src/form.py", agent.id)
    fleet.sql("UPDATE agents SET status = 'lost'")
    await fleet.do(CheckpointCreate(agent.mission_id))
    await fleet.do(RecoveryRestore(agent_id="bob", take_over_from=agent.id))

    assert f"bob does: {other}/src/form.py, src/form.py." in await prompted("go on")


async def test_a_briefing_and_a_recovery_tell_two_files_of_one_name_apart(
    fleet: Fleet, repository: Path, other: Path
) -> None:
    made = await fleet.do(MissionCreate("m", project_dir=str(repository)))
    mission = await fleet.do(MissionStart(made.id))
    await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id))

    async def last_actions() -> set[str]:
        asked = await fleet.do(RecoveryContextGet(mission.id))
        own = await fleet.do(RecoveryContextGet(mission.id, "alice"))
        dry = await fleet.restore(mission_id=mission.id, dry_run=True)
        assert f"**Last Action**: {asked.recovery_context.last_action}\n" in asked.prompt
        return {
            each.recovery_context.last_action for each in (asked, own, dry) if each.recovery_context
        }

    async def locked(directory: Path) -> Lock:
        fleet.clock.pass_by(1)
        asked = LockAcquire("alice", "src/form.py", cwd=str(directory), mission_id=mission.id)
        return await fleet.do(asked)

    names = ["src/form.py", "~/project/src/form.py"]
    before = await fleet.checkpoint(mission)
    for directory, name in zip((repository, other), names, strict=True):
        lock = await locked(directory)
        assert await last_actions() == {f"alice was editing {name}"}
        checkpoint = await fleet.checkpoint(mission)
        assert await last_actions() == {f"alice was editing {name}"}
        assert lock.file == "src/form.py"

    taken_over = await fleet.restore(
        checkpoint, agent_id="bob", take_over_from="alice", dry_run=True
    )
    locks = [each.id for each in taken_over.would_restore or [] if each.what == "lock"]
    assert locks == names
    since = await fleet.restore(before, agent_id="bob", take_over_from="alice", dry_run=True)
    assert [each.id for each in since.would_restore or [] if each.what == "lock"] == names
    fleet.sql("UPDATE agents SET status = 'lost'")
    released = await fleet.restore(before, dry_run=True)
    assert released.released_locks == names
    assert [each.id for each in released.would_restore or [] if each.what == "lock"] == names

    await fleet.restore(checkpoint, agent_id="bob", take_over_from="alice")
    conflict = await fleet.restore(checkpoint, dry_run=True)
    assert conflict.errors == [f"Lock conflict: {name} held by bob" for name in names]
