"""Pruning nearly everything of a large store, while another client measures how long it waits."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec

from fleetctl.client import Client
from fleetd.domain.content import to_columns, to_file
from fleetd.store.opening import open_database
from fleetd.wire.model import Checkpoint
from fleetd.wire.times import iso

from .bench import Bench
from .fleet import running
from .measure import Samples, timed
from .rows import Promise, Row, row

MISSIONS = 1_000
EACH = 100
KEPT = 3
DAY_MS = 86_400_000


def pruning(bench: Bench) -> Iterator[Row]:
    """Let one client prune, and another one write and read without a pause."""
    fleet = bench.fleet
    missions = 5 if bench.quick else MISSIONS
    directory = bench.directory / "pruned"
    directory.mkdir()
    taken = fleet.call(
        "checkpoint.get", checkpoint_id=fleet.checkpoint(fleet.mission(4), wait=True)
    )
    _fill(directory, msgspec.convert(taken, Checkpoint), missions)
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
            left = looking.call_raw("checkpoint.list", {"limit": 1})["total"]
        seconds = time.monotonic() - begun
    if left != missions * KEPT:
        raise RuntimeError(f"{left} checkpoints are left, not {missions * KEPT}")
    for name, samples in waits.items():
        yield row(
            f"{name} while {what} ({seconds:.0f} s)",
            samples,
            beside,
            reference="fsync",
            promise=Promise(max_ms=20),
        )


def _prune(path: Path) -> None:
    """Prune and read the reply, but leave it undecoded: this process is measuring."""
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


def _fill(directory: Path, like: Checkpoint, missions: int) -> None:
    """Make a store of copies of a checkpoint, oldest first, each with a row and a file.

    They are too young for the daemon to prune them of its own accord. Their checksums are those of
    the original, which nobody compares here.
    """
    root = directory / "flightline" / "checkpoints"
    for number in range(missions):
        (root / _mission_id(number)).mkdir(mode=0o700, parents=True)
    connection = open_database(directory / "squawk.db", None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        with connection:
            _fill_missions(connection, missions)
            _fill_checkpoints(connection, like, missions)
            connection.execute(
                "INSERT INTO events (seq, type, stream, timestamp, activity, data_json)"
                " VALUES (?, 'file_read', 'fleet', ?, 0, '{}')",
                (missions * EACH + 1, _now()),
            )
    finally:
        connection.close()
    for number in range(missions):
        _fill_directory(root / _mission_id(number), like, number, missions)


def _checkpoint_id(seq: int) -> str:
    """Return ids that are in no order, as real ones are."""
    return f"chk-{seq * 2_654_435_761 % 2**32:08x}"


def _now(back_ms: int = 0) -> str:
    return iso(time.time_ns() // 1_000_000 - back_ms)


def _mission_id(number: int) -> str:
    return f"msn-{number:08x}"


def _fill_missions(connection: apsw.Connection, missions: int) -> None:
    connection.executemany(
        "INSERT INTO missions (id, title, created_at, updated_at) VALUES (?, 'Port', ?, ?)",
        ((_mission_id(number), _now(), _now()) for number in range(missions)),
    )


def _fill_checkpoints(connection: apsw.Connection, like: Checkpoint, missions: int) -> None:
    columns = to_columns(like) | {"state_digest": "", "backed_up_at": _now()}
    columns["timestamp"] = _now(DAY_MS)
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    connection.executemany(
        f"INSERT INTO checkpoints ({names}) VALUES ({values})",
        (
            columns
            | {"id": _checkpoint_id(seq), "mission_id": _mission_id(seq % missions), "seq": seq}
            for seq in range(missions * EACH)
        ),
    )


def _fill_directory(directory: Path, like: Checkpoint, number: int, missions: int) -> None:
    """Give a mission its files: one, under the names of all."""
    names = [f"{_checkpoint_id(seq)}.json" for seq in range(number, missions * EACH, missions)]
    (directory / names[0]).write_bytes(to_file(like))
    for name in names[1:]:
        (directory / name).hardlink_to(directory / names[0])
    (directory / "latest.json").symlink_to(names[-1])
