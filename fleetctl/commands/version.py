"""``fleetctl version``: of which version this fleetctl is; ``daemon status`` has the daemon's."""

from argparse import Namespace

from fleetd import __version__

from ..display import render
from ..options import Subparsers, command


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command(subparsers, "version", run, "Print the version of fleetctl.", "  fleetctl version")


def run(args: Namespace) -> int:
    """Print the version."""
    return render.result(args, {"version": __version__}, f"fleetctl {__version__}")
