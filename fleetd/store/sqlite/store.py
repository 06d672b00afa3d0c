"""The SQLite store: a writer with group commit, a reader, and a WAL checkpointer.

Nothing else in the process may open the database file: closing any descriptor of it would drop
SQLite's own locks.
"""

import contextlib
import logging
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, cast

import apsw
import trio

from ...domain.core.tx import Effect, Tx
from ...host.clock import uptime, wall_clock
from ...protocol.errors import Storage
from ...protocol.requests.system import Check
from ..api import Availability, CopyDamaged, CopyFailed, Load, LostCommits, StoreFailed
from ..machine_identity import DaemonInstance
from ..worker_thread import WorkerThread, pass_on_effects
from . import integrity_check, page_checksums, search_index
from .connect import BUSY_MS, check_sqlite, connect, open_database, wait_while_busy
from .database_files import FileIdentity, HighWaterMark
from .disk_reserve import SIZE
from .group_commit import OutsideTransaction, SqliteCommitter, SqliteReader
from .integrity_check import damage_of
from .kept_sorties import KeptSorties
from .migrate import newest
from .online_backup import online_copy
from .wal_checkpointer import WalCheckpointer, check_of

log = logging.getLogger("fleetd")
T = TypeVar("T")


class SqliteStore:
    """Two functions, ``write`` and ``read``, each given a rule that works on a transaction.

    ``on_commit`` receives the effects of committed transactions, in order of commit, on the trio
    thread, as a rule after those who waited have gone on. ``failed`` is set when the disk
    failed; then nothing is written any more.
    """

    kind: Literal["sqlite"] = "sqlite"
    reserve = SIZE
    """The bytes that are kept on the disk for the day when it is full."""
    machine = ""
    """Nobody shares it, so that nothing in it says whose it is."""
    instance: DaemonInstance | None = None
    """Whoever has a store to himself need not prove who he is."""
    now_ms = staticmethod(wall_clock)
    uptime = staticmethod(uptime)

    def __init__(
        self,
        path: Path,
        on_commit: Callable[[list[Effect]], None],
        *,
        inline: bool = False,
        vfs: str | None = None,
    ) -> None:
        check_sqlite(apsw.sqlite_lib_version())
        self.path = path
        self.where = str(path)
        self.failed = trio.Event()
        self.availability = Availability()
        self._inline = inline
        self._vfs = vfs
        self._mark = HighWaterMark(path)
        self._writer_connection = open_database(path, vfs, self._mark.look)
        self._reader_connection = connect(str(path), query_only=True, vfs=vfs)
        self._identity = FileIdentity(path)
        self._kept = KeptSorties(self._writer_connection)
        self._committer = SqliteCommitter(
            self._writer_connection, self._identity, self._mark, self._kept
        )
        self._reads = SqliteReader(self._reader_connection)
        writes, reads = self._committer, self._reads
        wait_while_busy(self._writer_connection, BUSY_MS, lambda: not writes.on_loop)
        wait_while_busy(self._reader_connection, BUSY_MS, lambda: not reads.on_loop)
        self._writer = WorkerThread(
            "writer",
            writes.run,
            partial(pass_on_effects, on_commit),
            run_here=writes.run_here,
            inline=inline,
        )
        self._reader = WorkerThread(
            "reader",
            reads.run,
            lambda _: None,
            run_here=reads.run_here,
            inline=inline,
        )
        self._wal = WalCheckpointer(str(path), vfs, self._fail)
        self._token: trio.lowlevel.TrioToken | None = None
        self._writer_connection.set_wal_hook(self._wal_grew)

    def settle(self) -> None:
        """Carry out the effects of everything that is answered; it happens soon by itself."""
        self._writer.settle()

    def as_stored(self, value: T) -> T:
        """Return a request as its texts come back from the store, which is as they are."""
        return value

    @property
    def sqlite_version(self) -> str:
        """Return the version of the SQLite library in use."""
        return apsw.sqlite_lib_version()

    @property
    def engine_version(self) -> str:
        """Return the name and version of the library in use."""
        return f"SQLite {apsw.sqlite_lib_version()}"

    @property
    def failure(self) -> BaseException | None:
        """Return the error that made the store stop, if there was one."""
        return self._committer.failure

    @property
    def lost(self) -> LostCommits | None:
        """Return what is missing at the end of the log, None when nothing is."""
        return self._mark.lost

    def from_wall(self, ms: int) -> int:
        """Return the store's time for one that this machine's own clock told: the same."""
        return ms

    def train(self, _rules: Iterable[Callable[[Tx], object]]) -> None:
        """Learn nothing: the rules of one machine need not be predicted."""

    def start(self) -> None:
        """Start the threads; call it inside trio."""
        self._token = trio.lowlevel.current_trio_token()
        self._writer.start()
        self._reader.start()
        # Inline is for virtual time: there is no use in fast commits, and none in waiting for it.
        self._wal.start(lay_out=not self._inline)

    def _fail(self, error: BaseException) -> None:
        """Stop for an error that was met beside the writer, on a thread of its own."""
        self._committer.failure = self._committer.failure or error
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.failed.set)

    async def run(self) -> None:
        """Hear of other machines' commits: there are none."""

    async def write(self, rule: Callable[[Tx], T], kind: Hashable = None) -> T:
        """Run a rule in a transaction; returns after COMMIT, raises after rollback.

        Rules of one ``kind`` take about as long, which says whether one may run on the event loop.
        """
        return await self._submit(rule, kind)

    async def _submit(self, fn: Callable[..., T], kind: Hashable = None) -> T:
        try:
            return await self._writer.submit(fn, kind)
        finally:
            if self.failure is not None:
                self.failed.set()

    async def read(self, rule: Callable[[Tx], T], kind: Hashable = None) -> T:
        """Run a rule on a consistent snapshot, without a way to change anything."""
        return await self._reader.submit(rule, kind)

    def _wal_grew(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Called by SQLite after each commit of a change, where that was made."""
        self._committer.landed = True
        return self._wal.wal_grew(connection, name, pages)

    @property
    def load(self) -> Load:
        """Return what the writer's queue and commits are like; the histograms go on counting."""
        writer = self._writer
        return Load(writer.waiting, writer.most_waiting, writer.batches, self._committer.commits)

    @property
    def wal_is_kept_short(self) -> bool:
        """Whether the thread that copies the WAL back still runs."""
        return self._wal.alive

    def checks(self) -> list[Check]:
        """Return how it is with what is kept short by a thread of its own."""
        return [check_of(alive=self.wal_is_kept_short, size=self.sizes()[1])]

    def hurry(self) -> None:
        """Do nothing: no answer of one's own disk takes longer than it must."""

    def reuse_wal_soon(self) -> None:
        """Have the WAL copied back soon, so that it is used anew in the place that it has."""
        self._wal.hurry()

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the database file and of its WAL."""
        return _size(self.path), _size(Path(f"{self.path}-wal"))

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return cast("int", await self.read(lambda tx: tx.value("PRAGMA user_version")))

    async def copy_to(self, target: Path) -> int:
        """Write a consistent copy of the database, by SQLite's own means, while it is in use.

        Returns the copy's size in bytes; raises CopyFailed, and then leaves no file. Cancelled,
        it ends soon and leaves none either. Raises FileExistsError when the name is taken.
        """
        if problem := self._identity.problem():
            raise CopyFailed(problem)
        try:
            return await trio.to_thread.run_sync(
                online_copy, str(self.path), target, self._vfs, trio.from_thread.check_cancelled
            )
        except FileExistsError:
            raise
        except (apsw.Error, OSError) as error:
            if page_checksums.is_damage(error):  # of what is copied
                raise CopyDamaged(page_checksums.describe(error)) from error
            raise CopyFailed(_why(error)) from error

    async def scrub(self) -> None:
        """Rewrite the database without what was deleted from it, and empty its WAL.

        Nothing else leaves no bytes: what a row held before its last changes, and what pruning
        took, still stands in free pages. Writers wait meanwhile, one to two seconds for 100 MB.
        Raises Storage when the disk has no room for a second copy, Unavailable when a reader does
        not let go of the WAL.
        """
        await self._submit(OutsideTransaction(self._scrub))

    def _scrub(self, connection: apsw.Connection) -> None:
        # Two that copy the WAL back at once do not wait for each other: the second is refused.
        with self._wal.at_work:
            connection.pragma("temp_store", "file")  # a whole copy is too much for the memory
            try:
                # Pages of the index may hold the beginning of a word that is gone.
                search_index.rebuild(connection)
                page_checksums.rewrite(connection)
            finally:
                connection.pragma("temp_store", "memory")
                self._kept.watch()

    async def check_search_index(self, *, rebuild: bool) -> list[str]:
        """Return in what the search index differs from its documents, and make it anew if asked.

        Writers wait meanwhile: about two seconds for a million documents.
        """
        found: list[str] = []

        def look(connection: apsw.Connection) -> None:
            found.extend(search_index.damage_of(connection))
            if found and rebuild:
                search_index.rebuild(connection)

        await self._submit(OutsideTransaction(look))
        return found

    async def check(self) -> list[str]:
        """Return what is wrong with the database file; empty when nothing is."""
        if problem := self._identity.problem():
            return [problem]
        return await trio.to_thread.run_sync(_check, str(self.path), self._vfs)

    async def last_look(self) -> None:
        """Raise StoreFailed when the files that are to be closed stand in their places no more."""
        with contextlib.suppress(Storage):
            await self.write(lambda _: None)
        if self.failure is not None:
            raise StoreFailed(str(self.failure))

    async def aclose(self) -> None:
        """Finish what is queued, empty the WAL and close the database."""
        await self._reader.aclose()
        await self._writer.aclose()
        self._wal.stop()
        self._reader_connection.close()
        # What cannot be copied back now stays in the WAL, and is read from there next time. After
        # a failure nothing at all is written.
        if self.failure is not None or not self._empty_wal():
            self._writer_connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._writer_connection.close()
        self._mark.close()

    def _empty_wal(self) -> bool:
        try:
            self._writer_connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            log.warning("The WAL could not be checkpointed (%s); the next start reads it", error)
            return False
        return True


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _why(error: Exception) -> str:
    """Say why a copy failed; SQLite's own words are about the source, which has no error."""
    if isinstance(error, apsw.FullError):
        return "the disk is full"
    return "the disk failed" if isinstance(error, apsw.IOError) else str(error)


def _check(path: str, vfs: str | None) -> list[str]:
    try:
        with contextlib.closing(connect(path, query_only=True, vfs=vfs)) as connection:
            return [*integrity_check.differences(connection, newest()), *damage_of(connection)]
    except apsw.Error as error:
        if not page_checksums.is_damage(error):
            raise
        return [page_checksums.describe(error)]
