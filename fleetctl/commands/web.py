"""``fleetctl web``: the fleet in a browser, from a server on this computer."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from ..args import CommandParser, Namespace, Subparsers, command, whole_number
from ..output import console

if TYPE_CHECKING:
    from ..web.run import Place
    from ..web.running import Claim, RunningServer

EXAMPLES = """\
  fleetctl web
  fleetctl web --open
  fleetctl web --port 0
  fleetctl web --service"""
PORT = 8722


def register(subparsers: Subparsers) -> None:
    """Add the command, and the commands below it."""
    parser = command(
        subparsers,
        "web",
        run,
        "Show the fleet in a browser, read-only: start a server on this computer and print a link.",
        EXAMPLES,
        details="The link works once and for 10 minutes. While a server runs, the command prints "
        "a new link of it. The server runs until Ctrl-C.",
    )
    _place(parser)
    parser.flag("--open", help="open the link in the browser of this computer")
    parser.set_defaults(dry_run=False, yes=False)


def _place(parser: CommandParser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDR",
        help="the address to listen on: 127.0.0.1 or ::1, never one that other computers reach "
        "(default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=whole_number(0, 65_535),
        default=PORT,
        metavar="N",
        help=f"the port to listen on; 0 picks a free one (default: {PORT})",
    )
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help="listen on a Unix socket instead, for ssh -L from another computer",
    )


def run(args: Namespace) -> int:
    """Serve until a signal, or print a link of the server that runs."""
    # Imported here: whoever asks for help needs none of it.
    from ..client.retry import default_socket
    from ..web import running

    place, daemon = _wanted(args), default_socket()
    found = running.find_or_claim(running.private_socket(daemon))
    if isinstance(found, running.RunningServer):
        _show(args, found, started=False)
        if args.open:
            _open(found)
        return 0
    return _serve(args, found, place, daemon)


def _serve(args: Namespace, claim: "Claim", place: "Place", daemon: str) -> int:
    import trio

    from ..web.run import serve

    def on_ready(server: "RunningServer") -> None:
        _show(args, server, started=True)
        if args.open:
            _open(server)

    try:
        trio.run(partial(serve, claim, place, daemon, service=False, on_ready=on_ready))
    finally:
        claim.release()
    return 0


def _wanted(args: Namespace) -> "Place":
    """Return where the server is to listen; raises InvalidParams."""
    from pathlib import Path

    from ..web.run import Place, checked_host

    socket = Path(args.socket).absolute() if args.socket else None
    return Place(checked_host(args.host), args.port, socket)


def _show(args: Namespace, server: "RunningServer", *, started: bool) -> None:
    document = {"url": server.url, "ssh": server.ssh, "pid": server.pid, "started": started}
    if args.json:
        console.print_json(document)
    else:
        console.whole(f"Fleet is at {server.url}")
    sys.stdout.flush()
    if not args.json and (server.socket or "SSH_CONNECTION" in os.environ):
        print(console.clean(f"From your own computer: {server.ssh}"), file=sys.stderr)


def _open(server: "RunningServer") -> None:
    import webbrowser

    webbrowser.open(server.url)
