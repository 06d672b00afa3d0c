"""Sessions that a shutdown of the machine closed: nobody finished them, so they can be reopened.

A machine that shuts down ends its programs in order, and most agent CLIs then report the end of
their session as if a person had closed it.
"""

from ...protocol.timestamps import iso, to_ms
from ..core.context import Context
from ..core.event_log import position, position_before
from ..core.tx import Tx

# A session that ended within this time before the boot's last event was closed by its shutdown.
SHUTDOWN_MS = 60_000


def ended_with_last_boot(ctx: Context, happened_at: str | None) -> bool:
    """Whether something from the spool happened before the machine was started."""
    return happened_at is not None and to_ms(happened_at) < ctx.now_ms - ctx.awake_ms


def keep_sessions_of_shutdown(tx: Tx, ctx: Context) -> None:
    """Note after a reboot which sessions its shutdown closed, as far as the log shows.

    This includes any session that was closed within a minute before the last event of the boot.
    """
    known = tx.value("SELECT value FROM store_meta WHERE key = 'boot'")
    end = position(tx)
    last = tx.one("SELECT timestamp FROM events WHERE seq = :end", end=end)
    if known in (None, ctx.boot_id) or last is None:
        return
    since = position_before(tx, iso(to_ms(last["timestamp"]) - SHUTDOWN_MS), end)
    rows = tx.all(
        "SELECT DISTINCT agent_id FROM events WHERE type = 'agent_deregistered' AND seq > :since"
        " AND agent_id IS NOT NULL",
        since=since,
    )
    tx.many(
        "UPDATE sessions SET vanished = 1 WHERE agent_id = :agent AND subagent = ''"
        " AND ended_at IS NOT NULL",
        [{"agent": row["agent_id"]} for row in rows],
    )
