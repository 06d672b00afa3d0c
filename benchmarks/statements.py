"""``python -m benchmarks.statements``: the statements of requests, counted and not timed.

An engine in this process answers each request a few times and notes every statement that SQLite
runs; each run of an ``executemany`` counts. The counts do not depend on the machine's load.
On a shared store, a statement is a round trip.
"""

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import trio

from fleetd.config import Config, Loaded, PathSettings
from fleetd.domain.core.context import Caller
from fleetd.engine.engine import Engine
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.methods import METHODS

from .fleet import AGENTS
from .report import aligned

# The runs before counting, and the counted runs: the table has their median.
WARM, COUNTED = 2, 3
# After this long without a statement, the background work of a request is done.
QUIET_S = 0.2
FULL = 100
HEAD = ("request", "statements", "writes", "reads", "pages", "later: statements", "pages")
RIGHT = frozenset(range(1, len(HEAD)))

Ask = Callable[[], Awaitable[object]]


async def nothing() -> None:
    """Do no preparation."""


class Request(NamedTuple):
    """A counted request, and its preparation, which is not counted."""

    name: str
    ask: Ask
    prepare: Ask = nothing


class Counts(msgspec.Struct, frozen=True):
    """Statements, transactions of both kinds, and pages of the WAL."""

    statements: int
    writes: int
    reads: int
    pages: int


class Counted(msgspec.Struct, frozen=True):
    """The counts before a request's reply and after it; the texts of both, in order."""

    name: str
    before: Counts
    later: Counts
    texts: list[str]


class _Statement(NamedTuple):
    text: str
    written: int
    """The pages that its connection had written before; only for a BEGIN IMMEDIATE."""


class Trace:
    """Every statement, on all threads, of connections that are opened during the trace."""

    def __init__(self) -> None:
        self._statements: list[_Statement] = []
        self._writer: apsw.Connection | None = None

    def follow(self, connection: apsw.Connection) -> None:
        """Record the statements of a connection."""
        connection.exec_trace = self._note

    def _note(self, cursor: apsw.Cursor, sql: str, _: object) -> bool:
        text = " ".join(sql.split())
        written = 0
        if text.startswith("BEGIN IMMEDIATE"):
            self._writer = cursor.connection
            written = _pages(cursor.connection)
        self._statements.append(_Statement(text, written))
        return True

    @property
    def length(self) -> int:
        """The number of recorded statements."""
        return len(self._statements)

    async def quiet(self) -> None:
        """Wait until no statement is running."""
        length = -1
        while length != self.length:
            length = self.length
            await trio.sleep(QUIET_S)

    def texts(self, low: int, high: int) -> list[str]:
        """Return the statements between two lengths."""
        return [statement.text for statement in self._statements[low:high]]

    def counts(self, low: int, high: int) -> Counts:
        """Count the statements begun between two lengths; no statement may be running."""
        texts = self.texts(low, high)
        begun = [number for number, each in enumerate(self._statements) if each.written]
        ends = [self._statements[number].written for number in begun[1:]]
        ends.append(_pages(self._writer) if self._writer else 0)
        pages = sum(
            end - self._statements[number].written
            for number, end in zip(begun, ends, strict=True)
            if low <= number < high
        )
        writes = sum(text.startswith("BEGIN IMMEDIATE") for text in texts)
        return Counts(len(texts), writes, texts.count("BEGIN"), pages)


def _pages(connection: apsw.Connection) -> int:
    return connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace all connections that this process opens inside the block."""
    trace = Trace()
    apsw.connection_hooks.append(trace.follow)
    try:
        yield trace
    finally:
        apsw.connection_hooks.remove(trace.follow)


class Asked(ABC):
    """A daemon, or an engine in this process, that answers calls as for a client."""

    directory: Path

    @abstractmethod
    async def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result as plain data."""

    async def mission(self, sorties: int) -> str:
        """Start a mission whose sorties are spread over the agents; return its id."""
        wanted = [
            {"title": f"Port module {number}", "assigned_to": AGENTS[number % len(AGENTS)]}
            for number in range(sorties)
        ]
        made = await self.call("mission.create", title="Port the tree", sorties=wanted)
        await self.call("mission.start", mission_id=made["id"])
        return str(made["id"])

    async def checkpoint(self, mission_id: str, *, wait: bool = True) -> str:
        """Take a checkpoint, waiting for its file or not; return its id."""
        taken = await self.call("checkpoint.create", mission_id=mission_id, wait_for_backup=wait)
        return str(taken["id"])

    async def begin(self, mission_id: str) -> str:
        """Start every sortie of a mission; return the id of the first."""
        sorties = (await self.call("sortie.list", mission_id=mission_id))["sorties"]
        for each in sorties:
            await self.call("sortie.start", sortie_id=each["id"], agent_id=each["assigned_to"])
        return str(sorties[0]["id"])


class InProcess(Asked):
    """An engine in this process, without a socket."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._caller = Caller(kind="client", uid=os.getuid(), pid=os.getpid())
        self.directory = directory

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result as plain data."""
        request = msgspec.convert(params, METHODS[method])
        # Encode it as for the wire: some answers contain stored JSON.
        answer = await self._engine.handle(request, self._caller)
        return msgspec.json.decode(msgspec.json.encode(answer))


async def requests(fleet: Asked) -> list[Request]:
    """Return the counted requests, in the order of the table."""
    mission = await fleet.mission(4)
    sortie = await fleet.begin(mission)
    percent = cycle(range(1, 25))
    event = {"type": "file_read", "mission_id": mission, "data": {"n": 1}}
    return [
        Request("event.append", lambda: fleet.call("event.append", **event)),
        Request(
            "event.append with an agent",
            lambda: fleet.call("event.append", agent_id=AGENTS[0], **event),
        ),
        Request(
            "sortie.progress",
            lambda: fleet.call("sortie.progress", sortie_id=sortie, percent=next(percent)),
        ),
        *_locks(fleet, mission),
        *_mail(fleet, mission),
        _hook(fleet),
        *await _checkpoints(fleet),
        *await _recoveries(fleet),
        Request("mission.get", lambda: fleet.call("mission.get", mission_id=mission)),
        Request("system.status", lambda: fleet.call("system.status")),
    ]


def _locks(fleet: Asked, mission: str) -> Iterator[Request]:
    held: dict[str, str] = {}

    async def acquire() -> None:
        file = str(fleet.directory / "locked.py")
        lock = await fleet.call("lock.acquire", file=file, agent_id=AGENTS[1], mission_id=mission)
        held["id"] = lock["id"]

    async def release() -> None:
        if "id" in held:
            await fleet.call("lock.release", lock_id=held.pop("id"), agent_id=AGENTS[1])

    yield Request("lock.acquire", acquire, release)
    yield Request("lock.release", release, acquire)


def _mail(fleet: Asked, mission: str) -> Iterator[Request]:
    sent: list[str] = []

    async def send() -> None:
        letter = {"from": AGENTS[0], "to": [AGENTS[2]], "subject": "Ready?", "body": "It is."}
        sent.append((await fleet.call("message.send", mission_id=mission, **letter))["id"])

    async def inbox() -> None:
        await fleet.call("message.inbox", agent_id=AGENTS[2])

    async def ack() -> None:
        await fleet.call("message.ack", message_id=sent.pop(), agent_id=AGENTS[2])

    async def send_one() -> None:
        while sent:
            await ack()
        await send()

    async def send_and_read() -> None:
        await send_one()
        await inbox()

    yield Request("message.send", send)
    yield Request("message.inbox, one message", inbox, send_one)
    yield Request("message.ack", ack, send_and_read)


def _hook(fleet: Asked) -> Request:
    session = secrets.token_hex(4)

    async def deliver() -> None:
        file = str(fleet.directory / "edited.py")
        payload = {
            "session_id": session,
            "cwd": str(fleet.directory),
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": file, "content": "x" * 400},
            "tool_response": {"filePath": file, "success": True},
            "tool_use_id": f"toolu_{secrets.token_hex(8)}",
        }
        await fleet.call(
            "hook.deliver",
            delivery_id=secrets.token_hex(16),
            harness="claude",
            payload=json.dumps(payload),
        )

    return Request("hook.deliver, PostToolUse", deliver)


async def _checkpoints(fleet: Asked) -> list[Request]:
    missions = [await fleet.mission(sorties) for sorties in (4, 100, 4)]
    small, large, full = missions
    for _ in range(FULL):
        await fleet.checkpoint(full, wait=False)
    for mission in (small, large):
        await fleet.checkpoint(mission)

    def taking(mission: str) -> Ask:
        return lambda: fleet.checkpoint(mission, wait=False)

    return [
        Request("checkpoint.create, 4 sorties", taking(small)),
        Request("checkpoint.create, 100 sorties", taking(large)),
        Request(f"checkpoint.create, {FULL} checkpoints before", taking(full)),
        Request(
            "checkpoint.latest, 100 sorties",
            lambda: fleet.call("checkpoint.latest", mission_id=large),
        ),
    ]


async def _recoveries(fleet: Asked) -> list[Request]:
    mission, other = await fleet.mission(100), await fleet.mission(100)
    early = await fleet.checkpoint(mission)
    await fleet.begin(mission)
    late = await fleet.checkpoint(mission)
    await fleet.checkpoint(other)
    states = cycle((early, late))
    return [
        Request(
            "recovery.restore, 100 sorties, all changed",
            lambda: fleet.call("recovery.restore", checkpoint_id=next(states), rewind=True),
        ),
        Request(
            "recovery.restore, 100 sorties, none changed",
            lambda: fleet.call("recovery.restore", mission_id=other),
        ),
    ]


async def count(directory: Path, trace: Trace, only: Sequence[str] = ()) -> list[Counted]:
    """Count the requests whose names begin with one of ``only``, or all."""
    places = PathSettings(
        database=str(directory / "squawk.db"), checkpoints=str(directory / "flightline")
    )
    config = msgspec.structs.replace(Config(), paths=places)
    async with open_engine(Loaded(config, {}, directory / "config.toml")) as engine:
        wanted = [
            request
            for request in await requests(InProcess(engine, directory))
            if not only or request.name.startswith(tuple(only))
        ]
        return [await _counted(trace, request) for request in wanted]


async def _counted(trace: Trace, request: Request) -> Counted:
    for _ in range(WARM):
        await request.prepare()
        await request.ask()
    runs = []
    for _ in range(COUNTED):
        await request.prepare()
        await trace.quiet()
        low = trace.length
        await request.ask()
        replied = trace.length
        await trace.quiet()
        runs.append((trace.counts(low, replied), trace.counts(replied, trace.length)))
    before, later = zip(*runs, strict=True)
    return Counted(request.name, _median(before), _median(later), trace.texts(low, trace.length))


def _median(counts: Sequence[Counts]) -> Counts:
    rows = zip(*(msgspec.structs.astuple(each) for each in counts), strict=True)
    return Counts(*(int(statistics.median(row)) for row in rows))


def table(found: Sequence[Counted]) -> str:
    """Return the counts in aligned columns; background work is not part of the others."""
    lines: list[tuple[str, ...]] = [HEAD]
    for each in found:
        before, later = each.before, each.later
        cells = (before.statements, before.writes, before.reads, before.pages)
        then = (later.statements, later.pages)
        lines.append((each.name, *map(str, (*cells, *then))))
    return aligned(lines, RIGHT)


def main() -> int:
    """Count and print; return exit status 1 when no request has such a name."""
    chosen = _options()
    with tempfile.TemporaryDirectory(prefix="fleetd-statements-") as name, traced() as trace:
        found = trio.run(count, Path(name), trace, chosen.only)
    if chosen.json:
        print(json.dumps(msgspec.to_builtins(found), indent=2))
    elif chosen.show:
        for each in found:
            print(each.name, *(f"  {text}" for text in each.texts), sep="\n")
    else:
        print(table(found))
    return 0 if found else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.statements",
        description="Count the statements and the pages of requests.",
    )
    parser.add_argument("only", nargs="*", metavar="REQUEST", help="how its name begins")
    parser.add_argument("--show", action="store_true", help="print the statements themselves")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
