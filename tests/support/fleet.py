"""An engine on real files with a clock that a test sets, and short ways to make things happen."""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
import trio.testing

from fleetd.config import Config, Loaded, PathSettings
from fleetd.domain.cluster import membership
from fleetd.domain.cluster.membership import HeartbeatResult
from fleetd.domain.core.context import BatchSizes, Caller
from fleetd.engine.engine import Engine, OnBehalf, random_id
from fleetd.engine.lifecycle import open_engine
from fleetd.host.atomic_files import make_directories
from fleetd.host.clock import Uptime
from fleetd.protocol.records import (
    Checkpoint,
    Event,
    Lock,
    Message,
    Mission,
    RestoreResult,
    Sortie,
)
from fleetd.protocol.request import Mutation, Request
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate, CheckpointList
from fleetd.protocol.requests.event import EventAppend, EventList
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import (
    SortieComplete,
    SortieList,
    SortieProgress,
    SortieStart,
)
from fleetd.protocol.timestamps import iso, to_ms
from fleetd.store.sqlite import page_checksums
from tests.support import shared_store
from tests.support.empty_store import put_empty

R = TypeVar("R")
NOON = to_ms("2026-01-05T12:00:00.000Z")
_TABLES = (
    "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Clock:
    """A wall clock and an uptime that stand still until a test moves them.

    ``follow_trio`` lets them run with trio's clock, virtual or not, for tests in which a task
    waits.
    """

    def __init__(self, ms: int = NOON) -> None:
        self.ms = ms
        self.awake_ms = 2 * DAY
        self.boot_id = "boot-1"
        self._since: float | None = None

    def __call__(self) -> int:
        return self.ms + self._passed()

    def uptime(self) -> Uptime:
        return Uptime(self.awake_ms + self._passed(), self.boot_id)

    def _passed(self) -> int:
        return 0 if self._since is None else round((trio.current_time() - self._since) * 1000)

    def pass_by(self, ms: int) -> None:
        self.ms += ms
        self.awake_ms += ms

    def step(self, ms: int) -> None:
        """Set the wall clock forward or back; the uptime does not change."""
        self.ms += ms

    def suspend(self, ms: int) -> None:
        """Suspend the machine: the wall clock advances, the awake time does not."""
        self.ms += ms

    def reboot(self, off_ms: int = MINUTE) -> None:
        """Reboot the machine after it was off for a while."""
        self.ms += off_ms
        self.awake_ms, self.boot_id = 0, self.boot_id + "'"

    def follow_trio(self) -> None:
        self._since = trio.current_time()

    @property
    def now(self) -> str:
        return iso(self())


def place_of(key: str) -> str:
    """Return the path of a file from the key of its lock, with or without a machine prefix."""
    return re.sub(r"^machine:[0-9a-f]+:", "", key)


class Fleet:
    """Sends the requests of the protocol to an engine and reads what it stored."""

    def __init__(self, engine: Engine, clock: Clock, project: Path, home: Path) -> None:
        self.engine = engine
        self._home = home
        self.clock = clock
        self.project = project
        self.database = engine.config.database
        self.checkpoints = engine.config.checkpoints
        self._caller = Caller(kind="client", uid=os.getuid(), pid=os.getpid())

    async def do(self, request: Request[R]) -> R:
        """Perform a request as the engine does for a client."""
        return await self.engine.ask(request, self._caller)

    async def settle(self) -> None:
        """Wait until all background work, such as writing files, is done."""
        await trio.testing.wait_all_tasks_blocked()

    async def mission(
        self, sorties: int = 4, *, title: str = "Implementing authentication", start: bool = True
    ) -> Mission:
        """Create a mission of sorties ``S0``, ``S1``, ..., each with a file of its own."""
        new = [NewSortie(f"S{n}", files=[f"src/{n}.py"]) for n in range(sorties)]
        made = await self.do(MissionCreate(title, project_dir=str(self.project), sorties=new))
        return await self.do(MissionStart(made.id)) if start else made

    async def again(self, mission: Mission) -> Mission:
        return await self.do(MissionGet(mission.id))

    async def sorties(self, mission: Mission) -> list[Sortie]:
        return (await self.do(SortieList(mission.id))).sorties

    async def agents(self, mission: Mission, *names: str) -> None:
        """Register agents of a mission; a name that begins with ``dispatch`` gets that role."""
        for name in names:
            role = "dispatch" if name.startswith("dispatch") else "specialist"
            await self.do(AgentRegister(name, role, mission_id=mission.id))

    async def work(
        self, mission: Mission, position: int, agent: str, percent: int = 50, notes: str = "Working"
    ) -> Sortie:
        """Let an agent start the sortie at a position and report progress on it."""
        sortie = (await self.sorties(mission))[position]
        await self.do(SortieStart(sortie.id, agent))
        return await self.do(SortieProgress(sortie.id, percent, notes))

    async def complete(self, mission: Mission, *positions: int) -> None:
        sorties = await self.sorties(mission)
        for position in positions:
            await self.do(SortieComplete(sorties[position].id))

    async def lock(self, mission: Mission, file: str, agent: str, **options: Any) -> Lock:
        return await self.do(LockAcquire(agent, file, mission_id=mission.id, **options))

    async def locks(self, mission: Mission | None = None) -> list[Lock]:
        request = LockList(mission_id=mission.id if mission else None)
        return (await self.do(request)).locks

    async def write(
        self, mission: Mission, to: Iterable[str], subject: str = "Review", **options: Any
    ) -> Message:
        sender = options.pop("sender", "dispatch-1")
        return await self.do(
            MessageSend(sender, list(to), subject, mission_id=mission.id, **options)
        )

    async def checkpoint(
        self, mission: Mission, note: str | None = None, **more: Any
    ) -> Checkpoint:
        """Create a manual checkpoint."""
        return await self.do(CheckpointCreate(mission.id, trigger_details=note, **more))

    async def checkpoint_ids(self, mission: Mission, trigger: Any = None) -> list[str]:
        """Return the ids of a mission's checkpoints, newest first."""
        page = await self.do(CheckpointList(mission.id, trigger=trigger, limit=1_000))
        return [summary.id for summary in page.checkpoints]

    async def restore(self, checkpoint: Checkpoint | None = None, **more: Any) -> RestoreResult:
        named = {"checkpoint_id": checkpoint.id} if checkpoint else {}
        return await self.do(RecoveryRestore(**named, **more))

    async def events(self, mission: Mission | None = None, kind: str | None = None) -> list[Event]:
        """Return all events, or those of a mission or a type."""
        found: list[Event] = []
        mission_id, position = mission.id if mission else None, 0
        while True:
            request = EventList(mission_id, kind, since=position, limit=1_000)
            page = await self.do(request)
            found += page.events
            if len(page.events) < 1_000:
                return found
            position = page.position

    async def happen(self, number: int, **where: Any) -> list[int]:
        """Append events; return their positions."""
        return [(await self.do(EventAppend("file_read", **where))).seq for _ in range(number)]

    async def seqs(self) -> list[int]:
        """Return the positions of all events."""
        return [event.seq for event in await self.events()]

    async def beat(self, name: str, *, thorough: bool = True) -> HeartbeatResult:
        """Send a heartbeat of this machine under a name, without its boot and earlier starts."""
        write, own = self.engine.write, self.engine.instance
        nonce = own.nonce if own else ""
        renewed = await write(membership.renew, name, nonce, thorough=thorough)
        return renewed or await write(membership.heartbeat, name, self.clock.now, nonce)

    def sql(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """Run a statement on the database behind the engine's back."""
        if shared_store.SERVER:
            return shared_store.run(self._home, statement, values)
        connection = page_checksums.opened(str(self.database))
        try:
            connection.set_busy_timeout(5_000)
            cursor = connection.execute(statement, values)
            rows: list[dict[str, Any]] = []
            for row in cursor:
                names = [column[0] for column in cursor.get_description()]
                rows.append(dict(zip(names, row, strict=True)))
            return rows
        finally:
            connection.close()

    def dump(self, *without: str) -> dict[str, list[dict[str, Any]]]:
        """Return every row of every table."""
        tables = self.sql(shared_store.TABLES if shared_store.SERVER else _TABLES)
        return {
            table["name"]: self.sql(f"SELECT * FROM {table['name']} ORDER BY 1, 2")
            for table in tables
            if table["name"] not in (*without, "writers")
        }

    def lose_database(self) -> None:
        """Delete the database, as after the loss of a disk; the daemon must have ended."""
        if shared_store.SERVER:
            shared_store.empty(self._home)
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.database}{ending}").unlink(missing_ok=True)

    def copied_database(self) -> bytes | shared_store.Rows:
        """Return the content of the database for ``put_back``; the daemon must have ended."""
        if shared_store.SERVER:
            return shared_store.rows(self._home)
        return self.database.read_bytes()

    def put_back(self, copied: bytes | shared_store.Rows) -> None:
        """Replace the database with a copy; the daemon must have ended."""
        self.lose_database()
        if isinstance(copied, bytes):
            self.database.write_bytes(copied)
        else:
            shared_store.fill(self._home, copied)

    def files(self) -> dict[str, bytes | str]:
        """Return every file below the directory of checkpoints; a symlink as its target."""
        return {
            str(path.relative_to(self.checkpoints)): (
                os.readlink(path) if path.is_symlink() else path.read_bytes()
            )
            for path in sorted(self.checkpoints.rglob("*"))
            if path.is_symlink() or path.is_file()
        }

    def file_of(self, checkpoint: Checkpoint) -> Path:
        return self.checkpoints / checkpoint.mission_id / f"{checkpoint.id}.json"


async def _nothing(*_: Any) -> None:
    pass


def meet_rules(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[..., Awaitable[None]] = _nothing,
    after: Callable[..., Awaitable[None]] = _nothing,
) -> None:
    """Call ``before`` and ``after`` around every rule that an engine runs, with its arguments."""

    def around(real: Callable[..., Awaitable[Any]], is_met: Callable[..., bool]) -> Any:
        async def met(self: OnBehalf, rule: Any, *args: Any, **named: Any) -> Any:
            if self._engine is not engine or not is_met(*args):
                return await real(self, rule, *args, **named)
            await before(rule, *args, *named.values())
            result = await real(self, rule, *args, **named)
            await after(rule, *args, *named.values())
            return result

        return met

    for name in ("read", "write"):
        monkeypatch.setattr(OnBehalf, name, around(getattr(OnBehalf, name), lambda *_: True))
    # ``run`` of a query calls ``read``, which is patched above.
    monkeypatch.setattr(OnBehalf, "run", around(OnBehalf.run, lambda r: isinstance(r, Mutation)))


def settings(root: Path, database: Path | None = None, **changes: Any) -> Loaded:
    """Return the settings of an engine below ``root``; ``changes`` are whole sections."""
    own = root / "data" / "squawk.db"
    places = PathSettings(
        database=str(own if shared_store.SERVER else database or own),
        checkpoints=str(root / ".flightline" / "checkpoints"),
        socket=str(root / "s"),
    )
    return Loaded(
        msgspec.structs.replace(
            Config(), **{"paths": places, "store": shared_store.url(database or root), **changes}
        ),
        {},
        root / "c.toml",
        root / "spool",
    )


@asynccontextmanager
async def opened(
    root: Path,
    *,
    clock: Clock | None = None,
    new_id: Callable[[str], str] = random_id,
    machine: str = "",
    database: Path | None = None,
    batches: BatchSizes | None = None,
    **changes: Any,
) -> AsyncIterator[Fleet]:
    """Open a fleet below ``root``, again if it was open before.

    A fleet that is one ``machine`` of several on one ``database`` also shares their clock.
    """
    clock = clock or Clock()
    project = root / "project"
    project.mkdir(exist_ok=True, parents=True)
    loaded = settings(root, database, **changes)
    database_file = loaded.config.database
    if not shared_store.SERVER and not database_file.parent.exists():
        make_directories(database_file.parent)
        put_empty(database_file)
    async with open_engine(
        loaded,
        clock=clock,
        uptime=clock.uptime,
        new_id=new_id,
        inline=True,
        machine=machine,
        batches=batches,
    ) as engine:
        yield Fleet(engine, clock, project.resolve(), database or root)
