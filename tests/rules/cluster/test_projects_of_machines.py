"""Two machines on one store: whose directory is whose, and which file is the same."""

import itertools
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState, LockConflict
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.agent import AgentList, AgentRegister
from fleetd.protocol.requests.attention import AttentionConflicts
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockList, LockRelease
from fleetd.protocol.requests.mission import (
    MissionCreate,
    MissionCurrent,
    MissionList,
    MissionSelect,
    MissionStart,
    MissionUpdate,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from fleetd.protocol.requests.snapshot import SnapshotLatest, SnapshotRecord
from fleetd.protocol.requests.system import SystemForget
from tests.support import shared_store
from tests.support.fleet import MINUTE, Clock, Fleet, opened
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")
HERE, THERE = "a" * 16, "b" * 16
_ids = itertools.count()
alone = pytest.mark.skipif(bool(shared_store.SERVER), reason="there every machine has a name")


class Pair:
    """Two machines and, on each, a directory with a clone of one project."""

    def __init__(self, here: Fleet, there: Fleet, clones: list[Path]) -> None:
        self.here, self.there = here, there
        self.clones = clones


@pytest.fixture
async def pair(tmp_path: Path, repository: Path) -> AsyncIterator[Pair]:
    clock, database = Clock(), tmp_path / "shared" / "squawk.db"
    clones = []
    for name, url in (
        ("one", "git@git.example:Acme/Widget.git"),
        ("two", "https://me:secret@git.example/Acme/Widget"),
    ):
        (tmp_path / name).mkdir()
        git(tmp_path, "clone", "--quiet", str(repository), f"{name}/widget")
        clones.append(Path(os.path.realpath(tmp_path / name / "widget")))  # noqa: ASYNC240
        git(clones[-1], "remote", "set-url", "origin", url)
    async with (
        opened(tmp_path / "one", clock=clock, machine=HERE, database=database) as here,
        opened(tmp_path / "two", clock=clock, machine=THERE, database=database) as there,
    ):
        await here.beat("laptop")
        await there.beat("build-2")
        yield Pair(here, there, clones)


async def begun(
    fleet: Fleet, directory: Path | str, title: str = "m", scope: str | None = None
) -> Mission:
    metadata = {"lock_scope": scope} if scope else {}
    made = await fleet.do(MissionCreate(title, project_dir=str(directory), metadata=metadata))
    return await fleet.do(MissionStart(made.id))


async def test_the_same_file_on_two_machines_is_the_same_lock(pair: Pair) -> None:
    one, two = pair.clones
    await pair.there.do(AgentRegister("alice", "specialist"))
    held = await pair.there.do(LockAcquire("alice", "src/a.py", cwd=str(two)))
    with pytest.raises(LockConflict, match="locked by alice on build-2 until") as error:
        await pair.here.do(LockAcquire("bob", str(one / "src" / "a.py")))
    assert error.value.values["existing_lock"].id == held.id
    assert (held.file, held.normalized_path) == (
        "src/a.py",
        "project:git.example/Acme/Widget:src/a.py",
    )
    with pytest.raises(LockConflict, match="locked by alice until"):
        await pair.there.do(LockAcquire("carol", "src/a.py", cwd=str(two)))
    with pytest.raises(InvalidState, match="held by alice on build-2, not by bob"):
        await pair.here.do(LockRelease(held.id, "bob"))
    await pair.there.do(LockRelease(held.id, "alice"))
    assert (await pair.here.do(LockAcquire("bob", str(one / "src/a.py")))).held_by == "bob"


async def test_a_lock_is_found_by_the_file_of_each_machine(pair: Pair) -> None:
    one, two = pair.clones
    held = await pair.there.do(LockAcquire("alice", "src/a.py", cwd=str(two)))
    for fleet, clone in ((pair.here, one), (pair.there, two)):
        file = str(clone / "src" / "a.py")
        assert [lock.id for lock in (await fleet.do(LockList(file=file))).locks] == [held.id]
        assert (await fleet.do(LockCheck(file, held.fencing_token))).valid
        assert (await fleet.do(LockCheck(held.normalized_path, held.fencing_token))).valid
        assert not (await fleet.do(LockCheck(f"{file}c", held.fencing_token))).valid
    elsewhere = await pair.here.do(LockList(file=str(two / "src" / "b.py")))
    assert elsewhere.locks == []


async def test_the_key_that_a_lock_shows_names_it_on_every_machine(pair: Pair) -> None:
    held = await pair.there.do(LockAcquire("alice", "src/a.py", cwd=str(pair.clones[1])))
    key = str(held.normalized_path)
    with pytest.raises(LockConflict, match="locked by alice"):
        await pair.here.do(LockAcquire("bob", key, cwd=str(pair.clones[0])))
    await pair.there.do(LockRelease(held.id, "alice"))
    mine = await pair.here.do(LockAcquire("bob", key))
    assert (mine.file, mine.normalized_path) == (key, key)
    plain = await pair.here.do(LockAcquire("bob", "/srv/plain.txt"))
    assert (await pair.here.do(LockAcquire("bob", str(plain.normalized_path)))).id == plain.id
    odd = ("project:a", "project:w:../b", "project:w:a//b", plain.normalized_path, "machine:x:/a")
    for each in odd:
        with pytest.raises(InvalidParams, match="looks like the key of a lock"):
            await pair.there.do(LockAcquire("alice", str(each)))


async def test_a_directory_is_locked_by_its_key_and_by_its_path_in_any_clone(pair: Pair) -> None:
    one, two = pair.clones
    for clone in pair.clones:
        (clone / "lib").mkdir()
    key = "project:git.example/Acme/Widget:lib"
    first = await pair.here.do(LockAcquire("bob", "lib", cwd=str(one)))
    assert (first.normalized_path, first.directory) == (f"{key}/", f"{key}/")
    for file in (key, f"{key}/", str(one / "lib"), "lib/"):
        assert (await pair.here.do(LockAcquire("bob", file, cwd=str(one)))).id == first.id

    inside = await pair.here.do(LockAcquire("bob", f"{key}/b.py", cwd=str(one)))
    assert inside.normalized_path == f"{key}/b.py"
    for file in ("lib/c.py", f"{key}/c.py"):
        with pytest.raises(LockConflict, match="overlaps lib, which is locked by bob"):
            await pair.there.do(LockAcquire("alice", file, cwd=str(two)))
    with pytest.raises(LockConflict, match="overlaps"):
        await pair.there.do(LockAcquire("alice", pattern="**/*.py", cwd=str(two)))
    held = await pair.there.do(LockAcquire("alice", pattern="src/**", cwd=str(two)))
    assert held.normalized_path == "project:git.example/Acme/Widget:src/**"


async def test_the_same_path_on_two_machines_is_another_file(pair: Pair, tmp_path: Path) -> None:
    file = str(tmp_path / "notes.txt")
    mine = await pair.here.do(LockAcquire("bob", file))
    theirs = await pair.there.do(LockAcquire("alice", file))
    for fleet, lock in ((pair.here, mine), (pair.there, theirs)):
        assert [each.id for each in (await fleet.do(LockList(file=file))).locks] == [lock.id]
        assert (await fleet.do(LockCheck(file, lock.fencing_token))).valid
    assert not (await pair.here.do(LockCheck(file, theirs.fencing_token))).valid


async def test_a_mission_may_keep_its_locks_to_each_machine(pair: Pair) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one, scope="machine")
    locks = [
        await fleet.do(LockAcquire(agent, str(clone / "src/a.py"), mission_id=mission.id))
        for fleet, clone, agent in ((pair.here, one, "bob"), (pair.there, two, "alice"))
    ]
    assert [lock.normalized_path for lock in locks] == [
        f"machine:{HERE}:{one / 'src/a.py'}",
        f"machine:{THERE}:{two / 'src/a.py'}",
    ]
    found = await pair.there.do(LockList(file=str(two / "src/a.py")))
    assert [lock.id for lock in found.locks] == [locks[1].id]
    await pair.here.do(MissionUpdate(mission.id, metadata={}))
    assert (
        await pair.here.do(LockAcquire("bob", "src/b.py", mission_id=mission.id))
    ).normalized_path == "project:git.example/Acme/Widget:src/b.py"


async def test_a_directory_of_another_machine_is_no_base_for_a_file(pair: Pair) -> None:
    one, _ = pair.clones
    mission = await begun(pair.here, one)
    with pytest.raises(InvalidParams, match="a relative path"):
        await pair.there.do(LockAcquire("alice", "src/a.py", mission_id=mission.id))


async def test_a_directory_belongs_to_the_missions_of_its_own_machine(pair: Pair) -> None:
    await begun(pair.here, "/srv/plain")
    await begun(pair.here, "/srv/other")
    assert (await pair.here.do(MissionCurrent("/srv/plain/src"))).belongs
    with pytest.raises(InvalidState, match="none belongs to this directory"):
        await pair.there.do(MissionCurrent("/srv/plain/src"))
    theirs = await begun(pair.there, "/srv/plain")
    current = await pair.there.do(MissionCurrent("/srv/plain/src"))
    assert (current.mission, current.belongs) == (theirs, True)
    assert (theirs.machine, theirs.project) == (THERE, None)
    listed = await pair.there.do(MissionList(project_dir="/srv/plain"))
    assert ([each.id for each in listed.missions], listed.total) == ([theirs.id], 1)
    agent = (await pair.there.do(AgentRegister("alice", "specialist", cwd="/srv/plain"))).agent
    assert agent.mission_id == theirs.id


async def test_who_works_in_another_clone_joins_the_mission_of_the_project(pair: Pair) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one / "src")
    assert mission.project == "git.example/Acme/Widget:src"
    await begun(pair.here, "/srv/other")
    current = await pair.there.do(MissionCurrent(str(two / "src" / "deep")))
    assert current.mission is not None
    assert (current.mission.id, current.belongs) == (mission.id, True)
    joined = await pair.there.do(AgentRegister("alice", "specialist", cwd=str(two / "src")))
    assert joined.agent.mission_id == mission.id
    # Elsewhere in the project is elsewhere.
    outside = await pair.there.do(AgentRegister("carol", "specialist", cwd=str(two)))
    assert outside.agent.mission_id is None


async def test_of_several_missions_of_a_project_none_is_guessed(pair: Pair) -> None:
    one, two = pair.clones
    first = await begun(pair.here, one, "first")
    second = await begun(pair.here, one, "second")
    joined = await pair.there.do(AgentRegister("alice", "specialist", cwd=str(two)))
    assert joined.agent.mission_id is None
    with pytest.raises(InvalidState, match="2 missions are in progress") as error:
        await pair.there.do(MissionCurrent(str(two)))
    found = {each["id"] for each in error.value.values["candidates"]}
    assert found == {first.id, second.id}
    # One's own comes first.
    own = await begun(pair.there, two, "own")
    current = await pair.there.do(MissionCurrent(str(two)))
    assert current.mission is not None
    assert current.mission.id == own.id


async def test_a_recovery_takes_the_project_s_mission_of_another_machine_and_no_other(
    pair: Pair,
) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one)
    other = await begun(pair.here, "/srv/other")
    for each in (mission, other):
        await pair.here.do(CheckpointCreate(each.id))
    pair.here.clock.pass_by(10 * MINUTE)
    for fleet, name in ((pair.here, "laptop"), (pair.there, "build-2")):
        await fleet.beat(name)

    found = await pair.there.do(MissionSelect("recovery", str(two)))
    assert (found.mission.id, found.reason) == (mission.id, "project")
    restored = await pair.there.do(RecoveryRestore(cwd=str(two), dry_run=True))
    assert restored.mission_id == mission.id

    with pytest.raises(InvalidState, match="2 missions wait for recovery and none") as error:
        await pair.there.do(MissionSelect("recovery", "/srv/other"))
    assert {"id": other.id, "project_dir": "/srv/other", "machine": "laptop", "title": "m"} in (
        error.value.values["candidates"]
    )
    # The directory's own come first.
    own = await begun(pair.there, two, "own")
    assert (await pair.there.do(MissionSelect("recovery", str(two)))).mission.id == own.id


async def test_a_briefing_says_on_which_machine_the_mission_lies(pair: Pair) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one)
    (one / "changed-here.py").write_text("x")
    (two / "changed-there.py").write_text("x")
    for fleet, agent, clone in ((pair.here, "bob", one), (pair.there, "alice", two)):
        await fleet.do(AgentRegister(agent, "specialist", mission_id=mission.id, cwd=str(clone)))
    here = (await pair.here.do(RecoveryContextGet(mission.id, "bob"))).prompt
    there = (await pair.there.do(RecoveryContextGet(mission.id, "alice"))).prompt
    # Where the reader is already is not said.
    assert f"(agent bob, mission {mission.id}). It" in here
    assert str(one) not in here
    assert f"(agent alice, mission {mission.id} in {one} on laptop). It" in there
    assert "changed-here.py" in here
    assert "changed-there.py" not in here
    assert "changed-there.py" in there
    assert "changed-here.py" not in there
    # Nobody in particular asks: what lies at that path here is somebody else's.
    nobodys = (await pair.there.do(RecoveryContextGet(mission.id))).prompt
    assert "changed" not in nobodys


async def test_locks_of_a_checkpoint_come_back_under_their_keys_on_any_machine(pair: Pair) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one)
    plain = str(one.parent / "notes.txt")
    for file in ("src/a.py", plain):
        await pair.here.do(LockAcquire("bob", file, mission_id=mission.id))
    held = await pair.here.locks(mission)
    checkpoint = await pair.here.checkpoint(mission)
    for lock in held:
        await pair.here.do(LockRelease(lock.id, "bob"))
    restored = await pair.there.do(RecoveryRestore(checkpoint_id=checkpoint.id))
    assert restored.success
    again = await pair.there.locks(mission)
    assert {lock.normalized_path for lock in again} == {lock.normalized_path for lock in held}
    with pytest.raises(LockConflict):
        await pair.there.do(LockAcquire("alice", str(two / "src/a.py")))
    assert (await pair.there.do(LockAcquire("alice", plain))).held_by == "alice"


@alone
async def test_a_lock_that_nobody_asks_for_by_its_key_any_more_is_not_brought_back(
    tmp_path: Path,
) -> None:
    clock, database = Clock(), tmp_path / "squawk.db"
    told = "Lock not restored: a.py (the store was moved since; bob can lock it again)"

    async def kept_and_restored(fleet: Fleet, checkpoint: Checkpoint) -> tuple[Checkpoint, bool]:
        result = await fleet.restore(checkpoint)
        lost = told in result.warnings
        assert lost == (await fleet.locks() == [])
        await fleet.do(LockAcquire("bob", "a.py", mission_id=checkpoint.mission_id, cwd="/srv"))
        return await fleet.do(CheckpointCreate(checkpoint.mission_id)), lost

    async with opened(tmp_path / "one", clock=clock, database=database) as before:
        mission = await begun(before, "/srv")
        await before.do(LockAcquire("bob", "a.py", mission_id=mission.id))
        checkpoint = await before.checkpoint(mission)
        checkpoint, lost = await kept_and_restored(before, checkpoint)
        assert not lost
    before.sql("DELETE FROM locks")
    async with opened(tmp_path / "one", clock=clock, machine=HERE, database=database) as shared:
        checkpoint, lost = await kept_and_restored(shared, checkpoint)
        assert lost
        checkpoint, lost = await kept_and_restored(shared, checkpoint)
        assert not lost
    before.sql("DELETE FROM locks")
    async with opened(tmp_path / "one", clock=clock, database=database) as after:
        assert (await kept_and_restored(after, checkpoint))[1]


async def test_a_run_is_found_by_the_directories_of_its_machine(pair: Pair) -> None:
    for fleet, agent in ((pair.here, "bob"), (pair.there, "alice")):
        await fleet.do(
            AgentRegister(agent, "specialist", session_id=f"of-{agent}", cwd="/srv/plain")
        )
    for fleet, agent in ((pair.here, "bob"), (pair.there, "alice")):
        taken = await fleet.do(SnapshotRecord(cwd="/srv/plain"))
        assert taken.run_id == f"of-{agent}"
        assert (await fleet.do(SnapshotLatest(cwd="/srv/plain"))).run_id == f"of-{agent}"


async def test_forgetting_a_directory_takes_what_is_of_this_machine(pair: Pair) -> None:
    missions = []
    for fleet, agent in ((pair.here, "bob"), (pair.there, "alice")):
        missions.append(await begun(fleet, "/srv/plain"))
        await fleet.do(AgentRegister(agent, "specialist", cwd="/srv/plain"))
        await fleet.do(LockAcquire(agent, "/srv/plain/a.py"))
        await fleet.do(LockAcquire(f"{agent}-unregistered", "/srv/plain/b.py"))
    forgotten = await pair.here.do(SystemForget(project_dir="/srv/plain"))
    assert (forgotten.missions, forgotten.agents, forgotten.locks) == (1, 1, 2)
    left = await pair.there.do(MissionList())
    assert [each.id for each in left.missions] == [missions[1].id]
    holders = {lock.held_by for lock in await pair.there.locks()}
    assert holders == {"alice", "alice-unregistered"}
    assert any(each.data.get("file") == "/srv/plain/a.py" for each in await pair.there.events())


async def test_the_names_of_the_configuration_join_what_git_does_not(
    tmp_path: Path,
) -> None:
    clock, database = Clock(), tmp_path / "squawk.db"
    held = []
    for machine, name in ((HERE, "one"), (THERE, "two")):
        directory = tmp_path / name / "plain"
        directory.mkdir(parents=True)
        projects = {"plain": [os.path.realpath(directory)]}  # noqa: ASYNC240
        async with opened(
            tmp_path / name, clock=clock, machine=machine, database=database, projects=projects
        ) as fleet:
            mission = await fleet.do(MissionCreate("m", project_dir=str(directory)))
            assert mission.project == "plain:."
            with_lock = LockAcquire(name, "a.txt", cwd=str(directory))
            if not held:
                held.append(await fleet.do(with_lock))
                continue
            with pytest.raises(LockConflict, match="locked by one"):
                await fleet.do(with_lock)
    assert held[0].normalized_path == "project:plain:a.txt"


@alone
async def test_alone_nothing_has_a_machine_or_a_project(fleet: Fleet, repository: Path) -> None:
    git(repository, "remote", "add", "origin", "git@git.example:Acme/Widget.git")
    mission = await begun(fleet, repository)
    assert (mission.machine, mission.project) == (None, None)
    lock = await fleet.do(LockAcquire("bob", "src/a.py", cwd=str(repository)))
    assert lock.normalized_path == str(repository / "src/a.py")
    assert msgspec.to_builtins(lock)["file"] == "src/a.py"


async def hook(fleet: Fleet, event: str, clone: Path, *args: str, **fields: Any) -> str:
    """Deliver what Claude Code tells in a session of a directory, and return the reply."""
    payload = {"session_id": "s-1", "cwd": str(clone), "hook_event_name": event} | fields
    asked = HookDeliver(f"delivery-{next(_ids):08}", "claude", json.dumps(payload), args=[*args])
    return (await fleet.do(asked)).stdout


async def test_a_session_in_another_clone_joins_the_mission_of_the_project(pair: Pair) -> None:
    one, two = pair.clones
    mission = await begun(pair.here, one)
    await hook(pair.there, "UserPromptSubmit", two / "src", prompt="Add login")
    (agent,) = (await pair.here.do(AgentList())).agents
    assert (agent.mission_id, agent.machine, agent.role) == (mission.id, THERE, "specialist")
    assert (await pair.here.do(MissionList())).total == 1


async def test_a_session_where_no_mission_is_of_the_project_gets_one_of_its_own(
    pair: Pair, tmp_path: Path
) -> None:
    await begun(pair.here, "/srv/other")
    await hook(pair.there, "UserPromptSubmit", pair.clones[1], prompt="Add login")
    made = next(
        each for each in (await pair.here.do(MissionList())).missions if each.origin == "session"
    )
    # Nobody else joins what was made for a session.
    assert (made.machine, made.project) == (THERE, None)
    joined = await pair.here.do(AgentRegister("bob", "specialist", cwd=str(pair.clones[0])))
    assert joined.agent.mission_id is None


async def test_an_edit_of_what_another_machine_holds_is_refused_by_its_name(pair: Pair) -> None:
    one, two = pair.clones
    await pair.here.do(AgentRegister("alice", "specialist"))
    await pair.here.do(LockAcquire("alice", "src/a.py", cwd=str(one)))
    edit = {
        "tool_name": "Edit",
        "tool_input": {"file_path": str(two / "src/a.py"), "old_string": "a", "new_string": "b"},
    }
    told = await hook(pair.there, "PreToolUse", two, "enforce-locks", tool_use_id="t-1", **edit)
    assert "is locked by alice on laptop since" in told
    assert "fleetctl mail send alice asks" in told


async def test_an_edit_is_let_through_where_nobody_can_say_which_file_it_is(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    one, two = pair.clones
    await pair.here.do(LockAcquire("alice", "src/a.py", cwd=str(one)))
    monkeypatch.setenv("PATH", str(tmp_path))
    edit = {"tool_name": "Edit", "tool_input": {"file_path": str(two / "src/a.py")}}
    assert await hook(pair.there, "PreToolUse", two, "enforce-locks", tool_use_id="t", **edit) == ""
    assert "was allowed without a lock check: Git cannot be run" in caplog.text


async def test_agents_of_two_machines_that_change_one_file_are_told_of_each_other(
    pair: Pair,
) -> None:
    async def edits(fleet: Fleet, session: str, clone: Path, file: str) -> str:
        fleet.clock.pass_by(5_000)
        payload = {
            "hook_event_name": "PostToolUse",
            "session_id": session * 8,
            "cwd": str(clone),
            "tool_name": "Edit",
            "tool_input": {"file_path": str(clone / file), "old_string": "a", "new_string": "b"},
            "tool_use_id": f"t-{next(_ids)}",
        }
        asked = HookDeliver(f"edit-{next(_ids):08}", "claude", json.dumps(payload))
        return (await fleet.do(asked)).stdout

    one, two = pair.clones
    assert await edits(pair.here, "a", one, "src/a.py") == ""
    line = await edits(pair.there, "b", two, "src/a.py")
    assert "src/a.py by claude-aaaaaaaa on laptop at" in line
    assert f"({one / 'src/a.py'}), so both will meet at merge" in line
    assert "claude-bbbbbbbb on build-2" in await edits(pair.here, "a", one, "other.py")
    [found] = (await pair.here.do(AttentionConflicts())).conflicts
    assert (found.file, found.at_merge) == ("src/a.py", True)
    assert [each.machine for each in found.edits] == ["build-2", None]
    # A path outside of projects is another file on each machine.
    await edits(pair.here, "a", Path("/etc"), "x.conf")
    assert await edits(pair.there, "b", Path("/etc"), "x.conf") == ""
