"""``fleetctl backup``: a copy of the whole database, made by the daemon while it works."""

from argparse import Namespace
from pathlib import Path

from fleetd.wire.requests.system import SystemBackup

from .. import render
from ..client import connect
from ..options import Subparsers, UsageError, command

# Copying and checking a large database takes minutes; nothing else waits for it.
COPY_S = 3_600.0


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    copying = command(
        subparsers,
        "backup",
        run,
        "Copy the whole database to a new file while fleetd works; the copy is checked.",
        "  fleetctl backup ~/fleet-backup.db\n  fleetctl restore ~/fleet-backup.db",
    )
    copying.add_argument("file", metavar="FILE", help="a file that does not exist yet")


def run(args: Namespace) -> int:
    """Have the copy made and say where it lies."""
    if not args.file:
        raise UsageError("FILE is empty; give the name of a file that does not exist yet.")
    # The daemon has a working directory of its own.
    target = Path.cwd() / args.file
    with connect() as client:
        copied = client.call(SystemBackup(path=str(target)), reply_s=COPY_S)
    return render.result(
        args, copied, f"Copied the database to {copied.path} ({render.size(copied.size_bytes)})."
    )
