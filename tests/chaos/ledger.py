"""Mixed work on an engine in this process, and a ledger of the acknowledged part.

The ledger defines what an engine must hold when it is opened again after a fault: everything that
was acknowledged, unchanged, and nothing that was deleted. Must not know any fault.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.errors import FleetError, NotFound
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
)
from fleetd.protocol.requests.event import EventAppend, EventList
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.message import MessageList, MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, MissionStart, NewSortie
from fleetd.protocol.requests.snapshot import SnapshotGet, SnapshotRecord
from fleetd.protocol.requests.sortie import SortieGet, SortieList, SortieProgress, SortieStart
from fleetd.protocol.requests.system import SystemForget
from fleetd.store.sqlite import page_checksums
from tests.chaos.campaign import Red
from tests.support.fleet import Clock, Fleet, settings

# Fields that may differ between an acknowledgement and a later read: notes about the copies, and
# fields that only the row has.
_NOTES = ("warnings", "backed_up_at", "storage_locations", "source_details", "consumed_at")
_NOTES += ("integrity", "note", "compressed_at", "artifacts")


class Fact(NamedTuple):
    """An acknowledged record; ``doomed`` and ``going`` announce a deletion."""

    kind: str
    id: Any
    value: Any = None


Say = Callable[[Fact], None]


@asynccontextmanager
async def running(
    root: Path, *, clock: Clock | None = None, inline: bool = True, **changes: Any
) -> AsyncIterator[Fleet]:
    """Open an engine below ``root``, with threads unless ``inline``."""
    clock = clock or Clock()
    loaded = settings(root, **changes)
    async with open_engine(loaded, clock=clock, uptime=clock.uptime, inline=inline) as engine:
        yield Fleet(engine, clock, root / "project", root)


class LedgerWorker:
    """Works on a mission of its own and records the replies."""

    def __init__(self, fleet: Fleet, name: str, chance: random.Random, say: Say) -> None:
        self.fleet, self.name, self.chance, self.say = fleet, name, chance, say
        self.mission = ""
        self.sorties: list[str] = []
        self.progress: dict[str, int] = {}
        self.checkpoints: list[str] = []
        self.old: list[str] = []
        self.count = 0

    async def work(self, steps: int) -> None:
        """Do some work of all kinds."""
        kinds = [self.append] * 4 + [self.advance] * 4 + [self.lock, self.write, self.snapshot]
        kinds += [self.checkpoint] * 2 + [self.delete]
        for _ in range(steps):
            self.count += 1
            if not self.mission:
                await self.begin()
            elif self.count % 11 == 0:
                await self.forget()
            else:
                await self.chance.choice(kinds)()

    async def begin(self) -> None:
        """Create a mission and start it."""
        new = [
            NewSortie(f"S{n}", files=[f"src/{n}.py"]) for n in range(self.chance.randrange(1, 5))
        ]
        made = await self.fleet.do(
            MissionCreate(
                f"{self.name} {self.count}",
                description="x" * self.chance.randrange(3_000),
                sorties=new,
                project_dir=str(self.fleet.project),
            )
        )
        await self.fleet.do(MissionStart(made.id))
        self.mission = made.id
        self.say(Fact("mission", made.id, (made.title, len(new))))
        self.sorties = [s.id for s in (await self.fleet.do(SortieList(made.id))).sorties]
        self.progress = {}

    async def append(self) -> None:
        """Record an event."""
        data = {"text": f"{self.name}/{self.count}", "more": "y" * self.chance.randrange(500)}
        event = await self.fleet.do(EventAppend("note", mission_id=self.mission, data=data))
        self.say(Fact("event", event.seq, (self.mission, data)))

    async def advance(self) -> None:
        """Advance a sortie."""
        sortie = self.chance.choice(self.sorties)
        done = self.progress.get(sortie)
        if done is None:
            await self.fleet.do(SortieStart(sortie, f"{self.name}-agent"))
        done = self.progress[sortie] = min(99, (done or 0) + 1)
        await self.fleet.do(SortieProgress(sortie, done, f"{done} percent"))
        self.say(Fact("sortie", sortie, (self.mission, done)))

    async def lock(self) -> None:
        """Take a lock or release it."""
        agent, file = f"{self.name}-agent", f"{self.name}.py"
        lock = await self.fleet.do(LockAcquire(agent, file, mission_id=self.mission))
        self.say(Fact("token", lock.fencing_token))
        if self.chance.random() < 0.5:
            await self.fleet.do(LockRelease(lock.id, agent))

    async def write(self) -> None:
        """Send a message."""
        to = [f"{self.name}-agent", "dispatch"]
        made = await self.fleet.do(
            MessageSend(self.name, to, f"Letter {self.count}", mission_id=self.mission)
        )
        self.say(Fact("message", made.id, (self.mission, made.subject)))

    async def checkpoint(self) -> None:
        """Create a manual checkpoint."""
        made = await self.fleet.do(CheckpointCreate(self.mission, trigger_details=str(self.count)))
        self.checkpoints.append(made.id)
        self.say(Fact("checkpoint", made.id, (self.mission, bare(made))))

    async def snapshot(self) -> None:
        """Record a snapshot."""
        run = f"run-{self.name}"
        made = await self.fleet.do(SnapshotRecord(run_id=run, note=f"note {self.count}"))
        self.say(Fact("snapshot", made.snapshot_id, (run, bare(made))))

    async def delete(self) -> None:
        """Delete a checkpoint."""
        if not self.checkpoints:
            return
        doomed = self.checkpoints.pop(self.chance.randrange(len(self.checkpoints)))
        self.say(Fact("doomed", doomed))
        await self.fleet.do(CheckpointDelete(doomed))
        self.say(Fact("deleted", doomed))

    async def forget(self) -> None:
        """Forget the mission; the next step creates another."""
        self.say(Fact("going", self.mission))
        await self.fleet.do(SystemForget(mission_id=self.mission))
        self.say(Fact("gone", self.mission))
        self.mission, self.checkpoints = "", []


def bare(record: Any) -> dict[str, Any]:
    """Return the fields of a record, without notes about its copies."""
    told: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in told.items() if name not in _NOTES}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the engines' log, which would report thousands of faults."""
    log = logging.getLogger("fleetd")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


async def check(fleet: Fleet, facts: Iterable[Fact], *, rows: bool = True) -> None:
    """Raise Red unless everything acknowledged is there.

    Without ``rows`` the database was lost: skip what only the database held.
    """
    facts = list(facts)
    for fact in facts:
        if fact.kind in ("deleted", "gone"):
            await _absent(fleet, fact)
    for fact in standing(facts):
        if fact.kind in (_LOOKS if rows else FILED):
            await _present(fleet, fact)
    if rows:
        await _check_tokens(fleet, facts)


def standing(facts: list[Fact]) -> list[Fact]:
    """Return the facts about records that no client began to delete."""
    over = {fact.id for fact in facts if fact.kind in ("doomed", "going")}
    return [fact for fact in facts if {fact.id, _owner(fact)}.isdisjoint(over)]


def _owner(fact: Fact) -> Any:
    return fact.value[0] if isinstance(fact.value, tuple) else None


async def look(fleet: Fleet, fact: Fact, *, excused: bool) -> bool:
    """Compare a fact with the engine's answer; return whether that was a typed error.

    An excused record may be missing or older, but never a different record.
    """
    if fact.kind not in _LOOKS:
        return False
    try:
        found = await _LOOKS[fact.kind](fleet, fact)
    except NotFound as error:
        if not excused:
            raise Red(f"{fact.kind} {fact.id} is gone: {error.message}") from error
    except FleetError:
        return True
    else:
        if found != fact.value[1] and not (excused and fact.kind not in FILED):
            raise Red(f"{fact.kind} {fact.id} was {fact.value[1]}; {found} is served")
    return False


async def _present(fleet: Fleet, fact: Fact) -> None:
    try:
        found = await _LOOKS[fact.kind](fleet, fact)
    except NotFound:
        found = "nothing"
    except FleetError as error:
        found = f"{error.kind}: {error.message}"
    if found != fact.value[1]:
        raise Red(
            f"{fact.kind} {fact.id} was acknowledged as {str(fact.value[1])[:300]}; "
            f"now there is {str(found)[:300]}"
        )


async def _absent(fleet: Fleet, fact: Fact) -> None:
    request = CheckpointGet if fact.kind == "deleted" else MissionGet
    try:
        await fleet.do(request(fact.id))
    except NotFound:
        pass
    except FleetError as error:
        raise Red(f"{fact.id} is {fact.kind}, and asking for it says {error.message}") from error
    else:
        raise Red(f"{fact.id} is {fact.kind}, and it is back")
    for path in fleet.checkpoints.rglob(f"*{fact.id}*"):
        if ".aside-" not in path.name and any(path.iterdir() if path.is_dir() else [path]):
            raise Red(f"{fact.id} is {fact.kind}, and {path} is there")


async def _sortie(fleet: Fleet, fact: Fact) -> Any:
    """Return the progress up to the acknowledged value: later reports may have increased it."""
    found = (await fleet.do(SortieGet(fact.id))).progress
    return min(found, fact.value[1])


async def _event(fleet: Fleet, fact: Fact) -> Any:
    page = await fleet.do(EventList(since=fact.id - 1, limit=1))
    return page.events[0].data if page.events and page.events[0].seq == fact.id else "nothing"


async def _mission(fleet: Fleet, fact: Fact) -> Any:
    """Return the expected value unless sorties are missing or the title differs."""
    sorties = (await fleet.do(SortieList(fact.id))).sorties
    if len(sorties) != fact.value[1]:
        return f"{len(sorties)} sorties"
    title = (await fleet.do(MissionGet(fact.id))).title
    return fact.value[1] if title == fact.value[0] else title


async def _message(fleet: Fleet, fact: Fact) -> Any:
    letters = (await fleet.do(MessageList(mission_id=fact.value[0]))).messages
    return next((each.subject for each in letters if each.id == fact.id), "nothing")


async def _checkpoint(fleet: Fleet, fact: Fact) -> Any:
    return bare(await fleet.do(CheckpointGet(fact.id)))


async def _snapshot(fleet: Fleet, fact: Fact) -> Any:
    return bare(await fleet.do(SnapshotGet(fact.id)))


_LOOKS: dict[str, Any] = {
    "mission": _mission,
    "event": _event,
    "sortie": _sortie,
    "message": _message,
    "checkpoint": _checkpoint,
    "snapshot": _snapshot,
}
FILED = ("checkpoint", "snapshot")


async def _check_tokens(fleet: Fleet, facts: list[Fact]) -> None:
    tokens = [fact.id for fact in facts if fact.kind == "token"]
    if tokens:
        lock = await fleet.do(LockAcquire("somebody-else", "/again.py"))
        if lock.fencing_token <= max(tokens):
            raise Red(f"fencing token {lock.fencing_token} was given out before")


async def serves(fleet: Fleet) -> None:
    """Raise Red unless an engine works."""
    mission = await fleet.mission(2)
    await fleet.complete(mission, 0, 1)
    made = await fleet.checkpoint(mission)
    if bare(await fleet.do(CheckpointGet(made.id))) != bare(made):
        raise Red("a checkpoint that was just made cannot be read")


def intact(database: Path) -> None:
    """Raise Red unless SQLite finds the database intact."""
    connection = page_checksums.opened(str(database))
    try:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
        found += [str(row) for row in connection.execute("PRAGMA foreign_key_check")]
    except apsw.Error as error:
        found = [str(error)]
    finally:
        connection.close()
    if found != ["ok"]:
        raise Red(f"the database is damaged: {found}")
