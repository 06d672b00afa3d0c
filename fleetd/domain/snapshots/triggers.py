"""Snapshot triggers: the boundaries at which snapshots of runs are taken automatically.

One of them is time: 120 s while a plan is in progress, counted in ms that the machine was awake. An
agent without a run gets no snapshot and no error.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ...protocol.display import short
from ...protocol.requests.snapshot import DeclaredDigest, DeclaredStep
from ...protocol.types import RunStatus, SnapshotSource, StepStatus
from ..core import observers
from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from ..missions.selection import is_inside
from .builder import Trigger
from .plan_steps import plan_of, step_status
from .runs import run_of_agent
from .snapshots import take

NOTE_CHARS = 500


class StepProgress(msgspec.Struct, frozen=True):
    """The status of a step, and its place in the plan, from 1; None for one outside any plan."""

    status: StepStatus
    ordinal: int | None


def step_progress(tx: Tx, agent_id: str, sortie_ids: Collection[str]) -> dict[str, StepProgress]:
    """Return the progress of sorties as an agent's steps, before the agent reports on them."""
    if not sortie_ids:
        return {}
    agent = tx.one("SELECT * FROM agents WHERE id = :id", id=agent_id)
    places = {step.id: step.ordinal for step in plan_of(tx, agent)}
    statuses = _statuses(tx, sortie_ids)
    return {step: StepProgress(status, places.get(step)) for step, status in statuses.items()}


def _statuses(tx: Tx, sortie_ids: Collection[str]) -> dict[str, StepStatus]:
    """Return the status of the sorties that exist, in the given order."""
    rows = (
        tx.one("SELECT id, status, blocked_reason FROM sorties WHERE id = :id", id=sortie_id)
        for sortie_id in sortie_ids
    )
    return {row["id"]: step_status(row) for row in rows if row}


def on_steps_changed(
    tx: Tx, ctx: Context, agent_id: str, before: Mapping[str, StepProgress]
) -> None:
    """Snapshot the run of an agent for every step that it just reported as begun or closed.

    ``before`` is their previous progress. The closed steps of one report come before the begun
    ones, whatever the order of the changes. A step that left the plan counts as skipped, at its old
    place. If there are more than a run may keep, only the last are taken.
    """
    run_id = run_of_agent(tx, agent_id) if before else None
    if run_id is None:
        return
    after = _statuses(tx, list(before))
    moved = {
        step: now
        for step, was in before.items()
        if (now := after.get(step, "skipped")) not in ("pending", was.status)
    }
    in_turn = sorted(moved, key=lambda step: moved[step] == "in_progress")
    for step in in_turn[-ctx.config.retention.snapshots_per_run :]:
        declared = DeclaredStep(
            step_id=step,
            step_ordinal=before[step].ordinal if moved[step] == "skipped" else None,
            step_status=moved[step],
        )
        take(
            tx,
            ctx,
            run_id,
            Trigger(source="step_boundary", step=declared, agent_id=agent_id),
        )


@observers.sortie_reported.subscribe
def on_sortie_reported(tx: Tx, ctx: Context, agent_id: str, before: Row) -> None:
    """Snapshot the run of an agent that reported on a sortie, whose row was ``before``."""
    on_steps_changed(tx, ctx, agent_id, {before["id"]: StepProgress(step_status(before), None)})


def on_error(
    tx: Tx, ctx: Context, agent_id: str, note: str | None = None, status: RunStatus | None = None
) -> None:
    """Snapshot an agent's run that met an error; it goes on unless ``status`` says otherwise."""
    run_id = run_of_agent(tx, agent_id)
    _take(tx, ctx, run_id, agent_id, "error_boundary", note, status=status)


def _take(
    tx: Tx,
    ctx: Context,
    run_id: str | None,
    agent_id: str,
    source: SnapshotSource,
    note: str | None,
    **declared: Any,
) -> None:
    if run_id is not None:
        kept = short(note, NOTE_CHARS) if note else None
        take(tx, ctx, run_id, Trigger(source=source, agent_id=agent_id, note=kept, **declared))


observers.error_met.subscribe(on_error)


def on_run_failed(tx: Tx, ctx: Context, agent_id: str, note: str) -> None:
    """Snapshot the run of an agent that an error stops, before the error is handled."""
    on_error(tx, ctx, agent_id, note, "failed")


def on_compaction(tx: Tx, ctx: Context, agent_id: str, trigger: str) -> None:
    """Snapshot the run of an agent whose window is full, and about to be compacted."""
    source: SnapshotSource = "manual" if trigger == "manual" else "timer"
    note, full = f"before the {trigger} compaction", DeclaredDigest(window_pressure="high")
    _take(tx, ctx, run_of_agent(tx, agent_id), agent_id, source, note, digest=full)


def on_agent_died(tx: Tx, ctx: Context, agent_id: str, reason: str) -> None:
    """Close the run of an agent whose process ended without notice, if it was in progress."""
    if _under_way(tx, agent_id):
        on_run_failed(tx, ctx, agent_id, reason)


def on_agent_left(tx: Tx, ctx: Context, agent_id: str, reason: str | None) -> None:
    """Close the run of an agent that leaves, if its newest snapshot says it is in progress.

    This is its last heartbeat. A completed plan was recorded with its last step.
    """
    _take(tx, ctx, _under_way(tx, agent_id), agent_id, "timer", reason, status="paused")


def _under_way(tx: Tx, agent_id: str) -> str | None:
    """Return the run of an agent if its snapshots say that it is in progress."""
    run_id = run_of_agent(tx, agent_id)
    status = tx.value("SELECT status FROM runs WHERE id = :id", id=run_id) if run_id else None
    return run_id if status == "in_progress" else None


INTERVAL_MS = 120_000
# A run in progress without a plan, such as one that met an error, needs no heartbeat.
_HAS_PLAN = (
    "EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = r.id AND s.seq = (SELECT max(n.seq)"
    f" FROM snapshots n WHERE n.run_id = r.id AND n.{LIVE})"
    " AND (s.step_status IS NOT NULL OR s.step_id IS NOT NULL OR s.step_ordinal IS NOT NULL))"
)


def on_timer(tx: Tx, ctx: Context, run_id: str) -> None:
    """Snapshot a run if it is due because nothing else did for the interval."""
    for row in due_runs(tx, ctx, run_id):
        _take(tx, ctx, row["id"], row["agent_id"], "timer", None)


def due_runs(tx: Tx, ctx: Context, run_id: str | None = None) -> list[Row]:
    """Return the due runs, or the one: each is the present run of an agent that lives here.

    Only the agent's machine takes the snapshots of a run, so that their files are in one place. The
    newest snapshot shows whether there is a plan.

    A run that waits for its user is due once more: its snapshot says ``paused``, which ends it. No
    run is due in an ignored directory.
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
        and not any(is_inside(place, row["cwd"]) for place in ctx.config.project_ignore)
    ]


def resume_timer(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Restart the heartbeat of an agent's run from now on: it works again after a stop."""
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
