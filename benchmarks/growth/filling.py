"""Databases of a given size, written without the daemon; must not measure anything.

The store looks like one of some age: a few missions are in progress and the others are over, with
all records of past work: sorties, events, acked mail, released locks, lost agents, recoveries.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

from fleetd.protocol.timestamps import iso, to_ms
from fleetd.store.sqlite.connect import open_database

UNDER_WAY = 10
SORTIES = 4
# One of them is in force.
NOTES = 2
# The number of events of any one mission, however many there are in total.
OWN_EVENTS = 100
# Young enough that no record is past its retention.
AGE_MS = 3_600_000
TYPES = ("file_read", "file_modified", "command_run", "test_run")


def mission_id(number: int) -> str:
    """Return ids in no order, like real ones."""
    return f"msn-{number * 2_654_435_761 % 2**32:08x}"


def fill(directory: Path, missions: int, events: int) -> None:
    """Create a store with so many missions, ``UNDER_WAY`` of them in progress, and events."""
    connection = open_database(directory / "squawk.db", None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA cache_size=-200000")
        with connection:
            _missions(connection, missions)
            _events(connection, missions, events)
    finally:
        connection.close()


def _missions(connection: apsw.Connection, missions: int) -> None:
    at = iso(time.time_ns() // 1_000_000 - AGE_MS)
    _insert(connection, "missions", (_mission(n, at) for n in range(missions)))
    every = range(missions)
    _insert(connection, "sorties", (_sortie(n, k, at) for n in every for k in range(SORTIES)))
    _insert(connection, "agents", (_agent(n, at) for n in every))
    over = range(UNDER_WAY, missions)
    _insert(connection, "locks", (_lock(n, k, at) for n in over for k in range(2)))
    _insert(connection, "messages", (_message(n, at) for n in over))
    _insert(connection, "deliveries", (_delivery(n, at) for n in over))
    _insert(connection, "notes", (_note(n, k, at) for n in every for k in range(NOTES)))
    _insert(connection, "recoveries", (_recovery(n, at) for n in over))
    _insert(connection, "episodes", (_episode(n, at) for n in over))
    _insert(connection, "sessions", (_session(n, at) for n in every))


def _insert(connection: apsw.Connection, table: str, rows: Iterable[dict[str, Any]]) -> None:
    iterator = iter(rows)
    for first in iterator:
        names = ", ".join(first)
        marks = ", ".join("?" * len(first))
        connection.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({marks})",
            (tuple(row.values()) for row in _all(first, iterator)),
        )


def _all(first: dict[str, Any], others: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from others


def _mission(n: int, at: str) -> dict[str, Any]:
    under_way = n < UNDER_WAY
    return {
        "id": mission_id(n),
        "title": f"Port part {n}",
        "status": "in_progress" if under_way else "completed",
        "project_dir": f"/srv/project-{n}",
        "created_at": iso(to_ms(at) + n),
        "updated_at": at,
        "started_at": at,
        "completed_at": None if under_way else at,
        "last_activity_at": at,
        "total_sorties": SORTIES,
        "completed_sorties": 0 if under_way else SORTIES,
        "silent": 1,
    }


def _sortie(n: int, k: int, at: str) -> dict[str, Any]:
    return {
        "id": f"srt-{(n * SORTIES + k) * 2_654_435_761 % 2**32:08x}",
        "mission_id": mission_id(n),
        "position": k,
        "title": f"Port module {k} to the new API",
        "status": "pending" if n < UNDER_WAY else "completed",
        "priority": "medium",
        "assigned_to": f"agent-{n}",
        "files_json": f'["src/module_{k}.py"]',
        "created_at": at,
        "updated_at": at,
    }


def _agent(n: int, at: str) -> dict[str, Any]:
    return {
        "id": f"agent-{n}",
        "role": "dispatch",
        "harness": "claude",
        "session_id": f"session-{n}",
        "mission_id": mission_id(n),
        "cwd": f"/srv/project-{n}",
        "status": "idle" if n < UNDER_WAY else "gone",
        "registered_at": at,
        "last_seen_at": at,
    }


def _lock(n: int, k: int, at: str) -> dict[str, Any]:
    return {
        "id": f"lck-{(n * 2 + k) * 2_654_435_761 % 2**32:08x}",
        "file": f"src/module_{k}.py",
        "normalized_path": f"/srv/project-{n % 50}/src/module_{k}.py",
        "held_by": f"agent-{n}",
        "mission_id": mission_id(n),
        "purpose": "edit",
        "acquired_at": at,
        "expires_at": at,
        "timeout_ms": 600_000,
        "fencing_token": n * 2 + k + 1,
        "status": "released",
        "released_at": at,
    }


def _note(n: int, k: int, at: str) -> dict[str, Any]:
    return {
        "id": f"nte-{(n * NOTES + k) * 2_654_435_761 % 2**32:08x}",
        "seq": n,
        "mission_id": mission_id(n),
        "kind": "decision",
        "text": f"Module {k} keeps its name",
        "origin": "agent",
        "agent_id": f"agent-{n}",
        "created_at": at,
        "withdrawn_at": at if k else None,
        "withdrawn_reason": "It is renamed" if k else None,
    }


def _message(n: int, at: str) -> dict[str, Any]:
    return {
        "id": f"msg-{n * 2_654_435_761 % 2**32:08x}",
        "seq": n + 1,
        "mission_id": mission_id(n),
        "sender": "agent-0",
        "to_json": '["agent-1"]',
        "subject": "Ready?",
        "priority": "medium",
        "sent_at": at,
    }


def _delivery(n: int, at: str) -> dict[str, Any]:
    return {
        "message_id": f"msg-{n * 2_654_435_761 % 2**32:08x}",
        # Two agents have received all messages so far.
        "agent_id": f"agent-{n % 2}",
        "seq": n + 1,
        "status": "acked",
        "delivered_at": at,
        "acked_at": at,
    }


def _recovery(n: int, at: str) -> dict[str, Any]:
    return {
        "id": f"rcv-{n * 2_654_435_761 % 2**32:08x}",
        "seq": n + 1,
        "mission_id": mission_id(n),
        "checkpoint_id": f"chk-{n:08x}",
        "agent_id": f"agent-{n}",
        "requested_by": "cli",
        "scope": "mission",
        "state": "resumed",
        "created_at": at,
        "briefed_at": at,
        "resumed_at": at,
    }


def _episode(n: int, at: str) -> dict[str, Any]:
    return {"mission_id": mission_id(n), "last_seq": n + 1, "detected_at": at}


def _session(n: int, at: str) -> dict[str, Any]:
    return {
        "harness": "claude",
        "session_id": f"session-{n}",
        "agent_id": f"agent-{n}",
        "started_at": at,
        "last_event_at": at,
        "ended_at": None if n < UNDER_WAY else at,
    }


def _events(connection: apsw.Connection, missions: int, events: int) -> None:
    """Give the first mission its few events, and all others to the missions after it."""
    at = iso(time.time_ns() // 1_000_000 - AGE_MS)
    _insert(connection, "events", (_event(n, missions, events, at) for n in range(events)))


def _event(n: int, missions: int, events: int, at: str) -> dict[str, Any]:
    own = n % max(events // OWN_EVENTS, 1) == 0
    owner = 0 if own else 1 + n % (missions - 1)
    return {
        "type": "build_failed" if own else TYPES[n % len(TYPES)],
        "stream": f"mission:{mission_id(owner)}",
        "timestamp": at,
        "mission_id": mission_id(owner),
        "agent_id": f"agent-{owner}",
        "activity": 1,
        "data_json": f'{{"file":"src/module_{n % 97}.py","n":{n}}}',
    }
