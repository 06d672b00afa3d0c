"""Errors of agents: the event, and the checkpoint that records it or that it joins."""

import msgspec

from ...protocol.events import ErrorReported, MessageFailed
from ...protocol.requests.checkpoint import ErrorCheckpoint, ErrorReport
from ...protocol.types import OPEN_MISSION
from ..core.coalescing import COALESCE_MS, details_of, merged, since_last
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.observers import error_met
from ..core.registry import method
from ..core.soft_delete import LIVE
from ..core.tx import LogLine, Row, Tx
from .checkpoints import Reason, take
from .state import State, capture


@method(ErrorReport)
def report(tx: Tx, ctx: Context, request: ErrorReport) -> ErrorCheckpoint:
    """Record an error of an agent: snapshot its run, then do all that ``note`` does."""
    error_met(tx, ctx, request.agent_id, f"{request.name}: {request.message}")
    return note(tx, ctx, request)


def note(tx: Tx, ctx: Context, request: ErrorReport) -> ErrorCheckpoint:
    """Record an error; in a mission, take a checkpoint before anybody handles the error."""
    mission = _mission(tx, request)
    emit(
        tx,
        ctx,
        ErrorReported(
            kind=request.kind, name=request.name, message=request.message, status=request.status
        ),
        mission_id=mission["id"] if mission else None,
        agent_id=request.agent_id,
    )
    if mission is None or mission["status"] not in OPEN_MISSION:
        # An error after the end is recorded, but the final checkpoint stays the last one.
        return ErrorCheckpoint(checkpoint_id=None)
    kept = take_error_checkpoint(tx, ctx, mission, request, created_by=request.agent_id)
    return ErrorCheckpoint(checkpoint_id=kept)


def take_error_checkpoint(
    tx: Tx, ctx: Context, mission: Row, error: ErrorReport, *, created_by: str
) -> str:
    """Return the id of the checkpoint, old or new, that records an error of an open mission."""
    state = capture(tx, ctx, mission)
    details = f"{error.name}: {error.message}"
    joined = _join(tx, ctx, state, details, error)
    if joined:
        return joined
    reason = Reason(
        trigger="error",
        details=details,
        created_by=created_by,
        errors=(f"Error: {error.message}",),
    )
    return take(tx, ctx, mission["id"], reason, state).id


def note_delivery_failure(
    tx: Tx, ctx: Context, *, sender: str, to: list[str], subject: str, mission_id: str | None
) -> None:
    """Record a message that could not be delivered, and the state of its mission."""
    recipients = ", ".join(to)
    failed = MessageFailed(to=to, subject=subject, error=f"{recipients} has left")
    emit(tx, ctx, failed, mission_id=mission_id, agent_id=sender)
    error = ErrorReport(
        agent_id=sender,
        kind="delivery_failure",
        name="DeliveryFailure",
        message=f"message to {recipients} could not be delivered: {subject}",
        mission_id=mission_id,
    )
    # The sender met no error: its work continues.
    note(tx, ctx, error)


def _mission(tx: Tx, request: ErrorReport) -> Row | None:
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return tx.one(
        "SELECT m.* FROM missions m JOIN agents a ON a.mission_id = m.id WHERE a.id = :agent",
        agent=request.agent_id,
    )


def _join(tx: Tx, ctx: Context, state: State, details: str, request: ErrorReport) -> str | None:
    """Add the error to the newest error checkpoint, if it repeats that error within 3 s.

    Returns that checkpoint's id, or None when the error needs its own.
    """
    row = tx.one(
        "SELECT id, timestamp, trigger_details, state_digest, source_details_json"
        f" FROM checkpoints WHERE mission_id = :id AND trigger = 'error' AND {LIVE}"
        " ORDER BY seq DESC LIMIT 1",
        id=state.mission["id"],
    )
    if row is None or row["trigger_details"] != details:
        return None
    known = details_of(row["source_details_json"])
    late = since_last(ctx.now_ms, row["timestamp"], known) > COALESCE_MS
    if late or row["state_digest"] != state.digest():
        return None
    joined = merged(known, f"{request.kind}:{request.name}", request.agent_id, ctx.now)
    tx.run(
        "UPDATE checkpoints SET source_details_json = :details WHERE id = :id",
        details=msgspec.json.encode(joined).decode(),
        id=row["id"],
    )
    count = 1 + sum(detail.count for detail in joined)
    if str(count).strip("0") == "1":  # 10, 100, 1,000, ...: a storm must not fill the log too
        text = f"The same error occurred {count} times (checkpoint {row['id']}): {details}"
        tx.after_commit(LogLine("WARNING", text))
    return str(row["id"])
