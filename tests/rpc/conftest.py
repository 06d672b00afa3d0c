"""A server on a real Unix socket, with an engine that keeps its log in memory.

Virtual time jumps while a thread works, so what is tested here, the floors above the engine, stand
on an engine without threads. The tests in tests/daemon use the real one.
"""

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.config import Limits
from fleetd.domain.context import Caller
from fleetd.domain.events import EventTail
from fleetd.server import Server
from fleetd.wire.errors import NotFound
from fleetd.wire.model import Event
from fleetd.wire.requests.event import EventAppend, EventPage, EventSubscribe, Subscription
from fleetd.wire.requests.lock import LockAcquire
from fleetd.wire.requests.system import Check, Health, SystemHealth


class Bell:
    """Rings whoever took a ticket before the ring."""

    def __init__(self) -> None:
        self._next = trio.Event()

    def ticket(self) -> trio.Event:
        return self._next

    def ring(self) -> None:
        self._next.set()
        self._next = trio.Event()


class MemoryEngine:
    """Knows events, a lock that never comes free, and nothing else."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.events: list[Event] = []
        self.callers: list[Caller] = []
        self.waiting_for_locks = 0

    async def perform(self, request: Any, caller: Caller) -> Any:
        self.callers.append(caller)
        await trio.lowlevel.checkpoint()
        match request:
            case EventAppend():
                return self.append(request.type, request.data)
            case EventTail():
                return self._page(request)
            case EventSubscribe():
                start = len(self.events) if request.since is None else request.since
                number = len(self.callers)
                return Subscription(subscription_id=f"sub-{number}", position=start, epoch="e1")
            case SystemHealth():
                return Health(ok=True, checks=[Check(name="database", ok=True, detail="")])
            case LockAcquire():
                return await self._wait_for_ever()
        raise NotFound(f"No record answers {type(request).__name__}.", hint="Ask for another.")

    def append(self, kind: str, data: dict[str, Any] | None = None) -> Event:
        event = Event(
            seq=len(self.events) + 1,
            type=kind,
            stream="fleet",
            timestamp="2026-01-05T12:00:00.000Z",
            mission_id=None,
            agent_id=None,
            data=data or {},
        )
        self.events.append(event)
        self.bell.ring()
        return event

    def _page(self, request: EventTail) -> EventPage:
        looked_at = self.events[request.since : request.since + request.limit]
        wanted = [e for e in looked_at if request.types is None or e.type in request.types]
        return EventPage(events=wanted, position=request.since + len(looked_at), epoch="e1")

    async def _wait_for_ever(self) -> None:
        self.waiting_for_locks += 1
        try:
            await trio.sleep_forever()
        finally:
            self.waiting_for_locks -= 1


class Client:
    """One connection to the server; speaks lines."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def send(self, message: Any) -> None:
        """Send an object as a JSON line, or bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        await self.stream.send_all(data)

    async def line(self) -> Any:
        """Return the next line as an object, None at the end of the stream."""
        while b"\n" not in self._buffer:
            try:
                data = await self.stream.receive_some(65_536)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                assert not self._buffer, f"the server left half a line: {self._buffer!r}"
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    async def call(self, method: str, params: Any = None, identity: Any = 1) -> Any:
        """Send a request and return the next line."""
        request = {"jsonrpc": "2.0", "id": identity, "method": method}
        await self.send(request if params is None else request | {"params": params})
        return await self.line()

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request that must be refused and return its error."""
        reply = await self.call(method, params)
        assert "error" in reply, reply
        return reply["error"]


class Running:
    """A server that runs, and ways to reach it."""

    def __init__(self, server: Server, engine: MemoryEngine, path: Path) -> None:
        self.server = server
        self.engine = engine
        self.path = path
        self._clients: list[trio.SocketStream] = []

    async def connect(self) -> Client:
        stream = await trio.open_unix_socket(self.path)
        self._clients.append(stream)
        return Client(stream)

    async def close_clients(self) -> None:
        for stream in self._clients:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def serving(path: Path, limits: Limits, extra: dict[str, Any]) -> AsyncIterator[Running]:
    engine = MemoryEngine()
    server = Server(engine, limits, extra)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen(1_024)
        listener = trio.socket.from_stdlib_socket(sock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.accept, listener, nursery)
            running = Running(server, engine, path)
            try:
                yield running
            finally:
                await running.close_clients()
                nursery.cancel_scope.cancel()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """Return ``serve(extra_methods, **limits)``, to be entered with ``async with``."""

    def start(extra: dict[str, Any] | None = None, **limits: int) -> Any:
        return serving(tmp_path / "s", Limits(**limits), extra or {})

    return start


@pytest.fixture
async def running(serve: Callable[..., Any]) -> AsyncIterator[Running]:
    async with serve() as server:
        yield server


@pytest.fixture
async def client(running: Running) -> Client:
    return await running.connect()
