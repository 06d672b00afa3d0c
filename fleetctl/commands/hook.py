"""``fleetctl hook``: the hook client, for settings that cannot name an interpreter.

``fleetctl.__main__`` goes to it directly, past everything that could print or fail.
"""

from argparse import REMAINDER, Namespace

from .. import hook_client
from ..args import Subparsers, command


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "hook",
        run,
        "Hand one event of an agent CLI, from stdin, to fleetd, or leave it in the spool. Prints "
        "what the agent should read, or nothing, and always ends with status 0.",
        "  fleetctl hook claude\n  fleetctl hook copilot preCompact",
    )
    parser.add_argument("words", nargs=REMAINDER, metavar="WORD", help="the agent CLI, and more")


def run(args: Namespace) -> int:
    """End this process as the hook client does."""
    hook_client.main(args.words)
    return 0
