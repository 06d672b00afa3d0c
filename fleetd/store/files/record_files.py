"""Record files: the files of checkpoints or snapshots, each whole or not there, plain or gzipped.

Everything is opened relative to a directory descriptor, without following symlinks.
"""

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ...host.atomic_files import (
    Directory,
    NotAFile,
    point,
    read_file,
    remove_file,
    remove_temp,
    write_file,
)
from ...protocol.errors import Corrupt
from ...protocol.types import Noun
from .layout import (
    GZIP,
    LATEST,
    LAYOUTS,
    PLAIN,
    Cleared,
    Layout,
    Listing,
    OwnerDirectory,
    Stamp,
    opened,
    remove_all,
)

# A snapshot is far smaller; a larger file can only be meant to fill our memory.
MOST_BYTES = 64 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class FileForm(msgspec.Struct, frozen=True, kw_only=True):
    """A file that exists: its raw bytes, and its uncompressed data.

    ``trouble`` is why ``data`` is missing; ``no_file`` means that something else is in its place.
    """

    path: Path
    raw: bytes = b""
    data: bytes = b""
    trouble: Corrupt | OSError | None = None
    no_file: bool = False

    @property
    def compressed(self) -> bool:
        """Whether this is the compressed form."""
        return self.path.name.endswith(GZIP)

    def plain(self) -> bytes:
        """Return the uncompressed bytes; raises the error that prevents it."""
        if self.trouble is not None:
            raise self.trouble
        return self.data


def read_form(layout: Layout, files: Directory, name: str) -> FileForm | None:
    """Read one form; None when it is not there."""
    path = files.path / name
    try:
        raw = read_file(files, name)
    except FileNotFoundError:
        return None
    except NotAFile as error:
        return FileForm(path=path, trouble=layout.not_a_file(path, str(error)), no_file=True)
    except OSError as error:  # the disk may be whole at its other form
        return FileForm(path=path, trouble=error)
    try:
        data = unpacked(raw) if name.endswith(GZIP) else raw
    except ValueError as error:
        return FileForm(path=path, raw=raw, trouble=layout.damaged(path, str(error)))
    return FileForm(path=path, raw=raw, data=data)


def packed(data: bytes) -> bytes:
    """Return the bytes compressed, without a name or a time in them."""
    return gzip.compress(data, mtime=0)


def unpacked(raw: bytes) -> bytes:
    """Return the uncompressed data; raises ValueError for anything incomplete."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        data = unpacking.decompress(raw, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is not a gzip file: {error}") from error
    if not unpacking.eof:
        raise ValueError("it ends early" if not unpacking.unconsumed_tail else "it is too large")
    if unpacking.unused_data:
        raise ValueError("it has data after its end")
    return data


class RecordFile(msgspec.Struct, frozen=True):
    """A file that looks like a checkpoint's or a snapshot's."""

    owner_id: str
    record_id: str


class RecordFiles:
    """The files of one noun below a root. Methods raise OSError when the disk refuses."""

    def __init__(self, root: Path, noun: Noun = "checkpoint") -> None:
        self.root = root
        self.layout = LAYOUTS[noun]

    def path_of(self, owner_id: str, record_id: str) -> Path:
        """Return the path of an uncompressed file; raises NotAnId for ids like paths."""
        return self._place(owner_id) / f"{self.layout.record(record_id)}{PLAIN}"

    def _place(self, owner_id: str) -> Path:
        return self.root / self.layout.owner(owner_id) / (self.layout.inside or "")

    def write(
        self,
        owner_id: str,
        record_id: str,
        data: bytes,
        latest_id: str | None,
        latest_data: bytes | None = None,
    ) -> None:
        """Write a file, then make ``latest.json`` name or hold the newest.

        Temp file, fsync, rename, fsync of the directory: after a crash the file is whole or
        missing. ``latest_data`` is the content of the newest file, for a layout of copies; None
        leaves an existing copy unchanged.
        """
        with self._opened(owner_id, make=True) as owner:
            files = owner.files or owner.top
            write_file(files, f"{self.layout.record(record_id)}{PLAIN}", data)
            for ending in self.layout.endings[1:]:
                remove_file(files, f"{record_id}{ending}")
            self._set_latest(owner.top, latest_id, latest_data)

    def compress(self, owner_id: str, record_id: str, data: bytes) -> None:
        """Replace a file by its compressed form ``data``."""
        with self._opened(owner_id, make=True) as owner:
            files = owner.files or owner.top
            write_file(files, f"{self.layout.record(record_id)}{GZIP}", data)
            remove_file(files, f"{record_id}{PLAIN}")
            os.fsync(files.descriptor)

    def read(self, owner_id: str, record_id: str) -> bytes | None:
        """Return the content of a file from its first readable form, None when there is none.

        Raises Corrupt when something other than a regular file of sane size is in its place, or
        its compressed form is incomplete.
        """
        refused: Corrupt | OSError | None = None
        for form in self.forms(owner_id, record_id):
            if form.trouble is None:
                return form.data
            refused = refused or form.trouble
        if refused is not None:
            raise refused
        return None

    def forms(self, owner_id: str, record_id: str) -> Sequence[FileForm]:
        """Return the existing forms of a file, the plain one first; both after a crash."""
        names = self._names(record_id)
        try:
            with self._opened(owner_id) as owner:
                found = [read_form(self.layout, owner.files, n) for n in names if owner.files]
        except FileNotFoundError:
            return ()
        return [form for form in found if form is not None]

    def latest_bytes(self, owner_id: str) -> bytes | None:
        """Return the content of ``latest.json``, None if it is no file; for a layout of copies."""
        with contextlib.suppress(OSError), self._opened(owner_id) as owner:
            return _held(owner.top)
        return None

    def find(self, record_id: str) -> Sequence[RecordFile]:
        """Return the files that are named like a record whose owner is unknown.

        There are several when somebody copied a directory; their content names the owner.
        """
        names = self._names(record_id)
        return [
            RecordFile(owner_id, record_id)
            for owner_id in self.owners()
            if any(os.path.lexists(self._place(owner_id) / name) for name in names)
        ]

    def files(self) -> Iterator[RecordFile]:
        """Yield every entry that is named like one of these files, ordered by name."""
        for owner_id in self._readable():
            with contextlib.suppress(OSError):  # no directory of ours, or gone meanwhile
                listing = self.list(owner_id)
                for record_id in sorted(listing.files | listing.blocked):
                    yield RecordFile(owner_id, record_id)

    def owners(self) -> list[str]:
        """Return the names that look like an owner's directory, ordered; none without a root."""
        try:
            names = os.listdir(self.root)  # noqa: PTH208 - names wanted
        except FileNotFoundError:
            return []
        return sorted(filter(self.layout.owners.fullmatch, names))

    def _readable(self) -> Sequence[str]:
        with contextlib.suppress(OSError):  # not a directory of ours: nothing to find in it
            return self.owners()
        return ()

    def list(self, owner_id: str) -> Listing:
        """Look at the names in an owner's directory; an empty listing when there is none.

        Raises OSError when it is not a directory, or may not be read.
        """
        try:
            with self._opened(owner_id) as owner:
                return owner.list()
        except FileNotFoundError:
            return Listing(copies=self.layout.copies)

    def stamp(self, owner_id: str) -> Stamp | None:
        """Return the stamp of the directory with an owner's files, None when there is none."""
        with contextlib.suppress(OSError):
            return Stamp.of(os.lstat(self._place(owner_id)))
        return None

    def set_latest(
        self, owner_id: str, latest_id: str | None, latest_data: bytes | None = None
    ) -> None:
        """Make ``latest.json`` name or hold the newest, or remove it; see ``write``."""
        with self._opened(owner_id) as owner:
            self._set_latest(owner.top, latest_id, latest_data)

    def _set_latest(self, top: Directory, latest_id: str | None, data: bytes | None) -> None:
        if not self.layout.copies:
            target = None if latest_id is None else f"{self.layout.record(latest_id)}{PLAIN}"
            point(top, LATEST, target)
        elif latest_id is None:
            remove_file(top, LATEST)
        elif data is not None and _held(top) != data:
            write_file(top, LATEST, data)

    def remove(
        self,
        owner_id: str,
        record_ids: Iterable[str],
        latest_id: str | None,
        latest_data: bytes | None = None,
    ) -> dict[str, OSError]:
        """Remove files of an owner, and make ``latest.json`` name or hold the newest one left.

        Returns those that could not be removed, each with its error; raises OSError when it is not
        certain that any of them is gone.
        """
        stuck: dict[str, OSError] = {}
        try:
            with self._opened(owner_id) as owner:
                for record_id in record_ids if owner.files else ():
                    try:
                        for name in self._names(record_id):
                            remove_file(owner.files or owner.top, name)
                    except OSError as error:
                        stuck[record_id] = error
                self._set_latest(owner.top, latest_id, latest_data)
                for directory in owner.all:
                    os.fsync(directory.descriptor)
        except FileNotFoundError:
            return stuck
        if latest_id is None:
            self._remove_empty(owner_id)
        return stuck

    def _names(self, record_id: str) -> Sequence[str]:
        """Return the names that a file may have, the plain one first."""
        return [f"{self.layout.record(record_id)}{ending}" for ending in self.layout.endings]

    def weigh(self, owner_id: str) -> Cleared:
        """Return what ``clear`` would remove and leave."""
        try:
            with self._opened(owner_id) as owner:
                return Cleared.joined(owner.weigh())
        except FileNotFoundError:
            return Cleared()

    def clear(self, owner_id: str) -> Cleared:
        """Remove every file that was ever written for an owner, and its directories if empty.

        Entries that are not fleetd's stay and are named in the result. Raises OSError, with a path
        that could not be removed.
        """
        try:
            with self._opened(owner_id) as owner:
                found = owner.weigh()
                for directory, cleared in found.items():
                    remove_all(directory, cleared.names)
        except FileNotFoundError:
            return Cleared()
        self._remove_empty(owner_id)
        return Cleared.joined(found)

    def _remove_empty(self, owner_id: str) -> None:
        for directory in dict.fromkeys((self._place(owner_id), self.root / owner_id)):
            with contextlib.suppress(OSError):
                directory.rmdir()

    def sweep(self) -> int:
        """Remove the temp files that a crash left, and nothing else; returns how many."""
        removed = 0
        for owner_id in self._readable():
            with contextlib.suppress(OSError), self._opened(owner_id) as owner:
                for directory in owner.all:
                    names = os.listdir(directory.descriptor)  # noqa: PTH208 - it takes the descriptor
                    removed += sum(remove_temp(directory, name) for name in names)
        return removed

    def _opened(
        self, owner_id: str, *, make: bool = False
    ) -> contextlib.AbstractContextManager[OwnerDirectory]:
        return opened(self.root, self.layout, self.layout.owner(owner_id), make=make)


def _held(top: Directory) -> bytes | None:
    """Return the content of ``latest.json`` now, None unless it is a readable file."""
    with contextlib.suppress(OSError, NotAFile):
        return read_file(top, LATEST)
    return None
