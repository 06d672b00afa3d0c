"""What a forgetting takes with it: which missions, agents and rows; must not change anything."""

from collections.abc import Mapping
from typing import Literal

from ...protocol.errors import NotFound
from ...protocol.records import Record
from ..core.ids import find
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx
from .clauses import Scope, below, place_params
from .forget_runs import called_so, runs_of


class Target(Record, frozen=True, kw_only=True):
    """What somebody wants forgotten: a mission or session by id, a project by its directory.

    ``machine`` is where that is a directory, in a store that several share. A deletion takes a
    finished mission by id, and nothing else that somebody said.
    """

    kind: Literal["mission", "session", "project", "deletion"]
    name: str
    machine: str = ""


def scope_of(tx: Tx, target: Target) -> Scope:
    """Find out what goes; raises NotFound for a mission or a session that nobody knows."""
    if target.kind == "deletion":
        return Scope(missions=[target.name], agents=[], keeps_agents=True)
    if target.kind == "mission":
        missions = [str(find(tx, "mission", target.name)["id"])]
        agents = _only_there(tx, missions)
        return Scope(
            missions=missions,
            agents=agents,
            spared=_spared(tx, missions, agents),
            runs=runs_of(tx, agents),
        )
    if target.kind == "session":
        return _session(tx, target.name)
    return _project(tx, target.name, target.machine)


def _only_there(tx: Tx, missions: list[str]) -> list[str]:
    """Return the agents of missions that have done nothing in any other."""
    m = inside_of("m", missions)
    rows = tx.all(
        f"SELECT id FROM agents WHERE mission_id IN ({m})"
        f" AND NOT EXISTS (SELECT 1 FROM events e WHERE e.agent_id = agents.id"
        f" AND e.mission_id NOT IN ({m}))"
        f" AND NOT EXISTS (SELECT 1 FROM sorties s WHERE s.assigned_to = agents.id"
        f" AND s.mission_id NOT IN ({m})) ORDER BY id",
        **named_params("m", missions),
    )
    return [row["id"] for row in rows]


def _spared(tx: Tx, missions: list[str], agents: list[str]) -> list[str]:
    m = inside_of("m", missions)
    rows = tx.all(f"SELECT id FROM agents WHERE mission_id IN ({m})", **named_params("m", missions))
    return sorted({*_ids(rows)} - {*agents})


def _session(tx: Tx, session_id: str) -> Scope:
    agents = _ids(tx.all("SELECT id FROM agents WHERE session_id = :id ORDER BY id", id=session_id))
    called = called_so(tx, session_id, agents)
    if not agents and not called:
        raise NotFound(
            f"Session not found: {session_id}",
            hint="fleetctl agent list --json shows the sessions of the agents there are.",
            noun="session",
            id=session_id,
        )
    touched = _touched(tx, agents)
    shared = [mission for mission in touched if _others_in(tx, mission, agents)]
    missions = [mission for mission in touched if mission not in shared]
    runs = sorted({*called, *runs_of(tx, agents)})
    return Scope(missions=missions, agents=agents, shared=shared, runs=runs, called=called)


def _project(tx: Tx, directory: str, machine: str) -> Scope:
    place = place_params(directory, machine)
    missions = _ids(
        tx.all(
            f"SELECT id FROM missions WHERE machine = :at AND ({below('project_dir')}) ORDER BY id",
            **place,
        )
    )
    there = _ids(tx.all(f"SELECT id FROM agents WHERE machine = :at AND ({below('cwd')})", **place))
    agents = sorted({*there, *_only_there(tx, missions)})
    shared = [mission for mission in _touched(tx, agents) if mission not in missions]
    return Scope(
        missions=missions,
        agents=agents,
        directory=directory,
        machine=machine,
        shared=shared,
        spared=_spared(tx, missions, agents),
        runs=runs_of(tx, agents),
    )


def _ids(rows: list[Row]) -> list[str]:
    return [row["id"] for row in rows]


def _touched(tx: Tx, agents: list[str]) -> list[str]:
    """Return the missions that agents took part in."""
    a = inside_of("a", agents)
    rows = tx.all(
        "SELECT id FROM missions WHERE id IN"
        f" (SELECT mission_id FROM agents WHERE id IN ({a})"
        f" UNION SELECT mission_id FROM events WHERE agent_id IN ({a})"
        f" UNION SELECT mission_id FROM locks WHERE held_by IN ({a})"
        f" UNION SELECT mission_id FROM sorties WHERE assigned_to IN ({a})) ORDER BY id",
        **named_params("a", agents),
    )
    return _ids(rows)


def _others_in(tx: Tx, mission_id: str, agents: list[str]) -> bool:
    """Whether anybody but these agents ever belonged to a mission; reading its mail is not that."""
    a = inside_of("a", agents)
    found = tx.one(
        f"SELECT 1 AS other FROM agents WHERE mission_id = :id AND id NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM sorties WHERE mission_id = :id AND assigned_to NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM events WHERE mission_id = :id AND activity = 1"
        f" AND agent_id NOT IN ({a}) LIMIT 1",
        id=mission_id,
        **named_params("a", agents),
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
