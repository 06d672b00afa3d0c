"""The store that several machines share: PostgreSQL, which holds the one truth of a fleet.

Two connections work, a writer's and a reader's. A third one notifies others of commits, and
listens.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import psycopg
import trio

from ...domain.core.text import without_nul
from ...domain.core.tx import Effect, Ring, Tx
from ...host.clock import Uptime, wall_clock
from ...protocol.errors import Unavailable
from ...protocol.requests.system import Check
from ..api import Availability, CopyRefused, Followers, Load, LostCommits, StoreRefused
from ..machine_identity import DaemonInstance, machine_id
from ..worker_thread import Job, WorkerThread, pass_on_effects
from . import checks
from .commit_signal import CommitSignal
from .connection import ServerConnection
from .errors import ServerAway, TurnTooLate, translate
from .group_commit import PostgresCommitter
from .reader import PostgresReader
from .reconnect import Reconnector, on_abandonable_thread
from .server import ConnectionSlot, PostgresServer
from .training import train

T = TypeVar("T")
log = logging.getLogger("fleetd")


class PostgresStore:
    """Two functions, ``write`` and ``read``, each given a rule that works on a transaction.

    ``on_commit`` receives the effects of committed transactions, in order of commit, on the trio
    thread, as a rule after those who waited have gone on; ``on_news`` is called there after commits
    of other machines, as long as ``followers`` wait for them. A server that is away is no failure
    of the store: ``availability`` tells of it, and who comes meanwhile is refused at once.
    """

    kind: Literal["postgresql"] = "postgresql"
    reserve = 0
    """The room on this machine's disk is not what it needs."""
    sqlite_version = ""

    def __init__(
        self,
        url: str,
        directory: Path,
        on_commit: Callable[[list[Effect]], None],
        on_news: Callable[[], None],
        followers: Followers,
        *,
        inline: bool = False,
    ) -> None:
        self.machine = machine_id(directory)
        self.instance: DaemonInstance | None = DaemonInstance(directory)
        self.failed = trio.Event()
        """Never set: no trouble of a server makes what was acknowledged doubtful."""
        self.failure: BaseException | None = None
        self.availability = Availability()
        self._inline = inline
        self._token: trio.lowlevel.TrioToken | None = None
        self._gone: ServerAway | None = None
        self._server = server = PostgresServer(url, self.machine)
        self.now_ms: Callable[[], int] = server.clock.now_ms
        self.uptime: Callable[[], Uptime] = server.clock.uptime
        self._slots = [ConnectionSlot(partial(server.open, name)) for name in ("writer", "reader")]
        self._committer = PostgresCommitter(self._slots[0], server)
        self._reads = PostgresReader(self._slots[1], server.address)
        write = partial(self._work, self._committer.run)
        read = partial(self._work, self._reads.run)
        self._on_commit = on_commit
        self._writer = WorkerThread(
            "writer", write, partial(pass_on_effects, self._committed), inline=inline
        )
        self._reader = WorkerThread("reader", read, lambda _: None, inline=inline)
        self._signal = CommitSignal(server, on_news, followers)
        self._reconnector = Reconnector(self.availability, server, self._signal)
        # What will not mend itself is refused, the rest is tried again later.
        try:
            self._connect()
        except ServerAway as gone:
            self._close()
            if gone.final:
                raise StoreRefused(f"{self._reconnector.message(gone)}.") from None
            self._gone = gone
            self._reconnector.lose(gone)

    def _connect(self) -> None:
        """Give both threads new connections."""
        for slot in self._slots:
            slot.bring(slot.open())

    def train(self, rules: Iterable[Callable[[Tx], object]]) -> None:
        """Learn from rules what they read of their own writes; call it before ``start``."""
        train(self._committer.optimistic.predictor, rules)

    def start(self) -> None:
        """Start the threads; call it inside trio."""
        self._token = trio.lowlevel.current_trio_token()
        self._writer.start()
        self._reader.start()

    async def run(self) -> None:
        """Hear of other machines' commits, and find the server again, until cancelled."""
        if not self._inline:
            await self._reconnector.run(self._connect, self._resume)

    def _committed(self, effects: list[Effect]) -> None:
        self._on_commit(effects)
        if self._committer.has_listeners and any(isinstance(effect, Ring) for effect in effects):
            self._signal.committed()

    def _resume(self) -> None:
        self._gone = None

    @property
    def where(self) -> str:
        """Return what the server is called, without any secret."""
        return self._server.address.name

    @property
    def engine_version(self) -> str:
        """Return the server's name and version, as far as it is known."""
        return self._server.version

    @property
    def lost(self) -> LostCommits | None:
        """Return what the newest server lacked of what was committed, None when nothing."""
        return self._server.lost_commits.lost

    async def write(self, rule: Callable[[Tx], T], _kind: Hashable = None) -> T:
        """Run a rule in a transaction; returns after COMMIT, raises after rollback.

        Raises Unavailable while the server is away, at once; with ``outcome="unknown"`` when it
        went in the middle of COMMIT and did not come back in time to say what became of it.
        """
        self._refuse_while_away()
        return await self._writer.submit(rule)

    async def read(self, rule: Callable[[Tx], T], kind: Hashable = None) -> T:
        """Run a rule on a consistent snapshot, without a way to change anything.

        The rule may run twice: it starts without a transaction unless one of its ``kind`` has
        needed one lately.
        """
        self._refuse_while_away()
        try:
            return await self._reader.submit(rule, kind)
        finally:
            self._signal.was_read()

    def _refuse_while_away(self) -> None:
        if self.availability.away is not None and not self._inline:
            raise self.availability.away.refusal(self.now_ms())

    def _work(self, run: Callable[[list[Job]], None], jobs: list[Job]) -> None:
        if self._gone is not None and not self._inline:
            self._refuse(jobs, self._gone)
            return
        try:
            run(jobs)
            if self._inline and self._gone is not None:
                self._gone = None
                self.availability.regain()
        except ServerAway as gone:
            if isinstance(gone.__cause__, TurnTooLate):
                # What needs no turn may still succeed, such as the goodbye of this machine.
                self._refuse(jobs, gone)
            else:
                self._give_up(jobs, gone)
        except Exception as error:
            # A bug of ours, or an error that nobody foresaw: the thread has to live on.
            log.exception("A batch of requests failed")
            self._give_up(jobs, ServerAway("working", str(error)))

    def _give_up(self, jobs: list[Job], gone: ServerAway) -> None:
        self._gone = gone
        self._refuse(jobs, gone)
        if self._inline:
            self._reconnector.lose(gone)
        elif self._token is not None:
            self._token.run_sync_soon(self._reconnector.lose, gone)

    def _refuse(self, jobs: list[Job], gone: ServerAway) -> None:
        """Tell those that have no answer yet."""
        away, now_ms = self._reconnector.describe(gone), self.now_ms()
        for job in jobs:
            if job.result is None:
                job.fail(away.refusal(now_ms))

    @property
    def load(self) -> Load:
        """Return what the writer's queue and commits are like; the histograms go on counting."""
        writer = self._writer
        return Load(
            writer.waiting,
            writer.most_waiting,
            writer.batches,
            self._committer.commits,
            self._committer.optimistic.figures,
        )

    def from_wall(self, ms: int) -> int:
        """Return the time of the fleet for a time of this machine's own clock."""
        return ms + self.now_ms() - wall_clock()

    def settle(self) -> None:
        """Carry out the effects of everything that is answered; it happens soon by itself."""
        self._writer.settle()

    def as_stored(self, value: T) -> T:
        """Return a request as its texts come back from the store, which holds no NUL in any."""
        return without_nul(value)

    def checks(self) -> list[Check]:
        """Return what of the store's upkeep can be looked at from here, which is nothing."""
        return []

    async def copy_to(self, target: Path) -> int:
        """Refuse: the server's own means make its backups."""
        raise CopyRefused(
            f"The store is on a server, which fleetd does not copy into {target}",
            "Back it up on the server with pg_dump, or move it into a file on this "
            "machine: fleetctl migrate",
        )

    def reuse_wal_soon(self) -> None:
        """Do nothing: the room of the server is not ours to make."""

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the database as they were some minutes ago, and none of a WAL."""
        return self._server.size, 0

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return await self.read(lambda tx: tx.value("SELECT version FROM schema_version"))

    async def scrub(self) -> None:
        """Rewrite the tables without what was deleted from them; raises Unavailable, Storage.

        Nothing reaches the server's write-ahead log, its copies and its standbys.
        """
        await self._aside(checks.scrub)

    async def check_search_index(self, *, rebuild: bool) -> list[str]:  # noqa: ARG002
        """Return nothing: the server keeps its indexes in step with their rows."""
        return []

    async def check(self) -> list[str]:
        """Return what is wrong with the server or how it is set; empty when nothing is."""
        return await self._aside(checks.findings)

    async def _aside(self, work: Callable[[ServerConnection], T]) -> T:
        """Work on a connection of its own, which may take long."""
        self._refuse_while_away()
        try:
            return await on_abandonable_thread(partial(self._on_own_connection, work))
        except ServerAway as gone:
            raise Unavailable(f"{self._reconnector.message(gone)}.", retry=True) from gone
        except psycopg.Error as error:
            raise translate(error, self.where) from error

    def _on_own_connection(self, work: Callable[[ServerConnection], T]) -> T:
        with closing(self._server.open("aside")) as connection:
            return work(connection)

    async def last_look(self) -> None:
        """Do nothing: there is no file that could have been taken away."""

    def hurry(self) -> None:
        """Wait no longer than a moment for any answer from now on: the daemon ends."""
        self._server.hurry.now = True

    async def aclose(self) -> None:
        """Finish what is queued and close the connections."""
        self.hurry()
        await self._reader.aclose()
        await self._writer.aclose()
        self._close()

    def _close(self) -> None:
        for slot in self._slots:
            slot.close()
