"""The web server and its clients: raw requests over real sockets, and the responses."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import trio

from fleetctl.web import api
from fleetctl.web.connection import Handler, Limits
from fleetctl.web.raw_results import RawFleet
from fleetctl.web.routes import Routes
from fleetctl.web.security import KeyRing
from fleetctl.web.server import Server

HOST = "127.0.0.1:8722"


class Answer(NamedTuple):
    """A response; names of headers are in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the only value of a header."""
        found = [value for each, value in self.headers if each == name]
        assert len(found) < 2, f"{name} is there twice: {found}"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        """Return the body, which must be JSON."""
        assert self.header("content-type") == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """Return the error, which must have all its fields."""
        error: dict[str, Any] = self.json["error"]
        assert list(error) == ["kind", "message", "hint", "data"]
        assert error["message"]
        return error


class Ended(Exception):
    """The server closed the connection before the end of a response."""


def get(path: str, host: str = HOST, **headers: str) -> bytes:
    """Return a request; ``_`` in names of headers means ``-``."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


class Client:
    """One connection to the server."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._read = b""

    async def send(self, data: bytes) -> Self:
        """Send bytes unchanged."""
        await self.stream.send_all(data)
        return self

    async def ask(self, path: str, **headers: str) -> Answer:
        """Send a request, and return the response."""
        await self.send(get(path, **headers))
        return await self.answer()

    async def answer(self) -> Answer:
        """Return the next response; raises Ended."""
        head = await self.head()
        length = head.header("content-length")
        if head.status == 304:
            return head
        assert length is not None
        body = await self._exactly(int(length))
        return head._replace(body=body)

    async def head(self) -> Answer:
        """Return the head of the next response."""
        head = (await self._until(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.split(": ", 1) for line in lines]
        return Answer(int(status), [(name.lower(), value) for name, value in pairs], b"")

    async def chunk(self) -> bytes:
        """Return the next chunk of a body; empty at its end."""
        size = int(await self._until(b"\r\n"), 16)
        data = await self._exactly(size)
        assert await self._exactly(2) == b"\r\n"
        return data

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        try:
            while data := await self.stream.receive_some():
                self._read += data
        except trio.BrokenResourceError:
            pass
        rest, self._read = self._read, b""
        return rest

    async def _until(self, end: bytes) -> bytes:
        while end not in self._read:
            await self._more()
        found, _, self._read = self._read.partition(end)
        return found + end

    async def _exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            await self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    async def _more(self) -> None:
        if not (data := await self.stream.receive_some()):
            raise Ended(self._read)
        self._read += data


class Page:
    """The ``/events`` stream of a page: pairs of a name and its data, with the last id."""

    def __init__(self, client: Client) -> None:
        self.last_id: str | None = None
        self._client = client
        self._text = ""

    async def next(self) -> tuple[str, Any]:
        """Return the next event; a comment is an event without data; raises Ended."""
        while "\n\n" not in self._text:
            if not (chunk := await self._client.chunk()):
                raise Ended
            self._text += chunk.decode()
        block, _, self._text = self._text.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "" in fields or block.startswith(":"):
            return block, None
        self.last_id = fields.pop("id", self.last_id)
        assert list(fields) == ["event", "data"]
        return fields["event"], json.loads(fields["data"])

    async def event(self) -> dict[str, Any]:
        """Return the next event of the log; skip anything else."""
        while True:
            name, data = await self.next()
            if name == "event":
                return dict(data)


class Served:
    """A server in this process."""

    def __init__(self, port: int, keys: KeyRing) -> None:
        self.port = port
        self.keys = keys
        self._streams: list[trio.SocketStream] = []

    @property
    def key(self) -> str:
        """Return a key that is valid."""
        now = trio.current_time()
        return self.keys.exchange(self.keys.new_token(now), now)

    async def client(self) -> Client:
        """Open a connection."""
        self._streams.append(await trio.open_tcp_stream("127.0.0.1", self.port))
        return Client(self._streams[-1])

    async def ask(self, path: str, **headers: str) -> Answer:
        """Send a request over a separate connection."""
        return await (await self.client()).ask(path, **headers)

    async def raw(self, data: bytes) -> Answer:
        """Send bytes over a separate connection, and return the response."""
        return await (await (await self.client()).send(data)).answer()

    async def events(self, last_id: str | None = None) -> Page:
        """Follow the log."""
        more = {"Last_Event_ID": last_id} if last_id else {}
        client = await self.client()
        await client.send(get("/events", X_Fleet_Key=self.key, **more))
        head = await client.head()
        assert (head.status, head.header("content-type")) == (200, "text/event-stream")
        return Page(client)

    async def close(self) -> None:
        """Close all connections."""
        for each in self._streams:
            await trio.aclose_forcefully(each)


@asynccontextmanager
async def served(
    handle: Handler | None = None, limits: Limits | None = None, restart_s: float = 30.0
) -> AsyncIterator[Served]:
    """Run the server in this process, with the environment's daemon or with a handler."""
    keys = KeyRing()
    async with (
        RawFleet(restart_s=restart_s) as fleet,
        trio.open_nursery() as nursery,
    ):
        server = Server(handle or Routes(api.Daemon(fleet), keys), limits)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, server.take, [listener])
        running = Served(listener.socket.getsockname()[1], keys)
        try:
            yield running
        finally:
            await running.close()
            nursery.cancel_scope.cancel()


class WebProcess:
    """``fleetctl web`` as a separate process; ``err`` is its log."""

    def __init__(self, home: Path, words: tuple[str, ...]) -> None:
        self._err = home / "web.err"
        with self._err.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "web", *words],
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    @property
    def err(self) -> str:
        """Return its log."""
        return self._err.read_text()

    def line(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def link(self) -> "Link":
        """Return the link that it prints; the process must have begun to serve."""
        return Link.of(self.line())

    def end(self) -> int:
        """Kill it, if it still runs, and return its status."""
        self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.wait()


class Link(NamedTuple):
    """The parts of a link."""

    port: int
    token: str

    @classmethod
    def of(cls, text: str) -> "Link":
        """Return the link in a line of output."""
        url = text.split()[-1].strip('",')
        base, _, token = url.partition("/#token=")
        assert base.startswith("http://127.0.0.1:"), text
        assert len(token) >= 43, text
        return cls(int(base.rpartition(":")[2]), token)

    def ask(self, path: str, **headers: str) -> Answer:
        """Send one request, and return the response."""

        async def ask() -> Answer:
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                return await Client(stream).ask(path, **headers)

        return trio.run(ask)

    def key(self) -> str:
        """Return the key for the token."""
        answer = self.ask("/key", X_Fleet_Token=self.token)
        assert answer.status == 200, answer
        return str(answer.json["key"])


@contextmanager
def web_processes(home: Path) -> Iterator[Callable[..., WebProcess]]:
    """Yield a function that starts ``fleetctl web``; all processes end with the block."""
    every: list[WebProcess] = []

    def start(*words: str) -> WebProcess:
        every.append(WebProcess(home, words))
        return every[-1]

    try:
        yield start
    finally:
        for each in every:
            each.end()
