"""The store that several machines share: PostgreSQL, which holds the one truth of a fleet.

Two connections work, a writer's and a reader's; a third one listens for the commits of others.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import trio

from .. import origin
from ..domain.tx import Effect, Tx
from ..wire.errors import FleetError, Unavailable
from . import CopyFailed, StoreUnready
from .lane import Job, Lane
from .load import Load
from .machine_id import machine_id
from .mark import Lost
from .reach import Reach
from .shared.committing import Committer, run_reads
from .shared.connecting import connect, named
from .shared.elsewhere import Elsewhere
from .shared.fleet_clock import FleetClock
from .shared.listening import listen
from .shared.migrating import migrate

log = logging.getLogger("fleetd")
T = TypeVar("T")


class PostgresStore(Elsewhere):
    """Two functions, ``write`` and ``read``, each given a rule that works on a transaction.

    ``on_commit`` receives the effects of committed transactions, in order of commit, on the trio
    thread; ``on_news`` is called there after each commit of anybody.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        on_commit: Callable[[list[Effect]], None],
        on_news: Callable[[], None],
        *,
        inline: bool = False,
    ) -> None:
        self.where = named(url)
        self.machine = machine_id(directory)
        self.failed = trio.Event()
        self.reach = Reach()
        self.failure: BaseException | None = None
        self.lost: Lost | None = None
        self._url = url
        self._on_commit = on_commit
        self._on_news = on_news
        self._inline = inline
        self._clock = FleetClock()
        self._connect()
        self._writer = Lane("writer", self._write, self._wrote, inline=inline)
        self._reader = Lane("reader", self._read, lambda _: None, inline=inline)

    def _connect(self) -> None:
        try:
            self._writing = connect(self._url, "writer")
            migrate(self._writing, self.where)
            self._clock.ask(self._writing)
            self._reading = connect(self._url, "reader")
            row = self._writing.execute(
                "SELECT batch FROM writers WHERE machine = %s", (self.machine,)
            ).fetchone()
        except psycopg.OperationalError as error:
            raise StoreUnready(f"{self.where} cannot be reached: {error}") from error
        self._committer = Committer(self._writing, self.machine, int(row[0]) if row else 0)

    sqlite_version = ""

    @property
    def engine_version(self) -> str:
        """Return the server's name and version."""
        return f"PostgreSQL {self._writing.info.server_version // 10_000}"

    def now_ms(self) -> int:
        """Return the time of the fleet in ms since the Unix epoch."""
        return self._clock.now_ms()

    @property
    def uptime(self) -> Callable[[], Any]:
        """Return the clock that silence is measured by."""
        return self._clock.uptime

    def start(self) -> None:
        """Start the threads; call it inside trio."""
        self._writer.start()
        self._reader.start()

    async def run(self) -> None:
        """Hear of other machines' commits until cancelled."""
        if self._inline:
            return
        connection = await trio.to_thread.run_sync(connect, self._url, "listener")
        try:
            await listen(connection, self._on_news)
        finally:
            connection.close()

    async def write(self, rule: Callable[[Tx], T]) -> T:
        """Run a rule in a transaction; returns after COMMIT, raises after rollback."""
        return await self._writer.submit(rule)

    async def read(self, rule: Callable[[Tx], T]) -> T:
        """Run a rule on a consistent snapshot, without a way to change anything."""
        return await self._reader.submit(rule)

    def _write(self, jobs: list[Job]) -> None:
        try:
            self._committer.run(jobs)
        except psycopg.Error as error:
            self._give_up(jobs, error)

    def _read(self, jobs: list[Job]) -> None:
        try:
            run_reads(self._reading, jobs)
        except psycopg.Error as error:
            self._give_up(jobs, error)

    def _give_up(self, jobs: list[Job], error: psycopg.Error) -> None:
        for job in jobs:
            if job.result is None:
                job.effects = []
                job.fail(self._away(error))

    def _away(self, error: psycopg.Error) -> FleetError:
        return Unavailable(
            f"{self.where} does not answer: {error}.", hint="Try again soon.", retry=True
        )

    def _wrote(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.effects:
                with origin.on_behalf_of(job.origin):
                    self._on_commit(job.effects)

    @property
    def load(self) -> Load:
        """Return what the writer's queue and commits are like; the histograms go on counting."""
        lane = self._writer
        return Load(lane.waiting, lane.most_waiting, lane.batches, self._committer.commits)

    wal_is_kept_short = True

    def make_way(self) -> None:
        """Do nothing: the room of the server is not ours to make."""

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the database as this machine has them, which are none."""
        return 0, 0

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return await self._reader.submit(lambda tx: tx.value("SELECT version FROM schema_version"))

    async def copy_to(self, target: Path) -> int:
        """Refuse: the server's own means make its backups."""
        raise CopyFailed(f"{self.where} is backed up where it runs, not into {target}")

    async def scrub(self) -> None:
        """Do nothing yet."""

    async def check(self) -> list[str]:
        """Return what is wrong with the store; empty when nothing is."""
        return []

    async def last_look(self) -> None:
        """Do nothing: there is no file that could have been taken away."""

    async def aclose(self) -> None:
        """Finish what is queued and close the connections."""
        await self._reader.aclose()
        await self._writer.aclose()
        self._reading.close()
        self._writing.close()
