"""Resume hints: whether a run can go on, why or why not, and with what.

Source: snapshot-lifecycle, ``resume_hints``.
"""

from collections.abc import Sequence

import msgspec

from ...protocol.display import short
from ...protocol.requests.snapshot import DeclaredHints, DeclaredStep
from ...protocol.snapshots import SUMMARY_CHARS, ResumeHints
from ...protocol.types import RunStatus
from .plan_steps import PlanStep, present_step

MOST_ACTIONS = 20
# Behind it stands what a command put out: nobody's words.
FAILED_FIRST = "Look into what failed: "
READY, AFTER_FAILURE = "resume_ready", "resume_after_failure"
NOTHING_LEFT, NO_PLAN = "resume_nothing_left", "resume_no_plan"
# Said when a caller decides otherwise than the plan and gives no reason.
DECLARED = "resume_declared"


def computed(
    plan: Sequence[PlanStep], failure: str | None, said: DeclaredStep | None, status: RunStatus
) -> ResumeHints:
    """Return what the plan says about going on; ``failure`` is what failed last, if it did.

    Where the store knows no plan, the step that the caller says it is at stands for one, and so
    does a run that is completed: nothing is ahead of that.
    """
    stated = said.step_status if said is not None else None
    if not plan and stated is None and status != "completed":
        return ResumeHints(eligible=False, reason_code=NO_PLAN, next_actions=[])
    if plan:
        ahead = [_action(step) for step in _in_turn(plan)]
    else:
        ahead = _said_ahead(said) if said is not None and status != "completed" else []
    if not ahead:
        return ResumeHints(eligible=False, reason_code=NOTHING_LEFT, next_actions=[])
    actions = [f"{'Then' if n else 'Continue'}: {what}" for n, what in enumerate(ahead)]
    if failure is None:
        return ResumeHints(eligible=True, reason_code=READY, next_actions=actions)
    first = short(f"{FAILED_FIRST}{failure}", SUMMARY_CHARS)
    return ResumeHints(eligible=True, reason_code=AFTER_FAILURE, next_actions=[first, *actions])


def _in_turn(plan: Sequence[PlanStep]) -> list[PlanStep]:
    """Return what is left of a plan, the step that the run is at first."""
    present = present_step(plan)
    return sorted((step for step in plan if step.open), key=lambda step: step is not present)


def _action(step: PlanStep) -> str:
    blocked = f" (blocked: {short(step.blocked_reason)})" if step.blocked_reason else ""
    return f"{step.title}{blocked}"


def _said_ahead(said: DeclaredStep) -> list[str]:
    if said.step_status not in ("pending", "in_progress", "failed"):
        return []
    step = said.step_id or (f"step {said.step_ordinal}" if said.step_ordinal else "the step")
    return [f"{step} of {said.plan_path}" if said.plan_path else step]


def declared_over(computed: ResumeHints, declared: DeclaredHints) -> ResumeHints:
    """Return the hints that a caller gives, with what it does not say as computed.

    Whoever says what comes next says that the run can go on, if not otherwise.
    """
    goes_on = computed.eligible or bool(declared.next_actions)
    eligible = goes_on if declared.eligible is None else declared.eligible
    agreed = computed.reason_code if eligible == computed.eligible else DECLARED
    return ResumeHints(
        eligible=eligible,
        reason_code=declared.reason_code or agreed,
        next_actions=[short(told, SUMMARY_CHARS) for told in declared.next_actions]
        or computed.next_actions,
    )


def bounded(hints: ResumeHints) -> tuple[ResumeHints, int]:
    """Return hints with no more actions than a snapshot holds, and how many were left out."""
    kept = hints.next_actions[:MOST_ACTIONS]
    return msgspec.structs.replace(hints, next_actions=kept), len(hints.next_actions) - len(kept)
