"""Two hundred hooks at once, and their effect on another client; must not start 200 Pythons.

200 Pythons would measure two cores. A daemon sees only a hook's line over a separate connection, so
one program sends them all: ``python -m benchmarks.burst SOCKET NUMBER``.
"""

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .bench import Bench
from .fleet import ROOT, Fleet
from .measure import Samples, timed
from .rows import Promise, Row, row

HOOKS = 200
# The hooks come from this many agents, each of which runs ten at once; real agents do not.
SESSIONS = 20
BURSTS = 20


def bursts(bench: Bench) -> Iterator[Row]:
    """Send 200 hooks at once, again and again, while another client sends requests continuously."""
    fleet = bench.fleet
    before = _counted(fleet)
    hooks, others, beside = Samples(), Samples(), Samples()
    often = bench.often(BURSTS)
    for number in range(often):
        command = [sys.executable, "-m", "benchmarks.burst", str(fleet.socket), str(number)]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as burst:
            assert burst.stdin is not None
            assert burst.stdout is not None
            burst.stdout.readline()
            burst.stdin.close()
            begun = time.perf_counter()
            while burst.poll() is None:
                others.times_ms.append(timed(lambda: fleet.call("system.health")))
            hooks.times_ms += json.loads(burst.stdout.read())
        beside.times_ms.append((time.perf_counter() - begun) * 1_000)
    recorded = _counted(fleet) - before
    if recorded != often * HOOKS:
        raise RuntimeError(f"{recorded} of {often * HOOKS} hooks were recorded")
    rate = often * HOOKS / (sum(beside.times_ms) / 1_000)
    yield row(
        f"hook.deliver, {HOOKS} at once over as many connections",
        hooks,
        beside,
        reference="whole burst",
        promise=Promise(ops_per_s=800),
        ops_per_s=rate,
    )
    yield row(
        f"system.health while {HOOKS} hooks come at once",
        others,
        beside,
        reference="whole burst",
        promise=Promise(p99_ms=13),
    )


def _counted(fleet: Fleet) -> int:
    """Return how many deliveries were recorded; files in the spool do not count."""
    status = fleet.call("hook.status")
    if status["spool"]["files"]:
        raise RuntimeError(f"{status['spool']['files']} hooks left their payload in the spool")
    return sum(int(each["deliveries"]) for each in status["harnesses"])


def at_once(path: Path, lines: list[bytes]) -> list[float]:
    """Send each line over a separate connection; return how long each waited, in ms.

    Raises OSError for a refused connection.
    """
    begun = time.perf_counter()
    times = []
    with selectors.DefaultSelector() as waiting:
        for line in lines:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            client.connect(str(path))
            client.sendall(line)
            waiting.register(client, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                client = key.fileobj  # type: ignore[assignment]
                reply = client.recv(65_536)
                if b'"result"' not in reply or not reply.endswith(b"\n"):
                    raise RuntimeError(f"not a reply to hook.deliver: {reply!r}")
                times.append((time.perf_counter() - begun) * 1_000)
                waiting.unregister(client)
                client.close()
    return times


def hook_lines(burst: int, count: int = HOOKS) -> list[bytes]:
    """Return lines as the hook client writes them, all different."""
    return [_line(burst, number) for number in range(count)]


def _line(burst: int, number: int) -> bytes:
    # Each session has a file of its own: shared files would cause notifications to all.
    file = str(ROOT / f"module_{number % SESSIONS}.py")
    payload = {
        "session_id": f"burst-{number % SESSIONS}",
        "cwd": str(ROOT),
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
        "tool_input": {"file_path": file, "old_string": "a", "new_string": "b"},
        "tool_use_id": f"use-{burst}-{number}",
    }
    params = {
        "delivery_id": f"{burst:016x}{number:016x}",
        "harness": "claude",
        "args": [],
        "payload": json.dumps(payload),
    }
    call = {"jsonrpc": "2.0", "method": "hook.deliver", "params": params, "id": 1}
    return json.dumps(call, separators=(",", ":")).encode() + b"\n"


def main(path: str, burst: str) -> None:
    """Wait for the start, send a burst, and print how long each hook waited."""
    lines = hook_lines(int(burst))
    print(flush=True)
    sys.stdin.read()
    print(json.dumps(at_once(Path(path), lines)))


if __name__ == "__main__":
    main(*sys.argv[1:])
