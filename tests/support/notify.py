"""Receivers of notifications: a bus with a notification server on it, and an HTTP server.

Both are real peers on this computer: a private Unix socket, and a port of the loopback interface.
"""

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingMixIn, UnixStreamServer
from typing import Any

import trio

from fleetctl.client.models import AgentState
from fleetctl.notify.due import REASONS, DueStates, Key, key_of
from fleetctl.notify.message import Message, message_of
from fleetd.protocol.requests import attention
from fleetd.protocol.timestamps import iso, to_ms

NOW_MS = 1_767_614_400_000


def state(needs: str, *, agent: str = "alice", since: int = NOW_MS, **more: Any) -> AgentState:
    """Return the state of an agent; ``since`` and ``prompted`` are ms since the epoch."""
    if prompted := more.pop("prompted", None):
        more["prompted_at"] = iso(prompted)
    values: dict[str, Any] = dict.fromkeys(attention.AgentState.__struct_fields__)
    values |= {"agent_id": agent, "needs": needs, "since": iso(since), "running": []}
    values |= {"status": "waiting", "files_changed": 0, "running_more": 0}
    return attention.AgentState(**(values | more))  # type: ignore[return-value]


def message(**more: Any) -> Message:
    """Return the message of a state."""
    return message_of(state(more.pop("needs", "permission"), **more))


class ThousandEvents:
    """1,000 changes of what six agents need, in virtual time; ``wanted`` must be notified."""

    def __init__(self, seed: int = 23) -> None:
        self.wanted: set[Key] = set()
        self._dice = random.Random(seed)

    def told(self) -> Iterator[list[AgentState]]:
        """Yield what is due after each change."""
        dice, due, now = self._dice, DueStates(REASONS), 0.0
        current: dict[str, AgentState] = {}
        for _ in range(1_000):
            agent = f"agent{dice.randrange(6)}"
            needs = dice.choice([*REASONS, "none", "none", "background"])
            current[agent] = state(needs, agent=agent, since=NOW_MS + int(now * 1_000))
            # Some events are read one by one, some together; some are read twice.
            only = agent if dice.random() < 0.7 else None
            seen = [current[agent]] if only else [*current.values()]
            for _ in range(dice.choice([1, 1, 2])):
                due.observe(seen, now, NOW_MS + int(now * 1_000), only=only)
            now += dice.choice([0.1, 0.5, 1.9, 2.0, 3.0, 30.0])
            yield due.take_due(now)
            self.wanted |= {
                key_of(each)
                for each in current.values()
                if each.needs in REASONS and NOW_MS + now * 1_000 >= to_ms(each.since) + 2_000
            }


class _Bus(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore errors: a client that disconnects is none."""


class FakeBus:
    """A bus whose only other peer is a notification server; ``shown`` is what it received."""

    def __init__(self, path: Path) -> None:
        self.shown: list[tuple[Any, ...]] = []
        self.refuses = False
        self.address = f"unix:path={path}"
        self._path = path

    @contextmanager
    def running(self) -> Iterator["FakeBus"]:
        """Serve until the block ends."""
        peer = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                peer._serve(self.request)

        with _Bus(str(self._path), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
                self._path.unlink()

    def _serve(self, link: socket.socket) -> None:
        from jeepney import MessageType, new_error, new_method_return
        from jeepney.low_level import Parser

        lines = link.makefile("rb", buffering=0)
        while (line := lines.readline()) not in (b"", b"BEGIN\r\n"):
            link.sendall(b"OK 0123456789abcdef\r\n" if b"AUTH" in line else b"ERROR\r\n")
        parser, serial = Parser(), 0
        while data := link.recv(65_536):
            parser.add_data(data)
            while (call := parser.get_next_message()) is not None:
                if call.header.message_type is not MessageType.method_call:
                    continue
                serial += 1
                if call.header.fields[3] == "Hello":
                    reply = new_method_return(call, "s", (":1.7",))
                elif self.refuses:
                    reply = new_error(call, "org.freedesktop.DBus.Error.ServiceUnknown")
                else:
                    self.shown.append(call.body)
                    reply = new_method_return(call, "u", (len(self.shown),))
                with suppress(OSError):
                    link.sendall(reply.serialise(serial))


class FakeHook:
    """An HTTP server that receives messages; ``got`` are their bodies, ``headers`` their headers.

    ``answer`` returns the status of each request; it is called with the number of requests so far.
    """

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.asked = 0
        self.answer: Callable[[int], int] = lambda _: 204
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["FakeHook"]:
        """Serve until the block ends."""
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.asked += 1
                status = hook.answer(hook.asked)
                if status < 300:
                    hook.got.append(json.loads(body))
                    hook.paths.append(self.path)
                    hook.headers.append(dict(self.headers))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}/hook/SECRET?key=SECRET"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


@contextmanager
def deaf() -> Iterator[str]:
    """Listen at a port and never answer; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/SECRET"


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that has no notification."""
    while not holds():  # noqa: ASYNC110
        await trio.sleep(0.005)
