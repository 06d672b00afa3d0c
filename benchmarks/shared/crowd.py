"""Many clients of several daemons at once: the throughput, and how long each client waits.

The clients of each daemon are a separate process: ``python -m benchmarks.shared.crowd``.
"""

import itertools
import json
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.postgres_server import LocalPostgres

from ..fleet import ROOT, Fleet
from ..measure import Samples
from .asking import DATA
from .payloads import Payload, edit

HOOK, READING = "hook.deliver", "mission.get"

# The warm-up, as a multiple of the measured time: the start of 64 sessions takes a second.
WARM = 1.5
# Placeholders in a request: values unique to the request, to the client, and to its tool call.
NUMBER, CLIENT, CALL = "@@@@@@@@", "@client@", "@call@"


class Crowd(msgspec.Struct, frozen=True):
    """The results of so many clients of so many daemons; times in ms.

    ``batch`` is the average number of requests in a commit; ``wal_bytes`` is the WAL that the
    server wrote for each; both include the warm-up, and are 0 where they are unknown.
    """

    what: str
    daemons: int
    clients: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    batch: float
    wal_bytes: float


def crowd(
    what: str,
    fleets: Sequence[Fleet],
    clients: int,
    seconds: float,
    *,
    server: LocalPostgres | None,
    warm_s: float | None = None,
    hooks: Sequence[Payload] = (edit,),
    on_warm: Callable[[], object] = lambda: None,
) -> Crowd:
    """Let this many clients in total send requests to their daemons, one after each answer.

    A client sends the ``hooks`` in turn. Requests in the first ``warm_s`` do not count; then
    ``on_warm`` is called.
    """
    warm_s = WARM * seconds if warm_s is None else warm_s
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": what, "params": params}
        for params in _params(what, fleets[0], hooks)
    ]
    each = shares(clients, len(fleets))
    before, wal = [_batches(fleet) for fleet in fleets], wal_bytes(server)
    before_hooks = hooks_taken(fleets[0])
    processes = [
        _process(fleet, first, number, warm_s, seconds, calls)
        for first, (fleet, number) in enumerate(zip(fleets, each, strict=True))
    ]
    _begin(processes, warm_s)
    on_warm()
    results = [json.loads(process.communicate()[0]) for process in processes]
    written = wal_bytes(server) - wal
    asked = sum(one["all"] for one in results)
    if what == HOOK and (taken := hooks_taken(fleets[0]) - before_hooks) != asked:
        raise RuntimeError(f"{asked} hooks were sent, {taken} were counted as new")
    batches = sum(_batches(fleet) - old for fleet, old in zip(fleets, before, strict=True))
    samples = Samples([took for one in results for took in one["ms"]])
    reads = what == READING
    return Crowd(
        what=what,
        daemons=len(fleets),
        clients=clients,
        per_s=sum(len(one["ms"]) for one in results) / seconds,
        p50_ms=samples.p50,
        p95_ms=samples.p95,
        p99_ms=samples.p99,
        batch=0.0 if reads else asked / max(batches, 1),
        wal_bytes=0.0 if reads else written / asked,
    )


def _params(what: str, fleet: Fleet, hooks: Sequence[Payload]) -> list[dict[str, Any]]:
    if what == HOOK:
        session, delivery = f"{CLIENT}-{secrets.token_hex(4)}", f"{secrets.token_hex(8)}{NUMBER}"
        return [
            {
                "delivery_id": delivery,
                "harness": "claude",
                "payload": json.dumps(payload(session, str(fleet.directory), f"tool_{CALL}")),
            }
            for payload in hooks
        ]
    mission = {"mission_id": fleet.mission(4)}
    return [mission if what == READING else mission | {"type": "file_read", "data": DATA}]


def shares(number: int, among: int) -> list[int]:
    """Split a number as evenly as possible."""
    return [number // among + (n < number % among) for n in range(among)]


def _batches(fleet: Fleet) -> int:
    return int(fleet.call("system.status")["writer"]["batches"])


def wal_bytes(server: LocalPostgres | None) -> int:
    """Return the WAL position of a server; 0 without a server."""
    if server is None:
        return 0
    return int(server.sql("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes")[0]["bytes"])


def hooks_taken(fleet: Fleet) -> int:
    """Return how many hooks the store has taken."""
    return sum(each["deliveries"] for each in fleet.call("hook.status")["harnesses"])


def _process(
    fleet: Fleet,
    place: int,
    clients: int,
    warm_s: float,
    seconds: float,
    calls: list[dict[str, object]],
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.shared.crowd", str(fleet.socket), str(place)]
    command += [str(clients), str(warm_s), str(seconds), json.dumps(calls)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def _begin(processes: Sequence[subprocess.Popen[bytes]], warm_s: float) -> None:
    """Let all processes begin at once, when all are connected, and wait for the warm-up."""
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    begun = time.perf_counter()  # the same clock in all processes
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"%r\n" % begun)
        process.stdin.flush()
    time.sleep(max(0.0, begun + warm_s - time.perf_counter()))


def ask(
    path: Path, place: int, clients: int, warm_s: float, seconds: float, requests: Sequence[bytes]
) -> tuple[int, list[float]]:
    """Send requests over so many connections; return their number, and the measured times in ms.

    ``place`` is the daemon's index among all: the requests of two daemons never agree.
    """
    times: list[float] = []
    sent: dict[socket.socket, float] = {}
    asked = 0
    with selectors.DefaultSelector() as selector:
        for number in range(clients):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(path))
            selector.register(client, selectors.EVENT_READ, _lines(requests, place, number))
        print("connected", flush=True)
        begins = float(sys.stdin.readline()) + warm_s
        ends = begins + seconds
        for key in tuple(selector.get_map().values()):
            sent[key.fileobj] = _send(key)  # type: ignore[index]
        while sent:
            for key, _ in selector.select():
                client = key.fileobj  # type: ignore[assignment]
                reply = client.recv(65_536)
                if b'"result"' not in reply or not reply.endswith(b"\n"):
                    raise RuntimeError(f"no answer: {reply!r}")
                now, begun = time.perf_counter(), sent.pop(client)
                asked += 1
                if begins <= now < ends:
                    times.append((now - begun) * 1_000)
                if now < ends:
                    sent[client] = _send(key)
    return asked, times


def _lines(requests: Sequence[bytes], place: int, client: int) -> Iterator[bytes]:
    """Yield the requests of a client in turn, with its own values; they never end."""
    own = [request.replace(CLIENT.encode(), b"c%d-%d" % (place, client)) for request in requests]
    for call in itertools.count():
        number = b"%02x%02x%06x" % (place, client, call)
        for step, request in enumerate(own):
            yield request.replace(NUMBER.encode(), b"%s%02x" % (number, step)).replace(
                CALL.encode(), number
            )


def _send(key: selectors.SelectorKey) -> float:
    line: bytes = next(key.data)
    now = time.perf_counter()
    key.fileobj.sendall(line)  # type: ignore[union-attr]
    return now


if __name__ == "__main__":
    where, nth, number, warm, length, what = sys.argv[1:]
    lines = [msgspec.json.encode(call) + b"\n" for call in json.loads(what)]
    count, took_ms = ask(Path(where), int(nth), int(number), float(warm), float(length), lines)
    print(json.dumps({"all": count, "ms": took_ms}))
