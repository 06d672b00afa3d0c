"""How much a recovery asks its store and writes there: what nobody needs again is not repeated."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from fleetd.domain.core import event_log
from fleetd.domain.core.reading import Reading
from fleetd.domain.core.tx import Effect, Row, Tx
from fleetd.protocol.records import Mission, SortieState
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieComplete,
    SortieCreate,
    SortieGet,
    SortieProgress,
    SortieRemove,
    SortieStart,
)
from fleetd.store.sqlite import group_commit
from tests.support.fleet import MINUTE, Fleet, meet_rules

AGENTS = ("dispatch-1", "spec-1", "spec-2", "spec-3")


async def manned(fleet: Fleet, sorties: int, agents: tuple[str, ...] = AGENTS) -> Mission:
    """Return a mission whose sorties are spread over the agents."""
    new = [NewSortie(f"S{n}", assigned_to=agents[n % len(agents)]) for n in range(sorties)]
    made = await fleet.do(MissionCreate("Port the tree", sorties=new))
    return await fleet.do(MissionStart(made.id))


class Spy:
    """Notes the statements that go to SQLite; one for many sets of parameters is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        executor = group_commit.SqliteExecutor
        for name in ("__call__", "tuples", "many"):
            monkeypatch.setattr(executor, name, self._around(getattr(executor, name)))

    def _around(self, real: Any) -> Any:
        def noted(executor: Any, sql: str, params: Any) -> Any:
            self.seen.append(sql)
            return real(executor, sql, params)

        return noted

    @property
    def written(self) -> list[str]:
        """Return the tables that were written, in order."""
        found = [sql.split() for sql in self.seen if not sql.startswith("SELECT")]
        return [words[1] if words[0] == "UPDATE" else words[2] for words in found]


@pytest.mark.sqlite_only("its statements are counted")
async def test_a_recovery_asks_the_same_of_many_sorties_as_of_few(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    missions = [await manned(fleet, number) for number in (8, 120)]
    for mission in missions:
        await fleet.checkpoint(mission)
        await fleet.restore(mission_id=mission.id)
    await fleet.settle()
    spy = Spy(monkeypatch)
    counts = []
    for mission in missions:
        spy.seen.clear()
        await fleet.restore(mission_id=mission.id)
        counts.append(len(spy.seen))
    # Seven of them are asked before, on the reader's side; six are of each further agent.
    assert counts[0] == counts[1] <= 65


@pytest.mark.sqlite_only("its statements are counted")
async def test_a_recovery_that_changes_nothing_writes_that_it_took_place_and_nothing_else(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await manned(fleet, 8)
    await fleet.checkpoint(mission)
    await fleet.restore(mission_id=mission.id)
    await fleet.settle()
    spy = Spy(monkeypatch)
    await fleet.restore(mission_id=mission.id)
    marked, waiting, noted = "checkpoints", "recoveries", "recoveries"
    told = ["events"]
    briefed, dropped = "briefings", "briefings"
    assert spy.written == [marked, waiting, noted, *told, briefed, dropped]


@pytest.mark.sqlite_only("its statements are counted")
async def test_a_changed_sortie_costs_no_statement_of_its_own(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number in (8, 3 * event_log.AT_ONCE):
        mission = await manned(fleet, number)
        checkpoint = await fleet.checkpoint(mission)
        for sortie in await fleet.sorties(mission):
            await fleet.do(SortieStart(sortie.id, sortie.assigned_to or ""))
        await fleet.settle()
        with monkeypatch.context() as patched:
            patched.setattr(fleet.engine.outbox, "post", lambda *_: None)  # files, at any moment
            spy = Spy(patched)
            await fleet.restore(checkpoint, rewind=True)
            counts.append(len(spy.seen))
        await fleet.settle()
    assert counts[1] - counts[0] <= 3  # so many more INSERTs of events


@pytest.mark.parametrize("number", [1, event_log.AT_ONCE, 2 * event_log.AT_ONCE + 3])
async def test_each_changed_sortie_is_told_of_in_order_with_its_agent(
    fleet: Fleet, number: int
) -> None:
    agents = (*AGENTS, "")
    new = [NewSortie(f"S{n}", assigned_to=agents[n % 5] or None) for n in range(number)]
    made = await fleet.do(MissionCreate("Port the tree", sorties=new))
    mission = await fleet.do(MissionStart(made.id))
    checkpoint = await fleet.checkpoint(mission)
    for sortie in await fleet.sorties(mission):
        await fleet.do(SortieProgress(sortie.id, 10, agent_id=sortie.assigned_to))

    await fleet.restore(checkpoint, rewind=True)

    told = await fleet.events(mission, "sortie_restored")
    assert [
        (each.data["sortie_id"], each.data["title"], each.data["status"], each.agent_id)
        for each in told
    ] == [(s.id, s.title, s.status, s.assigned_to) for s in checkpoint.sorties]
    first = told[0].seq
    assert [each.seq for each in told] == list(range(first, first + number))
    assert {(each.stream, each.timestamp) for each in told} == {
        (f"mission:{mission.id}", fleet.clock.now)
    }


async def test_what_a_recovery_takes_for_the_sorties_after_it_is_what_the_store_has(
    fleet: Fleet,
) -> None:
    """The checkpoint of the restored state is made of what was written, not read again."""
    mission = await manned(fleet, 6)
    first, second, third, *_ = await fleet.sorties(mission)
    older = await fleet.checkpoint(mission)
    await fleet.do(SortieStart(first.id, "dispatch-1"))
    await fleet.do(SortieProgress(second.id, 30, "On it", files=["b.py"]))
    await fleet.do(SortieComplete(third.id))
    await fleet.checkpoint(mission)
    for added in (False, True):
        fleet.clock.pass_by(MINUTE)
        if added:
            await fleet.do(SortieCreate(mission.id, "Later"))
            await fleet.do(SortieRemove((await fleet.sorties(mission))[-2].id))
        await fleet.restore(older, rewind=True)
        newest = (await fleet.checkpoint_ids(mission))[0]
        kept = fleet.sql("SELECT sorties_json FROM checkpoints WHERE id = :id", id=newest)
        states = msgspec.json.decode(kept[0]["sorties_json"], type=list[SortieState])
        there = await fleet.sorties(mission)
        names = SortieState.__struct_fields__
        assert [[getattr(s, n) for n in names] for s in states] == [
            [getattr(s, n) for n in names] for s in there
        ]


def carriers(fleet: Fleet) -> dict[str, int | None]:
    rows = fleet.sql("SELECT title, briefing_id FROM sorties")
    return {row["title"]: row["briefing_id"] for row in rows}


def stored(fleet: Fleet) -> list[int]:
    return [row["id"] for row in fleet.sql("SELECT id FROM briefings ORDER BY id")]


async def test_a_further_recovery_writes_what_sorties_carry_in_its_place(fleet: Fleet) -> None:
    mission = await manned(fleet, 4, ("spec-1", "spec-2"))
    await fleet.checkpoint(mission)
    await fleet.restore(mission_id=mission.id)
    before = carriers(fleet)
    assert sorted(set(before.values()), key=str) == stored(fleet)
    fleet.clock.pass_by(MINUTE)

    await fleet.restore(mission_id=mission.id)

    assert carriers(fleet) == before
    elapsed = {s.recovery_context.elapsed_time_ms for s in await fleet.sorties(mission)}
    assert elapsed == {MINUTE}


async def test_a_part_that_another_agents_sortie_carries_stays_as_it_is(fleet: Fleet) -> None:
    mission = await manned(fleet, 4, ("spec-1", "spec-2"))
    await fleet.checkpoint(mission)
    await fleet.restore(mission_id=mission.id)
    first, second, third, fourth = await fleet.sorties(mission)
    kept = first.recovery_context
    await fleet.do(SortieAssign(first.id, "spec-2"))  # carries spec-1's part from now on
    fleet.clock.pass_by(MINUTE)

    await fleet.restore(mission_id=mission.id, agent_id="spec-1", scope="agent")

    parts = {s.title: s.recovery_context for s in await fleet.sorties(mission)}
    assert parts["S0"] == kept
    assert parts["S1"] == second.recovery_context == parts["S3"] == fourth.recovery_context
    assert parts["S2"] != third.recovery_context
    assert set(stored(fleet)) == set(carriers(fleet).values())


async def test_what_no_sortie_carries_any_more_goes_with_the_next_recovery(fleet: Fleet) -> None:
    mission = await manned(fleet, 4, ("spec-1", "spec-2"))
    await fleet.checkpoint(mission)
    await fleet.restore(mission_id=mission.id)
    [first, *_] = await fleet.sorties(mission)
    await fleet.do(SortieProgress(first.id, 50, agent_id="spec-1"))
    assert carriers(fleet)["S0"] is None

    await fleet.restore(mission_id=mission.id)

    there = carriers(fleet)
    assert there["S0"] == there["S2"] != there["S1"] == there["S3"]
    assert set(stored(fleet)) == set(there.values())
    assert (await fleet.do(SortieGet(first.id))).recovery_context is not None


async def test_a_recovery_that_names_no_checkpoint_reads_twice_before_it_writes(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await manned(fleet, 2)
    await fleet.checkpoint(mission)
    await fleet.settle()
    met: list[str] = []

    async def before(rule: Any, *_: Any) -> None:
        met.append(rule.__name__)

    meet_rules(fleet.engine, monkeypatch, before)
    await fleet.restore(mission_id=mission.id)
    await fleet.do(RecoveryContextGet(mission.id))
    assert met == ["first_look", "names", "restore", "first_look", "names", "context"]


class Store:
    """Answers every query with the same rows, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, sql: str, params: Row) -> list[Row]:
        self.asked.append(sql)
        return [{"id": 2}, {"id": 1}]

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        return [(2,), (1,)]

    def many(self, sql: str, params: Iterable[Row]) -> None:
        self.asked.append(sql)


def test_a_reading_asks_each_question_once() -> None:
    store = Store()
    reading = Reading(Tx(store))
    rows = reading.all("SELECT id FROM a WHERE b = :b", b=1)
    rows.sort(key=lambda row: int(row["id"]))
    assert reading.all("SELECT id FROM a WHERE b = :b", b=1) == [{"id": 2}, {"id": 1}]
    assert reading.one("SELECT id FROM a WHERE b = :b", b=1) == {"id": 2}
    assert reading.tuples("SELECT id FROM a WHERE b = :b", b=1) == [(2,), (1,)]
    assert len(store.asked) == 2
    reading.all("SELECT id FROM a WHERE b = :b", b="1")
    reading.all("SELECT id FROM a WHERE b = :b", b=None)
    assert len(store.asked) == 4


def test_a_reading_writes_nothing() -> None:
    store = Store()
    reading = Reading(Tx(store))
    for statement in ("UPDATE a SET b = 1", "INSERT INTO a (b) VALUES (1)", "DELETE FROM a"):
        with pytest.raises(AssertionError, match="writes"):
            reading.run(statement)
        with pytest.raises(AssertionError, match="writes"):
            reading.many(statement, [{}])
    with pytest.raises(AssertionError, match="effect"):
        reading.after_commit(Effect())
    assert store.asked == []
