"""The cost of parsing a line and writing its reply, in CPU time; no socket, no store."""

import asyncio
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec

from fleetd.engine.metrics.counters import Traffic
from fleetd.protocol.records import Event
from fleetd.protocol.request import Request
from fleetd.protocol.requests.event import EventPage
from fleetd.server import rpc
from fleetd.server.rpc import Dispatcher, methods_for

from .bench import Bench
from .measure import Operation
from .rows import Promise, Row

with warnings.catch_warnings():
    # The library reads its schema with a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jsonrpcserver import Result, Success, async_dispatch, dispatch

# One takes tens of microseconds, too little beside the cost of reading a thread's clock.
AT_ONCE = 50
LISTED = 20
DEPTH, BATCH = 64, 64
MISSION = "msn-00000001"
EVENT = Event(
    seq=1_234_567,
    type="file_read",
    stream=f"mission:{MISSION}",
    timestamp="2026-01-05T12:00:00.000Z",
    mission_id=MISSION,
    agent_id="specialist-1",
    data={"file": "src/module_1.py", "n": 1},
)
PAGE = EventPage(events=[EVENT] * LISTED, position=1_234_567, epoch="5d1c4c0e")
REPLIES: dict[str, msgspec.Struct] = {"event.append": EVENT, "event.list": PAGE}
APPEND = {"type": "file_read", "mission_id": MISSION, "agent_id": "specialist-1", "data": {"n": 1}}
LINES = {
    "event.append": ("event.append", APPEND),
    f"event.list, {LISTED} events": ("event.list", {"mission_id": MISSION, "limit": LISTED}),
}


def dispatching(bench: Bench) -> Iterator[Row]:
    """Measure our dispatch beside jsonrpcserver's, with the same lines and the same results."""
    theirs = _theirs()
    with asyncio.Runner() as runner:
        for name, (method, params) in LINES.items():
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            line = msgspec.json.encode(call)
            _check(runner, theirs, line)
            ours, text = _ours(runner, line), line.decode()
            yield _row(
                bench,
                f"RPC dispatch, CPU of {AT_ONCE} {name}",
                ours,
                _awaited(runner, theirs, text),
                "jsonrpcserver",
            )
            yield _row(
                bench,
                f"RPC dispatch, CPU of {AT_ONCE} {name}",
                ours,
                _blocking(text),
                "jsonrpcserver's blocking dispatch",
            )


def _row(bench: Bench, name: str, ours: Operation, theirs: Operation, reference: str) -> Row:
    return bench.beside(
        name,
        ours,
        theirs,
        runs=200,
        reference=reference,
        promise=Promise(ratio=0.5),
        clock=time.thread_time,
    )


async def _perform(request: Request[Any], _context: Any) -> Any:
    return REPLIES[request.method]


def _dispatcher() -> Dispatcher:
    return Dispatcher(methods_for(_perform), Traffic())


async def _answer(dispatcher: Dispatcher, line: bytes) -> bytes | None:
    message = rpc.parse(line, depth=DEPTH, batch=BATCH)
    return await dispatcher.answer(message, None, time.perf_counter_ns())


def _ours(runner: asyncio.Runner, line: bytes) -> Operation:
    dispatcher = _dispatcher()

    async def answer() -> None:
        for _ in range(AT_ONCE):
            await _answer(dispatcher, line)

    return lambda: runner.run(answer())


PLAIN = {name: msgspec.to_builtins(reply) for name, reply in REPLIES.items()}


def _append(
    type: str,  # noqa: A002
    mission_id: str | None = None,
    agent_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> Result:
    return Success(PLAIN["event.append"])


def _list(mission_id: str | None = None, limit: int = 200) -> Result:
    return Success(PLAIN["event.list"])


BLOCKING = {"event.append": _append, "event.list": _list}


def _theirs() -> dict[str, Any]:
    """Return the same methods as coroutines, as a daemon with an event loop has them."""

    async def append(
        type: str,  # noqa: A002
        mission_id: str | None = None,
        agent_id: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> Result:
        return _append(type, mission_id, agent_id, data)

    async def list_(mission_id: str | None = None, limit: int = 200) -> Result:
        return _list(mission_id, limit)

    return {"event.append": append, "event.list": list_}


def _awaited(runner: asyncio.Runner, methods: dict[str, Any], text: str) -> Operation:
    async def answer() -> None:
        for _ in range(AT_ONCE):
            await async_dispatch(text, methods)

    return lambda: runner.run(answer())


def _blocking(text: str) -> Operation:
    def answer() -> None:
        for _ in range(AT_ONCE):
            dispatch(text, BLOCKING)

    return answer


def _check(runner: asyncio.Runner, methods: dict[str, Any], line: bytes) -> None:
    """Raise an error unless both give the same answer."""
    ours = runner.run(_answer(_dispatcher(), line))
    theirs = [runner.run(async_dispatch(line.decode(), methods)), dispatch(line.decode(), BLOCKING)]
    if any(json.loads(reply) != json.loads(ours or b"null") for reply in theirs):
        raise RuntimeError(f"not the same reply: {ours!r} and {theirs[0]}")
