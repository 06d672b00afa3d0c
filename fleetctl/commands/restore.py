"""``fleetctl restore``: asks, then lets the daemon's program replace the database with a copy.

Only that program accesses the store, also while no daemon runs.
"""

import subprocess
import sys
from pathlib import Path
from typing import TextIO

from ..args import Namespace, Subparsers, UsageError, command, yes_option
from ..prompts import confirm_or_cancel, interactive

_ROOT = Path(__file__).resolve().parents[2]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    restoring = command(
        subparsers,
        "restore",
        run,
        "Replace the database with a backup while fleetd is stopped. The replaced database is "
        "moved aside.",
        "  fleetctl daemon stop\n  fleetctl restore ~/fleet-backup.db",
    )
    restoring.add_argument("file", metavar="FILE", help="a backup by fleetctl backup")
    yes_option(restoring)


def run(args: Namespace) -> int:
    """Show what will be moved where, ask, and restore it."""
    if not args.file:
        raise UsageError("FILE is empty; give the name of a file that fleetctl backup made.")
    file = Path.cwd() / args.file
    options = ["--json"] if args.json else []
    if not args.yes:
        if interactive():
            status = _fleetd(file, ["--preview"], sys.stderr)
            if status:
                return status
        confirm_or_cancel("Restore it?", "Restore cancelled.")
    return _fleetd(file, options, sys.stdout)


def _fleetd(file: Path, options: list[str], out: TextIO) -> int:
    """Run this version of the daemon's program, and pass on its output."""
    out.flush()
    command_line = [sys.executable, "-m", "fleetd", "--restore", str(file), *options]
    return subprocess.run(
        command_line, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=out, check=False
    ).returncode
