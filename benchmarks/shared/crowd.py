"""Many clients of several daemons at once: how much goes through, and how long each waits.

The clients of each daemon are a process of their own: ``python -m benchmarks.shared.crowd``.
"""

import itertools
import json
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.postgres_server import LocalPostgres

from ..fleet import ROOT, Fleet
from ..measure import Samples
from .asking import DATA, edit

HOOK, READING = "hook.deliver", "mission.get"

# Before what counts comes so many times of it that does not: 64 sessions that begin take a second.
WARM = 1.5
# In a request: what no other request has, and what none of another client has.
NUMBER, CLIENT = "@@@@@@@@", "@client@"
# So many numbers each daemon's clients have; none asks so often.
_EACH = 1 << 24


class Crowd(msgspec.Struct, frozen=True):
    """What so many clients of so many daemons got; times in ms.

    ``batch`` is how many requests a commit held on average; ``wal_bytes`` what the server wrote
    ahead for each, both 0 where they are not known.
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
) -> Crowd:
    """Let so many clients in all ask their daemons, each again as soon as it is answered.

    What they ask in the first ``warm_s`` does not count.
    """
    warm_s = WARM * seconds if warm_s is None else warm_s
    call = {"jsonrpc": "2.0", "id": 1, "method": what, "params": _params(what, fleets[0])}
    each = shares(clients, len(fleets))
    before, wal = [_batches(fleet) for fleet in fleets], wal_bytes(server)
    hooks = hooks_taken(fleets[0])
    processes = [
        _process(fleet, first, number, warm_s, seconds, call)
        for first, (fleet, number) in enumerate(zip(fleets, each, strict=True))
    ]
    told = [json.loads(process.communicate()[0]) for process in processes]
    written = wal_bytes(server) - wal
    asked = sum(one["all"] for one in told)
    if what == HOOK and (taken := hooks_taken(fleets[0]) - hooks) != asked:
        raise RuntimeError(f"{asked} hooks were told, {taken} were taken for new")
    batches = sum(_batches(fleet) - old for fleet, old in zip(fleets, before, strict=True))
    samples = Samples([took for one in told for took in one["ms"]])
    reads = what == READING
    return Crowd(
        what=what,
        daemons=len(fleets),
        clients=clients,
        per_s=sum(len(one["ms"]) for one in told) / seconds,
        p50_ms=samples.p50,
        p95_ms=samples.p95,
        p99_ms=samples.p99,
        batch=0.0 if reads else asked / max(batches, 1),
        wal_bytes=0.0 if reads else written / asked,
    )


def _params(what: str, fleet: Fleet) -> dict[str, Any]:
    if what == HOOK:
        payload = edit(f"{CLIENT}-{secrets.token_hex(4)}", str(fleet.directory), f"tool_{NUMBER}")
        delivery = f"{secrets.token_hex(8)}{NUMBER}"
        return {"delivery_id": delivery, "harness": "claude", "payload": json.dumps(payload)}
    mission = {"mission_id": fleet.mission(4)}
    return mission if what == READING else mission | {"type": "file_read", "data": DATA}


def shares(number: int, among: int) -> list[int]:
    """Split a number of things as evenly as it goes."""
    return [number // among + (n < number % among) for n in range(among)]


def _batches(fleet: Fleet) -> int:
    return int(fleet.call("system.status")["writer"]["batches"])


def wal_bytes(server: LocalPostgres | None) -> int:
    """Return how far a server's log has come; 0 without a server."""
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
    call: dict[str, object],
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.shared.crowd", str(fleet.socket), str(place)]
    command += [str(clients), str(warm_s), str(seconds), json.dumps(call)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def ask(
    path: Path, place: int, clients: int, warm_s: float, seconds: float, request: bytes
) -> tuple[int, list[float]]:
    """Ask over so many connections; return how often, and the times that count, in ms.

    ``place`` is the daemon's among all: those of two daemons say nothing alike.
    """
    times: list[float] = []
    sent: dict[socket.socket, float] = {}
    asked, numbers = 0, itertools.count(place * _EACH)
    with selectors.DefaultSelector() as selector:
        for number in range(clients):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(path))
            own = request.replace(CLIENT.encode(), b"c%d-%d" % (place, number))
            selector.register(client, selectors.EVENT_READ, own)
        begins = time.perf_counter() + warm_s
        ends = begins + seconds
        for key in tuple(selector.get_map().values()):
            sent[key.fileobj] = _send(key, numbers)  # type: ignore[index]
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
                    sent[client] = _send(key, numbers)
    return asked, times


def _send(key: selectors.SelectorKey, numbers: Iterator[int]) -> float:
    line: bytes = key.data.replace(NUMBER.encode(), b"%08x" % next(numbers))
    now = time.perf_counter()
    key.fileobj.sendall(line)  # type: ignore[union-attr]
    return now


if __name__ == "__main__":
    where, nth, number, warm, length, what = sys.argv[1:]
    line = msgspec.json.encode(json.loads(what)) + b"\n"
    count, took_ms = ask(Path(where), int(nth), int(number), float(warm), float(length), line)
    print(json.dumps({"all": count, "ms": took_ms}))
