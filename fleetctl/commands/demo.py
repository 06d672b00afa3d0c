"""``fleetctl demo``: the guided tour, which is imported only when somebody takes it."""

import importlib
from argparse import Namespace

from ..args import Subparsers, command


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers, "demo", run, "A guided tour: lose an agent and get its work back, for real."
    )
    parser.flag("--keep", help="leave the temporary directory")


def run(args: Namespace) -> int:
    """Take the tour."""
    return int(importlib.import_module("fleetctl.demo.tour").run(args))
