"""Pruning: show what it would take, ask, and take it."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..args import CommandParser, yes_option
from ..client import Fleet
from ..client.models import Mutation
from ..output import console
from ..output.progress import bar
from ..prompts import Cancelled, confirm


class PruneResult(Protocol):
    """What a prune took away, or would."""

    @property
    def deleted(self) -> int:
        """Return how many records."""

    @property
    def freed_bytes(self) -> int:
        """Return how many bytes of the disk."""

    @property
    def details(self) -> Sequence[Any]:
        """Return a record about each."""


class Pruning:
    """How one sort of record is pruned: its plural, its request, and a line about each.

    ``request`` gets whether it is a dry run.
    """

    def __init__(
        self, noun: str, request: Callable[[bool], Mutation[Any]], describe: Callable[[Any], str]
    ) -> None:
        self._noun = noun
        self._request = request
        self._describe = describe

    def run(self, args: Namespace) -> int:
        """Prune as asked; raises Cancelled on a no, InvalidParams without a terminal."""
        with Fleet() as client:
            if args.dry_run or not args.yes:
                found = self._call(client, args, "Looking", dry_run=True)
                if args.dry_run or not found.details:
                    return self._show_found(args, found)
                stream = sys.stderr if args.json else sys.stdout
                print("\n".join(self._found_lines(found)), end="\n\n", file=stream)
                if not confirm("Proceed?"):
                    raise Cancelled("Prune cancelled.")
            pruned = self._call(client, args, "Pruning", dry_run=False)
        return self._show_pruned(args, pruned)

    def _call(self, client: Fleet, args: Namespace, title: str, *, dry_run: bool) -> PruneResult:
        with bar(args, title) as progress:
            found: PruneResult = client.call(self._request(dry_run), progress=progress)
        return found

    def _show_found(self, args: Namespace, found: PruneResult) -> int:
        if not found.details:
            return console.result(args, found, self._closing(found))
        lines = self._found_lines(found)
        return console.result(args, found, *lines, "", f"[DRY RUN] No {self._noun} were deleted.")

    def _show_pruned(self, args: Namespace, pruned: PruneResult) -> int:
        told = self._found_lines(pruned) if args.yes and pruned.details else []
        gap = [""] if pruned.deleted else []
        return console.result(args, pruned, *told, *gap, self._closing(pruned))

    def _found_lines(self, found: PruneResult) -> list[str]:
        return [
            f"Found {found.deleted} {self._noun} to prune:",
            *(f"  {console.clean(self._describe(each))}" for each in found.details),
            *([f"  and {more} more"] if (more := found.deleted - len(found.details)) else []),
            f"Total: {found.deleted} {self._noun}, {console.size(found.freed_bytes)}",
        ]

    def _closing(self, pruned: PruneResult) -> str:
        if not pruned.details:
            return f"No {self._noun} to prune."
        return f"Deleted {pruned.deleted} {self._noun}."


def options(parser: CommandParser) -> None:
    """Add the options that every prune has."""
    parser.flag("--dry-run", help="show what would be deleted")
    yes_option(parser)
