"""``fleetctl checkpoints diff``: which two are compared."""

from argparse import Namespace

from fleetd.protocol.errors import InvalidState

from ..args import CommandParser, UsageError, mission_option
from ..client import Fleet
from ..client.models import CheckpointCompare, CheckpointList, CheckpointSummary
from ..context import mission_id
from ..output import console

SUMMARY = "Show what differs between two checkpoints, or a checkpoint and now."
EXAMPLES = """\
  fleetctl checkpoints diff                 the newest checkpoint and now
  fleetctl checkpoints diff chk-1a2b3c4d    that one and now
  fleetctl checkpoints diff chk-1a2b3c4d chk-5e6f7a8b
  fleetctl checkpoints diff --last          the newest two"""
# A mission keeps no more checkpoints than this by default; some of them are for undoing.
NEWEST = 100


def options(parser: CommandParser) -> None:
    """Add what says which two."""
    parser.add_argument(
        "before",
        metavar="BEFORE",
        completes="checkpoint",
        nargs="?",
        help="the older one (default: the newest there is)",
    )
    parser.add_argument(
        "after",
        metavar="AFTER",
        completes="checkpoint",
        nargs="?",
        help="the newer one (default: the mission as it is now)",
    )
    parser.flag("--last", help="compare the newest two")
    mission_option(parser)


def run(args: Namespace) -> int:
    """Print what is different."""
    # Imported here: no other command of the group needs it.
    from ..output.views.checkpoint_diff import show_difference

    if args.before and (args.last or args.mission):
        option = "--last" if args.last else "--mission"
        raise UsageError(f"argument {option}: not allowed with the id of a checkpoint")
    with Fleet() as client:
        before, after = (args.before, args.after) if args.before else _newest(client, args)
        found = client.call(CheckpointCompare(before=before, after=after))
    console.warn(*found.warnings)
    return console.show(args, found, show_difference)


def _newest(client: Fleet, args: Namespace) -> tuple[str, str | None]:
    """Return the ids of the newest two, or of the newest and None; raises InvalidState."""
    mission = mission_id(client, args.mission)
    page = client.call(CheckpointList(mission_id=mission, limit=NEWEST))
    found: list[CheckpointSummary] = [each for each in page.checkpoints if not each.undo]
    wanted = 2 if args.last else 1
    if len(found) < wanted:
        has = "only one checkpoint" if found else "no checkpoint"
        raise InvalidState(
            f"Mission {mission} has {has}.",
            hint="fleetctl checkpoints diff compares it with now."
            if found
            else f"fleetctl checkpoint --mission {mission} takes one.",
        )
    return (found[1].id, found[0].id) if args.last else (found[0].id, None)
