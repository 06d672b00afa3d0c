"""Emptying a directory of what is ours in it; must not remove what a person put there."""

import contextlib
import os
from collections.abc import Callable, Mapping

import msgspec

from ...host.atomic_files import ASIDE, TEMP, Directory

Ours = Callable[[str], bool]


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be: names, bytes; and the paths that are none of ours."""

    names: list[str] = []
    bytes: int = 0
    left: list[str] = []


def weigh(directory: Directory, ours: Ours) -> Cleared:
    """Tell what is ours, also what a crash left or was moved aside, from what is not."""
    names, size, left = [], 0, []
    with os.scandir(directory.descriptor) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            known = ours(entry.name) or entry.name.startswith(TEMP) or ASIDE in entry.name
            if entry.is_dir(follow_symlinks=False) or not known:
                left.append(str(directory.path / entry.name))
            else:
                names.append(entry.name)
                size += entry.stat(follow_symlinks=False).st_size
    return Cleared(names=names, bytes=size, left=left)


def joined(found: Mapping[Directory, Cleared]) -> Cleared:
    """Return what is ours in several directories, and what is not but for themselves."""
    themselves = {str(directory.path) for directory in found}
    return Cleared(
        names=[name for each in found.values() for name in each.names],
        bytes=sum(each.bytes for each in found.values()),
        left=[path for each in found.values() for path in each.left if path not in themselves],
    )


def remove_all(directory: Directory, names: list[str]) -> None:
    """Remove names from a directory; raises OSError with the whole path of the one that stays."""
    for name in names:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory.descriptor)
        except OSError as error:
            path = str(directory.path / name)
            raise OSError(error.errno, error.strerror, path) from error
    os.fsync(directory.descriptor)
