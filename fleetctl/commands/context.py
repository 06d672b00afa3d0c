"""``fleetctl context``: print a briefing without restoring anything."""

from ..args import Namespace, Subparsers, command, mission_option, whole_number
from ..client import Fleet
from ..client.models import RecoveryContextGet
from ..context import cwd, select_mission
from ..output import console

EXAMPLES = "  fleetctl context\n  fleetctl context --agent specialist-2 --max-chars 4000"


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers, "context", run, "Print the briefing of a mission. Changes nothing.", EXAMPLES
    )
    mission_option(parser)
    parser.add_argument("--agent", completes="agent", help="only the part of this agent")
    parser.add_argument(
        "--checkpoint",
        completes="checkpoint",
        help="the briefing from this checkpoint (default: from the current state)",
    )
    parser.add_argument(
        "--max-chars",
        type=whole_number(500, 9_500),
        metavar="N",
        help="the maximum length of the text (500 to 9500)",
    )


def run(args: Namespace) -> int:
    """Fetch the briefing and print it."""
    with Fleet() as client:
        mission = args.mission
        if not mission and not args.checkpoint:
            mission = select_mission(client, "briefing", agent=args.agent).mission.id
        briefing = client.call(
            RecoveryContextGet(
                mission_id=mission,
                agent_id=args.agent,
                checkpoint_id=args.checkpoint,
                cwd=None if args.mission or args.checkpoint else cwd(),
                max_chars=args.max_chars,
            )
        )
    console.warn(*briefing.warnings)
    return console.show(args, briefing, lambda _: print(console.clean_block(briefing.prompt)))
