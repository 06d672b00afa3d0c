"""The timeline: rows of agents, their sorties as bars, and what happened to them as marks.

The marks of a span are read from an index that contains nothing else, and counted by slots.
Millions of other events thus cost nothing.
"""

from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ...protocol.errors import InvalidParams
from ...protocol.requests.timeline import (
    Timeline,
    TimelineBar,
    TimelineGet,
    TimelineMark,
    TimelineRow,
)
from ...protocol.timestamps import iso, to_ms
from ..attention.running import leading_agent
from ..core.context import Context
from ..core.event_log import LOG_END, NO_DEEDS, position, position_before
from ..core.ids import find
from ..core.registry import method
from ..core.sql import Where, chunks, in_sql, inside_of, named_params
from ..core.tx import Row, Tx

_BAR = (
    "SELECT assigned_to, started_at, id, title, mission_id, status, completed_at FROM sorties"
    " WHERE started_at IS NOT NULL AND assigned_to IS NOT NULL"
)


class Span(msgspec.Struct, frozen=True):
    """What a timeline covers: a span of time, divided into slots, and whose events."""

    since: str
    until: str
    since_ms: int
    until_ms: int
    width: int
    mission_id: str | None
    agent_id: str | None
    begin: int
    """The ``seq`` after which events belong to the span."""
    end: int


@method(TimelineGet)
def get(tx: Tx, ctx: Context, request: TimelineGet) -> Timeline:
    """Return what each agent did in a span of time."""
    span = _span(tx, request)
    bars = _bars(tx, span)
    marked, unnamed = _marked(tx, span)
    first = _first_events(tx, span)
    # Marks are in order of time: read backwards, each agent keeps its first one.
    begun: dict[str, int] = dict(map(itemgetter(0, 4), reversed(marked)))
    for agent_id, seq in begun.items():
        first[agent_id] = min(first.get(agent_id, LOG_END), seq)
    rows = _in_order(tx, _agents(tx, {*first, *bars}), first)
    shown = rows[: request.limit]
    marks = _slots(span, marked, {row["id"] for row in shown})
    of_missions = _of_missions(span, unnamed, shown)
    return Timeline(
        since=request.since,
        until=request.until,
        position=position(tx),
        first_at=tx.value("SELECT timestamp FROM events ORDER BY seq LIMIT 1"),
        rows=[_row(each, bars, marks, of_missions) for each in shown],
        more=len(rows) - len(shown),
    )


def _span(tx: Tx, request: TimelineGet) -> Span:
    since_ms, until_ms = to_ms(request.since), to_ms(request.until)
    if until_ms <= since_ms:
        raise InvalidParams(
            f"The span ends at {request.until}, before it begins.",
            hint="Give an until behind since.",
            field="until",
        )
    since, until, end = iso(since_ms), iso(until_ms), position(tx)
    mission_id, agent_id = request.mission_id, request.agent_id
    return Span(
        since=since,
        until=until,
        since_ms=since_ms,
        until_ms=until_ms,
        width=request.width,
        mission_id=find(tx, "mission", mission_id)["id"] if mission_id else None,
        agent_id=find(tx, "agent", agent_id)["id"] if agent_id else None,
        begin=position_before(tx, since, end),
        end=position_before(tx, until, end),
    )


def _bars(tx: Tx, span: Span) -> dict[str, list[TimelineBar]]:
    """Return the sorties that were in progress in the span, by their agents, in order of time.

    Sorties that ended in the span or later, and sorties without an end, are two parts of one index.
    """
    where = Where()
    where.equal(mission_id=span.mission_id, assigned_to=span.agent_id)
    rows = tx.tuples(
        f"{_BAR} AND started_at < :until AND completed_at >= :since AND {where}"
        f" UNION ALL {_BAR} AND started_at < :until AND completed_at IS NULL AND {where}",
        since=span.since,
        until=span.until,
        **where.params,
    )
    found: dict[str, list[TimelineBar]] = {}
    for agent_id, started_at, sortie_id, title, mission_id, status, ended_at in sorted(
        rows, key=itemgetter(1, 2)
    ):
        found.setdefault(agent_id, []).append(
            TimelineBar(
                sortie_id=sortie_id,
                title=title,
                mission_id=mission_id,
                status=status,
                started_at=started_at,
                ended_at=ended_at,
            )
        )
    return found


# A row of a mark: its agent or mission, kind, ms, time, seq, and again its mission.
_Marked = tuple[Any, ...]


def _marked(tx: Tx, span: Span) -> tuple[list[_Marked], list[_Marked]]:
    """Return the marks of agents in the span, and those of missions that name none.

    They are in order of time, as in their index. The index covers the query and is read once. The
    conditions are written so that no other index fits.
    """
    where = Where()
    if span.mission_id is not None:
        where.add("coalesce(mission_id, '') = :mission", mission=span.mission_id)
    if span.agent_id is not None:
        where.add("coalesce(agent_id, '') IN (:agent, '')", agent=span.agent_id)
    rows = tx.tuples(
        "SELECT agent_id, mark, marked_ms, timestamp, seq, mission_id FROM events"
        " WHERE mark IS NOT NULL AND marked_ms >= :since AND marked_ms < :until"
        f" AND {where} ORDER BY marked_ms",
        since=span.since_ms,
        until=span.until_ms,
        **where.params,
    )
    unnamed = [(row[5], *row[1:]) for row in rows if row[0] is None and row[5] is not None]
    return [row for row in rows if row[0] is not None], unnamed


def _slots(span: Span, rows: list[_Marked], owners: set[str]) -> dict[str, list[TimelineMark]]:
    """Return the marks of some agents, or of missions, counted by slots, in order of time.

    Sorting them by slots in the store would take longer than reading each mark, and most slots have
    only one.
    """
    since, width, length = span.since_ms, span.width, span.until_ms - span.since_ms
    found: dict[str, list[TimelineMark]] = {}
    newest: dict[tuple[str, str], tuple[int, int]] = {}
    for owner, kind, ms, at, seq, _ in rows:
        if owner not in owners:
            continue
        marks = found.get(owner)
        if marks is None:
            marks = found[owner] = []
        slot, place = (ms - since) * width // length, len(marks)
        known = newest.get((owner, kind))
        if known is None or known[0] != slot:
            newest[owner, kind] = (slot, place)
            marks.append(TimelineMark(kind=kind, at=at, seq=seq))
            continue
        first = marks[known[1]]
        marks[known[1]] = TimelineMark(
            kind=kind, at=first.at, until=at, count=first.count + 1, seq=first.seq
        )
    return found


def _of_missions(
    span: Span, unnamed: list[_Marked], rows: list[Row]
) -> dict[str, list[TimelineMark]]:
    """Return the marks of missions that name no agent, in the first row of each mission.

    Checkpoints and recoveries are thus in one row of their mission, whatever other rows it has.
    """
    first: dict[str, str] = {}
    for row in rows:
        if row["mission_id"] is not None:
            first.setdefault(row["mission_id"], row["id"])
    marks = _slots(span, unnamed, {*first})
    return {agent: marks[mission] for mission, agent in first.items() if mission in marks}


def _first_events(tx: Tx, span: Span) -> dict[str, int]:
    """Return the first event of each agent in the span.

    With a mission, that is the first work in it; for an agent that is in it now, the first event.
    """
    agent_filter = Where()
    agent_filter.equal(id=span.agent_id)
    if span.mission_id is None:
        return _first(tx, span, "", agent_filter)
    inside = Where()
    inside.equal(id=span.agent_id, mission_id=span.mission_id)
    # The same condition as in the index of deeds.
    deed = f"AND e.activity = 1 AND e.type NOT IN {in_sql(NO_DEEDS)}"
    work = _first(
        tx, span, f"AND e.mission_id = :mission {deed}", agent_filter, mission=span.mission_id
    )
    return _first(tx, span, "", inside) | work


def _first(tx: Tx, span: Span, what: str, agent_filter: Where, **named: str) -> dict[str, int]:
    # With the end of the span as a condition, SQLite would take another index than that of deeds.
    rows = tx.tuples(
        "SELECT id, (SELECT e.seq FROM events e WHERE e.agent_id = a.id AND e.agent_id IS NOT NULL"
        f" AND e.seq > :begin {what} ORDER BY e.seq LIMIT 1) FROM agents a WHERE {agent_filter}",
        begin=span.begin,
        **named,
        **agent_filter.params,
    )
    return {agent_id: seq for agent_id, seq in rows if seq is not None and seq <= span.end}


def _agents(tx: Tx, agent_ids: set[str]) -> list[Row]:
    found: list[Row] = []
    for some in chunks(sorted(agent_ids)):
        found += tx.all(
            "SELECT a.*, m.title AS mission_title, s.name AS machine_name FROM agents a"
            " LEFT JOIN missions m ON m.id = a.mission_id"
            f" LEFT JOIN machines s ON s.id = a.machine WHERE a.id IN ({inside_of('id', some)})",
            **named_params("id", some),
        )
    inner = {
        row["agent_id"] for row in tx.all("SELECT agent_id FROM sessions WHERE subagent <> ''")
    }
    for row in found:
        led_by = leading_agent(tx, row["id"]) if row["id"] in inner else row["id"]
        row["led_by"] = None if led_by == row["id"] else led_by
    return found


def _in_order(tx: Tx, rows: list[Row], first: dict[str, int]) -> list[Row]:
    """Return agents by machine, then by mission, then by their first event.

    A group takes the place of its first agent, and a subagent comes below the agent of its session.
    """

    def began(row: Row) -> int:
        return first.get(row["id"], LOG_END)

    of_machine: dict[str, int] = {}
    of_mission: dict[tuple[str, str | None], int] = {}
    of_session: dict[str, int] = {}
    for row in rows:
        machine, key = row["machine"], (row["machine"], row["mission_id"])
        leading = row["led_by"] or row["id"]
        of_machine[machine] = min(of_machine.get(machine, LOG_END), began(row))
        of_mission[key] = min(of_mission.get(key, LOG_END), began(row))
        of_session[leading] = min(of_session.get(leading, LOG_END), began(row))

    def place(row: Row) -> tuple[Any, ...]:
        leading = row["led_by"] or row["id"]
        return (
            of_machine[row["machine"]],
            row["machine"],
            of_mission[row["machine"], row["mission_id"]],
            row["mission_id"] or "",
            of_session[leading],
            leading,
            row["led_by"] is not None,
            began(row),
            row["id"],
        )

    return sorted(rows, key=place)


def _row(
    row: Row,
    bars: dict[str, list[TimelineBar]],
    marks: dict[str, list[TimelineMark]],
    of_missions: dict[str, list[TimelineMark]],
) -> TimelineRow:
    own, beside = marks.get(row["id"], []), of_missions.get(row["id"])
    return TimelineRow(
        agent_id=row["id"],
        led_by=row["led_by"],
        harness=row["harness"],
        mission_id=row["mission_id"],
        mission=row["mission_title"],
        machine=row["machine"] or None,
        machine_name=row["machine_name"],
        status=row["status"],
        bars=bars.get(row["id"], []),
        marks=sorted([*own, *beside], key=attrgetter("at", "seq")) if beside else own,
    )
