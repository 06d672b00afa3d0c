"""A server on a real Unix socket with a real store, all on one thread.

Virtual time jumps while a thread works, so the engine runs inline: then it is exact.
"""

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.config import Config, Limits, Loaded, PathSettings
from fleetd.engine.engine import Engine
from fleetd.engine.lifecycle import open_engine
from fleetd.server.server import Server
from tests.support import shared_store


class AsyncLineClient:
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


class RunningServer:
    """A server that runs, and ways to reach it."""

    def __init__(self, server: Server, engine: Engine, path: Path) -> None:
        self.server = server
        self.engine = engine
        self.path = path
        self._clients: list[trio.SocketStream] = []

    async def connect(self) -> AsyncLineClient:
        stream = await trio.open_unix_socket(self.path)
        self._clients.append(stream)
        return AsyncLineClient(stream)

    async def close_clients(self) -> None:
        for stream in self._clients:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def serving(
    place: Path, limits: Limits, extra: dict[str, Any]
) -> AsyncIterator[RunningServer]:
    path = place / "s"
    paths = PathSettings(
        database=f"{place}/db", checkpoints=f"{place}/checkpoints", socket=str(path)
    )
    config = Config(paths=paths, limits=limits, store=shared_store.url(place))
    loaded = Loaded(config, {}, place / "config.toml")
    async with open_engine(loaded, inline=True) as engine, trio.open_nursery() as nursery:
        server = Server(engine, limits, extra)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.bind(str(path))
            sock.listen(1_024)
            listener = trio.socket.from_stdlib_socket(sock)
            nursery.start_soon(server.accept, listener, nursery)
            running = RunningServer(server, engine, path)
            yield running
            await running.close_clients()
            nursery.cancel_scope.cancel()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """Return ``serve(extra_methods, **limits)``, to be entered with ``async with``."""

    def start(extra: dict[str, Any] | None = None, **limits: int) -> Any:
        return serving(tmp_path, Limits(**limits), extra or {})

    return start


@pytest.fixture
async def running(serve: Callable[..., Any]) -> AsyncIterator[RunningServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def client(running: RunningServer) -> AsyncLineClient:
    return await running.connect()
