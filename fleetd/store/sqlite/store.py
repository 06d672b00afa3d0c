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
    """Offers ``write`` and ``read``, each of which takes a rule that works on a transaction.

    ``on_commit`` receives the effects of committed transactions, in order of commit, on the trio
    thread, usually after the waiting tasks have resumed. ``failed`` is set when the disk failed;
    then nothing more is written.
    """

    kind: Literal["sqlite"] = "sqlite"
    reserve = SIZE
    """Bytes reserved on the disk for the day when it is full."""
    machine = ""
    """Empty: no other machine shares the store, so nothing in it names an owner."""
    instance: DaemonInstance | None = None
    """None: a daemon that does not share its store need not prove its identity."""
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
        """Carry out the effects of all answered requests now; they would happen soon anyway."""
        self._writer.settle()

    def as_stored(self, value: T) -> T:
        """Return a request as its texts come back from the store: unchanged."""
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
        """Convert a time of this machine's clock to the store's time, which is the same."""
        return ms

    def train(self, _rules: Iterable[Callable[[Tx], object]]) -> None:
        """Learn nothing: the rules of one machine need not be predicted."""

    def start(self) -> None:
        """Start the threads; call it inside trio."""
        self._token = trio.lowlevel.current_trio_token()
        self._writer.start()
        self._reader.start()
        # Inline is for virtual time: fast commits are no use there, nor is a wait for the layout.
        self._wal.start(lay_out=not self._inline)

    def _fail(self, error: BaseException) -> None:
        """Stop because of an error that occurred on another thread than the writer's."""
        self._committer.failure = self._committer.failure or error
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.failed.set)

    async def run(self) -> None:
        """Receive other machines' commits: there are none."""

    async def write(self, rule: Callable[[Tx], T], kind: Hashable = None) -> T:
        """Run a rule in a transaction; returns after COMMIT, raises after rollback.

        Rules of one ``kind`` take about as long; that decides whether one may run on the event
        loop.
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
        """Note a commit of a change; SQLite calls this on the thread that made it."""
        self._committer.landed = True
        return self._wal.wal_grew(connection, name, pages)

    @property
    def load(self) -> Load:
        """Return the state of the writer's queue and commits; the histograms keep counting."""
        writer = self._writer
        return Load(writer.waiting, writer.most_waiting, writer.batches, self._committer.commits)

    @property
    def wal_is_kept_short(self) -> bool:
        """Whether the thread that copies the WAL back still runs."""
        return self._wal.alive

    def checks(self) -> list[Check]:
        """Return the check of the WAL, which a separate thread keeps short."""
        return [check_of(alive=self.wal_is_kept_short, size=self.sizes()[1])]

    def hurry(self) -> None:
        """Do nothing: a local disk answers as fast as it can."""

    def reuse_wal_soon(self) -> None:
        """Have the WAL copied back soon, so that its existing space is used again."""
        self._wal.hurry()

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the database file and of its WAL."""
        return _size(self.path), _size(Path(f"{self.path}-wal"))

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return cast("int", await self.read(lambda tx: tx.value("PRAGMA user_version")))

    async def copy_to(self, target: Path) -> int:
        """Write a consistent copy of the database, by SQLite's own means, while it is in use.

        Returns the copy's size in bytes; raises CopyFailed, and then leaves no file. If cancelled,
        it ends soon and leaves no file either. Raises FileExistsError when the name is taken.
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
            if page_checksums.is_damage(error):  # of the source
                raise CopyDamaged(page_checksums.describe(error)) from error
            raise CopyFailed(_why(error)) from error

    async def scrub(self) -> None:
        """Rewrite the database without its deleted data, and empty its WAL.

        Nothing else removes all bytes: free pages still contain what rows held before their last
        changes, and what pruning deleted. Writers wait meanwhile, one to two seconds for 100 MB.
        Raises Storage when the disk has no room for a second copy, Unavailable when a reader does
        not release the WAL.
        """
        await self._submit(OutsideTransaction(self._scrub))

    def _scrub(self, connection: apsw.Connection) -> None:
        # Two concurrent checkpoints of the WAL do not wait for each other: the second is refused.
        with self._wal.at_work:
            connection.pragma("temp_store", "file")  # a whole copy is too large for memory
            try:
                # Pages of the index may hold the beginning of a deleted word.
                search_index.rebuild(connection)
                page_checksums.rewrite(connection)
            finally:
                connection.pragma("temp_store", "memory")
                self._kept.watch()

    async def check_search_index(self, *, rebuild: bool) -> list[str]:
        """Return how the search index differs from its documents; rebuild it if asked.

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
        """Raise StoreFailed when the files to be closed are no longer in their places."""
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
        # Changes that cannot be copied back now stay in the WAL, and the next start reads them
        # there. After a failure nothing at all is written.
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
    """Return why a copy failed; SQLite's own text is about the source, which has no error."""
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
