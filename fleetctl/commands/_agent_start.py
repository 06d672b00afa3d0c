"""``fleetctl agent start``: registration by hand, and the recovery that may follow it."""

from argparse import Namespace
from typing import Any

from fleetd.protocol.errors import InvalidParams, InvalidState

from ..args import threshold_ms
from ..client import Fleet
from ..client.models import (
    AgentRegister,
    Detection,
    RecoveryCandidate,
    RecoveryRestore,
    RestoreResult,
)
from ..context import cwd, failing_as, selected
from ..output import console
from ..output.views.recovery import resume_command
from ..prompts import confirm, interactive
from ._recovery import QUESTION, announcement, candidate_target, show


def run(args: Namespace) -> int:
    """Register the agent; restore when a mission waits and the person or the option says so."""
    with Fleet() as client:
        registration = client.call(_registration(args))
        waiting = registration.recovery
        if not args.json:
            console.line(f"Agent registered: {registration.agent.id} ({registration.agent.role})")
        own_mission = registration.agent.mission_id
        candidate = _own(waiting, own_mission) if own_mission else _here(client)
        outcome = _recover(client, args, candidate, sure=bool(own_mission))
    if args.json:
        document: dict[str, Any] = {"agent": registration.agent, "recovery": waiting}
        console.print_json({**document, "restored": outcome})
    return 0


def _registration(args: Namespace) -> AgentRegister:
    return AgentRegister(
        agent_id=args.agent_id,
        role=args.role,
        harness=args.harness,
        pid=args.pid,
        mission_id=args.mission,
        cwd=cwd(),
        threshold_ms=threshold_ms(),
    )


def _own(waiting: Detection, mission_id: str) -> RecoveryCandidate | None:
    """Return the agent's mission when that waits and has a checkpoint."""
    mine = (each for each in waiting.candidates if each.mission_id == mission_id)
    return next((each for each in mine if each.checkpoint_id), None)


def _here(client: Fleet) -> RecoveryCandidate | None:
    """Return what waits in this directory, for an agent without a mission.

    It is never resumed into somebody's mission by itself; see ``_recover``.
    """
    try:
        found = selected(client, "recovery", threshold_ms=threshold_ms())
    except (InvalidState, InvalidParams):
        return None
    return next(iter(found.candidates), None)


def _recover(
    client: Fleet, args: Namespace, candidate: RecoveryCandidate | None, *, sure: bool
) -> RestoreResult | None:
    if candidate is None or not ((args.auto_resume and sure) or _agreed(args, candidate)):
        return None
    request = RecoveryRestore(
        mission_id=candidate.mission_id,
        agent_id=args.agent_id,
        requested_by=args.agent_id,
        # Where the others are at work again, they must not notice.
        scope="agent" if candidate.agent_id else "mission",
    )
    with failing_as("Failed to restore from checkpoint"):
        outcome = client.call(request)
    if not args.json:
        show(outcome)
    return outcome


def _agreed(args: Namespace, candidate: RecoveryCandidate) -> bool:
    """Ask when somebody is there; else say what waits and how to restore it."""
    if args.json:
        return False
    later = resume_command(candidate, args.agent_id)
    if not interactive():
        console.line(
            f"Mission {candidate.mission_id} ({candidate.mission_title}) waits for recovery. "
            f"Restore it with: {later}"
        )
        return False
    console.lines([*announcement(candidate_target(candidate)), ""])
    if not confirm(QUESTION):
        console.line(f"Not restored. Later: {later}")
        return False
    print()
    return True
