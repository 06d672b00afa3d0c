"""``fleetctl resume``: bring a mission back from a checkpoint and print its briefing."""

import sys
from argparse import Namespace

from fleetd.protocol.patterns import Scope

from ..args import CommandParser, Subparsers, UsageError, command, mission_option, yes_option
from ..client import Fleet
from ..client.models import RecoveryRestore
from ..context import failing_as
from ..output import console
from ..prompts import Cancelled, confirm, interactive
from ._recovery import (
    QUESTION,
    RestoreTarget,
    announcement,
    choices,
    choose,
    show_outcome,
)

EXAMPLES = """\
  fleetctl resume --dry-run
  fleetctl resume --checkpoint chk-1a2b3c4d --yes
  fleetctl resume --agent specialist-3 --take-over-from specialist-2"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "resume", run, "Bring a mission back from a checkpoint.", EXAMPLES)
    mission_option(parser, "the agent's, else the newest stale one of this directory")
    parser.add_argument(
        "--checkpoint", completes="checkpoint", help="the checkpoint (default: the latest)"
    )
    parser.flag("--dry-run", help="show what would be restored")
    yes_option(parser)
    _recovery_options(parser)


def _recovery_options(parser: CommandParser) -> None:
    parser.flag("--rewind", help="also undo what was finished since the checkpoint")
    parser.flag("--force-locks", help="take locks that others hold by now")
    parser.add_argument("--agent", completes="agent", help="the agent that is briefed")
    parser.add_argument(
        "--take-over-from",
        completes="agent.lost",
        help="a lost agent whose work goes to --agent, whose session moves into the mission",
    )
    parser.add_argument(
        "--scope",
        choices=("mission", "agent"),
        help="restore the whole mission, or only the part of --agent "
        "(default: mission; agent with --take-over-from)",
    )
    parser.add_argument(
        "--requested-by", completes="agent", default="cli", help="who asks (default: cli)"
    )


def run(args: Namespace) -> int:
    """Find the mission, ask, restore, and print the briefing."""
    for option, given in (
        ("--take-over-from", args.take_over_from),
        ("--scope agent", args.scope == "agent"),
    ):
        if given and not args.agent:
            raise UsageError(f"{option} needs --agent: who is to go on with the work?")
    with Fleet() as client:
        target = choose(client, args)
        if not args.dry_run:
            _announce(args, target)
        with failing_as("Failed to restore from checkpoint"):
            outcome = client.call(_request(args, target))
    if not args.json and outcome.checkpoint_id != target.checkpoint_id:
        # The newest one was damaged in both copies, or expired; the warnings say which.
        console.line(f"Used checkpoint: {outcome.checkpoint_id}")
    status = show_outcome(args, outcome)
    if args.dry_run and not args.json and target.others:
        print()
        console.lines(choices(target))
    return status


def _scope(args: Namespace) -> Scope:
    """Return whose part is restored: one lost agent is no reason to touch the others."""
    if args.scope is None:
        return "agent" if args.take_over_from else "mission"
    return "agent" if args.scope == "agent" else "mission"


def _announce(args: Namespace, target: RestoreTarget) -> None:
    """Say what is about to happen and ask; raises Cancelled when the answer is no."""
    # A script that reads JSON has nobody to ask, and has asked for the recovery already.
    ask = not args.yes and (not args.json or interactive())
    if not args.json or ask:
        stream = sys.stderr if args.json else sys.stdout
        for text in (*announcement(target), ""):
            print(console.clean(text), file=stream)
    if ask:
        if not confirm(QUESTION):
            raise Cancelled("Recovery cancelled.")
        print(file=sys.stderr if args.json else sys.stdout)


def _request(args: Namespace, target: RestoreTarget) -> RecoveryRestore:
    return RecoveryRestore(
        # Without a named checkpoint the daemon may pass over a damaged one to the one before.
        checkpoint_id=target.checkpoint_id if args.checkpoint else None,
        mission_id=None if args.checkpoint else target.mission_id,
        requested_by=args.requested_by,
        agent_id=args.agent,
        take_over_from=args.take_over_from,
        scope=_scope(args),
        dry_run=args.dry_run,
        force_locks=args.force_locks,
        rewind=args.rewind,
    )
