"""``fleetctl demo``: the guided tour, which is imported only when somebody takes it."""

import importlib

from ..args import Namespace, Subparsers, command


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "demo",
        run,
        "Run a guided tour in a temporary directory: an agent is lost, and its work recovered.",
    )
    parser.flag("--keep", help="keep the temporary directory")


def run(args: Namespace) -> int:
    """Run the tour."""
    return int(importlib.import_module("fleetctl.demo.tour").run(args))
