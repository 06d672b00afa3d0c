"""Notes last: through checkpoints, recoveries, take-overs and lost databases, until forgotten."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetd.protocol.records import Checkpoint, Note
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointLatest, CheckpointVerify
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete
from fleetd.protocol.requests.note import NoteAdd, NoteList, NotePin, NoteWithdraw
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.system import SystemForget
from tests.support.erasure import SECRET, places_of
from tests.support.fleet import MINUTE, Fleet, opened
from tests.support.hook_sessions import working


async def add(fleet: Fleet, mission_id: str, text: str, **more: Any) -> Note:
    given = {"kind": "decision", "mission_id": mission_id} | more
    return await fleet.do(NoteAdd(text=text, **given))


async def notes(fleet: Fleet, mission_id: str, *, withdrawn: bool = True) -> list[Note]:
    return (await fleet.do(NoteList(mission_id, withdrawn=withdrawn))).notes


def kept(checkpoint: Checkpoint) -> list[Note]:
    assert checkpoint.mission is not None
    return checkpoint.mission.notes


async def test_a_checkpoint_keeps_them_in_its_row_and_its_file(fleet: Fleet) -> None:
    mission = await fleet.mission()
    mine = await add(fleet, mission.id, "Use argon2", because="It is slow")
    gone = await add(fleet, mission.id, "Use bcrypt")
    gone = await fleet.do(NoteWithdraw(gone.id, "It cuts"))
    taken = await fleet.checkpoint(mission)
    await fleet.settle()
    assert kept(taken) == [mine, gone]
    assert await fleet.do(CheckpointGet(taken.id)) == await fleet.do(CheckpointLatest(mission.id))
    assert kept(await fleet.do(CheckpointGet(taken.id))) == [mine, gone]
    whole = msgspec.json.decode(fleet.file_of(taken).read_bytes(), type=Checkpoint)
    assert kept(whole) == [mine, gone]
    assert not [f for f in (await fleet.do(CheckpointVerify(mission.id))).findings if not f.ok]


async def test_a_checkpoint_keeps_the_newest_of_those_withdrawn(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.domain.checkpoints.state.WITHDRAWN_KEPT", 2)
    mission = await fleet.mission()
    added = [await add(fleet, mission.id, f"N{n}") for n in range(5)]
    for note in added[:4]:
        await fleet.do(NoteWithdraw(note.id, "Old"))
    found = [note.text for note in kept(await fleet.checkpoint(mission))]
    assert found == ["N2", "N3", "N4"]


async def test_a_recovery_takes_none_away(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    before = await add(fleet, mission.id, "Use argon2", agent_id="alice")
    checkpoint = await fleet.checkpoint(mission)
    after = await add(fleet, mission.id, "No bcrypt", kind="ruled-out")
    before = await fleet.do(NoteWithdraw(before.id, "Too slow"))
    await fleet.work(mission, 0, "alice")
    for rewind in (False, True):
        result = await fleet.restore(checkpoint, rewind=rewind)
        assert "“No bcrypt”" in result.prompt
        assert "argon2" not in result.prompt
        assert await notes(fleet, mission.id) == [before, after]


async def test_that_nothing_but_a_note_is_new_undoes_nothing(fleet: Fleet) -> None:
    mission = await fleet.mission()
    checkpoint = await fleet.checkpoint(mission)
    await add(fleet, mission.id, "Use argon2")
    assert (await fleet.restore(checkpoint)).undo_checkpoint_id is None


async def test_they_come_back_with_a_lost_database(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "alice")
        pinned = await add(fleet, mission.id, "Use argon2", agent_id="alice")
        pinned = await fleet.do(NotePin(pinned.id))
        gone = await add(fleet, mission.id, "Use bcrypt", path="src/a.py")
        gone = await fleet.do(NoteWithdraw(gone.id, "It cuts"))
        await fleet.checkpoint(mission)
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        assert await notes(fleet, mission.id) == [pinned, gone]


async def test_they_come_back_into_an_older_database(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        first = await add(fleet, mission.id, "Use argon2")
        await fleet.checkpoint(mission)
    older = fleet.copied_database()
    async with opened(tmp_path) as fleet:
        first = await fleet.do(NoteWithdraw(first.id, "Too slow"))
        second = await fleet.do(NotePin((await add(fleet, mission.id, "Use scrypt")).id))
        await fleet.checkpoint(mission)
    fleet.put_back(older)
    async with opened(tmp_path) as fleet:
        assert await notes(fleet, mission.id) == [first, second]


async def test_they_go_along_into_the_mission_that_theirs_is_merged_into(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "old")
    session, own = await working(fleet, "Read", "> Write")
    agent = "claude-12f459b8"
    theirs = await add(fleet, mission.id, "Never push", kind="constraint", agent_id="old")
    note = await add(fleet, own.id, "Use argon2", agent_id=agent)
    await fleet.checkpoint(mission)
    fleet.clock.pass_by(20 * MINUTE)
    taken = await fleet.restore(
        mission_id=mission.id, agent_id=agent, take_over_from="old", requested_by=agent
    )
    moved = msgspec.structs.replace(note, mission_id=mission.id, came_from=own.id)
    assert await notes(fleet, mission.id) == [theirs, moved]
    assert await notes(fleet, own.id) == []
    assert "- Constraint set by old: “Never push”" in taken.prompt
    # Who succeeds an agent can take back what that one noted.
    gone = await fleet.do(NoteWithdraw(theirs.id, "It may", agent_id=agent))

    undo = taken.undo_checkpoint_id
    assert undo is not None
    await fleet.restore(await fleet.do(CheckpointGet(undo)), rewind=True)
    assert await notes(fleet, mission.id) == [gone]
    assert await notes(fleet, own.id) == [note]
    await session.tell()


async def test_they_are_forgotten_with_their_mission(fleet: Fleet, tmp_path: Path) -> None:
    mission = await fleet.mission()
    await add(fleet, mission.id, SECRET, because=SECRET, path=SECRET)
    gone = await add(fleet, mission.id, f"{SECRET} too")
    await fleet.do(NoteWithdraw(gone.id, SECRET))
    await fleet.checkpoint(mission)
    await fleet.settle()
    assert places_of(tmp_path, SECRET)
    assert (await fleet.do(SystemForget(mission.id, dry_run=True))).notes == 2
    assert (await fleet.do(SystemForget(mission.id))).notes == 2
    await fleet.settle()
    assert places_of(tmp_path, SECRET) == []


async def test_those_of_a_forgotten_agent_go_from_missions_that_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        await fleet.do(AgentRegister("alice", "specialist", session_id="s-1"))
        await fleet.do(AgentRegister("bob", "specialist", session_id="s-2", mission_id=mission.id))
        stays = await add(fleet, mission.id, "Use argon2", agent_id="bob")
        hers = await add(fleet, mission.id, SECRET, agent_id="alice")
        await fleet.do(NotePin(hers.id, idempotency_key="pinned"))
        await fleet.do(NotePin(hers.id, pinned=False))
        await fleet.work(mission, 1, "bob")
        before = await fleet.checkpoint(mission)
        await add(fleet, mission.id, f"{SECRET} too", agent_id="alice")
        told = await fleet.restore(mission_id=mission.id, agent_id="bob", idempotency_key="told")
        assert SECRET in told.prompt
        await fleet.do(NoteWithdraw(hers.id, "Not so"))
        await fleet.checkpoint(mission)
        await fleet.settle()
        done = await fleet.do(SystemForget(session_id="s-1"))
        assert (done.notes, done.shared) == (2, [mission.id])
        await fleet.settle()
        assert places_of(tmp_path, SECRET) == []
        assert await notes(fleet, mission.id) == [stays]
        assert kept(await fleet.do(CheckpointGet(before.id))) == [stays]
        found = (await fleet.do(CheckpointVerify(mission.id))).findings
        assert not [each for each in found if not each.ok]
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        assert await notes(fleet, mission.id) == [stays]


async def test_a_damaged_checkpoint_with_one_of_them_goes_whole(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.do(AgentRegister("alice", "specialist", session_id="s-1"))
    await fleet.do(AgentRegister("bob", "specialist", session_id="s-2", mission_id=mission.id))
    await add(fleet, mission.id, SECRET, agent_id="alice")
    taken = await fleet.checkpoint(mission)
    await fleet.settle()
    fleet.sql("UPDATE checkpoints SET created_by = 'mallory' WHERE id = :id", id=taken.id)
    await fleet.do(SystemForget(session_id="s-1"))
    await fleet.settle()
    assert taken.id not in await fleet.checkpoint_ids(mission)
    assert not fleet.file_of(taken).exists()


async def test_they_are_deleted_with_their_mission(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await add(fleet, mission.id, "Use argon2")
    await fleet.do(MissionCancel(mission.id, "Enough"))
    await fleet.do(MissionDelete(mission.id))
    assert fleet.sql("SELECT * FROM notes") == []


async def test_a_note_is_no_deed(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    await fleet.work(mission, 0, "alice", notes="Drew the form")
    await add(fleet, mission.id, "Use argon2", agent_id="alice")
    told = await fleet.do(RecoveryContextGet(mission.id, agent_id="alice"))
    assert "Drew the form" in told.recovery_context.last_action
