"""``fleetctl version``: the version of this fleetctl; ``daemon status`` has the daemon's."""

from fleetd import __version__

from ..args import Namespace, Subparsers, command
from ..output import console


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command(subparsers, "version", run, "Print the version of fleetctl.", "  fleetctl version")


def run(args: Namespace) -> int:
    """Print the version."""
    return console.result(args, {"version": __version__}, f"fleetctl {__version__}")
