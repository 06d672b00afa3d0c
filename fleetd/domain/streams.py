"""The event log as clients use it: appending, reading on from a position, subscribing."""

from typing import Any

from ..wire.base import Query
from ..wire.errors import Incompatible, InvalidParams, NotFound
from ..wire.events import PAYLOADS, REPORTED_ACTIVITY
from ..wire.model import Event
from ..wire.requests.event import EventAppend, EventList, EventPage, EventSubscribe, Subscription
from . import events
from .context import Context
from .ids import find
from .registry import handler
from .snapshots.beats import go_on
from .turns import BEGINS_WORK, follow_turn
from .tx import Tx

# An event may be as long as a line: a page of many such would fill the memory.
PAGE_BYTES = 1024 * 1024
AT_ONCE = 8


class EventTail(Query[EventPage], frozen=True):
    """The next events for a subscriber; not on the wire."""

    since: int
    types: list[str] | None = None
    mission_id: str | None = None
    limit: int = 200


@handler
def append(tx: Tx, request: EventAppend, ctx: Context) -> Event:
    """Append an event of a client; the daemon's own types are refused."""
    if request.type in PAYLOADS and request.type not in REPORTED_ACTIVITY:
        raise InvalidParams(
            f"Events of type {request.type} are written by fleetd itself.",
            hint="Use another type, or the method that causes this event.",
            field="type",
        )
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    agent_id = request.agent_id
    if mission_id is None and agent_id is not None:
        row = tx.one("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
        mission_id = row["mission_id"] if row else None
    event = events.append(
        tx, ctx, request.type, request.data, mission_id, agent_id, agent_id is not None
    )
    if agent_id is not None:
        follow_turn(tx, ctx, agent_id, event)
        if event.type in BEGINS_WORK:
            go_on(tx, ctx, agent_id)
    return event


@handler
def list_events(tx: Tx, request: EventList, ctx: Context) -> EventPage:
    """Return the events after a position, oldest first."""
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    types = [request.type] if request.type else None
    return _page(tx, request.since, types, mission_id, request.limit)


@handler
def tail(tx: Tx, request: EventTail, ctx: Context) -> EventPage:
    """Return the next events that a subscriber wants; a mission deleted since has none."""
    mission_id = request.mission_id
    if mission_id:
        try:
            mission_id = find(tx, "mission", mission_id)["id"]
        except NotFound:
            mission_id = request.mission_id
    return _page(tx, request.since, request.types, mission_id, request.limit)


def _page(
    tx: Tx, since: int, types: list[str] | None, mission_id: str | None, limit: int
) -> EventPage:
    params: dict[str, Any] = {"since": since, "limit": limit}
    if mission_id:
        params["mission"] = mission_id
    kinds = dict.fromkeys(types or [])
    params |= {f"type{n}": kind for n, kind in enumerate(kinds)}
    rows, full = _rows(tx, _next_of(len(kinds), of_mission=bool(mission_id)), params)
    # A page that is not full has looked at everything there is, also at what did not match.
    end = rows[-1]["seq"] if full else events.position(tx)
    return EventPage(
        events=[events.event_of(row) for row in rows], position=end, epoch=events.epoch(tx)
    )


def _next_of(types: int, *, of_mission: bool) -> str:
    """Return the statement for the next events, of any type or of so many.

    Each type has its own place in the index, and of each only the next are read: of types together
    every event that matches would be read and sorted, for one page after the other.
    """
    mine = " AND mission_id = :mission" if of_mission else ""
    where = f"WHERE seq > :since{mine}"
    if types < 2:
        only = " AND type = :type0" if types else ""
        return f"SELECT * FROM events {where}{only} ORDER BY seq LIMIT :limit"
    each = " UNION ALL ".join(
        f"SELECT seq FROM (SELECT seq FROM events {where} AND type = :type{n}"
        " ORDER BY seq LIMIT :limit) AS found"
        for n in range(types)
    )
    return (
        "SELECT * FROM events WHERE seq IN"
        f" (SELECT seq FROM ({each}) AS every ORDER BY seq LIMIT :limit) ORDER BY seq"
    )


def _rows(tx: Tx, sql: str, params: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of a page, and whether it is full: by its limit, or by its bytes."""
    rows: list[dict[str, Any]] = []
    limit, size = params["limit"], 0
    while len(rows) < limit and size < PAGE_BYTES:
        wanted = min(limit - len(rows), AT_ONCE)
        found = tx.all(sql, **params | {"limit": wanted})
        rows += found
        if len(found) < wanted:
            return rows, False
        size += sum(len(row["data_json"]) for row in found)
        params["since"] = rows[-1]["seq"]
    return rows, True


@handler
def subscribe(tx: Tx, request: EventSubscribe, ctx: Context) -> Subscription:
    """Check where a subscription wants to start; the connection then follows the log."""
    current = events.epoch(tx)
    if request.epoch is not None and request.epoch != current:
        raise Incompatible(
            f"The store's epoch is {current}, not {request.epoch}: positions have changed.",
            hint="Subscribe again without since and epoch, and read the state anew.",
            epoch=current,
        )
    end = events.position(tx)
    since = end if request.since is None else request.since
    if since > end:
        raise InvalidParams(
            f"since is {since}, but the log ends at {end}.",
            hint="Use the position of an earlier reply of this store.",
            field="since",
            position=end,
        )
    if request.mission_id:
        find(tx, "mission", request.mission_id)
    return Subscription(subscription_id=ctx.new_id("sub"), position=since, epoch=current)
