"""Many writers at once: the gain of a common commit for all; needs a daemon and a store."""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import trio

from fleetd.domain.core.tx import Tx
from fleetd.store.sqlite.connect import connect
from fleetd.store.sqlite.store import SqliteStore

from . import compared
from .bench import Bench
from .measure import Operation, Samples, timed
from .rows import Promise, Row, row

# The table and the row that writers write: an event's, without its indexes.
EVENT = "CREATE TABLE written (seq INTEGER PRIMARY KEY, type TEXT, n INTEGER, data TEXT)"
WRITTEN = "INSERT INTO written (type, n, data) VALUES ('file_read', :n, '{\"n\":1}')"

WRITERS = 64
# The crowd and the single writer take turns, because the disk's speed varies.
ROUNDS = 10
EACH = 5
ALONE = 30


def over_the_socket(bench: Bench) -> Iterator[Row]:
    """Let 64 clients append events at once; compare with one that waits for each commit."""
    fleet = bench.fleet
    params = {"type": "file_read", "mission_id": fleet.mission(4), "data": compared.DATA}
    call = {"jsonrpc": "2.0", "id": 1, "method": "event.append", "params": params}
    request = msgspec.json.encode(call) + b"\n"
    yield _in_turns(
        bench,
        f"event.append, {WRITERS} clients at once",
        lambda: _all_at_once(fleet.socket, request, EACH),
        lambda: fleet.call("event.append", **params),
        Promise(),
    )
    yield from compared.writers(
        bench,
        f"{WRITERS} clients at once, {EACH} events each",
        lambda: _all_at_once(fleet.socket, request, EACH),
        writers=WRITERS,
        each=EACH,
    )


def _all_at_once(path: Path, request: bytes, each: int) -> Samples:
    """Send a request from each of 64 connections, and the next one after each answer."""
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
    """Raise an error for a reply that is no acknowledgement; small replies arrive in one piece."""
    if b'"result"' not in reply or not reply.endswith(b"\n"):
        raise RuntimeError(f"not a reply to event.append: {reply!r}")


def in_the_store(bench: Bench) -> Iterator[Row]:
    """Let 64 tasks write one row each, repeatedly; compare with a commit for every row."""
    connection = connect(str(bench.directory / "alone.db"))
    connection.execute(EVENT)

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(WRITTEN, {"n": 1})
        connection.execute("COMMIT")

    try:
        yield bench.beside_fsync(
            "SQLite: one row, one commit", write, runs=500, promise=Promise(p95_ms=5)
        )
        yield trio.run(_in_turns_with_a_store, bench, write)
    finally:
        connection.close()


async def _in_turns_with_a_store(bench: Bench, alone: Operation) -> Row:
    store = SqliteStore(bench.directory / "together.db", lambda _: None)
    store.start()
    await store.write(lambda tx: tx.run(EVENT))
    try:
        return await trio.to_thread.run_sync(
            lambda: _in_turns(
                bench,
                f"store: {WRITERS} writers at once, one row each",
                lambda: trio.from_thread.run(_write_together, store),
                alone,
                Promise(speedup=10),
            )
        )
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def _write_together(store: SqliteStore) -> Samples:
    samples = Samples()

    async def writer() -> None:
        for _ in range(EACH):
            begun = time.perf_counter()
            await store.write(_insert)
            samples.times_ms.append((time.perf_counter() - begun) * 1_000)

    async with trio.open_nursery() as nursery:
        for _ in range(WRITERS):
            nursery.start_soon(writer)
    return samples


def _insert(tx: Tx) -> None:
    tx.run(WRITTEN, n=1)


def _in_turns(
    bench: Bench,
    name: str,
    together: Callable[[], Samples],
    alone: Operation,
    promise: Promise,
) -> Row:
    """Run the crowd, the single writer and the reference in turn; compute each round's speedup."""
    everybody, beside, speedups = Samples([]), Samples([]), []
    crowd, single = Samples([]), Samples([])
    took_ms, spent_ms = 0.0, 0.0

    def write_together() -> None:
        nonlocal crowd, took_ms
        begun = time.perf_counter()
        crowd = together()
        took_ms = (time.perf_counter() - begun) * 1_000

    def write_alone() -> None:
        nonlocal single
        single = Samples([timed(alone) for _ in range(bench.often(ALONE))])

    def refer() -> None:
        beside.times_ms += [timed(bench.fsync) for _ in range(bench.often(ALONE))]

    turns = [write_together, write_alone, refer]
    for _ in range(bench.often(ROUNDS)):
        bench.order.shuffle(turns)
        for turn in turns:
            turn()
        speedups.append(len(crowd.times_ms) / took_ms * single.p50)
        everybody.times_ms += crowd.times_ms
        spent_ms += took_ms
    return row(
        name,
        everybody,
        beside,
        reference="fsync",
        promise=promise,
        ops_per_s=len(everybody.times_ms) / spent_ms * 1_000,
        speedups=speedups,
    )
