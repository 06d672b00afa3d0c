"""WAL checkpointer: copies the write-ahead log back on its own thread."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable

import apsw

from ...protocol.requests.system import Check
from .connect import connect, wait_while_busy
from .errors import classify, leaves_doubt

log = logging.getLogger("fleetd")
PAGES = 1_000
# Pages written while the WAL is copied back come on top.
_LAID_OUT = 1_250
_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
# The WAL is copied beside the writer this often at most, until a pass copied this few pages. The
# fewer are left, the shorter the writer waits for the end of the copy.
_PASSES, _FEW = 4, 100
# How long the end of a checkpoint of the WAL may keep the writer waiting for a reader.
BUSY_MS = 10
# It is copied back at 4 MB; this much means that a reader has kept an old snapshot open for long.
LARGE_BYTES = 64_000_000


class WalCheckpointer:
    """Copies the WAL back into the database on its own thread, so that no commit waits long.

    The WAL has its size from the start and keeps it: a commit that makes a file grow takes up to
    twice as long as one that overwrites existing bytes.
    Nearly all pages are copied and synced beside the writer. Those that it wrote meanwhile are
    copied and synced while it waits. Otherwise the WAL would never start from its beginning under a
    steady load, and would grow forever.

    ``failed`` is called on that thread, with an error that leaves the state of the disk unknown.
    """

    def __init__(self, path: str, vfs: str | None, failed: Callable[[BaseException], None]) -> None:
        self._wal = f"{path}-wal"
        self._connection = connect(path, vfs=vfs)
        # Opened by SQLite's VFS, which alone can close the file without losing the locks on it. It
        # follows no link.
        flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
        self._database = apsw.VFSFile(vfs or "", os.path.realpath(path), flags)
        self._failed = failed
        self._next = PAGES
        self._wanted = threading.Event()
        self._stopping = False
        self._laying_out = False
        self.at_work = threading.Lock()
        """Held while the WAL is copied back; the holder has the WAL to itself."""
        self._thread = threading.Thread(target=self._run, name="wal")

    def start(self, *, lay_out: bool) -> None:
        """Start the thread; ``lay_out`` gives the WAL its size immediately."""
        self._laying_out = lay_out
        self._thread.start()

    def wal_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Note the WAL's length in pages; the writer calls this after each commit."""
        if pages < PAGES:
            self._next = PAGES
        elif pages >= self._next:
            # Not at every commit from here on: a reader that stays would defeat each attempt.
            self._next = pages + PAGES
            self._wanted.set()
        return apsw.SQLITE_OK

    def hurry(self) -> None:
        """Copy the WAL back as soon as possible: then it starts again in its existing space."""
        self._wanted.set()

    def _run(self) -> None:
        sound = not self._laying_out or self._try(self._lay_out)
        wait_while_busy(self._connection, BUSY_MS)
        while sound and self._wanted.wait() and not self._stopping:
            self._wanted.clear()
            sound = self._try(self._copy_back)

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something; return False when the state of the disk is unknown after it."""
        try:
            with self.at_work:
                work()
        except apsw.Error as error:
            # Busy, or full: everything is still in the WAL, and it is tried again. But nothing else
            # ever reports a sync that failed here: the next one succeeds.
            if leaves_doubt(classify(error, self._connection.system_errno)):
                self._failed(error)
                return False
        except Exception:
            log.exception("The checkpoint of the WAL failed; fleetd tries again")
        return True

    def _lay_out(self) -> None:
        """Fill the WAL up to its size with zeros, after all that SQLite may have written."""
        page = int(self._connection.pragma("page_size"))
        self._connection.execute("BEGIN IMMEDIATE")  # so that no writer appends to it meanwhile
        try:
            _fill(self._wal, _HEADER_BYTES + _LAID_OUT * (_FRAME_HEADER_BYTES + page))
        finally:
            self._connection.execute("ROLLBACK")

    def _copy_back(self) -> None:
        done = 0
        for _ in range(_PASSES):
            _, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            # SQLite leaves the sync to the last pass when the WAL grew meanwhile: the writer would
            # wait for everything that was copied.
            self._database.xSync(apsw.SQLITE_SYNC_NORMAL)
            if copied - done <= _FEW:  # at most as many came meanwhile
                break
            done = copied
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._stopping = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()
        self._database.xClose()
        self._connection.close()


def _fill(path: str, size: int) -> None:
    """Write zeros to the end of a file until it has a size; being unable to is no failure.

    Raises apsw.IOError when the sync fails.
    """
    with contextlib.suppress(OSError):
        # Closing it drops no lock: in WAL mode the locks are on the database and the WAL's index.
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            end = os.fstat(descriptor).st_size
            if end < size and _write(descriptor, bytes(size - end), end):
                try:
                    os.fdatasync(descriptor)
                except OSError as error:
                    raise apsw.IOError(f"the WAL could not be synced: {error}") from error
        finally:
            os.close(descriptor)


def _write(descriptor: int, data: bytes, offset: int) -> bool:
    """Write after the end of a file, all of it or nothing: a full disk needs the room."""
    try:
        if os.pwrite(descriptor, data, offset) == len(data):
            return True
    except OSError:
        pass
    os.ftruncate(descriptor, offset)
    return False


def check_of(*, alive: bool, size: int) -> Check:
    """Return the check of a WAL's size and of the thread that keeps it short."""
    name = "write-ahead log"
    if not alive:
        detail = "nothing checkpoints it into the database, so it grows"
        return Check(name=name, ok=False, detail=detail, vital=False, restart_mends=True)
    detail = f"{size / 1_000_000:.1f} MB"
    if size > LARGE_BYTES:
        detail += "; another program may have the database open"
    ok = size <= LARGE_BYTES
    return Check(name=name, ok=ok, detail=detail, vital=False, restart_mends=False)
