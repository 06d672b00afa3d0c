"""Event log: append events, and let activity refresh missions, agents, leases, recoveries."""

import contextlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from ...protocol.events import (
    AgentNeeds,
    AgentRegistered,
    MissionChanged,
    Payload,
    RecoveryConfirmed,
    payload_data,
)
from ...protocol.records import Event
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import AgentNeed
from . import changes, history
from .assigned import encode_json
from .context import Context
from .observers import events_appended
from .tx import Ring, Row, Tx

# Activity that says nothing about the work, such as a lease renewal, a checkpoint or a note; the
# action before it does. The store's index of deeds lists the same types: adding one needs a
# migration.
NO_DEEDS = (
    *("fleet_checkpointed", "message_acked", "agent_registered", "agent_deregistered"),
    *("agent_paused", "agent_resumed", "lock_renewed", "tool_started", "tool_finished"),
    *("note_added", "note_withdrawn"),
)
_MARKS = {
    "window_compacted": "compaction",
    "window_briefed": "briefing",
    "fleet_checkpointed": "checkpoint",
    "fleet_recovered": "recovery",
    "lock_wait_ended": "lock_wait",
    "message_sent": "mail",
    "message_delivered": "mail",
    "error_reported": "error",
}
# These needs are not urgent: the agent has finished its work, or continues by itself.
AT_EASE: tuple[AgentNeed, ...] = ("finished", "background")
# The columns of an agent's row when the agent needs nothing.
NO_NEED = "needs = NULL, needs_since = NULL, needs_text = NULL, needs_reset_at = NULL"
# After every possible event.
LOG_END = 2**62
# Events per INSERT: with each statement the writer lets other threads go first.
AT_ONCE = 32


def emit(
    tx: Tx,
    ctx: Context,
    payload: Payload,
    *,
    mission_id: str | None = None,
    agent_id: str | None = None,
    activity: bool | None = None,
) -> Event:
    """Append the daemon's own event; ``activity`` overrides that of the payload's type."""
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
    tx: Tx, ctx: Context, payloads: Sequence[tuple[Payload, str | None]], *, mission_id: str
) -> None:
    """Append many of the daemon's own events that are no activity, each with its agent."""
    _insert(
        tx,
        ctx,
        mission_id,
        [(payload.type, agent_id, payload_data(payload)) for payload, agent_id in payloads],
        activity=False,
    )


def append(
    tx: Tx,
    ctx: Context,
    kind: str,
    data: dict[str, Any],
    mission_id: str | None,
    agent_id: str | None,
    activity: bool,
) -> Event:
    """Append an event of any type; activity refreshes its mission, agent and leases."""
    [event] = append_each(tx, ctx, [(kind, data)], mission_id, agent_id, activity)
    return event


def append_each(
    tx: Tx,
    ctx: Context,
    entries: Sequence[tuple[str, dict[str, Any]]],
    mission_id: str | None,
    agent_id: str | None,
    activity: bool,
) -> list[Event]:
    """Append events that happened together, each with type and data; activity counts once."""
    rows = [(kind, agent_id, data) for kind, data in entries]
    seqs = _insert(tx, ctx, mission_id, rows, activity=activity)
    events = [
        Event(
            seq=seq,
            type=kind,
            stream=_stream(mission_id, agent_id),
            timestamp=ctx.now,
            mission_id=mission_id,
            agent_id=agent_id,
            data=data,
        )
        for seq, (kind, data) in zip(seqs, entries, strict=True)
    ]
    if events and activity:
        _keep_up(tx, ctx, events, mission_id, agent_id)
    return events


def _insert(
    tx: Tx,
    ctx: Context,
    mission_id: str | None,
    rows: Sequence[tuple[str, str | None, dict[str, Any]]],
    *,
    activity: bool,
) -> list[int]:
    """Write events of one mission, each with its type, agent and data; return their positions."""
    seqs: list[int] = []
    changed = tx.changes.pop(mission_id, None) if mission_id and rows else None
    shared: Row = {"now": ctx.now, "mission": mission_id, "activity": int(activity)}
    for first in range(0, len(rows), AT_ONCE):
        some, params = rows[first : first + AT_ONCE], dict(shared)
        for number, (kind, agent_id, data) in enumerate(some):
            params[f"type{number}"] = kind
            params[f"stream{number}"] = _stream(mission_id, agent_id)
            params[f"agent{number}"] = agent_id
            params[f"data{number}"] = encode_json(data).decode()
            params[f"state{number}"] = changes.as_json(changed) if changed else None
            params[f"mark{number}"] = mark = mark_of(kind, data)
            params[f"marked{number}"] = ctx.now_ms if mark else None
            changed = None
        # The store numbers the rows in order, but does not always return them in it.
        seqs += sorted(seq for (seq,) in tx.tuples(_statement(len(some)), **params))
    if seqs:
        tx.log_end = seqs[-1]
        if mission_id:
            tx.last_seqs[mission_id] = seqs[-1]
        tx.after_commit(Ring())
        events_appended(tx, ctx, mission_id, list(zip(seqs, rows, strict=True)))
    return seqs


def mark_of(kind: str, data: dict[str, Any]) -> str | None:
    """Return the mark of an event on a timeline, None for most events.

    A need of an agent is marked where a person has to do something. The store's migration lists the
    same marks: adding one needs another migration.
    """
    if kind == AgentNeeds.type:
        return "needs" if data.get("needs") not in ("none", *AT_EASE) else None
    return _MARKS.get(kind)


@cache
def _statement(number: int) -> str:
    """Return the statement that appends so many events."""
    rows = ", ".join(
        f"(:type{each}, :stream{each}, :now, :mission, :agent{each}, :activity, :data{each},"
        f" :state{each}, :mark{each}, :marked{each})"
        for each in range(number)
    )
    return (
        "INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity, data_json,"
        f" state_json, mark, marked_ms) VALUES {rows} RETURNING seq"
    )


def settle(tx: Tx, ctx: Context) -> None:
    """Store the changes of missions that followed their last event of this transaction.

    A mission without an event gets one of its own: its work went on elsewhere. Then the history of
    agents, locks and edits is written at the current end of the log.
    """
    if not (tx.changes or tx.touched):
        return
    for mission_id in list(tx.changes):
        seq = tx.last_seqs.get(mission_id)
        if seq is not None:
            known = tx.value("SELECT state_json FROM events WHERE seq = :seq", seq=seq)
            changed = tx.changes.pop(mission_id)
            if known:
                changed = changes.merged(changes.decode(known), changed)
            state = changes.as_json(changed)
            tx.run("UPDATE events SET state_json = :state WHERE seq = :seq", state=state, seq=seq)
        elif tx.exists("SELECT 1 AS there FROM missions WHERE id = :id", id=mission_id):
            emit(tx, ctx, MissionChanged(), mission_id=mission_id)
    tx.changes.clear()
    history.keep(tx, ctx)


def _stream(mission_id: str | None, agent_id: str | None) -> str:
    if mission_id:
        return f"mission:{mission_id}"
    return f"agent:{agent_id}" if agent_id else "fleet"


def _keep_up(
    tx: Tx, ctx: Context, events: Sequence[Event], mission_id: str | None, agent_id: str | None
) -> None:
    """Note what activity means: the mission is not silent, the agent lives, its leases go on.

    A mission without an open recovery takes one statement, and so does an agent without a lock.
    """
    if mission_id:
        deeds = (event.seq for event in reversed(events) if event.type not in NO_DEEDS)
        awaits_work = tx.value(
            "UPDATE missions SET last_activity_at = :now, last_activity_seq = :seq,"
            " last_deed_seq = coalesce(:deed, last_deed_seq), active_awake_ms = :awake, silent = 0"
            " WHERE id = :id RETURNING EXISTS (SELECT 1 FROM recoveries"
            " WHERE mission_id = missions.id AND state <> 'resumed') AS awaits_work",
            now=ctx.now,
            seq=events[-1].seq,
            deed=next(deeds, None),
            awake=ctx.awake_ms,
            id=mission_id,
        )
        if awaits_work:
            kinds = {event.type for event in events}
            _resume_recoveries(tx, ctx, kinds, mission_id, agent_id)
    if agent_id and _keep_alive(tx, ctx, agent_id):
        _renew_leases(tx, ctx, agent_id)


def _keep_alive(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Note that an agent is at work, and return whether it may hold locks.

    An agent that was lost only because it was silent is no longer lost.
    """
    seen = "UPDATE agents SET last_seen_at = :now, seen_awake_ms = :awake"
    holds = (
        "RETURNING EXISTS (SELECT 1 FROM locks WHERE held_by = agents.id AND status = 'active'"
        " AND orphaned_at IS NULL) AS holds"
    )
    params: Row = {"now": ctx.now, "awake": ctx.awake_ms, "id": agent_id}
    # The agent nearly always was active already: then the index by status needs no write.
    row = tx.one(f"{seen} WHERE id = :id AND status = 'active' {holds}", **params)
    if row is None:
        needed = tx.one("SELECT mission_id, needs FROM agents WHERE id = :id", id=agent_id)
        # An agent without a process is on the machine that it reports to.
        row = tx.one(
            f"{seen}, status = 'active', {NO_NEED},"
            " machine = CASE WHEN pid IS NULL THEN :machine ELSE machine END"
            " WHERE id = :id AND (status IN ('waiting', 'idle')"
            f" OR (status = 'lost' AND pid IS NULL AND succeeded_by IS NULL)) {holds}",
            machine=ctx.machine,
            **params,
        )
        if row is not None and needed is not None:
            history.agent_changed(tx, agent_id)
            emit_need_ended(tx, ctx, {**needed, "id": agent_id})
    # An agent that is not registered, or was replaced, may hold locks too.
    return row is None or bool(row["holds"])


def emit_need_ended(tx: Tx, ctx: Context, before: Row) -> None:
    """Append that an agent no longer needs anybody, if its row ``before`` says it did."""
    if before["needs"] is not None:
        payload = AgentNeeds(needs="none")
        emit(tx, ctx, payload, mission_id=before["mission_id"], agent_id=before["id"])


def _resume_recoveries(
    tx: Tx, ctx: Context, kinds: set[str], mission_id: str, agent_id: str | None
) -> None:
    """Note that work goes on after a silence: the first activity of the agent that was briefed.

    An agent that registers may be about to ask for the recovery that is pending.
    """
    for row in tx.all(
        "UPDATE recoveries SET state = 'resumed', resumed_at = :now WHERE mission_id = :mission"
        " AND state <> 'resumed' AND (state <> 'pending' OR :works = 1)"
        " AND (agent_id IS NULL OR agent_id = :agent) RETURNING id",
        now=ctx.now,
        mission=mission_id,
        works=int(kinds != {AgentRegistered.type}),
        agent=agent_id,
    ):
        emit(tx, ctx, RecoveryConfirmed(recovery_id=row["id"]), mission_id=mission_id)


def _renew_leases(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Prolong the agent's leases, each by its own length; an expired one stays expired.

    Only further edits prolong a lease that an edit took.
    """
    for row in tx.all(
        "SELECT DISTINCT timeout_ms FROM locks WHERE held_by = :agent AND status = 'active'"
        " AND orphaned_at IS NULL AND automatic = 0",
        agent=agent_id,
    ):
        tx.run(
            "UPDATE locks SET expires_at = :until WHERE held_by = :agent AND status = 'active'"
            " AND timeout_ms = :length AND expires_at > :now AND expires_at < :until"
            " AND orphaned_at IS NULL AND automatic = 0",
            until=ctx.at(row["timeout_ms"]),
            agent=agent_id,
            length=row["timeout_ms"],
            now=ctx.now,
        )


_data = msgspec.json.Decoder(dict[str, Any]).decode


def data_of(row: Row) -> dict[str, Any]:
    """Return the data of an event's row."""
    return _data(row["data_json"])


def happened_at(row: Row, data: dict[str, Any]) -> str:
    """Return when an event happened: before its timestamp, if it waited in the spool.

    Any client may append an event whose ``happened_at`` is invalid or in the future.
    """
    recorded_at = str(row["timestamp"])
    given = data.get("happened_at")
    if isinstance(given, str):
        with contextlib.suppress(ValueError, OverflowError):
            return min(iso(to_ms(given)), recorded_at)
    return recorded_at


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
    """Return the ``seq`` of the newest event that was ever appended."""
    return tx.value("SELECT max(seq) AS seq FROM events") or 0


def nth_newest_position(tx: Tx, agent_id: str | None, number: int, end: int = LOG_END) -> int:
    """Return the ``seq`` after which an agent's last ``number`` events are; 0 if it has fewer.

    Events after ``end`` do not count. The query reads only the index, so its cost does not depend
    on the length of the log.
    """
    found: int | None = tx.value(
        "SELECT seq FROM events WHERE agent_id = :agent AND seq <= :end"
        " ORDER BY seq DESC LIMIT 1 OFFSET :number",
        agent=agent_id,
        end=end,
        number=number,
    )
    return found or 0


def epoch(tx: Tx) -> str:
    """Return the epoch of the store."""
    return str(tx.value("SELECT value FROM store_meta WHERE key = 'epoch'"))


def position_before(tx: Tx, time: str, end: int) -> int:
    """Return the ``seq`` after which events are of a time or later; ``end`` is the newest one's.

    The log is in the order of time, so this is a binary search that reads one row per step. Where
    the clock was set back, it finds the place of one such step.
    """
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        row = tx.one(
            "SELECT seq, timestamp FROM events WHERE seq > :middle ORDER BY seq LIMIT 1",
            middle=middle,
        )
        if row is not None and row["timestamp"] < time:
            low = row["seq"]
        else:
            high = middle
    return low
