"""Inactivity: missions that have fallen silent or lost their agents, and silent agents.

The awake clock measures silence, so a stepped wall clock or a suspended machine neither causes nor
hides it.
"""

from collections.abc import Sequence
from typing import Any

from ...protocol.records import RecoveryCandidate
from ...protocol.requests.agent import Detection
from ...protocol.requests.recovery import RecoveryDetect
from ...protocol.timestamps import to_ms
from ..checkpoints.checkpoints import HEAD, latest_row
from ..cluster.membership import unreachable, unreachable_params
from ..core.context import Context
from ..core.ids import find
from ..core.registry import method
from ..core.sql import LIVING, inside_of, named_params
from ..core.tx import Row, Tx
from .open_calls import LONGEST_CALL_MS

# Heartbeats are expected every minute; five may be missing.
AGENT_SILENCE_MS = 300_000
# How many missions a starting agent learns of, the newest silences first.
MOST_CANDIDATES = 20
# An agent that waits for a tool has nothing to report and has lost nothing: its mission is busy.
_BUSY = (
    "EXISTS (SELECT 1 FROM tool_calls c JOIN agents a ON a.id = c.agent_id"
    f" WHERE a.mission_id = m.id AND a.status IN {LIVING} AND c.started_awake_ms >= :forgotten)"
)
# A mission whose agents all wait for their user is idle, not silent. A lost agent does not wait,
# unless others went on after it.
_IDLE = (
    "(EXISTS (SELECT 1 FROM agents a WHERE a.mission_id = m.id AND a.status IN ('waiting', 'idle'))"
    " AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.mission_id = m.id AND (a.status = 'active'"
    " OR (a.status = 'lost' AND a.succeeded_by IS NULL"
    " AND a.seen_awake_ms >= m.active_awake_ms))))"
)
# A mission does not count as silent while news of its agents may still be on the way from another
# machine.
_HAS_UNREACHABLE_AGENT = (
    "(CAST(:machine AS TEXT) <> '' AND EXISTS (SELECT 1 FROM agents a WHERE a.mission_id = m.id"
    f" AND a.status IN {LIVING} AND {unreachable('a')}))"
)
_SILENT = (
    "m.status = 'in_progress' AND m.active_awake_ms < :before"
    f" AND NOT {_BUSY} AND NOT {_IDLE} AND NOT {_HAS_UNREACHABLE_AGENT}"
)


_WAITS = (
    "(m.status = 'in_progress' AND EXISTS (SELECT 1 FROM recoveries r"
    " WHERE r.mission_id = m.id AND r.state = 'pending'))"
)


# The position at which an agent was last lost, according to the log.
_LOST_SEQ = (
    "coalesce((SELECT e.seq FROM events e WHERE e.agent_id = a.id AND e.type = 'agent_lost'"
    " ORDER BY e.seq DESC LIMIT 1), 0)"
)
_OPEN = (
    "SELECT 1 FROM sorties s WHERE s.mission_id = m.id AND s.status NOT IN ('completed', 'failed')"
)
_LIVES = f"(SELECT 1 FROM agents b WHERE b.mission_id = m.id AND b.status IN {LIVING})"
# A lost agent, ``a``, left work of the mission open that nobody has taken up since. This is a
# sortie of its own, or the whole mission if no other agent lives there and nothing was done after
# the loss.
_LEFT_OPEN = (
    "a.mission_id = m.id AND a.status = 'lost' AND a.succeeded_by IS NULL"
    f" AND (EXISTS ({_OPEN} AND s.assigned_to = a.id)"
    f" OR (NOT EXISTS {_LIVES} AND m.last_activity_seq < {_LOST_SEQ}"
    f" AND (m.total_sorties = 0 OR EXISTS ({_OPEN}))))"
    " AND NOT EXISTS (SELECT 1 FROM recoveries r WHERE r.mission_id = m.id"
    f" AND r.briefed_at IS NOT NULL AND r.seq >= {_LOST_SEQ}"
    " AND (r.scope = 'mission' OR r.agent_id = a.id))"
)
_BEREFT = f"(m.status = 'in_progress' AND EXISTS (SELECT 1 FROM agents a WHERE {_LEFT_OPEN}))"


def silent_missions(
    tx: Tx, ctx: Context, limit_ms: int, also: str = "", **params: Any
) -> list[Row]:
    """Return the missions that are silent for longer than ``limit_ms``, the newest silence first.

    A mission exactly at the limit is not silent yet. ``also`` narrows the query further.
    """
    return _rows(tx, ctx, limit_ms, _SILENT + also, **params)


def _rows(tx: Tx, ctx: Context, limit_ms: int, where: str, **params: Any) -> list[Row]:
    most = " LIMIT :most" if "most" in params else ""
    return tx.all(
        f"SELECT m.* FROM missions m WHERE {where} ORDER BY m.active_awake_ms DESC{most}",
        before=ctx.awake_ms - limit_ms,
        forgotten=ctx.awake_ms - LONGEST_CALL_MS,
        **unreachable_params(ctx),
        **params,
    )


def detect(
    tx: Tx,
    ctx: Context,
    mission_id: str | None = None,
    threshold_ms: int | None = None,
    *,
    waiting: bool = True,
    most: int | None = None,
) -> Detection:
    """Find missions in progress that are silent for longer than the threshold, newest first.

    ``waiting`` adds missions that were silent and still wait for recovery: agents that came back
    since were not briefed yet. Recovery is needed when one of the missions has a checkpoint.
    """
    where = f"({_SILENT} OR {_WAITS})" if waiting else _SILENT
    limit = _limit(ctx, threshold_ms)
    params: dict[str, Any] = {} if most is None else {"most": most}
    if mission_id is not None:
        where += " AND m.id = :id"
        params["id"] = mission_id
    found = [candidate_of(tx, ctx, row) for row in _rows(tx, ctx, limit, where, **params)]
    return Detection(needed=any(c.checkpoint_id for c in found), candidates=found)


def waiting_missions(
    tx: Tx, ctx: Context, threshold_ms: int | None = None, among: Sequence[str] | None = None
) -> list[RecoveryCandidate]:
    """Return the missions that wait for recovery, newest activity first.

    These are silent missions, and missions with work that a lost agent left open. The daemon knows
    of a lost agent immediately, so its work need not fall silent first. ``among`` are the only
    missions to look at. ``threshold_ms`` counts as in ``recovery.detect``.
    """
    if among is not None and not among:
        return []
    silent = f"({_SILENT} OR {_WAITS})" if threshold_ms is None else f"({_SILENT})"
    only = f" AND m.id IN ({inside_of('mission', among)})" if among else ""
    ids = named_params("mission", among or ())
    limit = _limit(ctx, threshold_ms)
    rows = _rows(tx, ctx, limit, f"({silent} OR {_BEREFT}){only}", **ids)
    return [_with_lost(tx, ctx, row, limit) for row in rows]


def _limit(ctx: Context, threshold_ms: int | None) -> int:
    return ctx.config.detection.threshold_ms if threshold_ms is None else threshold_ms


def _with_lost(tx: Tx, ctx: Context, row: Row, limit_ms: int) -> RecoveryCandidate:
    """Return a waiting mission as a candidate, with the lost agent's part if others go on."""
    lost = tx.all(
        f"SELECT a.id, EXISTS {_LIVES} AS others FROM missions m JOIN agents a ON {_LEFT_OPEN}"
        " WHERE m.id = :id ORDER BY a.seen_awake_ms DESC, a.id",
        id=row["id"],
    )
    if not lost:
        return candidate_of(tx, ctx, row)
    goes_on = lost[0]["others"] and silence_ms(ctx, row) <= limit_ms
    part = lost[0]["id"] if goes_on else None
    return candidate_of(tx, ctx, row, part, lost=[each["id"] for each in lost])


def silence_ms(ctx: Context, mission: Row) -> int:
    """Return how long nothing was done on a mission, in ms that the machine was awake."""
    return max(0, ctx.awake_ms - int(mission["active_awake_ms"]))


def last_activity(mission: Row) -> str:
    """Return when something was last done on a mission that was started."""
    return str(mission["last_activity_at"] or mission["started_at"] or mission["created_at"])


def candidate_of(
    tx: Tx, ctx: Context, row: Row, agent_id: str | None = None, lost: Sequence[str] = ()
) -> RecoveryCandidate:
    """Build a candidate from its mission's row; ``agent_id`` when only that agent's part waits.

    ``lost`` are the agents that left work open.
    """
    checkpoint = latest_row(tx, row["id"], columns=HEAD)
    return RecoveryCandidate(
        mission_id=row["id"],
        mission_title=row["title"],
        last_activity_at=last_activity(row),
        inactivity_duration_ms=silence_ms(ctx, row),
        checkpoint_id=checkpoint["id"] if checkpoint else None,
        checkpoint_progress=checkpoint["progress_percent"] if checkpoint else None,
        checkpoint_timestamp=checkpoint["timestamp"] if checkpoint else None,
        agent_id=agent_id,
        reason="agent_lost" if lost else "silent",
        lost_agents=list(lost),
        project_dir=row["project_dir"],
    )


@method(RecoveryDetect)
def recovery_detect(tx: Tx, ctx: Context, request: RecoveryDetect) -> Detection:
    """Return the missions that wait for recovery."""
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    asked = request.threshold_ms
    return detect(tx, ctx, mission_id, asked, waiting=asked is None)


def silent_agents(tx: Tx, ctx: Context, also: str = "", **params: Any) -> list[Row]:
    """Return the agents without a sign of life for too long; ``also`` narrows the query further.

    An agent CLI reports only through its hooks, so nothing shows that it lives while its tool runs.
    It cannot report while its machine is unreachable either, and has the same time again
    afterwards.
    """
    return tx.all(
        # SQLite uses the index of agents that are not gone only if the query repeats its condition.
        "SELECT * FROM agents a WHERE a.status <> 'gone' AND a.status = 'active' AND a.pid IS NULL"
        " AND a.seen_awake_ms < :before AND NOT EXISTS (SELECT 1 FROM tool_calls c"
        " JOIN sessions s ON s.agent_id = c.agent_id"
        " WHERE c.agent_id = a.id AND c.started_awake_ms >= :forgotten)"
        f" AND NOT {unreachable('a')} AND NOT EXISTS (SELECT 1 FROM machines m"
        f" WHERE m.id = a.machine AND m.since_awake_ms >= :before){also}",
        before=ctx.awake_ms - AGENT_SILENCE_MS,
        forgotten=ctx.awake_ms - LONGEST_CALL_MS,
        **unreachable_params(ctx),
        **params,
    )


def detect_for(
    tx: Tx, ctx: Context, agent: Row | None, threshold_ms: int | None = None
) -> Detection:
    """Return what waits for recovery when an agent registers; ``agent`` is its row from before.

    A mission can go on without one of its agents: others came back first, or were never silent.
    """
    found = detect(tx, ctx, threshold_ms=threshold_ms, most=MOST_CANDIDATES)
    own = _own_part(tx, ctx, agent) if agent else None
    if own is None or any(each.mission_id == own.mission_id for each in found.candidates):
        return found
    return Detection(
        needed=found.needed or own.checkpoint_id is not None, candidates=[own, *found.candidates]
    )


def _own_part(tx: Tx, ctx: Context, agent: Row) -> RecoveryCandidate | None:
    """Return the agent's mission when the agent was lost or silent, and not briefed since.

    An agent whose work went to another one has no part left to recover.
    """
    mission = tx.one(
        "SELECT * FROM missions WHERE id = :id AND status = 'in_progress'", id=agent["mission_id"]
    )
    if mission is None or agent["succeeded_by"] is not None:
        return None
    last = tx.value(
        "SELECT max(seq) FROM events WHERE agent_id = :agent AND activity = 1"
        " AND type <> 'agent_registered'",
        agent=agent["id"],
    )
    silent = tx.one(
        "SELECT 1 AS missed FROM episodes WHERE mission_id = :mission AND last_seq >= :last",
        mission=mission["id"],
        last=last or 0,
    )
    briefed = tx.one(
        "SELECT 1 AS briefed FROM recoveries WHERE mission_id = :mission AND agent_id = :agent"
        " AND briefed_at IS NOT NULL AND seq >= :last",
        mission=mission["id"],
        agent=agent["id"],
        last=last or 0,
    )
    lost = [agent["id"]] if agent["status"] == "lost" else []
    if briefed is not None or (silent is None and not lost):
        return None
    return candidate_of(tx, ctx, mission, agent["id"], lost)


def to_awake_ms(ctx: Context, at: str) -> int:
    """Return the position of a timestamp on the awake clock."""
    return ctx.awake_ms - max(ctx.now_ms - to_ms(at), 0)


_NEWEST_SNAPSHOT = (
    "SELECT timestamp FROM snapshots WHERE run_id = runs.id ORDER BY seq DESC LIMIT 1"
)
# Columns with times of the awake clock that still matter, and the timestamp beside each.
_MEASURED = (
    (
        "missions",
        "active_awake_ms",
        "coalesce(last_activity_at, started_at, created_at)",
        "status = 'in_progress'",
    ),
    # Lost agents too: the time they were last seen decides whether others went on after them.
    ("agents", "seen_awake_ms", "last_seen_at", "status <> 'gone'"),
    (
        "recoveries",
        "briefed_awake_ms",
        "coalesce(briefed_at, created_at)",
        "state <> 'resumed' AND state = 'briefed'",  # the first half selects the index
    ),
    # Runs of any status: this time decides whether the next report joins the last recorded one.
    (
        "runs",
        "snapshot_awake_ms",
        f"coalesce(({_NEWEST_SNAPSHOT}), '1970-01-01')",
        "1 = 1",
    ),
)


def rebase_awake_times(tx: Tx, ctx: Context) -> None:
    """Convert the times of another boot: the awake clock restarts with the machine.

    Events of that boot are at least as old as this boot, whatever the wall clock says.
    """
    known = tx.value("SELECT value FROM store_meta WHERE key = 'boot'")
    if known == ctx.boot_id:
        return
    latest = ctx.awake_ms if known is None else 0
    for table, column, beside, where in _MEASURED:
        for row in tx.all(f"SELECT id, {beside} AS at FROM {table} WHERE {where}"):
            tx.run(
                f"UPDATE {table} SET {column} = :awake WHERE id = :id",
                awake=min(to_awake_ms(ctx, row["at"]), latest),
                id=row["id"],
            )
    tx.run("DELETE FROM tool_calls")
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('boot', :boot)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        boot=ctx.boot_id,
    )
