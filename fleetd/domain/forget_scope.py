"""What a forgetting takes with it: which missions, agents and rows; must not change anything."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ..wire.errors import NotFound
from ..wire.model import Record
from .ids import find
from .tx import Row, Tx


class Target(Record, frozen=True, kw_only=True):
    """What somebody wants forgotten: a mission or session by id, a project by its directory.

    A deletion takes a finished mission by id, and nothing else that somebody said.
    """

    kind: Literal["mission", "session", "project", "deletion"]
    name: str


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The missions and agents that go, and the directory whose files nobody shall mention.

    ``shared`` are missions that stay although the agents worked in them: others did too. ``spared``
    are agents that stay although they belong to the missions: they worked elsewhere too.
    """

    missions: list[str]
    agents: list[str]
    directory: str | None = None
    shared: list[str] = []
    spared: list[str] = []
    keeps_agents: bool = False

    @property
    def params(self) -> Row:
        """Return the values that the clauses refer to."""
        return _named("m", self.missions) | _named("a", self.agents) | _place(self.directory)

    @property
    def named(self) -> tuple[list[str], list[str]]:
        """Return the parameters that stand for the missions, and those for the agents."""
        names = _named("m", self.missions), _named("a", self.agents)
        return [f":{name}" for name in names[0]], [f":{name}" for name in names[1]]

    def joined(self, later: "Scope") -> "Scope":
        """Return what goes after agents went on working; who was to stay stays.

        What is gone already says no longer who worked where: the first finding counts.
        """
        missions = sorted({*self.missions, *(set(later.missions) - set(self.shared))})
        agents = sorted({*self.agents, *(set(later.agents) - set(self.spared))})
        shared = sorted({*self.shared, *later.shared} - set(missions))
        return msgspec.structs.replace(self, missions=missions, agents=agents, shared=shared)

    def clauses(self, since: int = 0) -> dict[str, str]:
        """Return which rows of each table go, in an order in which they can.

        Counting and deleting both read this. A table that keeps what somebody said belongs here.
        Events and messages that no index finds are looked for from ``since`` on only.
        """
        m, a = _list("m", self.missions), _list("a", self.agents)
        told_to_them = (
            "EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = messages.id"
            f" AND d.agent_id IN ({a})) AND NOT EXISTS"
            " (SELECT 1 FROM deliveries d WHERE d.message_id = messages.id"
            f" AND d.agent_id NOT IN ({a}))"
        )
        streams = ", ".join(
            f"'{noun}:' || {each}"
            for noun, ids in (("mission", m), ("agent", a))
            for each in ids.split(", ")
        )
        below = f"{_below('normalized_path')} OR {_below('file')}" if self.directory else "1 = 0"
        # Case counts, so not LIKE: a text that has something taken out is another text.
        said = " OR ".join(
            f"replace(data_json, :{name}, '') <> data_json" for name in ("quoted", "quoted_below")
        )
        said = said if self.directory else "1 = 0"
        return {
            "lock_waits": f"mission_id IN ({m}) OR agent_id IN ({a}) OR {below}",
            "messages": f"seq >= {since:d}"
            f" AND (mission_id IN ({m}) OR sender IN ({a}) OR ({told_to_them}))",
            "deliveries": f"agent_id IN ({a})",
            "events": f"mission_id IN ({m}) OR agent_id IN ({a})"
            f" OR (seq >= {since:d} AND ({said}))",
            "locks": f"mission_id IN ({m}) OR held_by IN ({a}) OR {below}",
            "cursors": f"consumer IN ({a}) OR stream IN ({streams})",
            "recoveries": f"mission_id IN ({m})",
            "checkpoints": f"mission_id IN ({m})",
            "episodes": f"mission_id IN ({m})",
            "plan_items": f"mission_id IN ({m}) OR agent_id IN ({a})",
            "sorties": f"mission_id IN ({m})",
            "tool_calls": f"agent_id IN ({a})",
            "hook_deliveries": f"session_id IN (SELECT session_id FROM sessions"
            f" WHERE agent_id IN ({a}))",
            "sessions": f"agent_id IN ({a})",
            "agents": f"id IN ({a})",
            "missions": f"id IN ({m})",
        }


def _named(prefix: str, values: Sequence[str]) -> Row:
    return {f"{prefix}{number}": value for number, value in enumerate(values)}


def _list(prefix: str, values: Sequence[str]) -> str:
    """Return the inside of ``IN (...)``; an empty list matches nothing."""
    return ", ".join(f":{name}" for name in _named(prefix, values)) or "NULL"


def _place(directory: str | None) -> Row:
    if directory is None:
        return {}
    below = directory.rstrip("/") + "/"
    quoted = msgspec.json.encode(directory).decode()
    return {
        "directory": directory,
        "below": below,
        "quoted": quoted,
        "quoted_below": msgspec.json.encode(below).decode()[:-1],
    }


def _below(column: str) -> str:
    """Return the condition that a path is the directory, or lies in it."""
    return f"{column} = :directory OR substr({column}, 1, length(:below)) = :below"


def scope_of(tx: Tx, target: Target) -> Scope:
    """Find out what goes; raises NotFound for a mission or a session that nobody knows."""
    if target.kind == "deletion":
        return Scope(missions=[target.name], agents=[], keeps_agents=True)
    if target.kind == "mission":
        missions = [str(find(tx, "mission", target.name)["id"])]
        agents = _only_there(tx, missions)
        return Scope(missions=missions, agents=agents, spared=_spared(tx, missions, agents))
    if target.kind == "session":
        return _session(tx, target.name)
    return _project(tx, target.name)


def _only_there(tx: Tx, missions: list[str]) -> list[str]:
    """Return the agents of missions that have done nothing in any other."""
    m = _list("m", missions)
    rows = tx.all(
        f"SELECT id FROM agents WHERE mission_id IN ({m})"
        f" AND NOT EXISTS (SELECT 1 FROM events e WHERE e.agent_id = agents.id"
        f" AND e.mission_id NOT IN ({m}))"
        f" AND NOT EXISTS (SELECT 1 FROM sorties s WHERE s.assigned_to = agents.id"
        f" AND s.mission_id NOT IN ({m})) ORDER BY id",
        **_named("m", missions),
    )
    return [row["id"] for row in rows]


def _spared(tx: Tx, missions: list[str], agents: list[str]) -> list[str]:
    m = _list("m", missions)
    rows = tx.all(f"SELECT id FROM agents WHERE mission_id IN ({m})", **_named("m", missions))
    return sorted({*_ids(rows)} - {*agents})


def _session(tx: Tx, session_id: str) -> Scope:
    agents = _ids(tx.all("SELECT id FROM agents WHERE session_id = :id ORDER BY id", id=session_id))
    if not agents:
        raise NotFound(
            f"Session not found: {session_id}",
            hint="fleetctl agent list --json shows the sessions of the agents there are.",
            noun="session",
            id=session_id,
        )
    touched = _touched(tx, agents)
    shared = [mission for mission in touched if _others_in(tx, mission, agents)]
    missions = [mission for mission in touched if mission not in shared]
    return Scope(missions=missions, agents=agents, shared=shared)


def _project(tx: Tx, directory: str) -> Scope:
    place = _place(directory)
    missions = _ids(
        tx.all(f"SELECT id FROM missions WHERE {_below('project_dir')} ORDER BY id", **place)
    )
    there = _ids(tx.all(f"SELECT id FROM agents WHERE {_below('cwd')}", **place))
    agents = sorted({*there, *_only_there(tx, missions)})
    shared = [mission for mission in _touched(tx, agents) if mission not in missions]
    return Scope(
        missions=missions,
        agents=agents,
        directory=directory,
        shared=shared,
        spared=_spared(tx, missions, agents),
    )


def _ids(rows: list[Row]) -> list[str]:
    return [row["id"] for row in rows]


def _touched(tx: Tx, agents: list[str]) -> list[str]:
    """Return the missions that agents took part in."""
    a = _list("a", agents)
    rows = tx.all(
        "SELECT id FROM missions WHERE id IN"
        f" (SELECT mission_id FROM agents WHERE id IN ({a})"
        f" UNION SELECT mission_id FROM events WHERE agent_id IN ({a})"
        f" UNION SELECT mission_id FROM locks WHERE held_by IN ({a})"
        f" UNION SELECT mission_id FROM sorties WHERE assigned_to IN ({a})) ORDER BY id",
        **_named("a", agents),
    )
    return _ids(rows)


def _others_in(tx: Tx, mission_id: str, agents: list[str]) -> bool:
    """Whether anybody but these agents ever belonged to a mission; reading its mail is not that."""
    a = _list("a", agents)
    found = tx.one(
        f"SELECT 1 AS other FROM agents WHERE mission_id = :id AND id NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM sorties WHERE mission_id = :id AND assigned_to NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM events WHERE mission_id = :id AND activity = 1"
        f" AND agent_id NOT IN ({a}) LIMIT 1",
        id=mission_id,
        **_named("a", agents),
    )
    return found is not None


def counts(tx: Tx, scope: Scope, since: int, only: Mapping[str, str]) -> dict[str, int]:
    """Count the rows of each table that go; see ``Scope.clauses`` for ``since``.

    ``only`` says for some tables which of their rows to count.
    """
    chosen = dict.fromkeys(scope.clauses(), "1 = 1") | dict(only)
    return {
        table: tx.value(
            f"SELECT count(*) FROM {table} WHERE {chosen[table]} AND ({where})", **scope.params
        )
        for table, where in scope.clauses(since).items()
    }
