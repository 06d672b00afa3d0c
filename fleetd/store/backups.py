"""Checkpoint files: written whole or not at all, found again, removed; must not read a clock.

Layout: ``<root>/<mission_id>/<checkpoint_id>.json`` and ``latest.json``, a relative symlink to the
newest. Everything is opened relative to a directory descriptor and without following symlinks.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ..wire.types import RECORD_ID
from .clearing import Cleared, remove_all, weigh
from .directory import (
    FILE_MAX,
    TEMP,
    Directory,
    point,
    read_file,
    remove_file,
    remove_temp,
    write_file,
)

__all__ = ["FILE_MAX", "LATEST", "BackupFile", "Backups", "Cleared", "Listing"]
LATEST = "latest.json"
_ID = re.compile(RECORD_ID)


class BackupFile(msgspec.Struct, frozen=True):
    """A file that looks like a checkpoint's."""

    mission_id: str
    checkpoint_id: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in a mission's directory, by names alone.

    ``files`` are ids of checkpoints with a regular file, ``blocked`` those with something else in
    its place, ``foreign`` the names that are none of ours. ``latest`` is what ``latest.json``
    points at, None when it is not a symlink; ``latest_kind`` says what it is instead.
    """

    files: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    foreign: list[str] = []
    latest: str | None = None
    latest_kind: str = "missing"

    def latest_trouble(self, wanted: str | None) -> str:
        """Say what is wrong with ``latest.json`` if it has to name ``wanted``; empty if nothing."""
        if wanted is None:  # a link to nothing is wrong; a file of somebody else's is not ours
            return f"points at {self.latest}, but no checkpoint has a file" if self.latest else ""
        if self.latest is None:
            return f"is {self.latest_kind}"
        if self.latest == f"{wanted}.json":
            return ""
        if self.latest == LATEST:
            return "points at itself"
        gone = "" if self.latest.removesuffix(".json") in self.files else ", which is not there"
        return f"points at {self.latest}{gone}"


class Backups:
    """The directory of checkpoint files. Methods raise OSError when the disk refuses."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, mission_id: str, checkpoint_id: str) -> Path:
        """Return where a checkpoint's file lies; raises ValueError for ids that are paths."""
        return self.root / _checked(mission_id) / f"{_checked(checkpoint_id)}.json"

    def write(
        self, mission_id: str, checkpoint_id: str, data: bytes, latest_id: str | None
    ) -> None:
        """Write a checkpoint's file and point ``latest.json`` at the newest checkpoint.

        Temp file, fsync, rename, fsync of the directory: after a crash the file is whole or it is
        not there.
        """
        with self._mission_dir(mission_id, make=True) as directory:
            write_file(directory, f"{_checked(checkpoint_id)}.json", data)
            _point_latest(directory, latest_id)

    def read(self, mission_id: str, checkpoint_id: str) -> bytes | None:
        """Return the bytes of a checkpoint's file, None when there is none.

        Raises Corrupt when something else than a regular file of sane size stands in its place.
        """
        name = f"{_checked(checkpoint_id)}.json"
        try:
            with self._mission_dir(mission_id) as directory:
                return read_file(directory, name)
        except FileNotFoundError:
            return None

    def find(self, checkpoint_id: str) -> BackupFile | None:
        """Return the file of a checkpoint whose mission is not known."""
        for mission in self.missions():
            if os.path.lexists(self.path_of(mission, checkpoint_id)):
                return BackupFile(mission, checkpoint_id)
        return None

    def files(self) -> Iterator[BackupFile]:
        """Yield everything that is named like a checkpoint's file, ordered by name."""
        for mission in self._readable():
            with contextlib.suppress(OSError):  # no directory of ours, or gone meanwhile
                listing = self.list(mission)
                for checkpoint_id in sorted(listing.files | listing.blocked):
                    yield BackupFile(mission, checkpoint_id)

    def missions(self) -> list[str]:
        """Return what is named like a mission's directory, ordered; nothing without a root."""
        try:
            return sorted(filter(_ID.match, os.listdir(self.root)))  # noqa: PTH208 - names wanted
        except FileNotFoundError:
            return []

    def _readable(self) -> Sequence[str]:
        with contextlib.suppress(OSError):  # no directory of ours: there is nothing to find in it
            return self.missions()
        return ()

    def list(self, mission_id: str) -> Listing:
        """Look at the names in a mission's directory; an empty listing when there is none.

        Raises OSError for a directory that is no directory, or that may not be read.
        """
        found: dict[bool, set[str]] = {True: set(), False: set()}
        foreign: list[str] = []
        latest, kind = None, "missing"
        try:
            with (
                self._mission_dir(mission_id) as directory,
                os.scandir(directory.descriptor) as entries,
            ):
                for entry in entries:
                    if entry.name == LATEST:
                        latest, kind = _latest(directory, entry)
                    elif (checkpoint_id := _id_in(entry.name)) is not None:
                        found[entry.is_file(follow_symlinks=False)].add(checkpoint_id)
                    elif not entry.name.startswith(TEMP):
                        foreign.append(entry.name)
        except FileNotFoundError:
            return Listing()
        return Listing(
            files=frozenset(found[True]),
            blocked=frozenset(found[False]),
            foreign=sorted(foreign),
            latest=latest,
            latest_kind=kind,
        )

    def point_latest(self, mission_id: str, latest_id: str | None) -> None:
        """Make ``latest.json`` name a checkpoint, or remove the link."""
        with self._mission_dir(mission_id) as directory:
            _point_latest(directory, latest_id)

    def remove(
        self, mission_id: str, checkpoint_ids: Iterable[str], latest_id: str | None
    ) -> dict[str, OSError]:
        """Remove files of a mission and point ``latest.json`` at what is newest now.

        Returns those that could not be removed, each with its error; raises OSError when it is not
        certain that any of them is gone.
        """
        stuck: dict[str, OSError] = {}
        try:
            with self._mission_dir(mission_id) as directory:
                for checkpoint_id in checkpoint_ids:
                    try:
                        remove_file(directory, f"{_checked(checkpoint_id)}.json")
                    except OSError as error:
                        stuck[checkpoint_id] = error
                _point_latest(directory, latest_id)
                os.fsync(directory.descriptor)
        except FileNotFoundError:
            return stuck
        if latest_id is None:
            self._remove_empty(mission_id)
        return stuck

    def weigh(self, mission_id: str) -> Cleared:
        """Say what ``clear`` would remove and leave."""
        try:
            with self._mission_dir(mission_id) as directory:
                return weigh(directory, _is_ours)
        except FileNotFoundError:
            return Cleared()

    def clear(self, mission_id: str) -> Cleared:
        """Remove every file that was ever written for a mission, and its directory if empty.

        What is nobody's of ours stays and is named in the result. Raises OSError, with the path
        that could not be removed.
        """
        try:
            with self._mission_dir(mission_id) as directory:
                found = weigh(directory, _is_ours)
                remove_all(directory, found.names)
        except FileNotFoundError:
            return Cleared()
        self._remove_empty(mission_id)
        return found

    def _remove_empty(self, mission_id: str) -> None:
        with contextlib.suppress(OSError):
            (self.root / _checked(mission_id)).rmdir()

    def sweep(self) -> int:
        """Remove the temp files that a crash left, and nothing else; returns how many."""
        removed = 0
        for mission in self._readable():
            with contextlib.suppress(OSError), self._mission_dir(mission) as directory:
                names = os.listdir(directory.descriptor)  # noqa: PTH208 - it takes the descriptor
                removed += sum(remove_temp(directory, name) for name in names)
        return removed

    @contextlib.contextmanager
    def _mission_dir(self, mission_id: str, *, make: bool = False) -> Iterator[Directory]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if make:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = os.open(self.root, flags)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(_checked(mission_id), 0o700, dir_fd=root)
                    os.fsync(root)
            directory = os.open(_checked(mission_id), flags | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield Directory(directory, self.root / mission_id)
        finally:
            os.close(directory)


def _checked(record_id: str) -> str:
    """Return an id that may become a file name; raises ValueError for any other text."""
    if not _ID.fullmatch(record_id):
        raise ValueError(f"not an id: {record_id!r}")
    return record_id


def _is_ours(name: str) -> bool:
    return name == LATEST or _id_in(name) is not None


def _id_in(name: str) -> str | None:
    """Return the id in a name that looks like a checkpoint file's."""
    checkpoint_id, dot, ending = name.rpartition(".")
    return checkpoint_id if dot and ending == "json" and _ID.match(checkpoint_id) else None


def _latest(directory: Directory, entry: os.DirEntry[str]) -> tuple[str | None, str]:
    """Return what ``latest.json`` points at, and what it is."""
    if entry.is_symlink():
        return os.readlink(LATEST, dir_fd=directory.descriptor), "a symlink"
    if entry.is_dir(follow_symlinks=False):
        return None, "a directory"
    return None, "a file" if entry.is_file(follow_symlinks=False) else "no file"


def _point_latest(directory: Directory, latest_id: str | None) -> None:
    target = None if latest_id is None else f"{_checked(latest_id)}.json"
    point(directory, LATEST, target)
