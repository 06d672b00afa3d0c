"""``fleetctl help``: what ``--help`` prints, for who types it in front."""

from argparse import Namespace

from ..args import Subparsers, command
from ..output import console


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "help",
        run,
        "Print what a command does and takes.",
        "  fleetctl help\n  fleetctl help mission create",
    )
    parser.add_argument(
        "words", metavar="COMMAND", nargs="*", help="a command, and one below it (default: all)"
    )


def run(args: Namespace) -> int:
    """Print the help of a command; raises UsageError for one that there is not."""
    # Imported here: it is what imports this.
    from ..cli import build_parser

    parser = build_parser(args.words)
    for word in args.words:
        parser = parser.subcommand(word)
    text = parser.format_help()
    return console.show(args, {"help": text}, lambda _: print(text, end=""))
