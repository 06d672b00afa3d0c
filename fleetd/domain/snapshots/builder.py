"""Snapshot builder: the content of a snapshot, as declared and as the store knows it.

Declared values always win.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ...config import Config, Limits, Retention
from ...protocol.errors import Corrupt
from ...protocol.requests.snapshot import DeclaredDigest, DeclaredOutcome, DeclaredStep
from ...protocol.snapshots import (
    MOST_COUNTED,
    CommandOutcome,
    ContextDigest,
    Snapshot,
    StepState,
)
from ...protocol.types import RunStatus, SnapshotSource, WindowPressure
from ..checkpoints.codec import digest_of
from ..core.context import Context
from ..core.event_log import data_of, position
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from . import outcomes, plan_steps, runs
from .codec import from_row

_TURN_FAILED = "TurnFailed"
MOST_ARTIFACTS = 50
MEDIUM_PERCENT, HIGH_PERCENT = 50, 80
_canonical = msgspec.json.Encoder(order="sorted").encode


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Why a snapshot is taken, and what its caller declares."""

    source: SnapshotSource
    status: RunStatus | None = None
    step: DeclaredStep | None = None
    digest: DeclaredDigest | None = None
    outcomes: Sequence[DeclaredOutcome] | None = None
    agent_id: str | None = None
    note: str | None = None


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a run."""

    run_id: str
    run: Row | None
    session: Row | None
    agent_id: str | None
    agent: Row | None
    plan: list[plan_steps.PlanStep]
    newest: Snapshot | None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a new snapshot; ``end`` is the last event that it, or one before, covers."""

    status: RunStatus
    step_state: StepState
    context_digest: ContextDigest
    command_outcomes: list[CommandOutcome]
    end: int


def run_facts(tx: Tx, run_id: str, trigger: Trigger) -> RunFacts:
    """Look up everything that the store knows about a run."""
    run = runs.run_row(tx, run_id)
    session = runs.session_of_run(tx, run_id)
    agent_id = trigger.agent_id or (session or {}).get("agent_id") or (run or {}).get("agent_id")
    if session is None and agent_id is not None:
        session = runs.open_session_of(tx, agent_id)
    agent = tx.one("SELECT * FROM agents WHERE id = :id", id=agent_id) if agent_id else None
    newest = None
    # A damaged snapshot cannot be compared; verify will report it.
    with suppress(Corrupt):
        row = newest_row(tx, run_id) if run else None
        newest = from_row(row) if row else None
    return RunFacts(
        run_id=run_id,
        run=run,
        session=session,
        agent_id=agent_id,
        agent=agent,
        plan=plan_steps.plan_of(tx, agent),
        newest=newest,
    )


def newest_row(tx: Tx, run_id: str) -> Row | None:
    """Return the row of a run's newest snapshot."""
    return tx.one(
        f"SELECT * FROM snapshots WHERE run_id = :run AND {LIVE} ORDER BY seq DESC LIMIT 1",
        run=run_id,
    )


def build(tx: Tx, ctx: Context, known: RunFacts, trigger: Trigger) -> Draft:
    """Return the content of a snapshot of the run now."""
    span = uncovered_span(tx, known)
    status, why = _status(tx, known)
    status = trigger.status or status
    if trigger.outcomes is not None:
        found = outcomes.outcomes_declared(trigger.outcomes)
    else:
        found = outcomes.outcomes_in_log(tx, span) if span else outcomes.Outcomes([])
    failure = _failed_last(tx, span, known, found.kept)
    if status == "failed":
        failure = why or failure or "the run broke off"
    state, left_out = _step_state(ctx, known, trigger, status, failure)
    return Draft(
        status=status,
        step_state=state,
        context_digest=_digest(tx, ctx, known, trigger, found.dropped + left_out),
        command_outcomes=found.kept,
        end=position(tx) if trigger.outcomes is None or span is None else span.since,
    )


def uncovered_span(tx: Tx, known: RunFacts) -> outcomes.Span | None:
    """Return the part of the log that no snapshot covers yet.

    The first snapshot of a run begins with its session, after what other runs of its agent cover.
    """
    if known.agent_id is None:
        return None
    begun_at = known.session["started_at"] if known.session else ""
    return outcomes.Span(known.agent_id, _recorded_until(tx, known, known.agent_id), begun_at)


def _recorded_until(tx: Tx, known: RunFacts, agent_id: str) -> int:
    """Return the last event that snapshots of an agent cover.

    Sessions of two harnesses with one id are one run: each agent continues from its own snapshots.
    """
    if known.run and known.run["agent_id"] in (None, agent_id):
        since: int = known.run["events_seq"]
        return since
    return max(
        tx.value("SELECT max(events_seq) AS seq FROM runs WHERE agent_id = :agent", agent=agent_id)
        or 0,
        tx.value(
            "SELECT max(seq) AS seq FROM snapshots"
            " WHERE run_id = :run AND agent_id = :agent AND gathered = 1",
            run=known.run_id,
            agent=agent_id,
        )
        or 0,
    )


def _status(tx: Tx, known: RunFacts) -> tuple[RunStatus, str | None]:
    """Return the status of a run, and the reason if something broke it off."""
    agent = known.agent
    if agent is None:
        # There is no other source: the last recorded status applies.
        return (known.newest.status if known.newest else "in_progress"), None
    if plan_steps.all_done(known.plan):
        return "completed", None
    if agent["status"] == "lost":
        return "failed", f"{agent['id']} ended without notice"
    broken = _broken_turn(tx, agent["id"])
    if broken is not None:
        return "failed", broken
    ended = known.session is not None and known.session["ended_at"] is not None
    paused = ended or agent["status"] in ("waiting", "idle", "gone")
    return ("paused" if paused else "in_progress"), None


def _broken_turn(tx: Tx, agent_id: str) -> str | None:
    """Return the error that ended an agent's turn, unless it has done anything since."""
    row = tx.one(
        "SELECT type, data_json FROM events WHERE agent_id = :agent AND activity = 1"
        " AND type <> 'agent_paused' ORDER BY seq DESC LIMIT 1",
        agent=agent_id,
    )
    if row is None or row["type"] != "error_reported":
        return None
    data = data_of(row)
    return str(data.get("message")) if data.get("name") == _TURN_FAILED else None


def _failed_last(
    tx: Tx, span: outcomes.Span | None, known: RunFacts, found: Sequence[CommandOutcome]
) -> str | None:
    """Return the last command if it failed: then nothing has succeeded after it."""
    last = found[-1] if found else None
    if last is None and span is not None:
        last = outcomes.newest_outcome(tx, span)
    if last is None and known.newest and known.newest.command_outcomes:
        last = known.newest.command_outcomes[-1]
    if last is None or last.result != "FAIL":
        return None
    return f"{last.name}: {last.summary}" if last.summary else last.name


def _step_state(
    ctx: Context, known: RunFacts, trigger: Trigger, status: RunStatus, failure: str | None
) -> tuple[StepState, int]:
    """Return the step that a run is at, and how many entries were left out of it."""
    declared = trigger.step
    if declared is None and known.session is None and not known.plan and known.newest:
        # There is no other source for the plan: the last recorded step applies.
        return _last_recorded_step(known.newest, status), 0
    complied, violations = plan_steps.compliance(ctx, known.plan), 0
    hints = plan_steps.computed_hints(known.plan, failure, declared, status)
    if declared is not None:
        if declared.todo_compliance is not None:
            complied, violations = plan_steps.declared_compliance(ctx, declared.todo_compliance)
        if declared.resume_hints is not None:
            hints = plan_steps.declared_hints(hints, declared.resume_hints)
    resumed, actions = plan_steps.bounded_hints(hints)
    planned = plan_steps.step_meant(known.plan, declared)
    return plan_steps.step_state(declared, planned, complied, resumed), violations + actions


def _last_recorded_step(newest: Snapshot, status: RunStatus) -> StepState:
    """Return the step of the newest snapshot; a completed run has nothing left to do."""
    if status != "completed" or newest.status == "completed":
        return newest.step_state
    left = plan_steps.computed_hints([], None, None, status)
    return msgspec.structs.replace(newest.step_state, resume_hints=left)


def _digest(tx: Tx, ctx: Context, known: RunFacts, trigger: Trigger, dropped: int) -> ContextDigest:
    """Return what is declared of the window, completed by what is known.

    ``dropped`` counts entries that this snapshot's limits left out elsewhere.
    """
    before = known.newest.context_digest if known.newest else None
    if trigger.digest is None and known.agent is None and before is not None:
        return msgspec.structs.replace(before, dropped_items=dropped)
    pressure = _pressure(known.session)
    if known.session is None and before is not None:
        pressure = before.window_pressure
    given = trigger.digest or DeclaredDigest()
    files = given.protected_artifacts
    if files is None:
        files = _protected(tx, ctx, known.agent_id, plan_steps.present_step(known.plan))
    kept = list(files[:MOST_ARTIFACTS])
    counted = (given.dropped_items or 0) + dropped + len(files) - len(kept)
    return ContextDigest(
        window_pressure=given.window_pressure or pressure,
        protected_artifacts=kept,
        dropped_items=min(counted, MOST_COUNTED),
        policy_profile=given.policy_profile or _profile(ctx.config),
    )


def _pressure(session: Row | None) -> WindowPressure:
    """Return how full the window of a session is, as its harness reported; low by default."""
    if session is None:
        return "low"
    if session["context"] == "compacting":
        return "high"
    used, size = session["window_tokens"] or 0, session["window_size"]
    if not size or used * 100 < size * MEDIUM_PERCENT:
        return "low"
    return "medium" if used * 100 < size * HIGH_PERCENT else "high"


def _protected(
    tx: Tx, ctx: Context, agent_id: str | None, step: plan_steps.PlanStep | None
) -> list[str]:
    """Return the files that an agent has locked, then those of the step it is at."""
    if agent_id is None:
        return []
    rows = tx.all(
        "SELECT file FROM locks WHERE held_by = :agent AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        agent=agent_id,
        now=ctx.now,
    )
    files = step.files if step and step.open else []
    return list(dict.fromkeys(filter(None, [*(row["file"] for row in rows), *files])))


def _profile(config: Config) -> str:
    """Return the name of the limits and retention in force; custom ones have their checksum."""
    if (config.retention, config.limits) == (Retention(), Limits()):
        return "default"
    return f"custom-{digest_of(_canonical([config.retention, config.limits]))[:8]}"
