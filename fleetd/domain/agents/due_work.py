"""Due work: what has become due by time alone, and when to check again.

The longest wait is the silence threshold, or the heartbeat of runs if that is shorter. Nothing that
happens after a check can become due sooner.
"""

from ...protocol.records import Record
from ..cluster.membership import UNBROKEN_MS, ours_to_act_on, unreachable_params
from ..core.context import Context
from ..core.tx import Row, Tx
from ..liveness.open_calls import LONGEST_CALL_MS
from ..liveness.silence import AGENT_SILENCE_MS, silent_agents, silent_missions
from ..snapshots.triggers import INTERVAL_MS, due_runs


class DueWork(Record, frozen=True, kw_only=True):
    """Ids of what has become due, and the ms until more can become due."""

    missions: list[str]
    recoveries: list[str]
    agents: list[str]
    runs: list[str]
    look_again_ms: int


# Before every boot: times of earlier boots are negative on the awake clock of this one.
LONG_AGO = -(2**62)
_MISSION_IS_OURS, _AGENT_IS_OURS = ours_to_act_on("m.machine"), ours_to_act_on("a.machine")
# The oldest of each kind that can still become due; nearly always no other query is needed.
_OLDEST = (
    # Since when this machine is in touch; if it is out of touch, from now on at the earliest.
    "SELECT (SELECT CASE WHEN heard_awake_ms < :beaten THEN :awake ELSE since_awake_ms END"
    " FROM machines WHERE id = :machine) AS in_touch,"
    " (SELECT min(m.active_awake_ms) FROM missions m WHERE m.status = 'in_progress'"
    f" AND m.silent = 0 AND m.active_awake_ms >= :active_from AND {_MISSION_IS_OURS}) AS active,"
    " (SELECT min(started_awake_ms) FROM tool_calls WHERE started_awake_ms >= :called_from)"
    " AS called,"
    " (SELECT min(r.briefed_awake_ms) FROM recoveries r JOIN missions m ON m.id = r.mission_id"
    f" WHERE r.state <> 'resumed' AND r.state = 'briefed' AND {_MISSION_IS_OURS})"
    " AS briefed,"
    " (SELECT min(a.seen_awake_ms) FROM agents a WHERE a.status <> 'gone' AND a.status = 'active'"
    f" AND a.pid IS NULL AND {_AGENT_IS_OURS}) AS seen,"
    # One by one, the oldest first: the first run with an agent on this machine is enough.
    " (SELECT min(r.snapshot_awake_ms) FROM runs r WHERE r.status = 'in_progress'"
    " AND r.snapshot_awake_ms > :recorded_from"
    " AND (SELECT a.machine FROM agents a WHERE a.id = r.agent_id) = :machine) AS recorded"
)


def due_work(tx: Tx, ctx: Context, reachable_since_ms: int, *, only_ours: bool = False) -> DueWork:
    """Return silent missions, overdue briefings, agents without heartbeat, and due runs.

    With ``only_ours``, return those that this machine has to act on (``ours_to_act_on``), else
    those of the whole fleet. Runs are always this machine's. ``reachable_since_ms``, on the awake
    clock, is the time since which agents could report. They could not while no daemon ran or the
    store was unavailable.
    """
    limit = ctx.config.detection.threshold_ms
    own = {"own": ctx.machine if only_ours else ""}
    oldest = _oldest(tx, ctx, LONG_AGO, LONG_AGO, own)
    silent, doubtful, without_heartbeat, unrecorded = [], [], [], []
    in_touch_since_ms = max(reachable_since_ms, oldest["in_touch"] or LONG_AGO)
    silent_at_all = _past(ctx, oldest["active"], limit)
    beats = _past(ctx, oldest["recorded"], INTERVAL_MS - 1)
    if silent_at_all:
        silent = silent_missions(tx, ctx, limit, f" AND m.silent = 0 AND {_MISSION_IS_OURS}", **own)
    if _past(ctx, oldest["briefed"], limit):
        doubtful = tx.all(
            "SELECT r.id FROM recoveries r JOIN missions m ON m.id = r.mission_id"
            " WHERE r.state <> 'resumed' AND r.state = 'briefed' AND r.briefed_awake_ms < :before"
            f" AND m.status = 'in_progress' AND {_MISSION_IS_OURS}",
            before=ctx.awake_ms - limit,
            **unreachable_params(ctx),
            **own,
        )
    if _past(ctx, oldest["seen"], AGENT_SILENCE_MS) and _past(
        ctx, in_touch_since_ms, AGENT_SILENCE_MS
    ):
        without_heartbeat = silent_agents(tx, ctx, f" AND {_AGENT_IS_OURS}", **own)
    if beats:
        unrecorded = due_runs(tx, ctx)
    if silent_at_all or beats:
        # Leave out those that are excused; the next to become due is younger.
        oldest = _oldest(tx, ctx, ctx.awake_ms - limit, ctx.awake_ms - INTERVAL_MS, own)
    return DueWork(
        missions=[row["id"] for row in silent],
        recoveries=[row["id"] for row in doubtful],
        agents=[row["id"] for row in without_heartbeat],
        runs=[row["id"] for row in unrecorded],
        look_again_ms=_look_again(ctx, oldest, in_touch_since_ms),
    )


def _oldest(tx: Tx, ctx: Context, active_from: int, recorded_from: int, own: dict[str, str]) -> Row:
    row = tx.one(
        _OLDEST,
        **unreachable_params(ctx),
        awake=ctx.awake_ms,
        active_from=active_from,
        called_from=ctx.awake_ms - LONGEST_CALL_MS,
        recorded_from=recorded_from,
        **own,
    )
    return row or {}


def _past(ctx: Context, since: int | None, limit_ms: int) -> bool:
    """Return whether a limit has passed; exactly at the limit it has not."""
    return since is not None and since < ctx.awake_ms - limit_ms


def _look_again(ctx: Context, oldest: Row, reachable_since_ms: int) -> int:
    """Return in how many ms the next thing can become due; it is due one past its limit.

    A heartbeat of a run is due exactly at its limit.
    """
    limit, seen = ctx.config.detection.threshold_ms, oldest["seen"]
    ends: list[int] = [
        since + length + 1 - ctx.awake_ms
        for since, length in (
            (oldest["active"], limit),
            (oldest["called"], LONGEST_CALL_MS),
            (oldest["briefed"], limit),
            (seen and max(seen, reachable_since_ms), AGENT_SILENCE_MS),
            (oldest["recorded"], INTERVAL_MS - 1),
            # What was not judged because news of it might still be on its way.
            (oldest["in_touch"], UNBROKEN_MS),
        )
        if since is not None
    ]
    return min([limit, INTERVAL_MS, *(end for end in ends if end > 0)])
