"""The event log as clients use it: append, read from a position, subscribe, keep a cursor.

A cursor in use keeps the events of its stream that it has not reached. Moving or reading it counts
as use. A cursor that was unused for as long as events are kept can lose some. Its row then notes
the last lost one, and its reader is warned until the cursor moves.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...protocol.errors import Incompatible, InvalidParams, InvalidState, NotFound
from ...protocol.events import PAYLOADS, REPORTED_ACTIVITY
from ...protocol.records import Event, Record
from ...protocol.requests.event import (
    CursorAdvance,
    CursorGap,
    CursorPosition,
    EventAppend,
    EventList,
    EventPage,
    EventSubscribe,
    Subscription,
)
from ..core import event_log
from ..core.context import Context
from ..core.ids import find
from ..core.observers import file_edited
from ..core.registry import method, optimistic
from ..core.sql import Where, inside_of, named_params
from ..core.tx import Row, Tx
from ..liveness.open_calls import BEGINS_WORK, track_calls
from ..retention.events_and_locks import WHOLE_LOG, unused_since
from ..snapshots.triggers import resume_timer

# An event may be as long as a line, so a page of many such events would fill the memory.
PAGE_BYTES = 1024 * 1024
AT_ONCE = 8


class EventQuery(NamedTuple):
    """The events that a page covers: those after ``since`` and before ``before``, both exclusive.

    The page has the first ``limit`` of them, or with ``newest`` the last ones, newest first.
    """

    since: int
    before: int
    types: list[str]
    mission_id: str | None
    agent_id: str | None
    limit: int
    newest: bool = False

    @property
    def looks_on(self) -> bool:
        """Return whether no index covers the query: it narrows the events of an agent further."""
        return self.agent_id is not None and bool(self.types or self.mission_id)

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters of the statement."""
        named = {"mission": self.mission_id, "agent": self.agent_id}
        return {
            "since": self.since,
            "before": self.before,
            **{name: value for name, value in named.items() if value is not None},
            **named_params("type", self.types),
        }


@optimistic
@method(EventAppend)
def append(tx: Tx, ctx: Context, request: EventAppend) -> Event:
    """Append an event of a client; the daemon's own types are refused."""
    if request.type in PAYLOADS and request.type not in REPORTED_ACTIVITY:
        raise InvalidParams(
            f"Events of type {request.type} are written by fleetd itself.",
            hint="Use another type, or call the method that causes this event.",
            field="type",
        )
    mission_id, agent_id = _mission(tx, request.mission_id), request.agent_id
    if agent_id is None:
        return event_log.append(tx, ctx, request.type, request.data, mission_id, None, False)
    if mission_id is None:
        mission_id = tx.value("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
    entries = [(request.type, request.data)]
    [event] = append_of_agent(tx, ctx, agent_id, mission_id, entries)
    if event.type == "file_modified" and isinstance(file := event.data.get("file"), str):
        file_edited(tx, ctx, agent_id, file)
    return event


def append_of_agent(
    tx: Tx,
    ctx: Context,
    agent_id: str,
    mission_id: str | None,
    entries: Sequence[tuple[str, dict[str, Any]]],
) -> list[Event]:
    """Append what an agent did in its mission, each with its type and data."""
    events = event_log.append_each(tx, ctx, entries, mission_id, agent_id, activity=True)
    for event in events:
        track_calls(tx, ctx, agent_id, event)
    if any(event.type in BEGINS_WORK for event in events):
        resume_timer(tx, ctx, agent_id)
    return events


@method(EventList)
def list_events(tx: Tx, ctx: Context, request: EventList) -> EventPage:
    """Return the events after a position, oldest first, or those before one, newest first."""
    if request.type is not None and request.types is not None:
        raise InvalidParams(
            "type and types are both given.",
            hint="Give types; a single type is allowed.",
            field="types",
        )
    end = event_log.position(tx)
    since = request.since
    if request.since_time is not None:
        since = max(since, event_log.position_before(tx, request.since_time, end))
    before = end + 1 if request.before is None else min(request.before, end + 1)
    return _page(
        tx,
        ctx,
        EventQuery(
            since=since,
            before=before,
            types=_distinct(request.types or ([request.type] if request.type else ())),
            mission_id=_mission(tx, request.mission_id),
            agent_id=request.agent_id,
            limit=request.limit,
            newest=request.newest,
        ),
    )


def _mission(tx: Tx, given: str | None) -> str | None:
    return str(find(tx, "mission", given)["id"]) if given else None


def _distinct(types: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(types))


def tail(
    tx: Tx,
    ctx: Context,
    since: int,
    limit: int,
    *,
    types: list[str] | None = None,
    mission_id: str | None = None,
    agent_id: str | None = None,
) -> EventPage:
    """Return the next events that a subscriber wants; a mission deleted since has none."""
    with suppress(NotFound):
        mission_id = _mission(tx, mission_id)
    return _page(
        tx,
        ctx,
        EventQuery(
            since=since,
            before=event_log.position(tx) + 1,
            types=_distinct(types or ()),
            mission_id=mission_id,
            agent_id=agent_id,
            limit=limit,
        ),
    )


def _page(tx: Tx, ctx: Context, wanted: EventQuery) -> EventPage:
    if wanted.looks_on:
        wanted = _within_reach(tx, ctx, wanted)
    rows, full = _rows(tx, wanted)
    if full:
        position = rows[-1]["seq"]
    elif wanted.newest:
        # A page that is not full covered the whole range, including events that did not match.
        position = min(wanted.since + 1, wanted.before)
    else:
        position = wanted.before - 1
    found = [event_log.event_of(row) for row in rows]
    return EventPage(events=found, position=position, epoch=event_log.epoch(tx))


def _within_reach(tx: Tx, ctx: Context, wanted: EventQuery) -> EventQuery:
    """Return the query narrowed to as many events of the agent as one page may examine."""
    order = "DESC" if wanted.newest else "ASC"
    last = tx.one(
        "SELECT seq FROM events WHERE agent_id = :agent AND seq > :since AND seq < :before"
        f" ORDER BY seq {order} LIMIT 1 OFFSET :others",
        agent=wanted.agent_id,
        since=wanted.since,
        before=wanted.before,
        others=ctx.batches.looked_at - 1,
    )
    if last is None:
        return wanted
    end = {"since": last["seq"] - 1} if wanted.newest else {"before": last["seq"] + 1}
    return wanted._replace(**end)


def _next_of(wanted: EventQuery) -> str:
    """Return the statement for the next events, of any type or of several types.

    Each type has its own range in the index, so the statement reads only the next events of each.
    With one condition for all types, every page would read and sort all events that match. No index
    narrows the events of an agent further, so the statement reads those that a page may examine.
    """
    order = "ORDER BY seq DESC" if wanted.newest else "ORDER BY seq"
    where = "WHERE seq > :since AND seq < :before"
    mine = " AND mission_id = :mission" if wanted.mission_id else ""
    if wanted.agent_id:
        where += " AND agent_id = :agent"
        if not wanted.looks_on:
            return f"SELECT * FROM events {where} {order} LIMIT :limit"
        if wanted.types:
            mine += f" AND type IN ({inside_of('type', wanted.types)})"
        return (
            "SELECT * FROM events WHERE seq IN (SELECT seq FROM events WHERE seq IN"
            f" (SELECT seq FROM events {where}){mine} {order} LIMIT :limit) {order}"
        )
    where += mine
    if not wanted.types:
        return f"SELECT * FROM events {where} {order} LIMIT :limit"
    each = " UNION ALL ".join(
        f"SELECT seq FROM (SELECT seq FROM events {where} AND type = :{name}"
        f" {order} LIMIT :limit) AS found"
        for name in named_params("type", wanted.types)
    )
    return (
        "SELECT * FROM events WHERE seq IN"
        f" (SELECT seq FROM ({each}) AS every {order} LIMIT :limit) {order}"
    )


def _rows(tx: Tx, wanted: EventQuery) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of a page, and whether it is full: by its limit, or by its bytes."""
    rows: list[dict[str, Any]] = []
    sql, params, size = _next_of(wanted), wanted.params, 0
    while len(rows) < wanted.limit and size < PAGE_BYTES:
        most = min(wanted.limit - len(rows), AT_ONCE)
        found = tx.all(sql, **params, limit=most)
        rows += found
        if len(found) < most:
            return rows, False
        size += sum(len(row["data_json"]) for row in found)
        params["before" if wanted.newest else "since"] = rows[-1]["seq"]
    return rows, True


@method(EventSubscribe)
def subscribe(tx: Tx, ctx: Context, request: EventSubscribe) -> Subscription:
    """Check where a subscription wants to start; the connection then follows the log."""
    current = event_log.epoch(tx)
    if request.epoch is not None and request.epoch != current:
        raise Incompatible(
            f"The store's epoch is {current}, not {request.epoch}: positions have changed.",
            hint="Subscribe again without since and epoch, and read the state again.",
            epoch=current,
        )
    end = event_log.position(tx)
    since = end if request.since is None else request.since
    if since > end:
        raise InvalidParams(
            f"since is {since}, but the log ends at {end}.",
            hint="Use a position from a reply of this store.",
            field="since",
            position=end,
        )
    if request.mission_id:
        find(tx, "mission", request.mission_id)
    return Subscription(subscription_id=ctx.new_id("sub"), position=since, epoch=current)


USED_MS = 3_600_000


class CursorLine(Record, frozen=True, kw_only=True):
    """A cursor as the doctor shows it; ``used`` says whether it still keeps unread events."""

    consumer: str
    stream: str
    position: int
    used_at: str
    used: bool
    missed_seq: int


class CursorList(Record, frozen=True, kw_only=True):
    """Cursors, those unused for longest first, and how many more there are."""

    cursors: list[CursorLine]
    more: int
    end: int


def read_cursor(tx: Tx, ctx: Context, consumer: str, stream: str) -> tuple[CursorPosition, bool]:
    """Return a consumer's position, 0 when it never read the stream.

    Also return whether the caller must note this use, because reading the row does not.
    """
    row = _row(tx, consumer, stream)
    if row is None:
        return CursorPosition(position=0, epoch=event_log.epoch(tx)), False
    gap = _gap(tx, stream, row)
    used_lately = ctx.at(-USED_MS) <= row["updated_at"] <= ctx.at(USED_MS)
    return CursorPosition(
        position=row["position"], epoch=event_log.epoch(tx), gap=gap
    ), not used_lately


def touch_cursor(tx: Tx, ctx: Context, consumer: str, stream: str) -> None:
    """Note that a cursor is in use now, if it exists."""
    tx.run(
        "UPDATE cursors SET updated_at = :now WHERE consumer = :consumer AND stream = :stream",
        now=ctx.now,
        consumer=consumer,
        stream=stream,
    )


def _row(tx: Tx, consumer: str, stream: str) -> Row | None:
    return tx.one(
        "SELECT * FROM cursors WHERE consumer = :consumer AND stream = :stream",
        consumer=consumer,
        stream=stream,
    )


def _gap(tx: Tx, stream: str, row: Row) -> CursorGap | None:
    """Return the gap of events that were deleted before the cursor reached them."""
    if row["missed_seq"] <= row["position"]:
        return None
    where = Where()
    where.add("seq > :position", position=row["position"])
    if stream != WHOLE_LOG:  # the mission or the agent names an index
        kind, _, owner_id = stream.partition(":")
        where.equal(**{"mission_id" if kind == "mission" else "agent_id": owner_id}, stream=stream)
    first = tx.value(f"SELECT min(seq) AS seq FROM events WHERE {where}", **where.params)
    return CursorGap(
        first_available=first or event_log.position(tx) + 1, missed_until=row["missed_seq"]
    )


@optimistic
@method(CursorAdvance)
def cursor_advance(tx: Tx, ctx: Context, request: CursorAdvance) -> CursorPosition:
    """Move a cursor forward; never backwards, never past the end of the log.

    A gap is reported until the cursor moves on. The reply to that move reports it for the last
    time.
    """
    row = _row(tx, request.consumer, request.stream)
    before = row["position"] if row else 0
    if request.position < before:
        raise InvalidState(
            f"The cursor of {request.consumer} on {request.stream} is at {before} and does "
            f"not go back to {request.position}.",
            hint="To read events again, list them since an earlier position and leave the cursor.",
            position=before,
        )
    # Do not read the end itself first: it moves all the time.
    reached = "SELECT 1 AS there FROM events WHERE seq >= :position LIMIT 1"
    is_behind = not tx.exists(reached, position=request.position)
    if is_behind and request.position > (end := event_log.position(tx)):
        raise InvalidParams(
            f"position is {request.position}, but the log ends at {end}.",
            hint="Advance to the seq of an event that you have read.",
            field="position",
            position=end,
        )
    gap = _gap(tx, request.stream, row) if row else None
    tx.run(
        "INSERT INTO cursors (consumer, stream, position, updated_at)"
        " VALUES (:consumer, :stream, :position, :now)"
        " ON CONFLICT (consumer, stream) DO UPDATE SET updated_at = :now, missed_seq ="
        " CASE WHEN cursors.position = :position THEN cursors.missed_seq ELSE 0 END,"
        " position = :position",
        consumer=request.consumer,
        stream=request.stream,
        position=request.position,
        now=ctx.now,
    )
    return CursorPosition(position=request.position, epoch=event_log.epoch(tx), gap=gap)


def least_used_cursors(tx: Tx, ctx: Context, most: int) -> CursorList:
    """Return the cursors that were unused for longest."""
    rows = tx.all(
        "SELECT consumer, stream, position, updated_at AS used_at,"
        " CASE WHEN missed_seq > position THEN missed_seq ELSE 0 END AS missed_seq"
        " FROM cursors ORDER BY updated_at, consumer, stream LIMIT :most",
        most=most,
    )
    number = tx.value("SELECT count(*) AS number FROM cursors")
    old = unused_since(ctx)
    return CursorList(
        cursors=[CursorLine(**row, used=row["used_at"] >= old) for row in rows],
        more=number - len(rows),
        end=event_log.position(tx),
    )
