"""The page of ``fleetctl checkpoint show``."""

from ...client.models import Checkpoint
from .. import console


def show_checkpoint(checkpoint: Checkpoint) -> None:
    """Print everything a person wants to know about a checkpoint."""
    details = f" ({checkpoint.trigger_details})" if checkpoint.trigger_details else ""
    context = checkpoint.recovery_context
    console.lines(
        [
            f"Checkpoint: {checkpoint.id}",
            f"Mission: {checkpoint.mission_id}",
            f"Created: {console.ago(checkpoint.timestamp)}",
            f"Trigger: {checkpoint.trigger}{details}",
            f"Progress: {checkpoint.progress_percent}%",
            f"Created by: {checkpoint.created_by}",
            *([f"File: on {checkpoint.file_on}"] if checkpoint.file_on else []),
            "",
            f"Sorties ({len(checkpoint.sorties)}):",
            *(
                f"  {each.id}  {each.status:<12} {each.assigned_to or '-':<14}"
                f" {console.paths(each.files) or '-'}"
                for each in checkpoint.sorties
            ),
            "",
            f"Active Locks ({len(checkpoint.active_locks)}):",
            *(
                f"  {console.path(each.file):<36} {each.held_by:<14} {each.purpose}"
                for each in checkpoint.active_locks
            ),
            "",
            f"Pending Messages ({len(checkpoint.pending_messages)}):",
            *(
                f"  From: {each.sender}  To: [{', '.join(each.to)}]  Subject: {each.subject}"
                for each in checkpoint.pending_messages
            ),
            "",
            "Recovery Context:",
            f"  Last Action: {context.last_action or 'None'}",
            "  Next Steps:",
            *(f"    - {step}" for step in context.next_steps or ["None"]),
            f"  Blockers: {', '.join(context.blockers) or 'None'}",
            f"  Files Modified: {console.paths(context.files_modified) or 'None'}",
        ]
    )
