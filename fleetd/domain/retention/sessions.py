"""Automatic missions and sessions that nobody closed, or needs any more; for the daily work.

A session is made for every conversation, so its mission must not stay for ever. Nothing here is on
the wire, and no mission of a person's is touched.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx
from ..liveness.silence import LIVING
from ..missions import auto_mission
from ..missions.current import is_automatic
from ..system.startup import Done
from .terms import DAY_MS

CLOSED_AT_ONCE = 10
LOOKED_AT_AT_ONCE = 250
_AFTER = "(s.harness, s.session_id, s.subagent) > (:since0, :since1, :since2)"


class LeftBehindClose(Mutation[Done], frozen=True):
    """Close some missions whose sessions ended without a word; done as long as there were any."""


class Spent(Record, frozen=True, kw_only=True):
    """Automatic missions past their time, and after which id to look further; None: at the end."""

    missions: list[str]
    until: str | None


class SpentFind(Query[Spent], frozen=True):
    """Look at the next finished missions."""

    since: str


class OldSessions(Record, frozen=True, kw_only=True):
    """Sessions that nobody will resume, and after which key to look further; None: at the end."""

    agents: list[str]
    until: tuple[str, str, str] | None


class OldSessionsDrop(Mutation[OldSessions], frozen=True):
    """Forget those of the next sessions that nobody will resume."""

    since: tuple[str, str, str]


@handler
def close_left_behind(tx: Tx, ctx: Context, request: LeftBehindClose) -> Done:
    """Close missions in which nothing was done for ``retention.days`` and nobody lives.

    An agent without a process to watch counts as living as long as it was seen in that time.
    """
    days = max(1, ctx.config.retention.days)
    rows = tx.all(
        "SELECT * FROM missions m WHERE m.status = 'in_progress' AND m.origin = 'session'"
        " AND coalesce(m.last_activity_at, m.started_at, m.created_at) < :old"
        " AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.mission_id = m.id"
        f" AND a.status IN {LIVING} AND (a.pid IS NOT NULL OR a.last_seen_at >= :old))"
        " ORDER BY m.id LIMIT :most",
        old=ctx.at(-days * DAY_MS),
        most=CLOSED_AT_ONCE,
    )
    for row in rows:
        auto_mission.close(tx, ctx, row, f"nobody came back to it for {days} days")
    return Done(done=bool(rows))


@handler
def find_spent(tx: Tx, ctx: Context, request: SpentFind) -> Spent:
    """Return automatic missions that ended ``retention.completed_days`` ago and more.

    Those that have a checkpoint stay until it is pruned.
    """
    rows = tx.all(
        # By id alone: with their status too, all those that follow would be sorted for each piece.
        "SELECT id, status, completed_at, origin, EXISTS (SELECT 1 FROM checkpoints c"
        " WHERE c.mission_id = missions.id) AS kept FROM missions"
        " WHERE id > :since ORDER BY id LIMIT :most",
        since=request.since,
        most=LOOKED_AT_AT_ONCE,
    )
    old = ctx.at(-ctx.config.retention.completed_days * DAY_MS)
    spent = [
        row["id"]
        for row in rows
        if row["status"] not in OPEN_MISSION
        and not row["kept"]
        and (row["completed_at"] or "") < old
        and is_automatic(row)
    ]
    return Spent(missions=spent, until=rows[-1]["id"] if rows else None)


@handler
def drop_old_sessions(tx: Tx, ctx: Context, request: OldSessionsDrop) -> OldSessions:
    """Forget sessions without a mission that were silent for ``retention.completed_days``.

    Their agents go too, unless they declared something or go by their name elsewhere. One that is
    resumed after all begins anew.
    """
    old = ctx.at(-ctx.config.retention.completed_days * DAY_MS)
    over = f"a.mission_id IS NULL AND (a.pid IS NULL OR a.status NOT IN {LIVING})"
    last = tx.one(
        f"SELECT s.harness, s.session_id, s.subagent FROM sessions s WHERE {_AFTER}"
        " ORDER BY s.harness, s.session_id, s.subagent LIMIT 1 OFFSET :most",
        **_key("since", request.since),
        most=LOOKED_AT_AT_ONCE - 1,
    )
    until = (last["harness"], last["session_id"], last["subagent"]) if last else None
    up_to = " AND (s.harness, s.session_id, s.subagent) <= (:until0, :until1, :until2)"
    dropped = tx.all(
        "DELETE FROM sessions WHERE (harness, session_id, subagent) IN"
        " (SELECT s.harness, s.session_id, s.subagent FROM sessions s"
        f" LEFT JOIN agents a ON a.id = s.agent_id WHERE {_AFTER} AND s.last_event_at < :old"
        f" AND (a.id IS NULL OR ({over})){up_to if until else ''}) RETURNING agent_id",
        old=old,
        **_key("since", request.since),
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
    return OldSessions(agents=[row["agent_id"] for row in dropped], until=until)


def _key(name: str, key: tuple[str, ...]) -> dict[str, str]:
    return {f"{name}{n}": value for n, value in enumerate(key)}
