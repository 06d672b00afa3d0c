"""The page of ``fleetctl checkpoints show``."""

from collections.abc import Iterator

from ...client.models import Checkpoint, RecoveryContext
from .. import console


def show_checkpoint(checkpoint: Checkpoint) -> None:
    """Print everything a person wants to know about a checkpoint."""
    console.lines(_head(checkpoint))
    console.lines(_sorties(checkpoint))
    console.lines(_locks(checkpoint))
    console.lines(_messages(checkpoint))
    console.lines(_context(checkpoint.recovery_context))


def _head(checkpoint: Checkpoint) -> Iterator[str]:
    details = f" ({checkpoint.trigger_details})" if checkpoint.trigger_details else ""
    yield f"Checkpoint: {checkpoint.id}"
    yield f"Mission: {checkpoint.mission_id}"
    yield f"Created: {console.ago(checkpoint.timestamp)}"
    yield f"Trigger: {checkpoint.trigger}{details}"
    yield f"Progress: {checkpoint.progress_percent}%"
    yield f"Created by: {checkpoint.created_by}"
    if checkpoint.file_on:
        yield f"File: on {checkpoint.file_on}"


def _sorties(checkpoint: Checkpoint) -> Iterator[str]:
    yield ""
    yield f"Sorties ({len(checkpoint.sorties)}):"
    for sortie in checkpoint.sorties:
        files = console.paths(sortie.files) or "-"
        yield f"  {sortie.id}  {sortie.status:<12} {sortie.assigned_to or '-':<14} {files}"


def _locks(checkpoint: Checkpoint) -> Iterator[str]:
    yield ""
    yield f"Active Locks ({len(checkpoint.active_locks)}):"
    for lock in checkpoint.active_locks:
        yield f"  {console.path(lock.file):<36} {lock.held_by:<14} {lock.purpose}"


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
    yield f"  Files Modified: {console.paths(context.files_modified) or 'None'}"
