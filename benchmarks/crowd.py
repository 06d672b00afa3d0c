"""Many writers at once: what one commit for all of them is worth; needs a daemon and a store."""

import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from fleetd.domain.tx import Tx
from fleetd.store.opening import connect
from fleetd.store.sqlite import Store

from .bench import Bench
from .inside import EVENT, WRITTEN
from .measure import Samples
from .rows import Promise, Row, row

WRITERS = 64
EACH = 50


def over_the_socket(bench: Bench, alone: Row) -> Row:
    """Let 64 clients append events at once; compare with one that waits for each commit."""
    fleet = bench.fleet
    mission = fleet.mission(4)
    params = {"type": "file_read", "mission_id": mission, "data": {"n": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "event.append", "params": params}
    begun = time.perf_counter()
    samples = _all_at_once(fleet.socket, msgspec.json.encode(call) + b"\n", bench.often(EACH))
    rate = len(samples.times_ms) / (time.perf_counter() - begun)
    return _row(
        f"event.append, {WRITERS} clients at once", bench, samples, rate, alone.p50_ms, Promise()
    )


def _all_at_once(path: Path, request: bytes, each: int) -> Samples:
    """Send a request from each of 64 connections, again as soon as it is answered."""
    samples = Samples()
    left: dict[socket.socket, int] = {}
    sent: dict[socket.socket, float] = {}
    with selectors.DefaultSelector() as selector:
        for _ in range(WRITERS):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(path))
            left[client] = each
            selector.register(client, selectors.EVENT_READ)
        for client in left:
            sent[client] = _send(client, request)
        while selector.get_map():
            for key, _ in selector.select():
                client = key.fileobj  # type: ignore[assignment]
                _check(client.recv(65_536))
                samples.times_ms.append((time.perf_counter() - sent[client]) * 1_000)
                left[client] -= 1
                if left[client]:
                    sent[client] = _send(client, request)
                else:
                    selector.unregister(client)
                    client.close()
    return samples


def _send(client: socket.socket, request: bytes) -> float:
    now = time.perf_counter()
    client.sendall(request)
    return now


def _check(reply: bytes) -> None:
    """Refuse to count what is no acknowledgement; replies this small come in one piece."""
    if b'"result"' not in reply or not reply.endswith(b"\n"):
        raise RuntimeError(f"not a reply to event.append: {reply!r}")


def in_the_store(bench: Bench) -> Iterator[Row]:
    """Let 64 tasks write one row each, and again; compare with a commit for every row."""
    alone = _one_commit_each(bench)
    yield alone
    samples = Samples()
    begun = time.perf_counter()
    trio.run(_write_together, bench.directory / "together.db", samples, bench.often(EACH))
    rate = len(samples.times_ms) / (time.perf_counter() - begun)
    name = f"store: {WRITERS} writers at once, one row each"
    yield _row(name, bench, samples, rate, alone.p50_ms, Promise(speedup=10))


def _one_commit_each(bench: Bench) -> Row:
    connection = connect(str(bench.directory / "alone.db"))
    connection.execute(EVENT)

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(WRITTEN, {"n": 1})
        connection.execute("COMMIT")

    try:
        return bench.beside_fsync(
            "SQLite: one row, one commit", write, runs=500, promise=Promise(p95_ms=5)
        )
    finally:
        connection.close()


async def _write_together(path: Path, samples: Samples, each: int) -> None:
    store = Store(path, lambda _: None)
    store.start()
    await store.write(lambda tx: tx.run(EVENT))

    async def writer() -> None:
        for _ in range(each):
            begun = time.perf_counter()
            await store.write(_insert)
            samples.times_ms.append((time.perf_counter() - begun) * 1_000)

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(writer)
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


def _insert(tx: Tx) -> None:
    tx.run(WRITTEN, n=1)


def _row(
    name: str, bench: Bench, samples: Samples, rate: float, alone_ms: float, promise: Promise
) -> Row:
    beside = Samples([_fsync_ms(bench) for _ in range(bench.often(100))])
    return row(
        name,
        samples,
        beside,
        reference="fsync",
        promise=promise,
        ops_per_s=rate,
        speedup=rate * alone_ms / 1_000,
    )


def _fsync_ms(bench: Bench) -> float:
    begun = time.perf_counter()
    bench.fsync()
    return (time.perf_counter() - begun) * 1_000
