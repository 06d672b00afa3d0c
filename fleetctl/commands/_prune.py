"""Prune records: show what would be deleted, ask, and delete it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..args import CommandParser, Namespace, yes_option
from ..client import Fleet
from ..client.models import Mutation
from ..output import console
from ..output.progress import call_with_bar
from ..prompts import confirm_or_cancel, show_preview


class PruneResult(Protocol):
    """How many records and bytes a prune deleted, or would delete, with details of each record."""

    deleted: int
    freed_bytes: int
    details: Sequence[Any]


def options(parser: CommandParser) -> None:
    """Add the options that every prune has."""
    parser.flag("--dry-run", help="show what would be deleted, and delete nothing")
    yes_option(parser)


def prune(
    args: Namespace,
    noun: str,
    request: Callable[[bool], Mutation[Any]],
    describe: Callable[[Any], str],
) -> int:
    """Prune as requested; raises Cancelled on a no, InvalidParams without a terminal.

    ``noun`` is a plural, ``request`` takes the dry-run flag, ``describe`` returns a record's line.
    """

    def preview(found: PruneResult) -> list[str]:
        more = found.deleted - len(found.details)
        return [
            f"Found {found.deleted} {noun} to prune:",
            *(f"  {console.clean(describe(each))}" for each in found.details),
            *([f"  and {more} more"] if more else []),
            f"Total: {found.deleted} {noun}, {console.size(found.freed_bytes)}",
        ]

    nothing = f"No {noun} to prune."
    with Fleet() as client:
        if args.dry_run or not args.yes:
            found: PruneResult = call_with_bar(args, "Looking", client, request(True))
            if not found.details:
                return console.result(args, found, nothing)
            if args.dry_run:
                left = f"[DRY RUN] No {noun} were deleted."
                return console.result(args, found, *preview(found), "", left)
            show_preview(args, preview(found))
            confirm_or_cancel("Proceed?", "Prune cancelled.")
        pruned: PruneResult = call_with_bar(args, "Pruning", client, request(False))
    if not pruned.details:
        return console.result(args, pruned, nothing)
    lines = preview(pruned) if args.yes else []
    return console.result(args, pruned, *lines, "", f"Deleted {pruned.deleted} {noun}.")
