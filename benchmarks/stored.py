"""Large stores, written directly into the database: filling them by socket would take hours."""

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from fleetd.domain.checkpoints.codec import to_columns, to_file
from fleetd.domain.search.documents import of_event
from fleetd.domain.search.index import row_of
from fleetd.protocol.records import Checkpoint
from fleetd.protocol.timestamps import iso
from fleetd.store.sqlite.connect import open_database

DAY_MS = 86_400_000


def fill_checkpoints(directory: Path, like: Checkpoint, missions: int, each: int) -> None:
    """Create a store of copies of a checkpoint, oldest first, each with a row and a file.

    They are too young for the daemon to prune them by itself. Their checksums are those of the
    original, which is not checked here.
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
    # Otherwise the first sync of the measured daemon would wait for all of this.
    os.sync()


def fill_events(directory: Path, missions: int, events: int) -> None:
    """Create a store with a log of several months, over so many missions."""
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


# The texts of a log use this many words; the first ones are in nearly all texts.
VOCABULARY = 20_000
SPOKEN = 12
AGENTS = 300


def word(number: int) -> str:
    """Return the word of a rank, of letters only; rank 0 is the most common one."""
    found = ""
    for _ in range(5):
        number, place = divmod(number, 26)
        found += chr(ord("a") + (place + 7 * len(found)) % 26)
    return found


def path(number: int) -> str:
    """Return the path of one of many files."""
    return f"/home/ann/project/src/part_{number % 97}/module_{number % 3_001}.py"


def fill_searchable(directory: Path, missions: int, events: int, seed: int) -> None:
    """Create a store whose log has text in every event, with its search index."""
    directory.mkdir()
    chance = random.Random(seed)
    with _hasty(directory) as connection:
        _fill_missions(connection, missions)
        at = _now()
        for first in range(1, events + 1, 10_000):
            rows = [
                _searchable_event(chance, seq, missions, at)
                for seq in range(first, min(first + 10_000, events + 1))
            ]
            connection.executemany(
                "INSERT INTO events (seq, type, stream, timestamp, mission_id, agent_id, activity,"
                " data_json) VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
                [row for row, _ in rows],
            )
            connection.executemany(
                "INSERT INTO search_documents (id, kind, at, mission_id, agent_id, words, names)"
                " VALUES (:id, :kind, :at, :mission_id, :agent_id, :words, :names)",
                [document for _, document in rows],
            )


def _searchable_event(chance: random.Random, seq: int, missions: int, at: str) -> tuple[Any, Any]:
    """Return an event and its document: commands and edits, sometimes a prompt or an answer."""
    words = (word(int(chance.paretovariate(0.4)) % VOCABULARY) for _ in range(SPOKEN))
    text, file = " ".join(words), path(chance.randrange(1_000_000))
    kind, data = {
        0: ("prompt_submitted", {"prompt": text}),
        1: ("agent_answered", {"message": f"{text} {file}"}),
    }.get(
        seq % 10,
        ("command_finished", {"command": f"{text} {file}", "result": "PASS"})
        if seq % 2
        else ("file_modified", {"file": file, "tool": "Edit"}),
    )
    mission, agent = _mission_id(seq % missions), f"specialist-{seq % AGENTS}"
    document = of_event(kind, data)
    assert document is not None
    return (
        (seq, kind, f"mission:{mission}", at, mission, agent, json.dumps(data)),
        row_of(document, seq, at, mission, agent),
    )


@contextmanager
def _hasty(directory: Path) -> Iterator[apsw.Connection]:
    """Yield a transaction on a store, without syncs because its loss would not matter."""
    connection = open_database(directory / "squawk.db", None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        with connection:
            yield connection
    finally:
        connection.close()


def _checkpoint_id(seq: int) -> str:
    """Return ids in no order, like real ones."""
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
    """Create the files of a mission: one file, under the names of all."""
    names = [f"{_checkpoint_id(seq)}.json" for seq in range(number, missions * each, missions)]
    (directory / names[0]).write_bytes(to_file(like))
    for name in names[1:]:
        (directory / name).hardlink_to(directory / names[0])
    (directory / "latest.json").symlink_to(names[-1])
