"""Stores that would take hours to fill through the socket, written straight into the database."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from fleetd.domain.checkpoints.codec import to_columns, to_file
from fleetd.protocol.records import Checkpoint
from fleetd.protocol.timestamps import iso
from fleetd.store.sqlite.connect import open_database

DAY_MS = 86_400_000


def fill_checkpoints(directory: Path, like: Checkpoint, missions: int, each: int) -> None:
    """Make a store of copies of a checkpoint, oldest first, each with a row and a file.

    They are too young for the daemon to prune them of its own accord. Their checksums are those of
    the original, which nobody compares here.
    """
    root = directory / "flightline" / "checkpoints"
    for number in range(missions):
        (root / _mission_id(number)).mkdir(mode=0o700, parents=True)
    with _hasty(directory) as connection:
        _fill_missions(connection, missions)
        _fill_checkpoints(connection, like, missions, each)
        connection.execute(
            "INSERT INTO events (seq, type, stream, timestamp, activity, data_json)"
            " VALUES (?, 'file_read', 'fleet', ?, 0, '{}')",
            (missions * each + 1, _now()),
        )
    for number in range(missions):
        _fill_directory(root / _mission_id(number), like, number, missions, each)
    # Else the first sync of the daemon that is measured would wait for all of this.
    os.sync()


def fill_events(directory: Path, missions: int, events: int) -> None:
    """Make a store whose log is as long as that of months, over so many missions."""
    directory.mkdir()
    with _hasty(directory) as connection:
        _fill_missions(connection, missions)
        now = _now()
        connection.executemany(
            "INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity,"
            " data_json) VALUES ('file_modified', ?, ?, ?, 'specialist-1', 1,"
            ' \'{"file":"src/module.py"}\')',
            (
                (f"mission:{mission}", now, mission)
                for mission in (_mission_id(number % missions) for number in range(events))
            ),
        )


@contextmanager
def _hasty(directory: Path) -> Iterator[apsw.Connection]:
    """Give a transaction on a store that nobody would miss."""
    connection = open_database(directory / "squawk.db", None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        with connection:
            yield connection
    finally:
        connection.close()


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


def _fill_checkpoints(
    connection: apsw.Connection, like: Checkpoint, missions: int, each: int
) -> None:
    columns = to_columns(like) | {"state_digest": "", "backed_up_at": _now()}
    columns["timestamp"] = _now(DAY_MS)
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    connection.executemany(
        f"INSERT INTO checkpoints ({names}) VALUES ({values})",
        (
            columns
            | {"id": _checkpoint_id(seq), "mission_id": _mission_id(seq % missions), "seq": seq}
            for seq in range(missions * each)
        ),
    )


def _fill_directory(
    directory: Path, like: Checkpoint, number: int, missions: int, each: int
) -> None:
    """Give a mission its files: one, under the names of all."""
    names = [f"{_checkpoint_id(seq)}.json" for seq in range(number, missions * each, missions)]
    (directory / names[0]).write_bytes(to_file(like))
    for name in names[1:]:
        (directory / name).hardlink_to(directory / names[0])
    (directory / "latest.json").symlink_to(names[-1])
