"""Heartbeat of runs: which are due for the snapshot that time alone asks for.

Source: snapshot-lifecycle, Timer boundary: every 120 s while a plan is in progress, counted in ms
that the machine was awake.
"""

from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from ..missions.current import lies_in
from .builder import Trigger
from .record import take
from .runs import run_of_agent

INTERVAL_MS = 120_000
# A run that is under way without a plan, such as one that met an error, has nothing to beat for.
_HAS_PLAN = (
    "EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = r.id AND s.seq = (SELECT max(n.seq)"
    f" FROM snapshots n WHERE n.run_id = r.id AND n.{LIVE})"
    " AND (s.step_status IS NOT NULL OR s.step_id IS NOT NULL OR s.step_ordinal IS NOT NULL))"
)


def beat(tx: Tx, ctx: Context, run_id: str) -> None:
    """Record where a run stands, if it is due: because nothing else did for so long."""
    for row in due_rows(tx, ctx, run_id):
        take(tx, ctx, row["id"], Trigger(source="timer", agent_id=row["agent_id"]))


def due_rows(tx: Tx, ctx: Context, run_id: str | None = None) -> list[Row]:
    """Return the runs, or the one, that are due: each the present one of an agent that lives here.

    Its own machine takes the snapshots of a run, so that their files lie together. Whether there is
    a plan is what the newest snapshot says.

    One that waits for its user is due once more: its snapshot says ``paused``, and that ends it.
    Where nothing is to be recorded any more, none is due.
    """
    rows = tx.all(
        "SELECT r.id, r.agent_id, a.cwd FROM runs r JOIN agents a ON a.id = r.agent_id"
        " WHERE r.status = 'in_progress' AND r.snapshot_awake_ms <= :before"
        f" AND a.status IN {LIVING} AND a.machine = :machine AND {_HAS_PLAN}"
        + (" AND r.id = :id" if run_id else "")
        + " ORDER BY r.snapshot_awake_ms",
        id=run_id,
        machine=ctx.machine,
        before=ctx.awake_ms - INTERVAL_MS,
    )
    return [
        row
        for row in rows
        if run_of_agent(tx, row["agent_id"]) == row["id"]
        and not any(lies_in(place, row["cwd"]) for place in ctx.config.project_ignore)
    ]


def go_on(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Let the heart of an agent's run beat again, from now on: it works after it had stopped."""
    stopped = tx.all(
        "SELECT id FROM runs WHERE agent_id = :agent AND status IN ('paused', 'failed')",
        agent=agent_id,
    )
    if stopped and (run_id := run_of_agent(tx, agent_id)) in {row["id"] for row in stopped}:
        tx.run(
            "UPDATE runs SET status = 'in_progress', snapshot_awake_ms = :awake WHERE id = :id",
            awake=ctx.awake_ms,
            id=run_id,
        )
