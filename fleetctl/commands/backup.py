"""``fleetctl backup``: a copy of the whole database, made by the running daemon."""

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from fleetd.protocol.errors import InvalidParams, Storage

from ..args import Namespace, Subparsers, UsageError, command
from ..client import Fleet
from ..client.models import BackupResult, SystemBackup, SystemHello
from ..output import console
from ..output.progress import call_with_bar


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    copying = command(
        subparsers,
        "backup",
        run,
        "Copy the database to a new file while fleetd runs, and check the copy.",
        "  fleetctl backup ~/fleet-backup.db\n  fleetctl restore ~/fleet-backup.db",
    )
    copying.add_argument("file", metavar="FILE", help="the new file, which must not exist")


def run(args: Namespace) -> int:
    """Let the daemon make the copy, and print its path."""
    if not args.file:
        raise UsageError("FILE is empty; give the name of a file that does not exist yet.")
    # The daemon has a working directory of its own.
    target = Path.cwd() / args.file
    with Fleet() as client:
        try:
            copied = call_with_bar(args, "Copying", client, SystemBackup(path=str(target)))
        except Storage as error:
            # This process may be able to write there: a service may see a read-only home.
            ours = not os.path.lexists(target) and os.access(target.parent, os.W_OK | os.X_OK)
            if "unwritable" not in error.values or not ours:
                raise
            copied = _copy_beside_and_move(client, args, target)
    return console.result(
        args,
        copied,
        f"Copied the database to {console.path(copied.path)} ({console.size(copied.size_bytes)}).",
    )


def _copy_beside_and_move(client: Fleet, args: Namespace, target: Path) -> BackupResult:
    """Let the daemon make the copy beside the database, and move it to its destination."""
    database = Path(client.call(SystemHello()).paths.database)
    aside = database.with_name(f"{database.name}.backup-{os.urandom(8).hex()}")
    copied = call_with_bar(args, "Copying", client, SystemBackup(path=str(aside)))
    try:
        _move(aside, target)
    except FileExistsError:
        raise InvalidParams(
            f"{target} exists already.", hint="Name a file that does not exist.", field="path"
        ) from None
    except OSError as error:
        raise Storage(
            f"The copy to {target} failed: {error.strerror}.",
            hint="Check the free space, then try again.",
        ) from error
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
    return BackupResult(path=str(target), size_bytes=copied.size_bytes)


def _move(source: Path, target: Path) -> None:
    """Move a file to a name that is not taken, also to another file system."""
    try:
        target.hardlink_to(source)
        return
    except FileExistsError:
        raise
    except OSError:
        pass  # another file system, or one without links
    with open(target, "xb", opener=partial(os.open, mode=0o600)) as copy:
        try:
            with source.open("rb") as file:
                shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
        except OSError:
            target.unlink()
            raise
