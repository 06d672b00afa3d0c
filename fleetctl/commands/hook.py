"""``fleetctl hook``: the hook client, for settings that cannot name an interpreter.

``fleetctl.__main__`` calls the client directly, before anything that could print or fail.
"""

from argparse import REMAINDER

from .. import hook_client
from ..args import Namespace, Subparsers, command


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "hook",
        run,
        "Send one event of an agent CLI from stdin to fleetd, or to the spool without fleetd. "
        "Prints a text for the agent or nothing. The exit status is always 0.",
        "  fleetctl hook claude\n  fleetctl hook copilot preCompact",
    )
    parser.add_argument(
        "words",
        nargs=REMAINDER,
        metavar="WORD",
        help="the agent CLI, and the event if stdin does not name it",
    )


def run(args: Namespace) -> int:
    """End this process as the hook client does."""
    hook_client.main(args.words)
    return 0
