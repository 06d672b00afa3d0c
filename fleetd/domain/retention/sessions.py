"""Retention of sessions: automatic missions that nobody closed, and expired sessions.

Every conversation creates a session, so its mission must not stay for ever. A person's missions are
not touched.
"""

from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.registry import frees_space
from ..core.sql import LIVING, Batch
from ..core.tx import Tx
from ..missions import auto_mission
from ..missions.selection import is_automatic

_AFTER = "(s.harness, s.session_id, s.subagent) > (:since0, :since1, :since2)"


SessionCursor = tuple[str, str, str]


def close_abandoned(tx: Tx, ctx: Context) -> bool:
    """Close some missions without activity for ``retention.days`` and without a living agent.

    Returns whether there were any. An agent without a process to watch counts as living as long as
    it was seen in that time.
    """
    days = max(1, ctx.config.retention.days)
    rows = tx.all(
        "SELECT * FROM missions m WHERE m.status = 'in_progress' AND m.origin = 'session'"
        " AND coalesce(m.last_activity_at, m.started_at, m.created_at) < :old"
        " AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.mission_id = m.id"
        f" AND a.status IN {LIVING} AND (a.pid IS NOT NULL OR a.last_seen_at >= :old))"
        " ORDER BY m.id LIMIT :most",
        old=ctx.days_ago(days),
        most=ctx.batches.closed_missions,
    )
    for row in rows:
        auto_mission.close(tx, ctx, row, f"nobody came back to it for {days} days")
    return bool(rows)


def find_expired(tx: Tx, ctx: Context, since: str) -> Batch[list[str], str]:
    """Return which of the next automatic missions ended ``retention.completed_days`` ago.

    Missions with a checkpoint stay until it is pruned.
    """
    rows = tx.all(
        # By id alone: with a condition on the status, each batch would sort all missions that
        # follow.
        "SELECT id, status, completed_at, origin, EXISTS (SELECT 1 FROM checkpoints c"
        " WHERE c.mission_id = missions.id) AS kept FROM missions"
        " WHERE id > :since ORDER BY id LIMIT :most",
        since=since,
        most=ctx.batches.rows,
    )
    old = ctx.days_ago(ctx.config.retention.completed_days)
    expired = [
        row["id"]
        for row in rows
        if row["status"] not in OPEN_MISSION
        and not row["kept"]
        and (row["completed_at"] or "") < old
        and is_automatic(row)
    ]
    return Batch(expired, rows[-1]["id"] if rows else None)


@frees_space
def drop_old_sessions(
    tx: Tx, ctx: Context, since: SessionCursor
) -> Batch[list[str], SessionCursor]:
    """Drop the next sessions without a mission that were long silent; return their agents.

    Long means ``retention.completed_days``. Their agents are deleted too, unless they declared
    something or have another session. A session that is resumed later starts as a new one.
    """
    old = ctx.days_ago(ctx.config.retention.completed_days)
    over = f"a.mission_id IS NULL AND (a.pid IS NULL OR a.status NOT IN {LIVING})"
    last = tx.one(
        f"SELECT s.harness, s.session_id, s.subagent FROM sessions s WHERE {_AFTER}"
        " ORDER BY s.harness, s.session_id, s.subagent LIMIT 1 OFFSET :most",
        **_key("since", since),
        most=ctx.batches.rows - 1,
    )
    until = (last["harness"], last["session_id"], last["subagent"]) if last else None
    up_to = " AND (s.harness, s.session_id, s.subagent) <= (:until0, :until1, :until2)"
    dropped = tx.all(
        "DELETE FROM sessions WHERE (harness, session_id, subagent) IN"
        " (SELECT s.harness, s.session_id, s.subagent FROM sessions s"
        f" LEFT JOIN agents a ON a.id = s.agent_id WHERE {_AFTER} AND s.last_event_at < :old"
        f" AND (a.id IS NULL OR ({over})){up_to if until else ''}) RETURNING agent_id",
        old=old,
        **_key("since", since),
        **(_key("until", until) if until else {}),
    )
    for row in dropped:
        tx.run(
            "DELETE FROM agents WHERE id IN (SELECT a.id FROM agents a WHERE a.id = :id"
            f" AND {over} AND a.last_seen_at < :old AND a.note_json IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.agent_id = a.id))",
            id=row["agent_id"],
            old=old,
        )
    return Batch([row["agent_id"] for row in dropped], until)


def _key(name: str, key: SessionCursor) -> dict[str, str]:
    return {f"{name}{n}": value for n, value in enumerate(key)}
