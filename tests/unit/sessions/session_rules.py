"""Rules on a database in memory: a mission, an agent, and the plans that it sends."""

import json
from itertools import count
from typing import Any

import apsw

from fleetd.config import Config
from fleetd.domain.core.context import Caller, Context
from fleetd.domain.core.tx import Row, Tx
from fleetd.domain.missions import missions, sorties
from fleetd.domain.sessions import plan_sync
from fleetd.harness.report import PlanItem, Planned
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.store.sqlite.group_commit import SqliteExecutor
from fleetd.store.sqlite.migrate import schema
from tests.support import shared_store
from tests.support.fleet import NOON

AGENT = "claude-1"
# How the tests write an item: its text, behind it what it is marked with.
MARKS = {"": "pending", ">": "in_progress", "x": "completed", "-": "dropped"}


def item(told: str) -> PlanItem:
    """Read ``text``, ``> text``, ``x text`` or ``- text``, with ``#id`` behind the mark."""
    mark, _, rest = told.partition(" ") if told[:2] in ("> ", "x ", "- ") else ("", "", told)
    name, _, text = rest.partition(" ") if rest.startswith("#") else ("", "", rest)
    return PlanItem(text=text, status=MARKS[mark], id=name[1:] or None)  # type: ignore[arg-type]


def _in_memory() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(schema())
    return connection


class SessionRules:
    """One mission in progress, and whoever sends plans for it."""

    def __init__(self, *persons: str, config: Config | None = None, **mission: Any) -> None:
        self.connection = None if shared_store.SERVER else _in_memory()
        self.tx = Tx(
            SqliteExecutor(self.connection) if self.connection else shared_store.executor()
        )
        self.numbers = count(1)
        self.now_ms = NOON
        self.config = config or Config()
        new = MissionCreate("Mission", sorties=[NewSortie(title) for title in persons], **mission)
        self.mission = missions.create(self.tx, self.ctx, new).id
        missions.start(self.tx, self.ctx, MissionStart(self.mission))
        self.agent(AGENT)

    @property
    def ctx(self) -> Context:
        return Context(
            now_ms=self.now_ms,
            awake_ms=self.now_ms,
            boot_id="boot-1",
            new_id=lambda prefix: f"{prefix}-{next(self.numbers):08x}",
            caller=Caller(kind="daemon", uid=0),
            config=self.config,
        )

    def agent(self, name: str, status: str = "active", mission: str | None = None) -> None:
        self.tx.insert(
            "agents",
            {
                "id": name,
                "role": "specialist",
                "mission_id": mission or self.mission,
                "status": status,
                "registered_at": self.ctx.now,
                "last_seen_at": self.ctx.now,
            },
        )

    def plan(self, *items: str, agent: str = AGENT) -> list[str]:
        """Send a whole list; return what the log says of it."""
        return self.send(Planned(items=tuple(map(item, items)), whole=True), agent)

    def update(self, *items: str, agent: str = AGENT) -> list[str]:
        """Send a partial list; return what the log says of it."""
        return self.send(Planned(items=tuple(map(item, items)), whole=False), agent)

    def send(self, planned: Planned, agent: str = AGENT) -> list[str]:
        before = self.end()
        plan_sync.sync_plan(self.tx, self.ctx, self.mission, agent, planned)
        return self.log(before)

    def end(self) -> int:
        return self.tx.value("SELECT max(seq) AS seq FROM events") or 0

    def log(self, since: int = 0, without: str = "") -> list[str]:
        rows = self.tx.all(
            "SELECT type, data_json FROM events WHERE seq > :since ORDER BY seq", since=since
        )
        told = [(row["type"].removeprefix("sortie_"), json.loads(row["data_json"])) for row in rows]
        return [
            f"{what} {data.get('title') or data.get('progress_percent') or ''}".strip()
            for what, data in told
        ]

    def rows(self) -> list[Row]:
        return self.tx.all(
            "SELECT * FROM sorties WHERE mission_id = :id ORDER BY position", id=self.mission
        )

    def sorties(self) -> list[str]:
        """Return the sorties in order, as items are written, others' with their agent in front."""
        marks = {"assigned": "", "in_progress": "> ", "completed": "x ", "failed": "! "}
        marks |= {"pending": "? ", "blocked": "| "}
        return [
            ("" if row["assigned_to"] in (AGENT, None) else f"{row['assigned_to']}: ")
            + marks[row["status"]]
            + row["title"]
            for row in self.rows()
        ]

    def sortie(self, title: str) -> Row:
        return next(row for row in self.rows() if row["title"] == title)

    def give(self, title: str, agent: str) -> None:
        """Add a sortie of another agent."""
        new = NewSortie(title, assigned_to=agent)
        sorties.add(self.tx, self.ctx, self.mission, new)

    def changes(self) -> object:
        """Return something that is another after anything was written."""
        if self.connection is None:
            return shared_store.written(self.tx)
        return self.connection.total_changes()

    def close(self) -> None:
        """Give the database back."""
        if self.connection is None:
            shared_store.release()
        else:
            self.connection.close()
