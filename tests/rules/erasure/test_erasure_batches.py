"""A long log is forgotten piece by piece: others are served between, and a stop loses nothing."""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.context import BatchSizes
from fleetd.domain.erasure.erase import drop_batch, find_batch
from fleetd.protocol.errors import InvalidState, NotFound, Unavailable
from fleetd.protocol.records import Mission
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentGet, AgentNote, AgentRegister
from fleetd.protocol.requests.event import EventAppend, EventList
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionGet,
    MissionList,
)
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import Fleet, meet_rules, opened

PIECES = 4
ROWS = 50
EVENTS = PIECES * ROWS
SMALL = BatchSizes(rows=ROWS)
Forgetting = Callable[[Fleet, Mission], Request[object]]
WAYS: dict[str, Forgetting] = {
    "mission": lambda fleet, mission: SystemForget(mission.id),
    "session": lambda fleet, mission: SystemForget(session_id="s-1"),
    "project": lambda fleet, mission: SystemForget(project_dir=str(fleet.project)),
    "delete": lambda fleet, mission: MissionDelete(mission.id),
}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def batches() -> BatchSizes:
    return SMALL


async def long_mission(fleet: Fleet) -> Mission:
    """Make a finished mission with a long log, of an agent that belongs nowhere else."""
    mission = await fleet.mission(1)
    await fleet.do(AgentRegister("alice", "specialist", session_id="s-1", mission_id=mission.id))
    await fleet.do(AgentNote("alice", "sentinel-7f3a"))
    await fleet.checkpoint(mission)
    fleet.sql(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
        " INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity, data_json)"
        " SELECT 'custom', 'mission:' || :id, :now, :id, 'alice', 1, '{}' FROM n",
        count=EVENTS,
        id=mission.id,
        now=fleet.clock.now,
    )
    await fleet.do(MissionCancel(mission.id, "over"))
    await fleet.settle()
    return mission


def after_each_piece(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[], Awaitable[None]],
    kind: Any = drop_batch,
) -> None:
    """Have something done between two pieces of work, as another client would do it."""

    async def met(rule: Any, *_: Any) -> None:
        if rule is kind:
            await then()

    meet_rules(fleet.engine, monkeypatch, after=met)


@every_way
async def test_others_are_served_between_the_pieces_and_the_log_never_goes_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    mission = await long_mission(fleet)
    other = await fleet.do(MissionCreate("Other", project_dir="/elsewhere"))
    request = WAYS[way](fleet, mission)
    left, ends = [len(await fleet.events())], [(await fleet.do(EventList(since=10**9))).position]

    async def serve() -> None:
        event = await fleet.do(EventAppend("custom", mission_id=other.id))
        ends.append((await fleet.do(EventList(since=10**9))).position)
        assert ends[-1] == event.seq
        left.append(len(await fleet.events()))

    after_each_piece(fleet, monkeypatch, serve)
    await fleet.do(request)

    assert len(ends) > PIECES
    assert ends == list(range(ends[0], ends[0] + len(ends)))
    assert all(before - after <= ROWS for before, after in itertools.pairwise(left))
    # The last transaction found few left, and took them.
    assert left[-1] < 40
    assert [e for e in await fleet.events() if e.mission_id == mission.id] == []
    assert (await fleet.do(EventList(since=10**9))).position == ends[-1] + 1


@every_way
async def test_what_is_said_meanwhile_goes_too(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    mission = await long_mission(fleet)
    request = WAYS[way](fleet, mission)

    async def say() -> None:
        await fleet.do(EventAppend("said-meanwhile", mission_id=mission.id))

    after_each_piece(fleet, monkeypatch, say)
    await fleet.do(request)

    assert await fleet.events(kind="said-meanwhile") == []
    assert mission.id not in str(fleet.dump("idempotency_keys"))


@every_way
async def test_a_stop_between_two_pieces_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with opened(tmp_path, batches=SMALL) as fleet:
        mission = await long_mission(fleet)
        request, before = WAYS[way](fleet, mission), len(await fleet.events())

        async def stop() -> None:
            fleet.engine.stop_waiting()

        after_each_piece(fleet, monkeypatch, stop)
        with pytest.raises(Unavailable, match="at its next start"):
            await fleet.do(request)
        left = fleet.sql("SELECT count(*) AS left FROM events")[0]["left"]
        assert 0 < before - left <= ROWS
        assert len(fleet.sql("SELECT * FROM missions")) == 1
        assert len(fleet.sql("SELECT * FROM forgetting")) == 1
        monkeypatch.undo()
    async with opened(tmp_path, batches=SMALL) as fleet:
        assert (await fleet.do(MissionList())).total == 0
        assert fleet.sql("SELECT * FROM forgetting") == []
        told = "mission_deleted" if way == "delete" else "records_forgotten"
        assert [event.type for event in await fleet.events()] == [told]
        assert mission.id not in str(fleet.dump())
        assert fleet.files() == {}
        if way == "delete":
            assert (await fleet.do(AgentGet("alice"))).note is not None
        else:
            with pytest.raises(NotFound):
                await fleet.do(AgentGet("alice"))


@pytest.mark.parametrize("way", ["mission", "session", "project"])
async def test_a_dry_run_counts_in_pieces_what_goes_and_changes_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    mission = await long_mission(fleet)
    seen: list[int] = []
    before = fleet.dump()

    async def read() -> None:
        seen.append((await fleet.do(EventList(since=10**9))).position)

    request = WAYS[way](fleet, mission)
    with monkeypatch.context() as patched:
        after_each_piece(fleet, patched, read, find_batch)
        foreseen = await fleet.do(SystemForget(mission.id, dry_run=True))
    assert len(seen) > PIECES
    assert fleet.dump() == before
    done = await fleet.do(request)
    assert isinstance(done, type(foreseen))
    assert done.events == foreseen.events == len(before["events"])
    assert (done.checkpoints, done.messages, done.locks) == (foreseen.checkpoints, 0, 0)


async def test_who_worked_elsewhere_stays_also_when_what_tells_it_goes_first(fleet: Fleet) -> None:
    mission = await long_mission(fleet)
    other = await fleet.do(MissionCreate("Other", project_dir="/elsewhere"))
    await fleet.do(AgentRegister("bob", "specialist", mission_id=mission.id))
    await fleet.do(AgentNote("bob", "sentinel-7f3a"))
    # The only thing that says where bob worked names the directory, and goes.
    await fleet.do(EventAppend("file_modified", other.id, "bob", {"file": f"{fleet.project}/a"}))
    await fleet.do(EventAppend("custom"))

    await fleet.do(SystemForget(project_dir=str(fleet.project)))

    assert (await fleet.do(AgentGet("bob"))).note is None
    with pytest.raises(NotFound):
        await fleet.do(AgentGet("alice"))


async def test_a_mission_that_only_its_log_belongs_to_a_session_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, batches=SMALL) as fleet:
        await long_mission(fleet)
        second = await fleet.mission(1, title="Second")
        await fleet.do(EventAppend("custom", second.id, "alice"))
        await fleet.do(EventAppend("custom"))

        async def stop() -> None:
            if not [e for e in await fleet.events(second) if e.agent_id == "alice"]:
                fleet.engine.stop_waiting()

        after_each_piece(fleet, monkeypatch, stop)
        with pytest.raises(Unavailable):
            await fleet.do(SystemForget(session_id="s-1"))
        monkeypatch.undo()
    async with opened(tmp_path, batches=SMALL) as fleet:
        assert (await fleet.do(MissionList())).total == 0


async def test_a_mission_that_is_not_finished_is_not_begun_to_be_deleted(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)
    with pytest.raises(InvalidState, match="only a finished mission"):
        await fleet.do(MissionDelete(mission.id))
    assert fleet.sql("SELECT * FROM forgetting") == []
    assert fleet.file_of(taken).exists()
    assert (await fleet.do(MissionGet(mission.id))).status == "in_progress"
