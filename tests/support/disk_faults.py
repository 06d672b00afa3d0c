"""A file system that fails on request, below SQLite, and what its disk holds after a power cut.

Processes read and write the kernel's page cache. The disk holds only what was synced. As in Linux,
a failed sync loses its pending writes, and the next sync does not report them. Lost data reaches
the disk only if it is written again.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

_numbers = itertools.count()
Armed = tuple[int, int, type[apsw.Error]]


class Faults(apsw.VFS):
    """Passes every call on to the real file system, counts it, and fails on request.

    Calls are ``write``, ``sync`` and ``truncate``; kinds are ``db`` and ``wal``, or
    ``any`` for both counted together.
    """

    def __init__(self) -> None:
        self.name = f"faults-{next(_numbers)}"
        super().__init__(self.name, "")
        self.seen: Counter[tuple[str, str]] = Counter()
        self.failed = 0
        self.space: int | None = None
        self.disk = Disk()
        self._armed: dict[tuple[str, str], Armed] = {}
        self._mutex = threading.Lock()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file, which is not recorded
            return apsw.VFSFile("", name, flags)
        return FaultyFile(self, name, flags)

    def xDelete(self, name: str, sync_directory: bool) -> None:
        super().xDelete(name, sync_directory)
        self.disk.forget(name)

    def fail(
        self, call: str, kind: str, error: type[apsw.Error], *, nth: int = 1, times: int = 1
    ) -> None:
        """Make ``times`` calls of a kind fail, beginning with the n-th from now."""
        first = self.seen[call, kind] + nth
        self._armed[call, kind] = (first, first + times, error)

    def mend(self) -> None:
        """Let all calls succeed again."""
        self._armed.clear()
        self.space = None

    def meet(self, call: str, kind: str, end: int = 0) -> None:
        """Count a call, and raise the error if this call is to fail."""
        for name in ((call, kind), (call, "any"), ("any", "any")):
            with self._mutex:
                self.seen[name] += 1
                number = self.seen[name]
            first, last, error = self._armed.get(name, (0, 0, apsw.Error))
            if first <= number < last:
                self.failed += 1
                raise error("the disk has a fault")
        if call == "write" and self.space is not None and end > self.space:
            raise apsw.FullError("no space left")


class FaultyFile(apsw.VFSFile):
    """One open file."""

    def __init__(self, faults: Faults, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._path = str(name if isinstance(name, str) else name.filename())
        self._kind = _kind(self._path)
        self._faults = faults
        faults.disk.meet(self._path)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._faults.meet("write", self._kind, offset + len(data))
        super().xWrite(data, offset)
        self._faults.disk.write(self._path, offset, data)

    def xTruncate(self, size: int) -> None:
        self._faults.meet("truncate", self._kind)
        super().xTruncate(size)
        self._faults.disk.truncate(self._path, size)

    def xSync(self, flags: int) -> None:
        try:
            self._faults.meet("sync", self._kind)
        except apsw.Error:
            self._faults.disk.drop(self._path)
            raise
        super().xSync(flags)
        self._faults.disk.sync(self._path)


class Disk:
    """The content of each file on the disk, and the writes that are not synced yet."""

    def __init__(self) -> None:
        self._held: dict[str, bytearray] = {}
        self._waiting: dict[str, list[tuple[int, bytes | None]]] = {}
        self._mutex = threading.Lock()

    def meet(self, path: str) -> None:
        """Assume that a file is completely on the disk when it is opened for the first time."""
        with self._mutex:
            if path not in self._held:
                self._held[path] = bytearray(Path(path).read_bytes())
                self._waiting[path] = []

    def write(self, path: str, offset: int, data: bytes) -> None:
        with self._mutex:
            self._waiting[path].append((offset, bytes(data)))

    def truncate(self, path: str, size: int) -> None:
        with self._mutex:
            self._waiting[path].append((size, None))

    def drop(self, path: str) -> None:
        with self._mutex:
            self._waiting[path].clear()

    def forget(self, path: str) -> None:
        with self._mutex:
            self._held.pop(path, None)
            self._waiting.pop(path, None)

    def sync(self, path: str) -> None:
        with self._mutex:
            held = self._held[path]
            for offset, data in self._waiting[path]:
                if data is None:
                    del held[offset:]
                held.extend(bytes(max(0, offset - len(held))))
                held[offset : offset + len(data or b"")] = data or b""
            self._waiting[path].clear()

    def moment(self) -> dict[str, bytes]:
        """Return the content that each file would have if the power were cut now."""
        with self._mutex:
            return {path: bytes(held) for path, held in self._held.items()}

    def lose_power(self, moment: dict[str, bytes] | None = None) -> None:
        """Reset every file to its content on the disk, now or at an earlier moment.

        No process may have the files open.
        """
        left = self.moment() if moment is None else moment
        with self._mutex:
            for path in (*self._held, *left):
                for name in (path, f"{path}-shm"):
                    Path(name).unlink(missing_ok=True)
            for path, held in left.items():
                Path(path).write_bytes(held)
            self._held = {path: bytearray(held) for path, held in left.items()}
            self._waiting = {path: [] for path in left}


def _kind(path: str) -> str:
    return "wal" if path.endswith("-wal") else "db"


@contextmanager
def faults() -> Iterator[Faults]:
    """Register such a file system until the block ends."""
    found = Faults()
    try:
        yield found
    finally:
        found.unregister()
