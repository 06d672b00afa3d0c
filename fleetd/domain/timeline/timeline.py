"""The timeline: rows of agents, their sorties as bars, and what happened to them as marks.

The marks of a span are read from an index that holds nothing else, and counted there by slots, so
that millions of other events cost nothing.
"""

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
from ..core.event_log import NO_DEEDS, position, position_before
from ..core.ids import find
from ..core.registry import method
from ..core.sql import Where, chunks, in_sql, inside_of, named_params
from ..core.tx import Row, Tx

_BAR = "SELECT * FROM sorties WHERE started_at IS NOT NULL AND assigned_to IS NOT NULL"
# Behind every ``seq`` there is.
_NEVER = 2**62


class Span(msgspec.Struct, frozen=True):
    """What a timeline is asked of: a span of time, cut into slots, and of whom."""

    since: str
    until: str
    since_ms: int
    until_ms: int
    width: int
    mission_id: str | None
    agent_id: str | None
    begin: int
    """The ``seq`` behind which events are of the span."""
    end: int


@method(TimelineGet)
def get(tx: Tx, ctx: Context, request: TimelineGet) -> Timeline:
    """Return what each agent did in a span of time."""
    span = _span(tx, request)
    bars = _bars(tx, span)
    marks = _marks(tx, span)
    first = _first_events(tx, span)
    for agent_id, of_agent in marks.items():
        first[agent_id] = min(first.get(agent_id, _NEVER), of_agent[0].seq)
    rows = _in_order(tx, _agents(tx, {*first, *bars}), first)
    shown = rows[: request.limit]
    of_missions = _of_missions(tx, span, shown)
    return Timeline(
        since=request.since,
        until=request.until,
        position=position(tx),
        first_at=tx.value("SELECT timestamp FROM events ORDER BY seq LIMIT 1"),
        rows=[
            _row(each, bars, [*marks.get(each["id"], ()), *of_missions.get(each["id"], ())])
            for each in shown
        ],
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
    """Return the sorties that were in work in the span, by their agents, in order of time.

    Those that ended in it or later, and those that did not end, are two parts of one index.
    """
    where = Where()
    where.equal(mission_id=span.mission_id, assigned_to=span.agent_id)
    rows = tx.all(
        f"{_BAR} AND started_at < :until AND completed_at >= :since AND {where}"
        f" UNION ALL {_BAR} AND started_at < :until AND completed_at IS NULL AND {where}",
        since=span.since,
        until=span.until,
        **where.params,
    )
    found: dict[str, list[TimelineBar]] = {}
    for row in sorted(rows, key=lambda row: (row["started_at"], row["id"])):
        found.setdefault(row["assigned_to"], []).append(
            TimelineBar(
                sortie_id=row["id"],
                title=row["title"],
                mission_id=row["mission_id"],
                status=row["status"],
                started_at=row["started_at"],
                ended_at=row["completed_at"],
            )
        )
    return found


def _slots(tx: Tx, span: Span, whose: str, where: Where) -> dict[str, list[TimelineMark]]:
    """Return the marks of agents, or of missions, in order of time.

    They come from the index in that order: to sort them by slots there would take longer than to
    tell of each, and of most slots there is one.
    """
    rows = tx.tuples(
        f"SELECT {whose}, mark, marked_ms, seq FROM events WHERE mark IS NOT NULL"
        f" AND marked_ms >= :since AND marked_ms < :until AND {where} ORDER BY marked_ms",
        since=span.since_ms,
        until=span.until_ms,
        **where.params,
    )
    since, width, length = span.since_ms, span.width, span.until_ms - span.since_ms
    found: dict[str, list[_Slot]] = {}
    newest: dict[tuple[str, str], _Slot] = {}
    for owner, kind, ms, seq in rows:
        number = (ms - since) * width // length
        slot = newest.get((owner, kind))
        if slot is not None and slot[0] == number:
            slot[3] = ms
            slot[4] += 1
        else:
            newest[owner, kind] = slot = [number, kind, ms, ms, 1, seq]
            of_owner = found.get(owner)
            if of_owner is None:
                found[owner] = [slot]
            else:
                of_owner.append(slot)
    seconds: dict[int, str] = {}
    return {owner: [_mark(slot, seconds) for slot in slots] for owner, slots in found.items()}


# A slot: its number, kind, time of the first and the last, count, ``seq`` of the first.
_Slot = list[Any]


def _mark(slot: _Slot, seconds: dict[int, str]) -> TimelineMark:
    _, kind, first_ms, last_ms, count, seq = slot
    at = _rendered(first_ms, seconds)
    until = at if last_ms == first_ms else _rendered(last_ms, seconds)
    return TimelineMark(kind=kind, at=at, until=until, count=count, seq=seq)


def _rendered(ms: int, seconds: dict[int, str]) -> str:
    """Return a time as text; ``seconds`` are those that were rendered, of which many are alike."""
    second, rest = divmod(ms, 1_000)
    begin = seconds.get(second)
    if begin is None:
        begin = seconds[second] = iso(ms)[:-4]
    return f"{begin}{rest:03d}Z"


def _marks(tx: Tx, span: Span) -> dict[str, list[TimelineMark]]:
    """Return the marks of agents."""
    where = _of(span)
    if span.agent_id is not None:
        where.add("coalesce(agent_id, '') = :agent", agent=span.agent_id)
    where.add("agent_id IS NOT NULL")
    return _slots(tx, span, "agent_id", where)


def _of(span: Span) -> Where:
    """Return the condition on marks; written so that no other index than theirs fits it."""
    where = Where()
    if span.mission_id is not None:
        where.add("coalesce(mission_id, '') = :mission", mission=span.mission_id)
    return where


def _of_missions(tx: Tx, span: Span, rows: list[Row]) -> dict[str, list[TimelineMark]]:
    """Return the marks of missions that name no agent, in the first row of each mission.

    So checkpoints and recoveries are in one row of their mission, whoever else is there.
    """
    first: dict[str, str] = {}
    for row in rows:
        if row["mission_id"] is not None:
            first.setdefault(row["mission_id"], row["id"])
    where = _of(span)
    where.add("agent_id IS NULL AND mission_id IS NOT NULL")
    marks = _slots(tx, span, "mission_id", where)
    return {agent: marks[mission] for mission, agent in first.items() if mission in marks}


def _first_events(tx: Tx, span: Span) -> dict[str, int]:
    """Return the first event of each agent in the span.

    Of a mission, that is the first work in it; of an agent that is in it now, the first event.
    """
    whose = Where()
    whose.equal(id=span.agent_id)
    if span.mission_id is None:
        return _first(tx, span, "", whose)
    inside = Where()
    inside.equal(id=span.agent_id, mission_id=span.mission_id)
    # As the index of deeds has it.
    deed = f"AND e.activity = 1 AND e.type NOT IN {in_sql(NO_DEEDS)}"
    work = _first(tx, span, f"AND e.mission_id = :mission {deed}", whose, mission=span.mission_id)
    return _first(tx, span, "", inside) | work


def _first(tx: Tx, span: Span, what: str, whose: Where, **named: str) -> dict[str, int]:
    # With the end of the span as a condition, SQLite would take another index than that of deeds.
    rows = tx.tuples(
        "SELECT id, (SELECT e.seq FROM events e WHERE e.agent_id = a.id AND e.agent_id IS NOT NULL"
        f" AND e.seq > :begin {what} ORDER BY e.seq LIMIT 1) FROM agents a WHERE {whose}",
        begin=span.begin,
        **named,
        **whose.params,
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

    A group is where its first agent is, and a subagent below the agent of its session.
    """

    def began(row: Row) -> int:
        return first.get(row["id"], _NEVER)

    of_machine: dict[str, int] = {}
    of_mission: dict[tuple[str, str | None], int] = {}
    of_session: dict[str, int] = {}
    for row in rows:
        machine, key = row["machine"], (row["machine"], row["mission_id"])
        leading = row["led_by"] or row["id"]
        of_machine[machine] = min(of_machine.get(machine, _NEVER), began(row))
        of_mission[key] = min(of_mission.get(key, _NEVER), began(row))
        of_session[leading] = min(of_session.get(leading, _NEVER), began(row))

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


def _row(row: Row, bars: dict[str, list[TimelineBar]], marks: list[TimelineMark]) -> TimelineRow:
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
        marks=sorted(marks, key=lambda mark: mark.seq),
    )
