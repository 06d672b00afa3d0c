"""The timeline: rows of agents, their sorties as bars, and marks counted in slots."""

import re
from typing import Any

import pytest

from fleetd.domain.core.event_log import mark_of
from fleetd.harness.report import PermissionRequested, PromptSubmitted, ToolStarted
from fleetd.protocol.errors import InvalidParams, NotFound
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.message import MessageInbox, MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from fleetd.protocol.requests.sortie import SortieComplete, SortieStart
from fleetd.protocol.requests.timeline import Timeline, TimelineGet, TimelineRow
from fleetd.protocol.timestamps import iso
from tests.support.fleet import HOUR, MINUTE, NOON, SECOND, Fleet
from tests.support.hook_sessions import Window, WorkingWindow, working
from tests.support.statements import noted

FIRST = "SELECT timestamp FROM events ORDER BY seq LIMIT 1"
LARGE = ("events", "checkpoints", "sorties", "missions", "locks")


async def asked(fleet: Fleet, **more: Any) -> Timeline:
    span = {"since": iso(NOON), "until": iso(fleet.clock() + 1)}
    return await fleet.do(TimelineGet(**(span | more)))


def kinds(row: TimelineRow) -> list[tuple[str, int]]:
    return [(mark.kind, mark.count) for mark in row.marks]


async def test_sorties_are_bars_from_their_start_to_their_end(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    await fleet.agents(mission, "spec-1")
    first, second, _ = await fleet.sorties(mission)
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieStart(first.id, "spec-1"))
    fleet.clock.pass_by(HOUR)
    done = await fleet.do(SortieComplete(first.id))
    begun = await fleet.do(SortieStart(second.id, "spec-1"))
    fleet.clock.pass_by(MINUTE)
    [row] = (await asked(fleet)).rows
    assert [(bar.sortie_id, bar.started_at, bar.ended_at) for bar in row.bars] == [
        (first.id, iso(NOON + MINUTE), done.completed_at),
        (second.id, begun.started_at, None),
    ]
    # A span sees what ended in it or behind it, and nothing that began behind it.
    inside = {"since": iso(NOON + 10 * MINUTE), "until": iso(NOON + 20 * MINUTE)}
    [row] = (await asked(fleet, **inside)).rows
    assert [bar.sortie_id for bar in row.bars] == [first.id]
    assert (await asked(fleet, since=iso(NOON - HOUR), until=iso(NOON - MINUTE))).rows == []


async def test_marks_tell_what_happened_and_none_what_is_usual(fleet: Fleet) -> None:
    session = WorkingWindow(fleet)
    await session.tell(PromptSubmitted("Go"))
    await session.run("make", "make test")
    await session.tell(ToolStarted("Bash", call_id="t-1", command="rm x"))
    await session.tell(PermissionRequested("Bash", "May I?"))
    fleet.clock.pass_by(10 * SECOND)
    await session.run("make")
    await session.compact()
    [agent] = [row["id"] for row in fleet.sql("SELECT id FROM agents")]
    await fleet.do(ErrorReport(agent, "exception", "OSError", "No room"))
    await fleet.do(MessageSend("somebody", [agent], "Hello"))
    await fleet.do(MessageInbox(agent))
    page = await asked(fleet)
    [row] = page.rows
    met = {mark.kind for mark in row.marks}
    assert {"compaction", "briefing", "checkpoint", "recovery", "mail", "error"} <= met
    events = (await fleet.do(EventList(limit=1_000))).events
    marked = [event for event in events if mark_of(event.type, event.data)]
    assert sum(mark.count for mark in row.marks) == len(marked) - 1  # what somebody sent
    of_seq = {event.seq: event for event in events}
    for mark in row.marks:
        assert mark.at == of_seq[mark.seq].timestamp
    assert (page.position, page.first_at) == (events[-1].seq, events[0].timestamp)


def test_a_need_is_marked_where_a_person_has_to_do_something() -> None:
    told = {need: mark_of("agent_needs", {"needs": need}) for need in ("none", "finished", "limit")}
    assert told == {"none": None, "finished": None, "limit": "needs"}
    assert mark_of("agent_needs", {}) == "needs"
    assert mark_of("file_modified", {}) is None


async def test_events_of_a_slot_are_one_mark_of_each_kind(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    times = []
    for number in range(10):
        fleet.clock.pass_by(MINUTE)
        times.append(fleet.clock.now)
        await fleet.do(MessageSend("spec-1", ["other"], f"Mail {number}", mission_id=mission.id))
    span = {"since": iso(NOON), "until": iso(NOON + 12 * MINUTE)}
    for width in (1, 2, 3, 12, 2_000):
        [row] = (await asked(fleet, **span, width=width)).rows
        slots: dict[int, list[str]] = {}
        for number, time in enumerate(times, 1):
            slots.setdefault(number * width // 12, []).append(time)
        assert [(mark.at, mark.until, mark.count) for mark in row.marks] == [
            (inside[0], inside[-1] if len(inside) > 1 else None, len(inside))
            for inside in slots.values()
        ]
    # The end of the span does not belong to it, its beginning does.
    [row] = (await asked(fleet, since=times[2], until=times[4], width=1)).rows
    assert kinds(row) == [("mail", 2)]


async def test_rows_are_grouped_by_mission_in_the_order_of_time(fleet: Fleet) -> None:
    first = await fleet.mission(1, title="First")
    second = await fleet.do(MissionStart((await fleet.do(MissionCreate("Second"))).id))
    for number, mission in enumerate((second, first, second, first)):
        fleet.clock.pass_by(MINUTE)
        await fleet.do(AgentRegister(f"spec-{number}", "specialist", mission_id=mission.id))
    rows = (await asked(fleet)).rows
    assert [(row.agent_id, row.mission) for row in rows] == [
        ("spec-0", "Second"),
        ("spec-2", "Second"),
        ("spec-1", "First"),
        ("spec-3", "First"),
    ]
    some = await asked(fleet, limit=3)
    assert ([row.agent_id for row in some.rows], some.more) == (["spec-0", "spec-2", "spec-1"], 1)
    of_first = (await asked(fleet, mission_id=first.id)).rows
    assert {row.agent_id for row in of_first} <= {"spec-1", "spec-3"}
    assert [row.agent_id for row in (await asked(fleet, agent_id="spec-3")).rows] == ["spec-3"]


async def test_a_subagent_is_below_the_agent_of_its_session(fleet: Fleet) -> None:
    await working(fleet, "> Read")
    inner = Window(fleet, subagent="helper")
    await inner.tell(ToolStarted("Bash", call_id="t-1", command="make"))
    other = Window(fleet, session_id="99999999-aaaa")
    await other.tell(PromptSubmitted("Something else"))
    rows = (await asked(fleet)).rows
    led = {row.agent_id: row.led_by for row in rows}
    [helper] = [name for name, leader in led.items() if leader]
    names = [row.agent_id for row in rows]
    assert names.index(helper) == names.index(str(led[helper])) + 1


async def test_what_a_mission_met_is_in_its_first_row_once(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.checkpoint(mission)
    rows = (await asked(fleet)).rows
    assert [kinds(row) for row in rows] == [[("checkpoint", 1)], []]
    [row] = (await asked(fleet, mission_id=mission.id)).rows[:1]
    assert kinds(row) == [("checkpoint", 1)]


async def test_a_span_that_ends_before_it_begins_is_refused(fleet: Fleet) -> None:
    with pytest.raises(InvalidParams, match="before it begins"):
        await asked(fleet, since=iso(NOON + HOUR), until=iso(NOON))
    with pytest.raises(NotFound):
        await asked(fleet, mission_id="msn-unknown1")


async def test_a_store_without_events_has_an_empty_timeline(fleet: Fleet) -> None:
    page = await asked(fleet)
    assert (page.rows, page.first_at, page.position, page.more) == ([], None, 0, 0)


@pytest.mark.sqlite_only("it reads the query plans of SQLite")
async def test_no_statement_of_a_timeline_reads_a_whole_table(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    seen = noted(monkeypatch)
    for of in ({}, {"mission_id": mission.id}, {"agent_id": "spec-1"}):
        await asked(fleet, **of)
    statements = {sql for sql in seen if sql.startswith("SELECT")} - {FIRST}
    lines = {sql: plan(fleet, sql) for sql in statements}
    scans = [
        (sql, line)
        for sql, told in lines.items()
        for line in told
        if line.startswith("SCAN") and line.split()[1] in LARGE and "INDEX" not in line
    ]
    assert scans == []
    marks = [told for sql, told in lines.items() if "marked_ms" in sql]
    assert marks
    for told in marks:  # the index alone, in its order
        assert [line.partition(" (")[0] for line in told] == [
            "SEARCH events USING COVERING INDEX idx_events_marks"
        ]
    for part, index in (
        ("AND e.mission_id = :mission", "idx_events_deeds"),
        ("FROM sorties", "idx_sorties_"),
        ("e.seq > :begin  ORDER BY", "idx_events_agent"),
    ):
        assert any(index in line for sql, told in lines.items() if part in sql for line in told)


def plan(fleet: Fleet, sql: str) -> list[str]:
    names: dict[str, Any] = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    return [row["detail"] for row in fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **names)]
