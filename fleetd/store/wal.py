"""The upkeep of the write-ahead log, beside the writer; must not know any table."""

import threading
from collections.abc import Callable

import apsw

from .opening import connect, wait_while_busy
from .verdicts import leaves_doubt, verdict

PAGES = 1_000
# How long the end of a checkpoint of the WAL may keep the writer waiting for a reader.
BUSY_MS = 10


class WalUpkeep:
    """Copies the WAL back into the database on a thread of its own, so that no commit waits long.

    The WAL keeps its size: appending to a growing file costs more than writing over a used one.
    Nearly all is copied beside the writer; what it wrote meanwhile is copied while it waits, or
    the WAL would never begin anew under a steady load, and would grow for ever.

    ``failed`` is told, on that thread, of an error after which nothing is known of the disk.
    """

    def __init__(self, path: str, vfs: str | None, failed: Callable[[BaseException], None]) -> None:
        self._connection = connect(path, vfs=vfs)
        wait_while_busy(self._connection, BUSY_MS)
        self._failed = failed
        self._next = PAGES
        self._wanted = threading.Event()
        self._stopping = False
        self.at_work = threading.Lock()
        """Held while the WAL is copied back; who holds it has it for itself."""
        self._thread = threading.Thread(target=self._run, name="wal")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wal_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Called by the writer after each commit, with the WAL's length in pages."""
        if pages < PAGES:
            self._next = PAGES
        elif pages >= self._next:
            # Not at every commit from here on: a reader that stays would make each attempt vain.
            self._next = pages + PAGES
            self._wanted.set()
        return apsw.SQLITE_OK

    def hurry(self) -> None:
        """Copy back what there is, as soon as possible: then the WAL begins anew in its place."""
        self._wanted.set()

    def _run(self) -> None:
        while self._wanted.wait() and not self._stopping:
            self._wanted.clear()
            try:
                with self.at_work:
                    self._copy_back()
            except apsw.Error as error:
                # Busy, or full: everything is in the WAL still, and it is tried again. But of a
                # sync that failed here nobody else ever hears: the next one succeeds.
                if leaves_doubt(verdict(error, self._connection.system_errno)):
                    self._failed(error)
                    return

    def _copy_back(self) -> None:
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # Again, for what came meanwhile: the less is left, the shorter the writer waits.
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    @property
    def alive(self) -> bool:
        """Whether it still does its work."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._stopping = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()
        self._connection.close()
