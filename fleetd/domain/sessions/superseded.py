"""Tells an agent that comes back, once, that its work went to another; must not take it back.

It goes on as an agent that starts anew. What its successor holds stays its successor's.
"""

from ..context import Context
from ..elsewhere import agent_on
from ..tx import Row, Tx

_KEY = "superseded:"
NAMED = 10


def remember(tx: Tx, row: Row) -> None:
    """Remember to tell an agent to whom its work went, until a hook can: registering forgets it."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES (:key, :successor)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=_KEY + row["id"],
        successor=row["succeeded_by"],
    )


def told(tx: Tx, ctx: Context, agent_id: str) -> list[str]:
    """Return the line that an agent is to read now, none where there is nothing to tell."""
    row = tx.one("DELETE FROM store_meta WHERE key = :key RETURNING value", key=_KEY + agent_id)
    if row is None:
        return []
    successor = row["value"]
    line = (
        f"The work of {agent_id} was taken over by {agent_on(tx, ctx, successor)} while {agent_id}"
        " counted as lost: its open sorties and its mail went there too."
    )
    files = _files(tx, ctx, agent_id, successor)
    if not files:
        return [line]
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    which = ", ".join(files[:NAMED]) + more
    return [f"{line} {agent_id} holds none of these locks any more, {successor} does: {which}."]


def _files(tx: Tx, ctx: Context, agent_id: str, successor: str) -> list[str]:
    """Return the files that the successor has locked and the agent had."""
    rows = tx.all(
        "SELECT l.file FROM locks l WHERE l.held_by = :successor AND l.status = 'active'"
        " AND l.expires_at > :now AND l.normalized_path IN"
        " (SELECT normalized_path FROM locks WHERE held_by = :agent) ORDER BY l.file",
        successor=successor,
        agent=agent_id,
        now=ctx.now,
    )
    return [row["file"] for row in rows]
