"""Counting and numbering come to the same on both engines, whatever happens to the rows."""

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import apsw
import psycopg
import pytest

from fleetd.store.postgres.connection import connect, translated
from fleetd.store.postgres.migrate import migrate
from fleetd.store.sqlite.migrate import schema
from tests.support.postgres_server import LocalPostgres

MISSION = (
    "INSERT INTO missions (id, title, status, created_at, updated_at)"
    " VALUES (:id, 't', :status, '', '')"
)
SORTIE = (
    "INSERT INTO sorties (id, mission_id, position, title, status, priority, created_at,"
    " updated_at) VALUES (:id, :mission, 1, 't', 'pending', 'low', '', '')"
)
AGENT = (
    "INSERT INTO agents (id, role, status, registered_at, last_seen_at)"
    " VALUES (:id, 'specialist', :status, '', '')"
)
CHECKPOINT = (
    'INSERT INTO checkpoints (id, mission_id, timestamp, "trigger", progress_percent, seq,'
    " sortie_count, lock_count, message_count, size_bytes, digest, state_digest, created_by,"
    " recovery_context_json, locks_json, messages_json, sorties_json, deleted_at)"
    " VALUES (:id, :mission, '', :trigger, 0, 1, 0, 0, 0, 0, '', '', '', '', '', '', '', :deleted)"
)
SESSION = (
    "INSERT INTO sessions (harness, session_id, subagent, agent_id, started_at, last_event_at)"
    " VALUES (:harness, :id, :subagent, 'ann', '', '')"
)
RECOVERY = (
    "INSERT INTO recoveries (id, seq, mission_id, checkpoint_id, requested_by, scope, state,"
    " created_at) VALUES (:id, 1, :mission, 'c', 'ann', 'mission', 'pending', '')"
)
RUN = "INSERT INTO runs (id, status) VALUES (:id, 'paused')"
SNAPSHOT = (
    "INSERT INTO snapshots (id, run_id, timestamp, source, status, seq, window_pressure,"
    " outcome_count, size_bytes, digest, file_digest, document_json, deleted_at)"
    " VALUES (:id, :run, '', 'timer', 'paused', 1, '', 0, 0, '', '', '', :deleted)"
)
EVENT = (
    "INSERT INTO events (type, stream, timestamp, activity, data_json)"
    " VALUES ('t', 'fleet', '', 0, '') RETURNING seq"
)
EVENT_NUMBERED = (
    "INSERT INTO events (seq, type, stream, timestamp, activity, data_json)"
    " VALUES (:seq, 't', 'fleet', '', 0, '') RETURNING seq"
)
DELIVERY = (
    "INSERT INTO hook_deliveries (id, harness, received_at) VALUES (:id, 'claude', '')"
    " RETURNING seq"
)
WAIT = (
    "INSERT INTO lock_waits (normalized_path, file, agent_id, purpose, timeout_ms)"
    " VALUES ('p', 'f', 'ann', '', 1) RETURNING id"
)
BRIEFING = "INSERT INTO briefings (mission_id, context_json) VALUES (:mission, '') RETURNING id"
DELETED = "UPDATE {0} SET deleted_at = :now WHERE id = :id"


class Both:
    """One statement after the other, on SQLite and on PostgreSQL, which must answer the same."""

    def __init__(self, sqlite: apsw.Connection, postgres: psycopg.Connection[Any]) -> None:
        self._sqlite = sqlite
        self._postgres = postgres

    def run(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        one = [tuple(row) for row in self._sqlite.execute(sql, values)]
        cursor = self._postgres.execute(translated(sql).encode(), values)
        other = cursor.fetchall() if cursor.description else []
        assert one == other
        return one

    def tallies(self) -> list[tuple[Any, ...]]:
        return self.run("SELECT what, part, number FROM tallies ORDER BY what, part")


@pytest.fixture
def both(postgres: LocalPostgres, database: str) -> Iterator[Both]:
    with (
        closing(apsw.Connection(":memory:")) as sqlite,
        closing(connect(postgres.url(database), "test")) as shared,
    ):
        sqlite.execute(schema())
        sqlite.execute("PRAGMA foreign_keys = on")
        migrate(shared, "test")
        yield Both(sqlite, shared)


class Hand:
    """Does something at random, of which it knows no result."""

    def __init__(self, both: Both, seed: int) -> None:
        self._both = both
        self._random = random.Random(seed)
        self._made = 0

    def _id(self) -> str:
        return f"x-{self._random.randrange(12)}"

    def _pick(self, *words: str) -> str:
        return self._random.choice(words)

    def act(self) -> None:
        number = self._random.randrange(10)
        {0: self._make, 1: self._make, 2: self._make, 3: self._mark, 4: self._mark}.get(
            number, {5: self._remove, 6: self._forget_some}.get(number, self._number)
        )()

    def _make(self) -> None:
        statement = self._pick(MISSION, SORTIE, AGENT, CHECKPOINT, SESSION, RECOVERY, RUN, SNAPSHOT)
        table = statement.split()[2]
        values = {
            "id": self._id(),
            "mission": self._id(),
            "run": self._id(),
            "status": self._pick("active", "gone") if table == "agents" else "pending",
            "trigger": self._pick("manual", "error"),
            "harness": self._pick("claude", "codex"),
            "subagent": self._pick("", "sub"),
            "deleted": self._random.choice([None, None, "now"]),
        }
        if "mission" in statement.partition("VALUES")[2] and not self._there("missions", values):
            return
        if ":run" in statement and not self._there("runs", values | {"mission": values["run"]}):
            return
        used = {name: value for name, value in values.items() if f":{name}" in statement}
        self._both.run(f"{statement} ON CONFLICT DO NOTHING", **used)

    def _there(self, table: str, values: dict[str, Any]) -> bool:
        return bool(
            self._both.run(f"SELECT 1 AS one FROM {table} WHERE id = :id", id=values["mission"])
        )

    def _mark(self) -> None:
        kind = self._pick("missions", "agents", "checkpoints", "snapshots")
        if kind in ("checkpoints", "snapshots"):
            self._both.run(DELETED.format(kind), now=self._pick("now", "then"), id=self._id())
            return
        words = {"missions": ("pending", "failed"), "agents": ("active", "gone", "lost")}[kind]
        status = self._pick(*words)
        self._both.run(f"UPDATE {kind} SET status = :s WHERE id = :id", s=status, id=self._id())

    def _remove(self) -> None:
        tables = ("missions", "sorties", "agents", "checkpoints", "recoveries", "runs", "snapshots")
        self._both.run(f"DELETE FROM {self._pick(*tables)} WHERE id = :id", id=self._id())
        self._both.run("DELETE FROM sessions WHERE session_id = :id", id=self._id())

    def _forget_some(self) -> None:
        table = self._pick("events", "hook_deliveries", "lock_waits")
        column = "id" if table == "lock_waits" else "seq"
        begin = f"(SELECT max({column}) FROM {table}) - {self._random.randrange(-1, 4)}"
        how = self._pick("<=", ">")
        self._both.run(f"DELETE FROM {table} WHERE {column} {how} {begin}")

    def _number(self) -> None:
        self._made += 1
        self._both.run(DELIVERY, id=str(self._made))
        self._both.run(WAIT)
        if self._random.random() < 0.2:
            top = self._both.run("SELECT coalesce(max(seq), 0) FROM events")[0][0]
            self._both.run(EVENT_NUMBERED, seq=top + self._random.randrange(40, 50))
        self._both.run(EVENT)
        missions = self._both.run("SELECT id FROM missions ORDER BY id LIMIT 1")
        if missions:
            self._both.run(BRIEFING, mission=missions[0][0])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_the_tallies_and_the_numbers_are_the_same(both: Both, seed: int) -> None:
    hand = Hand(both, seed)
    for _ in range(400):
        hand.act()
        both.tallies()
    kinds = {row[0] for row in both.tallies()}
    assert kinds == {
        *("missions", "sorties", "agents", "checkpoints", "sessions", "recoveries", "snapshots"),
        "events gone",
    }


def test_the_number_of_an_event_that_was_rolled_back_is_given_again(both: Both) -> None:
    assert both.run(EVENT) == [(1,)]
    for statement in ("BEGIN", "SAVEPOINT request"):
        both.run(statement)
    assert both.run(EVENT) == [(2,)]
    both.run("ROLLBACK TO request")
    assert both.run(EVENT) == [(2,)]
    both.run("ROLLBACK")
    assert both.run(EVENT) == [(2,)]


def test_the_number_of_an_event_that_was_deleted_is_not_given_again(both: Both) -> None:
    both.run(EVENT_NUMBERED, seq=70)
    both.run("DELETE FROM events")
    assert both.run(EVENT) == [(71,)]
