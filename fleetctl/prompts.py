"""Prompts: questions to the person at the terminal."""

from __future__ import annotations

import sys

from fleetd.protocol.errors import FleetError, InvalidParams

from .output.console import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .args import Namespace


class Cancelled(FleetError):
    """The person declined; the message is printed without ``Error:``."""

    code = -32000
    kind = "cancelled"
    exit_status = 3


def interactive() -> bool:
    """Return whether a person can see a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask a yes-or-no question; anything but yes is no.

    The question goes to stderr, so that stdout holds results only. Raises InvalidParams when
    there is no terminal to ask at.
    """
    if not interactive():
        raise InvalidParams(
            f"Cannot ask {question!r} without a terminal. Use --yes to continue.",
            hint="Add --yes, or run the command in a terminal.",
        )
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_or_cancel(question: str, cancelled: str) -> None:
    """Ask a yes-or-no question; raises Cancelled with this message unless the answer is yes."""
    if not confirm(question):
        raise Cancelled(cancelled)


def show_preview(args: Namespace, lines: Iterable[str]) -> None:
    """Print a preview and a blank line; on stderr when stdout is for JSON."""
    stream = sys.stderr if args.json else sys.stdout
    print("\n".join(map(clean, lines)), end="\n\n", file=stream)
