"""Hostile frames, one after the other, at a real daemon: answered or cut off, without side effects.

The first rounds use a table of frames; the others generate them from a grammar and the seed.
"""

import json
import selectors
import socket
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fleetd.protocol.methods import METHODS
from fleetd.protocol.request import Mutation
from tests.chaos.bystanders import judge, polite
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.hostile import TABLE, Frame, generated
from tests.chaos.measured_daemon import MB, MeasuredDaemon, dial, measured, shut

SETTINGS = "[limits]\nline_timeout_ms = 300\nconnections = 16\n"
FENCE = b'\n{"jsonrpc":"2.0","id":"fence","method":"system.health"}\n'
PATIENCE_S = 30.0
CPU_MS, MEMORY = 50.0, 20 * MB
# A line of the hook client may be sixteen times as long as any other, and is kept as text.
LARGE_CPU_MS, LARGE_MEMORY = 400.0, 100 * MB
# A list of the records of earlier frames is long: as rows, as text, and in the send buffer.
MEMORY_OF_REPLY = 10
# Valid requests that read everything stored, however long that takes.
THOROUGH = (b"system.doctor", b".verify", b"system.forget", b".prune", b"mission.delete")
# In the short form the machine is busy; superlinear growth shows nevertheless.
BUSY = 5
# The daemon may append its own events at any time, so only activity counts.
TABLES = (
    *("missions", "sorties", "agents", "locks", "messages", "checkpoints"),
    "events WHERE activity",
)
DEFECTS = {
    "no_limit": "from fleetd.server import lines\n"
    "old = plant(lines, 'LineDecoder', lambda limit, hook=0: old(1 << 30, 1 << 30))",
    "no_depth": "from fleetd.server import rpc\n"
    "plant(rpc, '_check_structure', lambda *given: None)",
    "slot_leak": "import trio; from fleetd.server import connection\n"
    "async def linger(self):\n"
    "    await trio.sleep_forever()\n"
    "plant(connection.ClientConnection, '_linger', linger)",
}


@dataclass
class FrameAnswer:
    """The replies to a frame."""

    replies: list[Any] = field(default_factory=list)
    size: int = 0  # bytes
    fenced: bool = False
    closed: bool = False


def run(run: Run) -> None:
    """Send a frame in each round and check everything afterwards."""
    with run.home() as (home, env):
        defect = DEFECTS.get(run.planted or "", "")
        with measured(home, env, settings=SETTINGS, defect=defect) as gauge:
            if run.judged and not run.planted:
                with polite(gauge.socket) as other:
                    _storm(run, gauge, others=1)
                judge(run, other, "another client")
            else:
                _storm(run, gauge)
            gauge.daemon.stop()


def _storm(run: Run, gauge: MeasuredDaemon, others: int = 0) -> None:
    probe = Probe(run, gauge, others)
    for number in run.rounds():
        maker = TABLE[number] if number < len(TABLE) else generated
        probe.one(maker(run.chance, 20_000 if run.judged and not run.planted else 100))


class Probe:
    """Sends frames and checks the daemon's promises."""

    def __init__(self, run: Run, gauge: MeasuredDaemon, others: int) -> None:
        self.run = run
        self.gauge = gauge
        self.busy = 1 if run.judged else BUSY
        # A daemon that leaks slots is detected sooner.
        self.patience_s = 1.5 if run.planted else PATIENCE_S
        self.sockets = gauge.sockets() + others
        for _ in range(3):  # creates one-time objects, such as threads
            exchange(gauge, Frame("warm", b"{}"), PATIENCE_S)

    def one(self, frame: Frame) -> None:
        """Send one frame; raises Red."""
        try:
            self._one(frame)
        except Red as broken:
            raise Red(f"{frame.name}: {broken}") from None

    def _one(self, frame: Frame) -> None:
        gauge = self.gauge
        before = _state(gauge)
        cpu, memory, replied = self._cost(frame)
        gauge.at_rest(self.sockets, patience_s=self.patience_s)
        gauge.well()
        if not any(map(_changes, frame.data.split(b"\n"))) and (now := _state(gauge)) != before:
            raise Red(f"it changed what is stored: {before} became {now}")
        large = len(frame.data) > MB and b"hook.deliver" in frame.data[:100]
        kind = "of a large hook" if large else "of a frame"
        thorough = any(name in frame.data for name in THOROUGH)
        self.run.worst(f"ms CPU {kind}", 0 if thorough else cpu)
        self.run.worst(f"MB {kind}", memory / MB)
        allowed, room = (LARGE_CPU_MS, LARGE_MEMORY) if large else (CPU_MS, MEMORY)
        if cpu > allowed * self.busy and not thorough:
            raise Red(f"it took {cpu:.0f} ms of CPU a line, {allowed:g} are promised")
        room += MEMORY_OF_REPLY * replied
        if memory > room:
            raise Red(f"it took {memory / MB:.0f} MB, {room / MB:.0f} are promised")

    def _cost(self, frame: Frame) -> tuple[float, int, int]:
        """Return a line's CPU ms, the least of up to three tries, and bytes: memory and replies."""
        cheapest, largest, replied = float("inf"), 0, 0
        for _ in range(3):
            cpu, rss = self.gauge.cpu_ms(), self.gauge.rss()
            self.gauge.forget_peak()
            answered = exchange(self.gauge, frame, self.patience_s)
            _judge_answer(frame, answered)
            replied = max(replied, answered.size)
            cheapest = min(cheapest, (self.gauge.cpu_ms() - cpu) / frame.lines)
            largest = max(largest, self.gauge.peak() - rss)
            if cheapest <= CPU_MS:
                break
        return cheapest, largest, replied


def exchange(gauge: MeasuredDaemon, frame: Frame, patience_s: float) -> FrameAnswer:
    """Send a frame, and a good request after it; return all replies up to that request's."""
    answered = FrameAnswer()
    sock = dial(gauge.socket, patience_s)
    sock.setblocking(False)
    data = memoryview(frame.data + FENCE if frame.whole else frame.data)
    received = bytearray()
    deadline = time.monotonic() + patience_s
    writing = True
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while not answered.closed:
                if time.monotonic() > deadline:
                    raise Red(f"no answer and no close within {patience_s:g} s")
                for _, ready in waiting.select(1.0):
                    if ready & selectors.EVENT_READ:
                        answered.closed = _read(sock, received)
                    if ready & selectors.EVENT_WRITE and not answered.closed:
                        data = _write(sock, data, frame.cut)
                if not data and writing:
                    writing = False
                    waiting.modify(sock, selectors.EVENT_READ)
                    if frame.whole:  # then the daemon closes when it has answered everything
                        with suppress(OSError):
                            sock.shutdown(socket.SHUT_WR)
    finally:
        shut(sock)
    answered.size = len(received)
    answered.fenced = b'"id":"fence"}\n' in received
    answered.replies = [_understood(each) for each in bytes(received).split(b"\n") if each]
    return answered


def _read(sock: socket.socket, received: bytearray) -> bool:
    """Read available data; return whether the stream has ended."""
    try:
        data = sock.recv(1 << 18)
    except ConnectionError:
        return True
    received += data
    return not data


def _write(sock: socket.socket, data: memoryview, cut: int) -> memoryview:
    try:
        return data[sock.send(data[: cut or 1 << 18]) :]
    except BlockingIOError:
        return data
    except OSError:  # closed: earlier replies can still be read
        return data[:0]


def _understood(reply: bytes) -> Any:
    try:
        return json.loads(reply)
    except ValueError as error:
        raise Red(f"a reply is no JSON: {reply[:200]!r}") from error


def _judge_answer(frame: Frame, answered: FrameAnswer) -> None:
    found = [
        e for reply in answered.replies for e in (reply if isinstance(reply, list) else [reply])
    ]
    for each in found:
        _judge_reply(each)
    limits = {each["error"]["data"].get("limit") for each in found if "error" in each}
    if frame.limit and frame.limit not in limits:
        raise Red(f"{frame.limit} was not said to be broken, but {limits or 'nothing'}")
    if frame.whole and not answered.fenced and not limits:
        raise Red("the connection was closed without a word")


def _judge_reply(reply: dict[str, Any]) -> None:
    if "result" in reply or reply.get("method") == "event":
        return
    error = reply.get("error")
    if not isinstance(error, dict) or not error.get("data", {}).get("kind"):
        raise Red(f"an answer is no result and no typed error: {str(reply)[:300]}")
    if error["code"] == -32603:
        raise Red(f"an internal error: {str(error)[:300]}")
    if len(error["message"]) > 2_000:
        raise Red(f"an error repeats {len(error['message'])} characters: {error['message'][:200]}")


def _changes(text: bytes) -> bool:
    """Return whether a line can be a valid changing request, by another parser than ours."""
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    for each in content if isinstance(content, list) else [content]:
        method = each.get("method") if isinstance(each, dict) else None
        known = METHODS.get(method) if isinstance(method, str) else None
        if known is not None and issubclass(known, Mutation):
            return True
    return False


def _state(gauge: MeasuredDaemon) -> dict[str, int]:
    """Count the stored records, without asking the daemon."""
    path = gauge.socket.parents[1] / "data" / "squawk.db"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        count = "SELECT count(*) FROM "
        return {name: connection.execute(count + name).fetchone()[0] for name in TABLES}
    finally:
        connection.close()


CAMPAIGN = Campaign(
    name="frames",
    what="sends hostile frames: from a table, then from a grammar",
    unit="frames",
    run=run,
    short=len(TABLE) + 10,
    long=5_000,
    planted={"no_limit": 8, "no_depth": 8, "slot_leak": 60},
)
