"""Marked records of a machine that does not come back; must not touch those of one that may.

A mark waits for the daemon that keeps the file. One that is gone as long as checkpoints are kept
is waited for no longer: its rows go, and should it come back after all, its files go without a
row. Nothing here is on the wire.
"""

from ...protocol.request import Mutation
from ..core.context import Context
from ..core.event_log import position
from ..core.registry import handler
from ..core.tx import Tx
from ..retention.terms import DAY_MS
from .kinds import POLICIES
from .removal import Purged
from ..core.soft_delete import UNSETTLED

AT_ONCE = 250
_PURGED = "purged:"


class AbandonedPurge(Mutation[Purged], frozen=True):
    """Remove some marked rows whose machine is gone for good; none when there are no more."""


@handler
def purge(tx: Tx, ctx: Context, request: AbandonedPurge) -> Purged:
    """Remove rows, and note how far in the log their machine's files may be without one."""
    rows = [
        row
        for policy in POLICIES.values()
        for row in tx.all(
            f"DELETE FROM {policy.table} WHERE id IN (SELECT r.id FROM {policy.table} r"
            f" WHERE {UNSETTLED} AND r.deleted_at IS NOT NULL AND r.machine <> :machine"
            " AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = r.machine"
            " AND (m.status = 'here' OR m.heard_at >= :old)) LIMIT :most) RETURNING machine",
            machine=ctx.machine,
            old=ctx.at(-ctx.config.retention.days * DAY_MS),
            most=AT_ONCE,
        )
    ]
    for machine in sorted({row["machine"] for row in rows}):
        tx.run(
            "INSERT INTO store_meta (key, value) VALUES (:key, :end)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key=_PURGED + machine,
            end=str(position(tx)),
        )
    return Purged(purged=len(rows))


def purged_until(tx: Tx, ctx: Context) -> int | None:
    """Return up to where in the log this machine's records may have gone while it was away.

    None when nothing went, which is not the log's begin: what was kept before there was a log has
    a place in front of it.
    """
    value = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_PURGED + ctx.machine)
    return None if value is None else int(value)
