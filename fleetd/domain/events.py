"""The event log; must not know any noun but events and what activity keeps up."""

from typing import Any

import msgspec

from ..wire.base import Query
from ..wire.errors import Incompatible, InvalidParams, NotFound
from ..wire.events import (
    PAYLOADS,
    REPORTED_ACTIVITY,
    Payload,
    RecoveryConfirmed,
    payload_data,
)
from ..wire.model import Event
from ..wire.requests.event import EventAppend, EventList, EventPage, EventSubscribe, Subscription
from .context import Context
from .ids import find
from .registry import handler
from .tx import Ring, Row, Tx

_encode = msgspec.json.Encoder().encode


class EventTail(Query[EventPage], frozen=True):
    """The next events for a subscriber; not on the wire."""

    since: int
    types: list[str] | None = None
    mission_id: str | None = None
    limit: int = 200


def emit(
    tx: Tx,
    ctx: Context,
    payload: Payload,
    *,
    mission_id: str | None = None,
    agent_id: str | None = None,
    activity: bool | None = None,
) -> Event:
    """Append the daemon's own event; ``activity`` overrides what the payload's type says."""
    return _append(
        tx,
        ctx,
        payload.type,
        payload_data(payload),
        mission_id,
        agent_id,
        payload.activity if activity is None else activity,
    )


def _append(
    tx: Tx,
    ctx: Context,
    kind: str,
    data: dict[str, Any],
    mission_id: str | None,
    agent_id: str | None,
    activity: bool,
) -> Event:
    seq = tx.value(
        "INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity, data_json)"
        " VALUES (:type, :stream, :now, :mission, :agent, :activity, :data) RETURNING seq",
        type=kind,
        stream=_stream(mission_id, agent_id),
        now=ctx.now,
        mission=mission_id,
        agent=agent_id,
        activity=int(activity),
        data=_encode(data).decode(),
    )
    tx.after_commit(Ring())
    if activity:
        _keep_up(tx, ctx, mission_id, agent_id, seq)
    return Event(
        seq=seq,
        type=kind,
        stream=_stream(mission_id, agent_id),
        timestamp=ctx.now,
        mission_id=mission_id,
        agent_id=agent_id,
        data=data,
    )


def _stream(mission_id: str | None, agent_id: str | None) -> str:
    if mission_id:
        return f"mission:{mission_id}"
    return f"agent:{agent_id}" if agent_id else "fleet"


def _keep_up(tx: Tx, ctx: Context, mission_id: str | None, agent_id: str | None, seq: int) -> None:
    """Note what activity means: the mission is not silent, the agent lives, its leases go on."""
    if mission_id:
        tx.run(
            "UPDATE missions SET last_activity_at = :now, last_activity_seq = :seq WHERE id = :id",
            now=ctx.now,
            seq=seq,
            id=mission_id,
        )
        _confirm_recovery(tx, ctx, mission_id, agent_id)
    if agent_id:
        tx.run(
            "UPDATE agents SET last_seen_at = :now WHERE id = :id AND last_seen_at < :now",
            now=ctx.now,
            id=agent_id,
        )
        _renew_leases(tx, ctx, agent_id)


def _confirm_recovery(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> None:
    """Note that the one who was briefed went on: its first activity since then."""
    rows = tx.all(
        "UPDATE recoveries SET state = 'resumed', resumed_at = :now WHERE mission_id = :mission"
        " AND state = 'briefed' AND (agent_id IS NULL OR agent_id = :agent) RETURNING id",
        now=ctx.now,
        mission=mission_id,
        agent=agent_id,
    )
    for row in rows:
        emit(tx, ctx, RecoveryConfirmed(recovery_id=row["id"]), mission_id=mission_id)


def _renew_leases(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Prolong the agent's leases, each by its own length; one that ran out stays out."""
    lengths = tx.all(
        "SELECT DISTINCT timeout_ms FROM locks WHERE held_by = :agent AND status = 'active'",
        agent=agent_id,
    )
    for row in lengths:
        tx.run(
            "UPDATE locks SET expires_at = :until WHERE held_by = :agent AND status = 'active'"
            " AND timeout_ms = :length AND expires_at > :now AND expires_at < :until",
            until=ctx.at(row["timeout_ms"]),
            agent=agent_id,
            length=row["timeout_ms"],
            now=ctx.now,
        )


def event_of(row: Row) -> Event:
    """Build an Event from its row."""
    return Event(
        seq=row["seq"],
        type=row["type"],
        stream=row["stream"],
        timestamp=row["timestamp"],
        mission_id=row["mission_id"],
        agent_id=row["agent_id"],
        data=msgspec.json.decode(row["data_json"]),
    )


def position(tx: Tx) -> int:
    """Return the ``seq`` of the newest event there ever was."""
    return tx.value("SELECT max(seq) AS seq FROM events") or 0


def epoch(tx: Tx) -> str:
    """Return the epoch of the store."""
    return str(tx.value("SELECT value FROM store_meta WHERE key = 'epoch'"))


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
    return _append(tx, ctx, request.type, request.data, mission_id, agent_id, agent_id is not None)


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
    where = ["seq > :since"]
    params: dict[str, Any] = {"since": since, "limit": limit}
    if mission_id:
        where.append("mission_id = :mission")
        params["mission"] = mission_id
    if types:
        where.append("type IN (" + ", ".join(f":type{n}" for n in range(len(types))) + ")")
        params |= {f"type{n}": kind for n, kind in enumerate(types)}
    rows = tx.all(
        f"SELECT * FROM events WHERE {' AND '.join(where)} ORDER BY seq LIMIT :limit",
        **params,
    )
    # A page that is not full has looked at everything there is, also at what did not match.
    end = rows[-1]["seq"] if len(rows) == limit else position(tx)
    return EventPage(events=[event_of(row) for row in rows], position=end, epoch=epoch(tx))


@handler
def subscribe(tx: Tx, request: EventSubscribe, ctx: Context) -> Subscription:
    """Check where a subscription wants to start; the connection then follows the log."""
    current = epoch(tx)
    if request.epoch is not None and request.epoch != current:
        raise Incompatible(
            f"The store's epoch is {current}, not {request.epoch}: positions have changed.",
            hint="Subscribe again without since and epoch, and read the state anew.",
            epoch=current,
        )
    end = position(tx)
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
