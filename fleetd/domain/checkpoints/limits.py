"""Checkpoint limits: the size of one, how many a mission keeps.

Source: behaviour, Checkpoints.
"""

from msgspec.structs import replace

from ...protocol.events import CheckpointDeleted
from ...protocol.records import CheckpointContent
from ..core.context import Context
from ..core.event_log import emit
from ..core.soft_delete import LIVE, mark_deleted
from ..core.tx import Row, Tx

MANY_SORTIES = 100
FILES_KEPT = 200
NEVER_DROPPED = 3
# What the final checkpoint of a completed mission says of itself.
COMPLETED = "Mission completed"
# What the last checkpoint says of a mission that was closed with its session.
WITH_SESSION = "Session ended"


def bounded(
    ctx: Context, content: CheckpointContent, size: int
) -> tuple[CheckpointContent, list[str]]:
    """Keep a checkpoint within its size, ``size`` bytes so far, and say what is unusual about it.

    What is as it was is returned as the same object.
    """
    warnings = []
    if len(content.sorties) > MANY_SORTIES:
        warnings.append(
            f"{len(content.sorties)} sorties; over {MANY_SORTIES} a checkpoint takes longer"
        )
    limit = ctx.config.limits.checkpoint_bytes
    if size > limit:
        warnings.append(f"{size} bytes, over the limit of {limit}")
        files = content.recovery_context.files_modified
        if len(files) > FILES_KEPT:
            context = replace(content.recovery_context, files_modified=files[:FILES_KEPT])
            content = replace(content, recovery_context=context)
            warnings.append(f"{len(files) - FILES_KEPT} older files left out of files_modified")
    return content, warnings


def make_room(tx: Tx, ctx: Context, mission_id: str, pinned: str | None = None) -> None:
    """Keep a mission's checkpoints under their number: old error checkpoints go first.

    The newest three and the newest milestone never go (source: behaviour, Checkpoints), nor does
    ``pinned``, the one that a recovery is at work with.
    """
    excess = (
        tx.value(
            f"SELECT count(*) FROM checkpoints WHERE mission_id = :id AND {LIVE}",
            id=mission_id,
        )
        - ctx.config.limits.checkpoints_per_mission
    )
    if excess <= 0:
        return
    rows = tx.all(
        f"SELECT id, trigger FROM checkpoints WHERE mission_id = :id AND {LIVE} ORDER BY seq DESC",
        id=mission_id,
    )
    # A limit that was lowered is reached step by step: a checkpoint must not wait for it.
    for checkpoint_id in _superfluous(rows, pinned)[: min(excess, ctx.batches.surplus)]:
        mark_deleted(tx, ctx, "checkpoint", checkpoint_id)
        emit(tx, ctx, CheckpointDeleted(checkpoint_id=checkpoint_id), mission_id=mission_id)


def _superfluous(rows: list[Row], pinned: str | None) -> list[str]:
    """Return what may go of a mission's checkpoints, in the order in which it should."""
    milestone = next((row["id"] for row in rows if row["trigger"] == "progress"), None)
    oldest_first = [
        row for row in reversed(rows[NEVER_DROPPED:]) if row["id"] not in (milestone, pinned)
    ]
    # Sorting keeps the order among equals.
    oldest_first.sort(key=lambda row: row["trigger"] != "error")
    return [row["id"] for row in oldest_first]
