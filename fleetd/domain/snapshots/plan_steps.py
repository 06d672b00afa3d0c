"""Plan steps: where in its plan a run is, whether the plan is kept, and how the run can go on.

The plan of an agent is what its harness reported last, followed by other sorties assigned to it.
"""

from collections.abc import Sequence
from itertools import chain

import msgspec

from ...protocol.display import short, short_ends
from ...protocol.errors import InvalidParams
from ...protocol.requests.snapshot import DeclaredCompliance, DeclaredHints, DeclaredStep
from ...protocol.snapshots import SUMMARY_CHARS, ResumeHints, StepState, TodoCompliance
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import RunStatus, StepStatus
from ..core.context import Context
from ..core.tx import Row, Tx

MOST_VIOLATIONS = 20
# The reason of a failed sortie that is no longer in the plan.
DROPPED = "dropped from the plan"
TITLE_CHARS = 120
SHOWN = 5
_STATUSES: dict[str, StepStatus] = {
    "pending": "pending",
    "assigned": "pending",
    "in_progress": "in_progress",
    "blocked": "in_progress",
    "completed": "done",
    "failed": "failed",
}
# The step that a run is at: the one in progress, else a blocked one, else the next.
_RANK = ("in_progress", "blocked")
_strings = msgspec.json.Decoder(list[str]).decode


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One sortie as a step of its agent's plan; ``ordinal`` counts from 1."""

    id: str
    ordinal: int
    title: str
    sortie_status: str
    status: StepStatus
    blocked_reason: str | None
    closed_at: str
    files: list[str]

    @property
    def open(self) -> bool:
        """Return whether there is something left to do."""
        return self.status in ("pending", "in_progress")


def plan_of(tx: Tx, agent: Row | None) -> list[PlanStep]:
    """Return the steps of an agent in its mission, in order; none for an unknown agent."""
    if agent is None or agent["mission_id"] is None:
        return []
    rows = tx.all(
        "SELECT s.id, s.title, s.status, s.blocked_reason, s.completed_at, s.files_json"
        " FROM sorties s LEFT JOIN plan_items p ON p.sortie_id = s.id AND p.agent_id = :agent"
        " AND p.mission_id = s.mission_id AND p.status <> 'dropped'"
        " WHERE s.mission_id = :mission AND (p.sortie_id IS NOT NULL OR s.assigned_to = :agent)"
        " ORDER BY p.sortie_id IS NULL, p.position, s.position, s.id",
        agent=agent["id"],
        mission=agent["mission_id"],
    )
    return [_step(row, ordinal) for ordinal, row in enumerate(rows, 1)]


def step_status(sortie: Row) -> StepStatus:
    """Return the status of a sortie as a step."""
    dropped = sortie["status"] == "failed" and sortie["blocked_reason"] == DROPPED
    return "skipped" if dropped else _STATUSES[sortie["status"]]


def _step(row: Row, ordinal: int) -> PlanStep:
    return PlanStep(
        id=row["id"],
        ordinal=ordinal,
        title=short(row["title"], TITLE_CHARS),
        sortie_status=row["status"],
        status=step_status(row),
        blocked_reason=row["blocked_reason"] if row["status"] == "blocked" else None,
        closed_at=row["completed_at"] or "",
        files=_strings(row["files_json"]),
    )


def present_step(plan: Sequence[PlanStep]) -> PlanStep | None:
    """Return the step a run is at: under way, else the next open one, else the last closed."""
    candidates = chain(
        (step for status in _RANK for step in plan if step.sortie_status == status),
        (step for step in plan if step.open),
        sorted(plan, key=lambda step: (step.closed_at, step.ordinal), reverse=True),
    )
    return next(candidates, None)


def all_done(plan: Sequence[PlanStep]) -> bool:
    """Return whether every step is done or dropped from the plan, and at least one is done."""
    statuses = {step.status for step in plan}
    return "done" in statuses and statuses <= {"done", "skipped"}


def compliance(ctx: Context, plan: Sequence[PlanStep]) -> TodoCompliance:
    """Return whether a plan is kept as required: one step at a time."""
    under_way = [step for step in plan if step.sortie_status == "in_progress"]
    violations = []
    if len(under_way) > 1:
        titles = "; ".join(step.title for step in under_way[:SHOWN])
        more = "; ..." if len(under_way) > SHOWN else ""
        violations.append(f"{len(under_way)} steps are in progress at once: {titles}{more}")
    return TodoCompliance(
        result="FAIL" if violations else "PASS", violations=violations, checked_at=ctx.now
    )


def step_meant(plan: Sequence[PlanStep], declared: DeclaredStep | None) -> PlanStep | None:
    """Return the step of a plan that a caller names, or that the run is at when it names none."""
    if declared is None or (declared.step_id, declared.step_ordinal) == (None, None):
        return present_step(plan)
    named = (
        step
        for step in plan
        if step.id == declared.step_id
        or (declared.step_id is None and step.ordinal == declared.step_ordinal)
    )
    return next(named, None)


def step_state(
    declared: DeclaredStep | None,
    planned: PlanStep | None,
    complied: TodoCompliance,
    hints: ResumeHints,
) -> StepState:
    """Return the step of a run: as declared, completed by what is known."""
    given = declared or DeclaredStep()
    return StepState(
        plan_path=given.plan_path,
        step_id=given.step_id or (planned.id if planned else None),
        step_ordinal=given.step_ordinal or (planned.ordinal if planned else None),
        step_status=given.step_status or (planned.status if planned else None),
        todo_compliance=complied,
        resume_hints=hints,
    )


def declared_compliance(ctx: Context, declared: DeclaredCompliance) -> tuple[TodoCompliance, int]:
    """Return what a caller found about its plan, and how many violations were left out.

    Raises InvalidParams for an invalid time.
    """
    kept = [short(violation, SUMMARY_CHARS) for violation in declared.violations[:MOST_VIOLATIONS]]
    try:
        checked_at = iso(to_ms(declared.checked_at)) if declared.checked_at is not None else ctx.now
    except (ValueError, OverflowError):
        raise InvalidParams(
            f"todo_compliance.checked_at is {declared.checked_at!r}, which is not a time.",
            hint="Give ISO 8601, such as 2026-01-05T12:00:00Z, or omit it for the present time.",
            field="step_state.todo_compliance.checked_at",
        ) from None
    complied = TodoCompliance(result=declared.result, violations=kept, checked_at=checked_at)
    return complied, len(declared.violations) - len(kept)


MOST_ACTIONS = 20
# The output of a command follows it, which is no agent's words.
FAILED_FIRST = "Look into what failed: "
READY, AFTER_FAILURE = "resume_ready", "resume_after_failure"
NOTHING_LEFT, NO_PLAN = "resume_nothing_left", "resume_no_plan"
# Used when a caller's decision differs from the plan's and has no reason.
DECLARED = "resume_declared"


def computed_hints(
    plan: Sequence[PlanStep], failure: str | None, declared: DeclaredStep | None, status: RunStatus
) -> ResumeHints:
    """Return the resume hints of a plan; ``failure`` is what failed last, if anything did.

    If the store knows no plan, the step that the caller declares counts as one. So does a completed
    run, which has nothing left to do.
    """
    stated = declared.step_status if declared is not None else None
    if not plan and stated is None and status != "completed":
        return ResumeHints(eligible=False, reason_code=NO_PLAN, next_actions=[])
    if plan:  # the step that the run is at comes first
        present = present_step(plan)
        left = (step for step in plan if step.open)
        ahead = [_action(step) for step in sorted(left, key=lambda step: step is not present)]
    else:
        ahead = _declared_ahead(declared) if declared is not None and status != "completed" else []
    if not ahead:
        return ResumeHints(eligible=False, reason_code=NOTHING_LEFT, next_actions=[])
    actions = [f"{'Then' if n else 'Continue'}: {what}" for n, what in enumerate(ahead)]
    if failure is None:
        return ResumeHints(eligible=True, reason_code=READY, next_actions=actions)
    first = FAILED_FIRST + short_ends(failure, SUMMARY_CHARS - len(FAILED_FIRST))
    return ResumeHints(eligible=True, reason_code=AFTER_FAILURE, next_actions=[first, *actions])


def _action(step: PlanStep) -> str:
    blocked = f" (blocked: {short(step.blocked_reason)})" if step.blocked_reason else ""
    return f"{step.title}{blocked}"


def _declared_ahead(declared: DeclaredStep) -> list[str]:
    if declared.step_status not in ("pending", "in_progress", "failed"):
        return []
    step = declared.step_id or (
        f"step {declared.step_ordinal}" if declared.step_ordinal else "the step"
    )
    return [f"{step} of {declared.plan_path}" if declared.plan_path else step]


def declared_hints(computed: ResumeHints, declared: DeclaredHints) -> ResumeHints:
    """Return the hints that a caller gives, with computed values for those it omits.

    A caller that gives next actions also says that the run can go on, unless it says otherwise.
    """
    goes_on = computed.eligible or bool(declared.next_actions)
    eligible = goes_on if declared.eligible is None else declared.eligible
    agreed = computed.reason_code if eligible == computed.eligible else DECLARED
    return ResumeHints(
        eligible=eligible,
        reason_code=declared.reason_code or agreed,
        next_actions=[short(action, SUMMARY_CHARS) for action in declared.next_actions]
        or computed.next_actions,
    )


def bounded_hints(hints: ResumeHints) -> tuple[ResumeHints, int]:
    """Return hints with no more actions than a snapshot holds, and how many were left out."""
    kept = hints.next_actions[:MOST_ACTIONS]
    return msgspec.structs.replace(hints, next_actions=kept), len(hints.next_actions) - len(kept)
