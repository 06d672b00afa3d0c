"""Backup: a copy of the whole database while it is in use."""

import os
from functools import partial
from pathlib import Path

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...host.file_system import PathWalk
from ...protocol.errors import Corrupt, InvalidParams, InvalidState, Storage
from ...protocol.requests.system import BackupResult, SystemBackup
from ...store.api import CopyDamaged, CopyFailed, CopyRefused
from ..engine import Engine


@method(SystemBackup)
async def backup(engine: Engine, request: SystemBackup, caller: Caller) -> BackupResult:
    """Write a consistent copy of the database while it is in use."""
    return await engine.run_once(request, lambda: _backup(engine, Path(request.path)))


async def _backup(engine: Engine, target: Path) -> BackupResult:
    try:
        await engine.files.run(partial(_check_name, target=target), str(target))
    except OSError as error:
        raise _unwritable(target, f"cannot be read: {error.strerror}") from error
    try:
        size = await engine.store.copy_to(target)
    except FileExistsError:
        raise _exists_already(target) from None
    except CopyRefused as error:
        raise InvalidState(f"{error}.", hint=f"{error.hint}.") from error
    except CopyDamaged as error:
        raise Corrupt(
            f"The database is damaged, so it was not copied: {error}.",
            hint="Run fleetctl doctor for details; checkpoints are also stored as files.",
        ) from error
    except CopyFailed as error:
        raise Storage(
            f"The copy to {target} failed: {error}.", hint="Check the free space, then try again."
        ) from error
    return BackupResult(path=str(target), size_bytes=size)


def _check_name(walk: PathWalk, target: Path) -> None:
    """Refuse a target early that could not get its name later; raises OSError too."""
    if not target.is_absolute():
        raise InvalidParams(
            f"path is {str(target)!r}, which is not absolute.",
            hint="Give the absolute path; the daemon has another working directory.",
            field="path",
        )
    walk.visit(str(target))
    if target.is_dir():
        raise InvalidParams(
            f"{target} is a directory.",
            hint=f"Name a file in it, such as {target / 'fleet-backup.db'}.",
            field="path",
        )
    if os.path.lexists(target):
        raise _exists_already(target)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        why = "may not be written to" if target.parent.is_dir() else "is no directory"
        raise _unwritable(target, why)


def _unwritable(target: Path, why: str) -> Storage:
    return Storage(
        f"{target} cannot be written: {target.parent} {why}.",
        hint="Name a file in a directory of your own.",
        unwritable=str(target.parent),
    )


def _exists_already(target: Path) -> InvalidParams:
    return InvalidParams(
        f"{target} exists already.", hint="Name a file that does not exist.", field="path"
    )
