"""``fleetctl checkpoint``: take a checkpoint by hand."""

from argparse import Namespace

from ..args import Subparsers, command, mission_option
from ..client import Fleet
from ..client.models import CheckpointCreate
from ..context import mission_id, prefix_errors
from ..output import console

EXAMPLES = '  fleetctl checkpoint --note "Before the API refactoring"\n  fleetctl checkpoint --json'


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers, "checkpoint", run, "Take a checkpoint of a mission's current state.", EXAMPLES
    )
    mission_option(parser)
    parser.add_argument("--note", metavar="TEXT", help="say what the checkpoint is for")
    parser.flag("-q", "--quiet", help="print nothing unless something is wrong")


def run(args: Namespace) -> int:
    """Take the checkpoint and say what it holds."""
    with Fleet() as client:
        mission = mission_id(client, args.mission)
        request = CheckpointCreate(mission_id=mission, trigger_details=args.note)
        with prefix_errors("Failed to create checkpoint"):
            checkpoint = client.call(request)
    console.warn(*checkpoint.warnings)
    if args.json:
        console.print_json(checkpoint)
    elif not args.quiet:
        console.lines(
            (
                f"Checkpoint created: {checkpoint.id}",
                f"Mission: {checkpoint.mission_id}",
                f"Progress: {checkpoint.progress_percent}%",
                f"Sorties: {len(checkpoint.sorties)}",
                f"Locks: {len(checkpoint.active_locks)} active",
                f"Messages: {len(checkpoint.pending_messages)} pending",
            )
        )
    return 0
