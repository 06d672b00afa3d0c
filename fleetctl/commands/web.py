"""``fleetctl web``: the fleet in a browser, from a server on this computer."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from fleetd import __version__
from fleetd.protocol.errors import InvalidParams

from ..args import (
    CommandParser,
    Namespace,
    Subparsers,
    changing_options,
    command,
    whole_number,
    yes_option,
)
from ..output import console
from ..web.place import PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..web.place import Place
    from ..web.running import Claim, RunningServer

EXAMPLES = """\
  fleetctl web
  fleetctl web --open
  fleetctl web --port 0
  fleetctl web --service"""
INSTALL_EXAMPLES = """\
  fleetctl web install
  fleetctl web install --port 9000
  fleetctl web install --dry-run"""
SERVICE = "Install the server as a systemd user service, and start it. fleetctl web then prints a "
SERVICE += "link of the service. There is no service for launchd: on macOS, start fleetctl web by "
SERVICE += "hand."
NOT_INSTALLED = "not installed; fleetctl web install does that"


def register(subparsers: Subparsers) -> None:
    """Add the command, and the commands below it."""
    parser = command(
        subparsers,
        "web",
        run,
        "Show the fleet in a browser, read-only: start a server on this computer and print a link.",
        EXAMPLES,
        details="The link works once and for 10 minutes. If a server runs already, the command "
        "prints a new link of it. The server runs until Ctrl-C.",
    )
    _place(parser)
    parser.flag("--open", help="open the link in a browser on this computer")
    parser.flag("--service", help="the same as fleetctl web install")
    parser.set_defaults(dry_run=False)
    yes_option(parser)
    actions = parser.optional_commands("action")
    served = command(
        actions,
        "run",
        run_server,
        "Start the server without printing a link, and wait while another one runs. The service "
        "runs this command.",
        "  fleetctl web run",
        prints=False,
    )
    _place(served)
    installed = command(actions, "install", run_install, SERVICE, INSTALL_EXAMPLES)
    _place(installed)
    changing_options(installed)
    removed = command(
        actions,
        "uninstall",
        run_uninstall,
        "Stop the service, and remove it.",
        "  fleetctl web uninstall",
    )
    changing_options(removed)
    command(
        actions,
        "status",
        run_status,
        "Show the server and the service. Exit status 1 when no server runs.",
        "  fleetctl web status",
    )


def _place(parser: CommandParser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDR",
        help="the address of this computer to listen on: 127.0.0.1, ::1 or localhost (default: "
        "127.0.0.1)",
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
        metavar="FILE",
        help="listen on a Unix socket instead, which ssh -L reaches from another computer",
    )


def run(args: Namespace) -> int:
    """Serve until a signal, or print a link of the running server."""
    if args.service:
        if args.open:
            raise InvalidParams(
                "--open does not go with --service.",
                hint="Install the service first, then run: fleetctl web --open",
            )
        return run_install(args)
    # Imported here: help needs none of it.
    from ..client.retry import default_socket
    from ..web import running

    place, daemon = _wanted(args), default_socket()
    found = running.find_or_claim(running.private_socket(daemon))
    if isinstance(found, running.Claim):
        return _serve(found, place, daemon, partial(_show, args, started=True), service=False)
    _show(args, found, started=False)
    return 0


def run_server(args: Namespace) -> int:
    """Serve until a signal, as a service: its output is a log, which must not contain a link."""
    if args.json:
        raise InvalidParams(
            "fleetctl web run prints a log and has no JSON document.",
            hint="Its state is one: fleetctl web status --json",
        )
    from ..client.retry import default_socket
    from ..web import running

    def on_wait(server: "RunningServer") -> None:
        console.print_stderr(f"fleetctl web runs already (pid {server.pid}); waiting until it ends")

    place, daemon = _wanted(args), default_socket()
    claim = running.wait_to_claim(running.private_socket(daemon), on_wait)
    return _serve(claim, place, daemon, _log, service=True)


def _log(server: "RunningServer") -> None:
    console.print_stderr(f"Fleet is at {server.socket or server.url}; fleetctl web prints a link")


def _serve(
    claim: "Claim",
    place: "Place",
    daemon: str,
    on_ready: "Callable[[RunningServer], None]",
    *,
    service: bool,
) -> int:
    import trio

    from ..web.run import serve

    try:
        trio.run(partial(serve, claim, place, daemon, service=service, on_ready=on_ready))
    finally:
        claim.release()
    return 0


def _wanted(args: Namespace) -> "Place":
    """Return where the server listens; raises InvalidParams."""
    from ..web.place import checked_place

    return checked_place(args.host, args.port, args.socket)


def _show(args: Namespace, server: "RunningServer", *, started: bool) -> None:
    """Print a link; hints go to stderr."""
    document = {"url": server.url, "ssh": server.ssh, "pid": server.pid, "started": started}
    if args.json:
        console.print_json(document)
    else:
        console.whole(f"Fleet is at {server.url}")
    sys.stdout.flush()
    if server.version != __version__:
        console.print_stderr(
            f"This server is of version {server.version}, not {__version__}: start it again."
        )
    if server.socket or "SSH_CONNECTION" in os.environ:
        console.print_stderr(f"From your own computer: {server.ssh}")
    if args.open:
        _open(server, wait=not started)


def _open(server: "RunningServer", *, wait: bool) -> None:
    """Open the link in a browser; a process that serves does not wait for the browser's start."""
    import threading
    import webbrowser

    screen = sys.platform == "darwin" or os.environ.get(
        "DISPLAY", os.environ.get("WAYLAND_DISPLAY")
    )
    if not screen and "BROWSER" not in os.environ:
        console.print_stderr("This session has no screen for a browser. Open the link yourself.")
        return

    def open_link() -> None:
        if not webbrowser.open(server.url):
            console.print_stderr("No browser could be started. Open the link yourself.")

    thread = threading.Thread(target=open_link, daemon=True)
    thread.start()
    if wait:
        thread.join()


def run_install(args: Namespace) -> int:
    """Write the unit, and start it."""
    from ..service import web_unit

    report = web_unit.install(args, _wanted(args))
    return console.result(args, {**report.data, "notes": report.notes}, *report.notes)


def run_uninstall(args: Namespace) -> int:
    """Stop the unit, and remove it."""
    from ..service import web_unit

    report = web_unit.uninstall(args)
    return console.result(args, {**report.data, "notes": report.notes}, *report.notes)


def run_status(args: Namespace) -> int:
    """Show the server and the unit."""
    from ..client.retry import default_socket
    from ..service import web_unit
    from ..web import running

    server = running.ask(running.private_socket(default_socket()))
    state = web_unit.state()
    document = {
        "running": server is not None,
        "url": server and server.url,
        "ssh": server and server.ssh,
        "pid": server and server.pid,
        "version": server and server.version,
        "service": {
            "installed": state.installed,
            "enabled": state.enabled,
            "running": state.active,
            "condition": state.condition,
            "files": state.files,
        },
    }
    pairs: list[tuple[str, object]] = [("Server", "not running")]
    if server is not None:
        pairs = [("Server", f"{server.url} (pid {server.pid})"), ("Over ssh", server.ssh)]
    pairs.append(
        ("Service", (state.condition or "not running") if state.installed else NOT_INSTALLED)
    )
    if state.installed:
        pairs += [("Files", ", ".join(state.files)), ("Log", state.log)]
    console.show(args, document, lambda _: console.fields(pairs))
    return 0 if server is not None else 1
