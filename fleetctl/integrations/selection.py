"""Which agent CLIs, and whose settings of them, a command is about; knows no settings."""

from argparse import Namespace
from pathlib import Path

from ..args import Parser, Run, Subparsers, UsageError, command, yes_option
from ..context import project_dir
from .registry import HARNESSES, Harness


def changing(actions: Subparsers, name: str, run: Run, summary: str, examples: str) -> Parser:
    """Add a command that changes settings."""
    parser = looking(actions, name, run, summary, examples)
    parser.add_argument("--all", action="store_true", help="every agent CLI on this machine")
    parser.add_argument("--dry-run", action="store_true", help="show the change, write nothing")
    yes_option(parser)
    return parser


def looking(actions: Subparsers, name: str, run: Run, summary: str, examples: str) -> Parser:
    """Add a command that looks at settings."""
    parser = command(actions, name, run, summary, examples)
    parser.add_argument(
        "harness", metavar="HARNESS", nargs="*", help="one of " + ", ".join(HARNESSES)
    )
    parser.add_argument(
        "--project",
        action="store_true",
        help="the settings of the project here, instead of the user's",
    )
    return parser


def chosen(args: Namespace) -> list[Harness]:
    """Return the agent CLIs that were named, or all; raises UsageError."""
    if unknown := [name for name in args.harness if name not in HARNESSES]:
        raise UsageError(f"{unknown[0]!r} is none of: {', '.join(HARNESSES)}.")
    if args.harness and getattr(args, "all", False):
        raise UsageError("Name agent CLIs or give --all, not both.")
    if not args.harness and not getattr(args, "all", True):
        here = ", ".join(each.name for each in HARNESSES.values() if each.is_here())
        raise UsageError(f"Name an agent CLI, or give --all. On this machine: {here or 'none'}.")
    return [each for name, each in HARNESSES.items() if name in args.harness or not args.harness]


def project(args: Namespace) -> Path | None:
    """Return the project whose settings are meant, None for the user's."""
    return Path(project_dir()) if args.project else None
