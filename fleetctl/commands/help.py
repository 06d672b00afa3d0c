"""``fleetctl help``: prints what ``--help`` prints, for people who type it first."""

from ..args import Namespace, Subparsers, UsageError, command
from ..output import console


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "help",
        run,
        "Explain a command and its options.",
        "  fleetctl help --all\n  fleetctl help mission create",
    )
    parser.add_argument("--all", action="store_true", help="list all commands, by group")
    parser.add_argument(
        "words",
        metavar="COMMAND",
        nargs="*",
        help="a command, and a command below it (default: an overview)",
    )


def run(args: Namespace) -> int:
    """Print the help of a command; raises UsageError for an unknown one."""
    # Imported here: that module imports this one.
    from ..cli import build_parser, overview

    if args.all and args.words:
        raise UsageError("Name a command or give --all, not both.")
    parser = build_parser(args.words)
    for word in args.words:
        parser = parser.subcommand(word)
    text = overview(parser.prog) if args.all else parser.format_help()
    return console.show(args, {"help": text}, lambda _: print(text, end=""))
