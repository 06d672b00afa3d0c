"""Subscribers that receive one event: the time until all have it, and the cost of one more."""

import selectors
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ..fleet import Fleet
from ..measure import Operation, Samples, timed
from .process import Process

EVENTS = 40
PATIENCE_S = 120.0
PIECE = 1 << 16


class SubscriberCost(msgspec.Struct, frozen=True):
    """The cost of so many subscribers; ``delivery_us`` is CPU time, ``each_kb`` is memory.

    ``all_ms`` is the time from an event's reply until every subscriber has it, ``append_ms`` the
    time until the appending client has that reply.
    """

    subscribers: int
    all_ms: float
    all_p95_ms: float
    append_ms: float
    append_p95_ms: float
    delivery_us: float
    each_kb: float


class Audience:
    """Connections that subscribe to all events from a position on, and count the lines."""

    def __init__(self, path: Path, number: int, since: int | None = None) -> None:
        self._path = path
        self._number = number
        self._since = since
        self._selector = selectors.DefaultSelector()
        self._lines: dict[socket.socket, int] = {}

    def __enter__(self) -> Self:
        params = {} if self._since is None else {"since": self._since}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": params}
        line = msgspec.json.encode(asked) + b"\n"
        for _ in range(self._number):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(self._path))
            self._lines[client] = 0
            self._selector.register(client, selectors.EVENT_READ)
            client.sendall(line)
        self.wait_for_lines(1)  # the reply
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._lines:
            client.close()
        self._selector.close()

    def wait_for_lines(self, lines: int) -> None:
        """Read until every client has this many more lines than in previous calls."""
        for client in self._lines:
            self._lines[client] -= lines
        deadline = time.monotonic() + PATIENCE_S
        while any(missing < 0 for missing in self._lines.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("not every subscriber was told")
            for key, _ in self._selector.select(1):
                ready: socket.socket = key.fileobj  # type: ignore[assignment]
                self._lines[ready] += ready.recv(PIECE).count(b"\n")


def listening(fleet: Fleet, process: Process, number: int) -> SubscriberCost:
    """Append events one by one, each after every subscriber has the previous one."""
    mission = fleet.mission(1)
    process.rest()
    before_mb = process.rss_mb()
    all_ms, append_ms = Samples([]), Samples([])

    def append() -> None:
        fleet.call("event.append", type="file_read", mission_id=mission, data={"n": 1})

    alone_ms = _cpu_of_one(process, append)
    with Audience(fleet.socket, number) as audience:
        append()
        audience.wait_for_lines(1)
        each_kb = (process.rss_mb() - before_mb) * 1_000 / number
        before = process.cpu_ms()
        for _ in range(EVENTS):
            append_ms.times_ms.append(timed(append))
            all_ms.times_ms.append(timed(lambda: audience.wait_for_lines(1)))
        delivery_ms = (process.cpu_ms() - before) / EVENTS - alone_ms
    return SubscriberCost(
        subscribers=number,
        all_ms=all_ms.p50,
        all_p95_ms=all_ms.p95,
        append_ms=append_ms.p50,
        append_p95_ms=append_ms.p95,
        delivery_us=delivery_ms * 1_000 / number,
        each_kb=each_kb,
    )


def _cpu_of_one(process: Process, append: Operation) -> float:
    before = process.cpu_ms()
    for _ in range(EVENTS):
        append()
    return (process.cpu_ms() - before) / EVENTS
