"""File layout: where the files of checkpoints and snapshots are below their root.

A checkpoint's: ``<mission_id>/<checkpoint_id>.json``, with ``latest.json`` a relative symlink to
the newest. A snapshot's: ``<run_id>/history/<snapshot_id>.json``, or ``.json.gz`` when it is old,
with ``latest.json`` a file of its own (snapshot-lifecycle, Rotation behavior).

The directory of an owner, a mission or a run, is opened without following symlinks, listed, and
emptied of fleetd's files.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ...host.atomic_files import ASIDE, TEMP, Directory, make_directories
from ...protocol.errors import Corrupt, IntegrityMismatch, SchemaInvalid
from ...protocol.types import RECORD_ID, RUN_ID, SNAPSHOT_ID, Noun

LATEST = "latest.json"
PLAIN, GZIP = ".json", ".json.gz"
# Below the root, files pulled from other machines. No mission and no run has such a name, so none
# can take it for its own directory.
PULLED = ".pulled"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of one noun are, and how their names are parsed.

    ``owners`` matches the names of directories, ``records`` the ids of files; ``inside`` is the
    directory within an owner's that holds them, None for the owner's own. ``endings`` are the forms
    a file may have, the plain one first. ``copies`` means that ``latest.json`` is a file with the
    newest one's bytes, not a symlink. ``unfit`` is the error for something that is no such file at
    all, ``mismatch`` for one that was changed.
    """

    noun: Noun
    owners: re.Pattern[str]
    records: re.Pattern[str]
    inside: str | None
    endings: tuple[str, ...]
    copies: bool
    unfit: type[Corrupt]
    mismatch: type[Corrupt]
    hint: str

    def owner(self, owner_id: str) -> str:
        """Return an id that may name a directory; raises NotAnId for any other text."""
        return _checked(self.owners, owner_id)

    def record(self, record_id: str) -> str:
        """Return an id that may name a file; raises NotAnId for any other text."""
        return _checked(self.records, record_id)

    def record_in(self, name: str) -> str | None:
        """Return the id in a name that looks like one of this layout's files."""
        for ending in self.endings:
            record_id = name.removesuffix(ending)
            if record_id != name and self.records.fullmatch(record_id):
                return record_id
        return None

    def not_a_file(self, where: Any, why: str) -> Corrupt:
        """Return the error for anything but a readable file of sane size."""
        return self.unfit(
            f"Corrupted {self.noun} file: {where} ({why}).", hint=self.hint, path=str(where)
        )

    def damaged(self, where: Any, why: str) -> Corrupt:
        """Return the error for a file that differs from what was written."""
        return self.mismatch(
            f"Corrupted {self.noun} file: {where} ({why}).", hint=self.hint, path=str(where)
        )


class NotAnId(OSError, ValueError):
    """A text that cannot be a file name of fleetd; a damaged row with one has no file."""


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise NotAnId(errno.EINVAL, "not an id", name)
    return name


LAYOUTS: dict[Noun, Layout] = {
    "checkpoint": Layout(
        noun="checkpoint",
        owners=re.compile(RECORD_ID),
        records=re.compile(RECORD_ID),
        inside=None,
        endings=(PLAIN,),
        copies=False,
        unfit=Corrupt,
        mismatch=Corrupt,
        hint="Move it away. Then fleetctl checkpoint verify --all --repair writes it again.",
    ),
    "snapshot": Layout(
        noun="snapshot",
        owners=re.compile(RUN_ID),
        records=re.compile(SNAPSHOT_ID),
        inside="history",
        endings=(PLAIN, GZIP),
        copies=True,
        unfit=SchemaInvalid,
        mismatch=IntegrityMismatch,
        hint="Move it away. Then fleetctl snapshot verify --repair writes it again.",
    ),
}


# More than the longest tick of a kernel.
_TICKS_NS = 50_000_000
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Stamp(msgspec.Struct, frozen=True):
    """Identifies a directory and the time of the last change in it.

    The time is the one that no program can set.
    """

    device: int
    inode: int
    changed_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> "Stamp":
        """Return the stamp of a directory."""
        return cls(info.st_dev, info.st_ino, info.st_ctime_ns)

    def shows_changes(self, now_ns: int) -> bool:
        """Return whether each change from now on gives the directory another stamp.

        The time of a change is that of the kernel's last tick; some file systems count in seconds.
        """
        return now_ns - self.changed_ns > _TICKS_NS and self.changed_ns % 1_000_000_000 != 0


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the directory of a mission or a run.

    ``files`` are ids with a regular file, ``blocked`` those with something else in its place,
    ``foreign`` the paths below it that are not fleetd's. ``latest`` is the target of
    ``latest.json``, None when it is not a symlink; ``latest_kind`` is what it is instead. With
    ``copies`` it should be a file. As long as the directory of the files has the ``stamp``, no file
    was added; the stamp is None where it cannot show that.
    """

    files: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    foreign: list[str] = []
    latest: str | None = None
    latest_kind: str = "missing"
    copies: bool = False
    stamp: Stamp | None = None

    def latest_trouble(self, wanted: str | None) -> str:
        """Return what is wrong with ``latest.json`` if it has to name ``wanted``; "" if nothing.

        The content of a copy is not checked.
        """
        if self.copies:
            there = self.latest_kind == "a file"
            if wanted is None:
                return "is there, but no snapshot has a file" if there else ""
            return "" if there else f"is {self.latest_kind}"
        if wanted is None:  # a link to nothing is wrong; a file of somebody else's is not ours
            return f"points at {self.latest}, but no checkpoint has a file" if self.latest else ""
        if self.latest is None:
            return f"is {self.latest_kind}"
        if self.latest == f"{wanted}.json":
            return ""
        if self.latest == LATEST:
            return "points at itself"
        gone = "" if self.latest.removesuffix(".json") in self.files else ", which is missing"
        return f"points at {self.latest}{gone}"


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """Entries removed, or to be removed: names and bytes; and the paths that are not fleetd's."""

    names: list[str] = []
    bytes: int = 0
    left: list[str] = []

    @classmethod
    def joined(cls, found: dict[Directory, "Cleared"]) -> "Cleared":
        """Return the sum for several directories, which do not count as left themselves."""
        themselves = {str(directory.path) for directory in found}
        return cls(
            names=[name for each in found.values() for name in each.names],
            bytes=sum(each.bytes for each in found.values()),
            left=[path for each in found.values() for path in each.left if path not in themselves],
        )


class OwnerDirectory(msgspec.Struct, frozen=True):
    """The directory of one owner, and the one that holds its files, if that exists."""

    layout: Layout
    top: Directory
    files: Directory | None

    @property
    def all(self) -> list[Directory]:
        """Return the existing directories, each once."""
        return [self.top] if self.files in (None, self.top) else [self.top, self.files]

    def list(self) -> Listing:
        """List the names in the directories."""
        found: dict[bool, set[str]] = {True: set(), False: set()}
        foreign, latest, kind = [], None, "missing"
        stamp = self._stamp()
        for directory in self.all:
            at_top = directory is self.top
            with os.scandir(directory.descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if at_top and name == LATEST:
                        latest, kind = _latest(directory, entry)
                    elif record_id := self._record_in(directory, name):
                        found[entry.is_file(follow_symlinks=False)].add(record_id)
                    elif not name.startswith(TEMP) and not (at_top and name == self.layout.inside):
                        foreign.append(name if at_top else f"{self.layout.inside}/{name}")
        return Listing(
            files=frozenset(found[True]),
            blocked=frozenset(found[False] - found[True]),
            foreign=sorted(foreign),
            latest=latest,
            latest_kind=kind,
            copies=self.layout.copies,
            stamp=stamp,
        )

    def _stamp(self) -> Stamp | None:
        now_ns = time.time_ns()
        stamp = Stamp.of(os.fstat(self.files.descriptor)) if self.files else None
        return stamp if stamp and stamp.shows_changes(now_ns) else None

    def weigh(self) -> dict[Directory, Cleared]:
        """Separate fleetd's entries, even leftovers of a crash or moved aside, from others."""
        return {directory: self._weighed(directory) for directory in self.all}

    def _weighed(self, directory: Directory) -> Cleared:
        names, size, left = [], 0, []
        with os.scandir(directory.descriptor) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_dir(follow_symlinks=False) or not self._is_ours(directory, entry.name):
                    left.append(str(directory.path / entry.name))
                else:
                    names.append(entry.name)
                    size += entry.stat(follow_symlinks=False).st_size
        return Cleared(names=names, bytes=size, left=left)

    def _is_ours(self, directory: Directory, name: str) -> bool:
        if name.startswith(TEMP) or ASIDE in name or (name == LATEST and directory == self.top):
            return True
        return self._record_in(directory, name) is not None

    def _record_in(self, directory: Directory, name: str) -> str | None:
        return self.layout.record_in(name) if directory == self.files else None


@contextlib.contextmanager
def opened(root: Path, layout: Layout, owner_id: str, *, make: bool) -> Iterator[OwnerDirectory]:
    """Open an owner's directories while the block runs; ``make`` creates missing ones.

    Raises OSError, FileNotFoundError when the owner has none.
    """
    if make:
        make_directories(root)
    with contextlib.ExitStack() as stack:
        base = _open(stack, root, None)
        if make:
            _make(base, owner_id)
        top = _open(stack, Path(owner_id), base)
        files = top if layout.inside is None else None
        if layout.inside is not None:
            if make:
                _make(top, layout.inside)
            with contextlib.suppress(FileNotFoundError):
                files = _open(stack, Path(layout.inside), top)
        yield OwnerDirectory(layout, top, files)


def _open(stack: contextlib.ExitStack, path: Path, above: Directory | None) -> Directory:
    """Open a directory; only the root, which a person has chosen, may be a symlink."""
    flags = _OPEN if above is None else _OPEN | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=above.descriptor if above else None)
    stack.callback(os.close, descriptor)
    return Directory(descriptor, above.path / path if above else path)


def _make(above: Directory, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above.descriptor)
        os.fsync(above.descriptor)


def _latest(top: Directory, entry: os.DirEntry[str]) -> tuple[str | None, str]:
    """Return the target of ``latest.json``, and what that entry is."""
    if entry.is_symlink():
        return os.readlink(LATEST, dir_fd=top.descriptor), "a symlink"
    if entry.is_dir(follow_symlinks=False):
        return None, "a directory"
    return None, "a file" if entry.is_file(follow_symlinks=False) else "no file"


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
