"""Pruning nearly all of a large store, while another client measures how long it waits."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .bench import Bench
from .client import Client
from .fleet import running
from .measure import Samples, timed
from .rows import Promise, Row, row
from .stored import fill_checkpoints

MISSIONS = 1_000
EACH = 100
KEPT = 3


def pruning(bench: Bench) -> Iterator[Row]:
    """Let one client prune, while another one writes and reads continuously."""
    fleet = bench.fleet
    missions = max(5, round(MISSIONS * bench.share))
    directory = bench.directory / "pruned"
    fill_checkpoints(directory, fleet.taken(4), missions, EACH)
    what = f"{missions * (EACH - KEPT):,} of {missions * EACH:,} checkpoints are pruned"
    with running(directory) as pruned:
        mission = pruned.mission(4)
        asked: dict[str, Callable[[], object]] = {
            "event.append": lambda: pruned.call(
                "event.append", type="file_read", mission_id=mission, data={"n": 1}
            ),
            "mission.get": lambda: pruned.call("mission.get", mission_id=mission),
        }
        waits = {name: Samples([]) for name in asked}
        beside = Samples([])
        begun = time.monotonic()
        with Client(pruned.socket) as looking:
            prune = threading.Thread(target=_prune, args=(pruned.socket,))
            prune.start()
            while prune.is_alive():
                for name, ask in asked.items():
                    waits[name].times_ms.append(timed(ask))
                beside.times_ms.append(timed(bench.fsync))
            prune.join()
            left = looking.call("checkpoint.list", {"limit": 1})["total"]
        seconds = time.monotonic() - begun
    if left != missions * KEPT:
        raise RuntimeError(f"{left} checkpoints are left, not {missions * KEPT}")
    for name, samples in waits.items():
        yield row(
            f"{name} while {what}",
            samples,
            beside,
            reference="fsync",
            promise=Promise(max_ms=20),
            note=f"pruned in {seconds:.0f} s",
        )


def _prune(path: Path) -> None:
    """Prune and read the reply, but do not decode it: this process is measuring."""
    request = (
        b'{"jsonrpc":"2.0","id":1,"method":"checkpoint.prune",'
        b'"params":{"older_than_days":0,"keep_per_mission":%d}}\n' % KEPT
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        client.sendall(request)
        last = b""
        while not last.endswith(b"\n"):
            last = client.recv(1 << 20)
            if not last:
                raise RuntimeError("fleetd closed the connection before it had pruned")
