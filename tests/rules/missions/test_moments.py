"""The state of a mission at a moment is what its rows were then."""

import random
from typing import Any

import msgspec
import pytest

from fleetd.domain.checkpoints.state import capture
from fleetd.domain.core.context import Context
from fleetd.domain.core.event_log import position
from fleetd.domain.core.ids import find
from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import FleetError, InvalidParams, InvalidState, NotFound
from fleetd.protocol.records import Mission
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import (
    CheckpointCompare,
    CheckpointCreate,
    CheckpointDelete,
    CheckpointList,
)
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockForceRelease, LockRelease, LockRenew
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageRequeue, MessageSend
from fleetd.protocol.requests.mission import (
    MissionAt,
    MissionCancel,
    MissionMoment,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.note import NoteAdd, NotePin, NoteWithdraw
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieProgress,
    SortieRemove,
    SortieStart,
    SortieUnblock,
    SortieUpdate,
)
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import MINUTE, Fleet
from tests.support.hook_sessions import planned, working

REQUESTS = 1_000
AGENTS = ("spec-1", "spec-2", "spec-3")
FILES = ("src/a.py", "src/b.py", "src/c.py")


class Saved(msgspec.Struct, frozen=True):
    """The rows of a mission as they were saved, and the end of the log then."""

    time: str
    seq: int
    state: list[Any]


def _save(tx: Tx, ctx: Context, mission_id: str) -> Saved:
    state = capture(tx, ctx, find(tx, "mission", mission_id))
    rows = [state.mission_state(), state.sorties, state.locks, state.messages]
    return Saved(ctx.now, position(tx), rows)


async def save(fleet: Fleet, mission: Mission) -> Saved:
    saved: Saved = await fleet.engine.read(_save, mission.id)
    return saved


def state_of(moment: MissionMoment) -> list[Any]:
    return [moment.mission, moment.sorties, moment.locks, moment.messages]


def random_request(
    draw: random.Random, fleet: Fleet, mission: Mission, known: dict[str, Any]
) -> Any:
    """Return a random request about a mission, of which many are refused."""
    agent, text = draw.choice(AGENTS), draw.choice(("One", "Two", None))
    other = draw.choice((*AGENTS, None))
    sortie = draw.choice(known["sorties"] or ["srt-none0000"])
    lock = draw.choice(known["locks"] or ["lck-none0000"])
    message = draw.choice(known["messages"] or ["msg-none0000"])
    note = draw.choice(known["notes"] or ["note-none000"])
    several = draw.sample(known["sorties"], min(2, len(known["sorties"])))
    rewind = draw.random() < 0.5
    lease = draw.choice((30_000, 5 * MINUTE, 60 * MINUTE))
    makers: list[tuple[int, Any]] = [
        (6, lambda: SortieCreate(mission.id, "New", text, ["f.py"], other, depends_on=several)),
        (2, lambda: SortieRemove(sortie)),
        (4, lambda: SortieAssign(sortie, agent)),
        (8, lambda: SortieStart(sortie, agent)),
        (10, lambda: SortieProgress(sortie, draw.randint(0, 99), text, ["a", "b"], other)),
        (3, lambda: SortieBlock(sortie, "No key")),
        (3, lambda: SortieUnblock(sortie)),
        (3, lambda: SortieComplete(sortie, text, other)),
        (2, lambda: SortieFail(sortie, "No way")),
        (5, lambda: SortieUpdate(sortie, text, text, "high", several)),
        (
            10,
            lambda: LockAcquire(agent, draw.choice(FILES), mission_id=mission.id, timeout_ms=lease),
        ),
        (4, lambda: LockRelease(lock, agent)),
        (4, lambda: LockRenew(lock, agent, timeout_ms=lease)),
        (2, lambda: LockForceRelease(lock, agent, "Needed")),
        (6, lambda: MessageSend(agent, [*AGENTS[:2]], "Hello", text, mission_id=mission.id)),
        (4, lambda: MessageInbox(agent)),
        (3, lambda: MessageAck(message, agent)),
        (2, lambda: MessageRequeue(message)),
        (4, lambda: NoteAdd("finding", f"Note {draw.random()}", mission_id=mission.id)),
        (2, lambda: NotePin(note, pinned=draw.random() < 0.5)),
        (2, lambda: NoteWithdraw(note, "No more")),
        (3, lambda: MissionUpdate(mission.id, text, text, draw.choice(("low", "high")))),
        (1, lambda: MissionUpdate(mission.id, sorties=[NewSortie("A"), NewSortie("B")])),
        (
            12,
            lambda: EventAppend(
                "file_modified", data={"file": "a"}, mission_id=mission.id, agent_id=agent
            ),
        ),
        (3, lambda: EventAppend("file_modified", data={"file": "a"}, agent_id=agent)),
        (2, lambda: AgentHeartbeat(agent)),
        (1, lambda: AgentDeregister(agent)),
        (2, lambda: AgentRegister(agent, "specialist", mission_id=mission.id)),
        (2, lambda: CheckpointCreate(mission.id, wait_for_backup=False)),
        (1, lambda: CheckpointDelete(draw.choice(known["checkpoints"] or ["chk-none0000"]))),
        (
            2,
            lambda: RecoveryRestore(mission_id=mission.id, agent_id=agent, rewind=rewind),
        ),
        (
            1,
            lambda: RecoveryRestore(
                checkpoint_id=draw.choice(known["checkpoints"] or ["chk-none0000"]),
                agent_id=agent,
                rewind=True,
                force_locks=True,
            ),
        ),
    ]
    weights = [weight for weight, _ in makers]
    return draw.choices([make for _, make in makers], weights)[0]()


async def known_ids(fleet: Fleet, mission: Mission) -> dict[str, Any]:
    found = {
        name: [row["id"] for row in fleet.sql(f"SELECT id FROM {table} ORDER BY id")]
        for name, table in (
            ("sorties", "sorties"),
            ("locks", "locks WHERE status = 'active'"),
            ("messages", "messages"),
            ("notes", "notes"),
        )
    }
    page = await fleet.do(CheckpointList(mission.id, limit=20))
    return found | {"checkpoints": [each.id for each in page.checkpoints]}


async def test_a_moment_is_what_the_rows_were_after_each_of_many_requests(fleet: Fleet) -> None:
    draw = random.Random(1)
    mission = await fleet.mission(3)
    await fleet.agents(mission, *AGENTS)
    saved, done = [], 0
    for _ in range(REQUESTS // 2):
        fleet.clock.pass_by(draw.choice((1, 1_000, 20_000, MINUTE, 5 * MINUTE)))
        request = random_request(draw, fleet, mission, await known_ids(fleet, mission))
        try:
            await fleet.do(request)
            done += 1
        except FleetError:
            pass
        saved.append(await save(fleet, mission))
    assert done > REQUESTS // 4
    bases = set()
    for number, each in enumerate(saved):
        moment = await fleet.do(MissionAt(mission.id, time=each.time))
        bases.add(moment.checkpoint_id)
        assert state_of(moment) == each.state, (number, moment.checkpoint_id)
    assert None in bases
    assert len(bases) > 5


async def test_a_moment_by_its_event_is_exact_within_a_millisecond(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    saved = []
    for number in range(20):
        await fleet.do(SortieCreate(mission.id, f"Sortie {number}"))
        saved.append(await save(fleet, mission))
    assert len({each.time for each in saved}) == 1
    for each in saved:
        moment = await fleet.do(MissionAt(mission.id, seq=each.seq))
        assert state_of(moment) == each.state


async def test_the_order_of_events_counts_where_the_clock_was_set_back(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    saved = []
    for step in (MINUTE, 60 * MINUTE, -120 * MINUTE, MINUTE, 300 * MINUTE):
        fleet.clock.step(step)
        await fleet.do(SortieCreate(mission.id, f"After {step}"))
        saved.append(await save(fleet, mission))
    for each in saved:
        assert state_of(await fleet.do(MissionAt(mission.id, seq=each.seq))) == each.state


async def test_a_plan_that_moves_and_changes_its_order_is_known_at_each_moment(
    fleet: Fleet,
) -> None:
    session, mission = await working(fleet, "> Read", "Write", "Test")
    saved = [await save(fleet, mission)]
    for plan in (("x Read", "> Write", "Test"), ("Test", "> Write", "x Read"), ("> Test", "Ship")):
        fleet.clock.pass_by(MINUTE)
        await session.tell(planned(*plan))
        saved.append(await save(fleet, mission))
    for each in saved:
        moment = await fleet.do(MissionAt(mission.id, time=each.time))
        assert state_of(moment) == each.state


async def test_moments_that_nobody_knows_are_refused_with_the_first_one(fleet: Fleet) -> None:
    before = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    mission = await fleet.mission(1)
    with pytest.raises(InvalidState, match=f"was created at {mission.created_at}") as refused:
        await fleet.do(MissionAt(mission.id, time=before))
    assert refused.value.values["since"] == mission.created_at
    with pytest.raises(NotFound):
        await fleet.do(MissionAt("msn-unknown1", time=before))
    with pytest.raises(InvalidParams, match="in the future"):
        await fleet.do(MissionAt(mission.id, time="2999-01-05T12:00:00.000Z"))
    with pytest.raises(InvalidParams, match="There is no event 99999"):
        await fleet.do(MissionAt(mission.id, seq=99_999))
    for both in (MissionAt(mission.id), MissionAt(mission.id, before, 3)):
        with pytest.raises(InvalidParams):
            await fleet.do(both)


async def test_what_was_recorded_before_changes_were_kept_is_known_from_a_checkpoint_on(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(1)
    early = fleet.clock.now
    fleet.sql("UPDATE events SET state_json = NULL")
    fleet.sql(
        "UPDATE store_meta SET value = (SELECT max(seq) FROM events) WHERE key = :key",
        key="moments_from",
    )
    fleet.clock.pass_by(MINUTE)
    with pytest.raises(InvalidState, match="is not known, and there is no checkpoint"):
        await fleet.do(MissionAt(mission.id, time=early))
    checkpoint = await fleet.checkpoint(mission)
    with pytest.raises(InvalidState, match=f"is known since {checkpoint.timestamp}") as refused:
        await fleet.do(MissionAt(mission.id, time=early))
    assert refused.value.values["since"] == checkpoint.timestamp
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieCreate(mission.id, "Later"))
    saved = await save(fleet, mission)
    moment = await fleet.do(MissionAt(mission.id, time=saved.time))
    assert (moment.checkpoint_id, state_of(moment)) == (checkpoint.id, saved.state)


async def test_two_moments_are_compared_as_checkpoints_are(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    first = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)
    [sortie, _] = await fleet.sorties(mission)
    await fleet.do(SortieComplete(sortie.id))
    then = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    await fleet.do(MissionCancel(mission.id, "Enough"))
    told: Request[Any] = CheckpointCompare(
        before_time=first, after_time=then, mission_id=mission.id
    )
    found = await fleet.do(told)
    assert (found.before.moment, found.before.timestamp, found.after.timestamp) == (
        True,
        first,
        then,
    )
    assert [each.id for each in found.sorties.changed] == [sortie.id]
    mixed = await fleet.do(CheckpointCompare(checkpoint.id, after_time=then))
    assert mixed.sorties == found.sorties
    now = await fleet.do(CheckpointCompare(before_time=then, mission_id=mission.id))
    assert [each.field for each in now.mission] == ["status"]
    with pytest.raises(InvalidParams, match="mission_id is missing"):
        await fleet.do(CheckpointCompare(before_time=first, after_time=then))
    with pytest.raises(InvalidParams, match="exclude each other"):
        await fleet.do(CheckpointCompare(checkpoint.id, before_time=first))
    with pytest.raises(InvalidParams, match="are missing"):
        await fleet.do(CheckpointCompare())


async def test_what_was_forgotten_is_in_no_moment(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await fleet.work(mission, 0, "spec-1", 10)
    await fleet.do(
        AgentRegister("spec-9", "specialist", session_id="forget-me", mission_id=mission.id)
    )
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieCreate(mission.id, "Unmistakable", agent_id="spec-9"))
    then = fleet.clock.now
    await fleet.do(SortieCreate(mission.id, "Another"))
    kept = "SELECT count(*) AS n FROM events WHERE mission_id = :id AND state_json IS NOT NULL"
    assert fleet.sql(kept, id=mission.id)[0]["n"] > 0
    fleet.clock.pass_by(MINUTE)
    await fleet.do(AgentDeregister("spec-9"))
    await fleet.do(SystemForget(session_id="forget-me"))
    assert fleet.sql(kept, id=mission.id)[0]["n"] == 0
    with pytest.raises(InvalidState, match="is not known"):
        await fleet.do(MissionAt(mission.id, time=then))
    fleet.clock.pass_by(MINUTE)
    await fleet.checkpoint(mission)
    saved = await save(fleet, mission)
    assert state_of(await fleet.do(MissionAt(mission.id, time=saved.time))) == saved.state
