"""``fleetctl watch``: a live view of the fleet in the terminal."""

import os
import sys

from fleetd.protocol.errors import InvalidParams, InvalidState

from ..args import Namespace, Subparsers, command

HINT = "Without one: fleetctl status, or fleetctl events --follow."


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command(
        subparsers,
        "watch",
        run,
        "Show missions, sorties, agents, locks, mail and events live. Changes nothing.",
        "  fleetctl watch        ? shows the keys, q quits",
        prints=False,
    )


def run(args: Namespace) -> int:
    """Show the fleet until the person stops."""
    if args.json:
        raise InvalidParams(
            "fleetctl watch draws a screen and has no JSON document.",
            hint="One document: fleetctl status --json. "
            "One a line, live: fleetctl events --follow --json.",
        )
    _check_terminal()
    # No key here needs the kitty keyboard protocol, and some terminals do not leave it at the end.
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    # Exported values would fix the size of the screen, whatever the terminal's own is by now.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    # Imported here: these imports take longer than a whole other command, and no other needs them.
    from ..tui.app import WatchApp

    app = WatchApp()
    app.run(mouse=False)
    return app.return_code or 0


def _check_terminal() -> None:
    """Refuse a terminal that cannot be drawn on; raises InvalidState."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise InvalidState("fleetctl watch needs a terminal.", hint=HINT)
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        raise InvalidState(
            "fleetctl watch needs a terminal that can move its cursor; TERM names one that cannot.",
            hint=HINT,
        )
