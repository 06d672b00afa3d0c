"""``fleetctl resume``: restore a mission from a checkpoint and print its briefing."""

import sys

from fleetd.protocol.errors import InvalidParams, InvalidState

from ..args import (
    Namespace,
    Subparsers,
    UsageError,
    command,
    mission_option,
    threshold_ms,
    yes_option,
)
from ..client import Fleet
from ..client.models import (
    CheckpointGet,
    CheckpointList,
    Mission,
    MissionGet,
    RecoveryCandidate,
    RecoveryDetect,
    RecoveryRestore,
)
from ..context import prefix_errors, select_mission
from ..output import console
from ..prompts import confirm_or_cancel, interactive, show_preview
from ._recovery import (
    QUESTION,
    RestoreTarget,
    alternatives,
    announcement,
    candidate_target,
    show_outcome,
)

EXAMPLES = """\
  fleetctl resume --dry-run
  fleetctl resume --checkpoint chk-1a2b3c4d --yes
  fleetctl resume --agent specialist-3 --take-over-from specialist-2"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "resume",
        run,
        "Recover a mission from a checkpoint, and print its briefing.",
        EXAMPLES,
    )
    mission_option(parser, "that of --agent, else the most recent silent one of this directory")
    parser.add_argument(
        "--checkpoint", completes="checkpoint", help="the checkpoint (default: the latest)"
    )
    parser.flag("--dry-run", help="show what would be restored, and change nothing")
    yes_option(parser)
    parser.flag("--rewind", help="also undo work that was completed after the checkpoint")
    parser.flag("--force-locks", help="take locks that other agents hold now")
    parser.add_argument("--agent", completes="agent", help="the agent that receives the briefing")
    parser.add_argument(
        "--take-over-from",
        completes="agent.lost",
        help="move the work of this lost agent to --agent, which joins the mission",
    )
    parser.add_argument(
        "--scope",
        choices=("mission", "agent"),
        help="restore the whole mission, or only the part of --agent "
        "(default: mission; agent with --take-over-from)",
    )
    parser.add_argument(
        "--requested-by",
        completes="agent",
        default="cli",
        help="the name to record as the requester (default: cli)",
    )


def run(args: Namespace) -> int:
    """Find the mission, ask, restore, and print the briefing."""
    for option, given in (
        ("--take-over-from", args.take_over_from),
        ("--scope agent", args.scope == "agent"),
    ):
        if given and not args.agent:
            raise UsageError(f"{option} needs --agent, the agent that continues the work.")
    with Fleet() as client:
        target = _choose(client, args)
        if not args.dry_run:
            _announce(args, target)
        with prefix_errors("Failed to restore from checkpoint"):
            outcome = client.call(
                RecoveryRestore(
                    # Without a named checkpoint, the daemon may skip a damaged one.
                    checkpoint_id=target.checkpoint_id if args.checkpoint else None,
                    mission_id=None if args.checkpoint else target.mission_id,
                    requested_by=args.requested_by,
                    agent_id=args.agent,
                    take_over_from=args.take_over_from,
                    # One lost agent is no reason to affect the others.
                    scope=args.scope or ("agent" if args.take_over_from else "mission"),
                    dry_run=args.dry_run,
                    force_locks=args.force_locks,
                    rewind=args.rewind,
                )
            )
    if not args.json and outcome.checkpoint_id != target.checkpoint_id:
        # The newest one was damaged in both copies, or expired; the warnings name the reason.
        console.line(f"Used checkpoint: {outcome.checkpoint_id}")
    # Remaining lock conflicts are no failure.
    status = console.show(args, outcome, show_outcome)
    if args.dry_run and not args.json and target.others:
        print()
        console.lines(alternatives(target))
    return status


def _choose(client: Fleet, args: Namespace) -> RestoreTarget:
    """Return what to restore: the named mission or checkpoint, else the daemon's choice.

    Raises InvalidState when there is nothing to restore, NotFound for an id that does not exist,
    InvalidParams for a checkpoint that is another mission's, and when missions wait elsewhere only.
    """
    if args.checkpoint:
        return _named_checkpoint(client, args.checkpoint, args.mission)
    if args.mission:
        return _mission(client, client.call(MissionGet(mission_id=args.mission)))
    found = select_mission(
        client,
        "recovery",
        agent=args.agent,
        take_over_from=args.take_over_from,
        threshold_ms=threshold_ms(),
    )
    if found.candidates:
        return candidate_target(found.candidates[0], tuple(found.candidates))
    return _mission(client, found.mission)


def _silent(client: Fleet, mission: str) -> RecoveryCandidate | None:
    """Return a mission if it is silent, by the threshold of this shell if it sets one."""
    request = RecoveryDetect(mission_id=mission, threshold_ms=threshold_ms())
    return next(iter(client.call(request).candidates), None)


def _mission(client: Fleet, mission: Mission) -> RestoreTarget:
    silent = _silent(client, mission.id)
    if silent and silent.checkpoint_id:
        return candidate_target(silent)
    # Use summaries: the newest checkpoint may be damaged, and the daemon then uses another.
    page = client.call(CheckpointList(mission_id=mission.id, limit=1_000))
    latest = next((summary for summary in page.checkpoints if not summary.undo), None)
    if latest is None:
        raise InvalidState(
            f"No checkpoint found for mission: {mission.id}",
            hint=f"Take one: fleetctl checkpoint --mission {mission.id}",
        )
    return RestoreTarget(
        mission.id,
        mission.title,
        mission.last_activity_at,
        latest.id,
        latest.progress_percent,
        None,
    )


def _named_checkpoint(client: Fleet, given: str, mission: str | None) -> RestoreTarget:
    checkpoint = client.call(CheckpointGet(checkpoint_id=given))
    console.warn(*checkpoint.warnings)
    found = client.call(MissionGet(mission_id=checkpoint.mission_id))
    if mission and client.call(MissionGet(mission_id=mission)).id != found.id:
        raise InvalidParams(
            f"Checkpoint {checkpoint.id} belongs to mission {found.id}, not to {mission}.",
            hint="Leave --mission out, or name another checkpoint.",
        )
    return RestoreTarget(
        found.id,
        found.title,
        found.last_activity_at,
        checkpoint.id,
        checkpoint.progress_percent,
        "silent" if _silent(client, found.id) else None,
    )


def _announce(args: Namespace, target: RestoreTarget) -> None:
    """Show what is about to happen, and ask; raises Cancelled when the answer is no."""
    # A script that reads JSON cannot answer, and asked for the recovery already.
    ask = not args.yes and (not args.json or interactive())
    if not args.json or ask:
        show_preview(args, announcement(target))
    if ask:
        confirm_or_cancel(QUESTION, "Recovery cancelled.")
        print(file=sys.stderr if args.json else sys.stdout)
