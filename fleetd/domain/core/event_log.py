"""Event log: append, and what activity keeps up: missions, agents, leases, recoveries."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from ...protocol.events import AgentRegistered, Payload, RecoveryConfirmed, payload_data
from ...protocol.records import Event
from .context import Context
from .tx import Ring, Row, Tx

_encode = msgspec.json.Encoder().encode
_INTO = "INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity, data_json)"
_INSERT = f"{_INTO} VALUES (:type, :stream, :now, :mission, :agent, :activity, :data)"
# So many events of one mission at once: with each statement the writer lets other threads go first.
AT_ONCE = 32
_INSERT_MANY = f"{_INTO} VALUES " + ", ".join(
    f"(:type{number}, :stream, :now, :mission, :agent{number}, 0, :data{number})"
    for number in range(AT_ONCE)
)
_MANY = [f"{name}{number}" for number in range(AT_ONCE) for name in ("type", "agent", "data")]


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
    return append(
        tx,
        ctx,
        payload.type,
        payload_data(payload),
        mission_id,
        agent_id,
        payload.activity if activity is None else activity,
    )


def emit_each(
    tx: Tx, ctx: Context, told: Sequence[tuple[Payload, str | None]], *, mission_id: str
) -> None:
    """Append many events of the daemon's own that are no activity, each with its agent."""
    if not told:
        return
    shared: Row = {"stream": _stream(mission_id, None), "now": ctx.now, "mission": mission_id}
    rows = [
        (payload.type, agent_id, _encode(payload_data(payload)).decode())
        for payload, agent_id in told
    ]
    whole = len(rows) - len(rows) % AT_ONCE
    for first in range(0, whole, AT_ONCE):
        some = chain.from_iterable(rows[first : first + AT_ONCE])
        tx.many(_INSERT_MANY, [shared | dict(zip(_MANY, some, strict=True))])
    tx.many(
        _INSERT,
        [
            shared | {"type": kind, "agent": agent_id, "data": data, "activity": 0}
            for kind, agent_id, data in rows[whole:]
        ],
    )
    tx.after_commit(Ring())


def append(
    tx: Tx,
    ctx: Context,
    kind: str,
    data: dict[str, Any],
    mission_id: str | None,
    agent_id: str | None,
    activity: bool,
) -> Event:
    """Append an event of any type; activity keeps up its mission, its agent and their leases."""
    columns = _columns(ctx, kind, data, mission_id, agent_id, activity=activity)
    seq = tx.value(f"{_INSERT} RETURNING seq", **columns)
    tx.after_commit(Ring())
    if activity:
        _keep_up(tx, ctx, kind, mission_id, agent_id, seq)
    return Event(
        seq=seq,
        type=kind,
        stream=_stream(mission_id, agent_id),
        timestamp=ctx.now,
        mission_id=mission_id,
        agent_id=agent_id,
        data=data,
    )


def _columns(
    ctx: Context,
    kind: str,
    data: dict[str, Any],
    mission_id: str | None,
    agent_id: str | None,
    *,
    activity: bool,
) -> Row:
    return {
        "type": kind,
        "stream": _stream(mission_id, agent_id),
        "now": ctx.now,
        "mission": mission_id,
        "agent": agent_id,
        "activity": int(activity),
        "data": _encode(data).decode(),
    }


def _stream(mission_id: str | None, agent_id: str | None) -> str:
    if mission_id:
        return f"mission:{mission_id}"
    return f"agent:{agent_id}" if agent_id else "fleet"


def _keep_up(
    tx: Tx, ctx: Context, kind: str, mission_id: str | None, agent_id: str | None, seq: int
) -> None:
    """Note what activity means: the mission is not silent, the agent lives, its leases go on."""
    if mission_id:
        tx.run(
            "UPDATE missions SET last_activity_at = :now, last_activity_seq = :seq,"
            " active_awake_ms = :awake, silent = 0 WHERE id = :id",
            now=ctx.now,
            seq=seq,
            awake=ctx.awake_ms,
            id=mission_id,
        )
        _resume_recoveries(tx, ctx, kind, mission_id, agent_id)
    if agent_id:
        _keep_alive(tx, ctx, agent_id)
        _renew_leases(tx, ctx, agent_id)


def _keep_alive(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Note that an agent is at work; one that was only not heard of is not lost any more."""
    seen = "UPDATE agents SET last_seen_at = :now, seen_awake_ms = :awake"
    params: Row = {"now": ctx.now, "awake": ctx.awake_ms, "id": agent_id}
    # Nearly always it was active: then the index by status has nothing to be written.
    if tx.all(f"{seen} WHERE id = :id AND status = 'active' RETURNING id", **params):
        return
    # One without a process is where it is heard.
    tx.run(
        f"{seen}, status = 'active', needs = NULL, needs_since = NULL,"
        " machine = CASE WHEN pid IS NULL THEN :machine ELSE machine END"
        " WHERE id = :id AND (status IN ('waiting', 'idle')"
        " OR (status = 'lost' AND pid IS NULL AND succeeded_by IS NULL))",
        machine=ctx.machine,
        **params,
    )


def _resume_recoveries(
    tx: Tx, ctx: Context, kind: str, mission_id: str, agent_id: str | None
) -> None:
    """Note that work goes on after a silence: the first activity of the agent that was briefed.

    An agent that registers may be about to ask for the recovery that is pending.
    """
    for row in tx.all(
        "UPDATE recoveries SET state = 'resumed', resumed_at = :now WHERE mission_id = :mission"
        " AND state <> 'resumed' AND (state <> 'pending' OR :kind <> :registered)"
        " AND (agent_id IS NULL OR agent_id = :agent) RETURNING id",
        now=ctx.now,
        mission=mission_id,
        kind=kind,
        registered=AgentRegistered.type,
        agent=agent_id,
    ):
        emit(tx, ctx, RecoveryConfirmed(recovery_id=row["id"]), mission_id=mission_id)


def _renew_leases(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Prolong the agent's leases, each by its own length; one that ran out stays out."""
    for row in tx.all(
        "SELECT DISTINCT timeout_ms FROM locks WHERE held_by = :agent AND status = 'active'"
        " AND orphaned_at IS NULL",
        agent=agent_id,
    ):
        tx.run(
            "UPDATE locks SET expires_at = :until WHERE held_by = :agent AND status = 'active'"
            " AND timeout_ms = :length AND expires_at > :now AND expires_at < :until"
            " AND orphaned_at IS NULL",
            until=ctx.at(row["timeout_ms"]),
            agent=agent_id,
            length=row["timeout_ms"],
            now=ctx.now,
        )


_data = msgspec.json.Decoder(dict[str, Any]).decode


def data_of(row: Row) -> dict[str, Any]:
    """Return the data of an event's row."""
    return _data(row["data_json"])


def event_of(row: Row) -> Event:
    """Build an Event from its row."""
    return Event(
        seq=row["seq"],
        type=row["type"],
        stream=row["stream"],
        timestamp=row["timestamp"],
        mission_id=row["mission_id"],
        agent_id=row["agent_id"],
        data=data_of(row),
    )


def position(tx: Tx) -> int:
    """Return the ``seq`` of the newest event there ever was."""
    return tx.value("SELECT max(seq) AS seq FROM events") or 0


def nth_newest_position(tx: Tx, agent_id: str | None, number: int) -> int:
    """Return the ``seq`` behind which an agent's last ``number`` events are; 0 if it has fewer.

    Only the index is read: what looks back no further costs the same however long the log is.
    """
    found: int | None = tx.value(
        "SELECT seq FROM events WHERE agent_id = :agent ORDER BY seq DESC LIMIT 1 OFFSET :number",
        agent=agent_id,
        number=number,
    )
    return found or 0


def epoch(tx: Tx) -> str:
    """Return the epoch of the store."""
    return str(tx.value("SELECT value FROM store_meta WHERE key = 'epoch'"))
