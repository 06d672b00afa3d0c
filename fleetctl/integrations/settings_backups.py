"""Copies of settings files as they were before: with fleetd's own state, never in a repository.

One private directory contains each copy under the path of its file, so that a person finds it.
Earlier versions kept a copy beside its file; it is still found there.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState, Storage

from . import config_file
from .config_file import SettingsFile, opened


def directory() -> Path:
    """Return the directory of all copies."""
    return paths.state_path() / "settings-backups"


def place(file: SettingsFile) -> Path:
    """Return the place of a file's copy."""
    # Not Path.absolute, which keeps "..".
    absolute = Path(os.path.abspath(file.path))  # noqa: PTH100
    return directory() / absolute.relative_to("/").with_name(absolute.name + file.mark)


def replace(file: SettingsFile, new: bytes | None) -> Path | None:
    """Write a file like ``config_file.write`` and return where its copy is; None without a file.

    Earlier copies are deleted. A file that is not written gets no copy. Raises Storage and
    InvalidState.
    """
    copy = None if file.data is None else _keep(place(file), file.data)
    try:
        config_file.write(file, new)
    except FleetError:
        if copy:
            with suppress(OSError):
                copy.unlink()
            _prune(copy)
        raise
    _remove(each for each in _found(file) if each.path != copy)
    return copy


def _keep(copy: Path, old: bytes) -> Path:
    try:
        with opened(Path(os.path.realpath(copy.parent)), make=0o700) as above:
            config_file.put(above, copy.name, old, 0o600)
    except OSError as error:
        raise Storage(
            f"{copy} cannot be written: {error.strerror}.",
            hint="This file was to be the backup of a settings file. Nothing was changed.",
        ) from error
    return copy


def data(file: SettingsFile) -> bytes | None:
    """Return what the file held before; None when there was no file."""
    return next((each.data for each in _found(file)), None)


def text(file: SettingsFile) -> str | None:
    """Return what the file held before as a text; None when there was no file."""
    try:
        before = data(file)
        return None if before is None else before.decode()
    except UnicodeDecodeError:
        return None


def remove(file: SettingsFile) -> None:
    """Remove the copies that were kept."""
    _remove(_found(file))
    _prune(place(file))


def _remove(found: Iterable[SettingsFile]) -> None:
    for each in found:
        with suppress(OSError), opened(each.target.parent) as above:
            os.unlink(each.target.name, dir_fd=above)


def _prune(copy: Path) -> None:
    """Remove the directories that are empty after a copy was removed."""
    with suppress(OSError):
        for each in copy.parents:
            if each.is_relative_to(paths.state_path()):
                each.rmdir()


def _found(file: SettingsFile) -> list[SettingsFile]:
    """Return the existing copies, the one in the newer place first."""
    beside = file.path.with_name(file.path.name + file.mark)
    looked = []
    for path, project in ((place(file), None), (beside, file.project)):
        with suppress(InvalidState):
            looked.append(config_file.read(path, project=project))
    # A copy was never a link, so links are skipped.
    return [
        each
        for each in looked
        if each.data is not None
        and each.target.name == each.path.name
        and str(each.target.parent) == os.path.realpath(each.path.parent)
    ]
