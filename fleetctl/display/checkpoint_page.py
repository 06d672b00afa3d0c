"""The page that ``fleetctl checkpoints show`` prints; must not talk to the daemon."""

from collections.abc import Iterator

from ..client.models import Checkpoint, RecoveryContext
from . import render


def show_checkpoint(checkpoint: Checkpoint) -> None:
    """Print everything a person wants to know about a checkpoint."""
    render.lines(_head(checkpoint))
    render.lines(_sorties(checkpoint))
    render.lines(_locks(checkpoint))
    render.lines(_messages(checkpoint))
    render.lines(_context(checkpoint.recovery_context))


def _head(checkpoint: Checkpoint) -> Iterator[str]:
    details = f" ({checkpoint.trigger_details})" if checkpoint.trigger_details else ""
    yield f"Checkpoint: {checkpoint.id}"
    yield f"Mission: {checkpoint.mission_id}"
    yield f"Created: {render.ago(checkpoint.timestamp)}"
    yield f"Trigger: {checkpoint.trigger}{details}"
    yield f"Progress: {checkpoint.progress_percent}%"
    yield f"Created by: {checkpoint.created_by}"
    if checkpoint.file_on:
        yield f"File: on {checkpoint.file_on}"


def _sorties(checkpoint: Checkpoint) -> Iterator[str]:
    yield ""
    yield f"Sorties ({len(checkpoint.sorties)}):"
    for sortie in checkpoint.sorties:
        files = render.paths(sortie.files) or "-"
        yield f"  {sortie.id}  {sortie.status:<12} {sortie.assigned_to or '-':<14} {files}"


def _locks(checkpoint: Checkpoint) -> Iterator[str]:
    yield ""
    yield f"Active Locks ({len(checkpoint.active_locks)}):"
    for lock in checkpoint.active_locks:
        yield f"  {render.path(lock.file):<36} {lock.held_by:<14} {lock.purpose}"


def _messages(checkpoint: Checkpoint) -> Iterator[str]:
    yield ""
    yield f"Pending Messages ({len(checkpoint.pending_messages)}):"
    for message in checkpoint.pending_messages:
        recipients = ", ".join(message.to)
        yield f"  From: {message.sender}  To: [{recipients}]  Subject: {message.subject}"


def _context(context: RecoveryContext) -> Iterator[str]:
    yield ""
    yield "Recovery Context:"
    yield f"  Last Action: {context.last_action or 'None'}"
    yield "  Next Steps:"
    for step in context.next_steps or ["None"]:
        yield f"    - {step}"
    yield f"  Blockers: {', '.join(context.blockers) or 'None'}"
    yield f"  Files Modified: {render.paths(context.files_modified) or 'None'}"
