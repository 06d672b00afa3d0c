"""The systemd user unit of ``fleetctl web run``."""

import time

from ..args import Namespace
from ..web.place import Place
from . import systemd, user_unit
from .install import InstallReport
from .manager import ServiceState
from .spec import ServiceSpec, this_spec
from .user_unit import UnitRemoval, UserUnit

UNIT = UserUnit(
    name="fleet-web.service",
    group="web",
    title="the web server",
    by_hand="fleetctl web",
    on="The web server runs as a service.",
    missing="The service of the web server is not installed.",
)


START_S = 10.0
PAUSE_S = 0.05


def rendered(spec: ServiceSpec, place: Place) -> str:
    """Return the text of the unit for an installation, with the place where it listens."""
    words = ["--socket", str(place.socket)] if place.socket else ["--host", place.host]
    words += ["--port", str(place.port)]
    runtime = systemd.word(str(spec.socket.parent)) if spec.socket else "%t/fleet"
    writable = [runtime, *([systemd.word(str(place.socket.parent))] if place.socket else [])]
    settings = {
        "ExecStartPre": [f"+/usr/bin/env mkdir -p -m 0700 {runtime}"],
        "ReadWritePaths": [f"-{each}" for each in dict.fromkeys(writable)],
    }
    return UNIT.rendered(spec, ("web", "run", *words), settings)


def state() -> ServiceState:
    """Return the state of the unit."""
    return UNIT.state()


def install(args: Namespace, place: Place) -> InstallReport:
    """Write the unit and start it.

    Raises Cancelled and InvalidParams from the question, InvalidState without systemd.
    """
    UNIT.check_manager()
    at = f"the socket {place.socket}" if place.socket else place.url
    text = rendered(this_spec(), place)
    report = UNIT.install(args, text, begins=[f"This shows the fleet at {at}"])
    if not args.dry_run and systemd.runs():
        report.notes.append(_started())
    return report


def _started() -> str:
    """Wait for the server, so that the next fleetctl web finds it, and return the outcome."""
    # Imported here: uninstalling does not need them.
    from ..client.retry import default_socket
    from ..web import running

    path = running.private_socket(default_socket())
    until = time.monotonic() + START_S
    while (found := running.ask(path)) is None:
        if time.monotonic() > until:
            return f"The server does not answer yet. Its log: {UNIT.state().log}"
        time.sleep(PAUSE_S)
    if not found.service:
        return f"The service waits until your fleetctl web (pid {found.pid}) ends."
    return "fleetctl web prints a link."


class WebRemoval(UnitRemoval):
    """What is removed with the web server: its unit."""

    def __init__(self) -> None:
        super().__init__(UNIT)


def uninstall(args: Namespace) -> InstallReport:
    """Stop the unit, and remove it; raises Cancelled from the question."""
    return user_unit.uninstall(args, UNIT, WebRemoval())
