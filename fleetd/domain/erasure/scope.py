"""Scope of an erasure: the missions, agents, runs and rows to delete, as ids and SQL conditions.

A run is deleted with its agent. A run that several agents recorded stays, unless somebody names it.
It loses what the deleted agents have recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ...protocol.errors import NotFound
from ...protocol.records import Record
from ..core.ids import Key, find
from ..core.sql import contains_any, inside_of, named_params, starts_with
from ..core.tx import Row, Tx
from ..locks.keys import machine_key
from ..snapshots.runs import run_of_row, run_of_session

# Events that name a run, whatever agent it belongs to.
NAMING_RUNS = ("snapshot_recorded", "backup_failed")
_RUN_EVENTS = ", ".join(f"'{kind}'" for kind in NAMING_RUNS)


# Whether a snapshot that is marked still has content that somebody wrote.
_HAS_CONTENT = (
    "(agent_id IS NOT NULL OR step_id IS NOT NULL OR note IS NOT NULL"
    " OR source_details_json <> '[]' OR warnings_json <> '[]')"
)


class ErasureTarget(Record, frozen=True, kw_only=True):
    """The target of an erasure: a mission or session by id, a project by its directory.

    ``machine`` is the machine of that directory, in a shared store. A deletion takes a finished
    mission by id, and nothing else that somebody said.
    """

    kind: Literal["mission", "session", "project", "deletion"]
    name: str
    machine: str = ""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The missions, agents and runs to delete, and the directory whose files no record may mention.

    In a shared store, the directory is on ``machine``: others may have files of the same names.
    Other runs lose the snapshots that contain something of the missions. ``called`` are runs that
    somebody named, so no event may name them either.

    ``shared`` are missions that stay because other agents worked in them too. ``spared`` are agents
    of the missions that stay because they worked elsewhere too.
    """

    missions: list[str]
    agents: list[str]
    directory: str | None = None
    machine: str = ""
    shared: list[str] = []
    spared: list[str] = []
    runs: list[str] = []
    called: list[str] = []
    keeps_agents: bool = False

    @property
    def params(self) -> Row:
        """Return the values that the clauses refer to."""
        return (
            named_params("m", self.missions)
            | named_params("a", self.agents)
            | named_params("r", self.runs)
            | _run_name_params(self.called)
            | _place_params(self.directory, self.machine)
        )

    @property
    def names_runs(self) -> str:
        """Return the condition that an event of ``NAMING_RUNS`` names one of the called runs."""
        return contains_any("data_json", _run_name_params(self.called)) if self.called else "1 = 0"

    def joined(self, later: "Scope") -> "Scope":
        """Return the scope after agents went on working; what was to stay still stays.

        Deleted rows no longer show who worked where, so the first finding counts.
        """
        missions = sorted({*self.missions, *(set(later.missions) - set(self.shared))})
        agents = sorted({*self.agents, *(set(later.agents) - set(self.spared))})
        shared = sorted({*self.shared, *later.shared} - set(missions))
        runs = sorted({*self.runs, *later.runs})
        called = sorted({*self.called, *later.called})
        return msgspec.structs.replace(
            self, missions=missions, agents=agents, shared=shared, runs=runs, called=called
        )

    def clauses(self, since: int = 0) -> dict[str, str]:
        """Return the condition for rows to delete of each table, in an order that works.

        Every table that keeps what somebody said belongs here. Events and messages that no index
        finds are searched only from ``since`` on.
        """
        m, a = inside_of("m", self.missions), inside_of("a", self.agents)
        r = inside_of("r", self.runs)
        only_to_them = (
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
        mentions = self._not_of_others(
            contains_any("data_json", ("quoted", "quoted_below")), "agent_id"
        )
        return {
            "lock_waits": f"mission_id IN ({m}) OR agent_id IN ({a}){self._files('agent_id')}",
            "messages": f"seq >= {since:d}"
            f" AND (mission_id IN ({m}) OR sender IN ({a}) OR ({only_to_them}))",
            "deliveries": f"agent_id IN ({a})",
            "events": f"mission_id IN ({m}) OR agent_id IN ({a})"
            f" OR (seq >= {since:d} AND ({mentions}))"
            f" OR (seq >= {since:d} AND type IN ({_RUN_EVENTS}) AND ({self.names_runs}))",
            "locks": f"mission_id IN ({m}) OR held_by IN ({a}){self._files('held_by')}",
            "cursors": f"consumer IN ({a}) OR stream IN ({streams})",
            "snapshots": self._snapshots(),
            "runs": f"id IN ({r})",
            "recoveries": f"mission_id IN ({m})",
            "handoffs": f"mission_id IN ({m}) OR agent_id IN ({a}) OR successor_id IN ({a})",
            "checkpoints": f"mission_id IN ({m})",
            "episodes": f"mission_id IN ({m})",
            "notes": self._notes(m, a),
            "plan_items": f"mission_id IN ({m}) OR agent_id IN ({a})",
            "sorties": f"mission_id IN ({m})",
            "briefings": f"mission_id IN ({m})",
            "usage_records": f"agent_id IN ({a}) OR mission_id IN ({m})",
            "transcripts": "EXISTS (SELECT 1 FROM sessions s WHERE s.harness = transcripts.harness"
            f" AND s.session_id = transcripts.session_id AND s.agent_id IN ({a}))",
            "budgets": f"mission_id IN ({m})",
            "tool_calls": f"agent_id IN ({a})",
            "hook_deliveries": f"session_id IN (SELECT session_id FROM sessions"
            f" WHERE agent_id IN ({a}))",
            "sessions": f"agent_id IN ({a})",
            "agents": f"id IN ({a})",
            "missions": f"id IN ({m})",
        }

    def edits(self) -> dict[str, str]:
        """Return the conditions for tables that are kept for an hour, and whose rows nobody counts.

        They include rows of agents that stay but worked in a mission to delete.
        """
        going = f"SELECT id FROM agents WHERE mission_id IN ({inside_of('m', self.missions)})"
        going += f" OR id IN ({inside_of('a', self.agents)})"
        here = f" OR {below('path', 'key')}" if self.directory else ""
        there = f"{here} OR {below('other_path', 'key')}" if self.directory else ""
        return {
            "edits": f"agent_id IN ({going}){here}",
            "edit_history": f"agent_id IN ({going}){here}",
            "outside_edits": f"agent_id IN ({going}){here}",
            "edit_conflicts": f"agent_id IN ({going}) OR other_id IN ({going}){there}",
        }

    def _notes(self, missions: str, agents: str) -> str:
        """Return the condition for notes to delete: of missions, agents, and files of the place."""
        here = ""
        if self.directory:
            here = f" OR ({self._not_of_others(below('path'), 'agent_id')})"
        return f"mission_id IN ({missions}) OR agent_id IN ({agents}){here}"

    def _files(self, agent_column: str) -> str:
        """Return the condition for locks on files of the directory.

        It is empty without a directory: then an index serves each half of the rest.
        """
        if not self.directory:
            return ""
        named = below("file")
        if self.machine:  # a path of another machine may be the same; its key is not
            of_all = "substr(normalized_path, 1, length('project:')) = 'project:'"
            named = f"({named}) AND ({of_all} OR {starts_with('normalized_path', 'own')})"
        return (
            f" OR {below('normalized_path', 'key')} OR ({self._not_of_others(named, agent_column)})"
        )

    def _not_of_others(self, condition: str, agent_column: str) -> str:
        """Narrow a condition on the directory to what is not known to be another machine's."""
        if not self.directory:
            return "1 = 0"
        if not self.machine:
            return condition
        others = "SELECT id FROM agents WHERE machine <> :at"
        return f"({condition}) AND NOT coalesce({agent_column} IN ({others}), 1 = 0)"

    def _snapshots(self) -> str:
        """Return the condition for snapshots to delete, without unused parts, so indexes serve.

        It is one list of ids, because not every engine uses the index of each condition in an OR.
        """
        m, each = inside_of("m", self.missions), []
        if self.runs:
            each.append(f"SELECT id FROM snapshots WHERE run_id IN ({inside_of('r', self.runs)})")
        if self.agents:
            of_agents = inside_of("a", self.agents)
            each.append(f"SELECT id FROM snapshots WHERE agent_id IN ({of_agents})")
        if self.missions:
            each.append(f"SELECT snapshot_id FROM snapshot_missions WHERE mission_id IN ({m})")
            # For a snapshot that was restored from its file, nothing else names the mission.
            steps = f"SELECT id FROM sorties WHERE mission_id IN ({m})"
            each.append(f"SELECT id FROM snapshots WHERE step_id IN ({steps})")
        found = [f"id IN ({' UNION '.join(each)})"] if each else []
        if self.directory:
            # The former document of a marked snapshot is unknown, so the snapshot is deleted with
            # all other content.
            here = " AND machine = :at" if self.machine else ""
            found.append(f"({contains_any('document_json', ('quoted', 'quoted_below'))}){here}")
            found.append(f"deleted_at IS NOT NULL AND {_HAS_CONTENT}")
        return " OR ".join(found) or "1 = 0"


def scope_of(tx: Tx, target: ErasureTarget) -> Scope:
    """Return the scope of a target; raises NotFound for an unknown mission or session."""
    if target.kind == "deletion":
        return Scope(missions=[target.name], agents=[], keeps_agents=True)
    if target.kind == "mission":
        missions = [str(find(tx, "mission", target.name)["id"])]
        agents = _agents_only_in(tx, missions)
        return Scope(
            missions=missions,
            agents=agents,
            spared=_spared(tx, missions, agents),
            runs=_runs_of(tx, agents),
        )
    if target.kind == "session":
        return _session(tx, target.name)
    return _project(tx, target.name, target.machine)


def _agents_only_in(tx: Tx, missions: list[str]) -> list[str]:
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
    called = _runs_named(tx, session_id, agents)
    if not agents and not called:
        raise NotFound(
            f"Session not found: {session_id}",
            hint="fleetctl agent list --json shows the sessions of all agents.",
            noun="session",
            id=session_id,
        )
    touched = _missions_worked_in(tx, agents)
    shared = [mission for mission in touched if _others_in(tx, mission, agents)]
    missions = [mission for mission in touched if mission not in shared]
    runs = sorted({*called, *_runs_of(tx, agents)})
    return Scope(missions=missions, agents=agents, shared=shared, runs=runs, called=called)


def _project(tx: Tx, directory: str, machine: str) -> Scope:
    place = _place_params(directory, machine)
    missions = _ids(
        tx.all(
            f"SELECT id FROM missions WHERE machine = :at AND ({below('project_dir')}) ORDER BY id",
            **place,
        )
    )
    there = _ids(tx.all(f"SELECT id FROM agents WHERE machine = :at AND ({below('cwd')})", **place))
    agents = sorted({*there, *_agents_only_in(tx, missions)})
    return Scope(
        missions=missions,
        agents=agents,
        directory=directory,
        machine=machine,
        shared=[mission for mission in _missions_worked_in(tx, agents) if mission not in missions],
        spared=_spared(tx, missions, agents),
        runs=_runs_of(tx, agents),
    )


def _ids(rows: list[Row]) -> list[str]:
    return [row["id"] for row in rows]


def _missions_worked_in(tx: Tx, agents: list[str]) -> list[str]:
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
    """Whether other agents ever belonged to a mission; reading its mail does not count."""
    a = inside_of("a", agents)
    return tx.exists(
        f"SELECT 1 AS other FROM agents WHERE mission_id = :id AND id NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM sorties WHERE mission_id = :id AND assigned_to NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM events WHERE mission_id = :id AND activity = 1"
        f" AND agent_id NOT IN ({a}) LIMIT 1",
        id=mission_id,
        **named_params("a", agents),
    )


def _runs_of(tx: Tx, agents: list[str]) -> list[str]:
    """Return the runs of agents in which nobody else recorded anything."""
    if not agents:
        return []
    sessions = tx.all(
        f"SELECT * FROM sessions WHERE agent_id IN ({inside_of('a', agents)})",
        **named_params("a", agents),
    )
    names = _recorded_runs(tx, agents).union(map(run_of_row, sessions))
    return sorted(name for name in names if not _others_recorded(tx, name, agents))


def _runs_named(tx: Tx, name: str, agents: list[str]) -> list[str]:
    """Return the runs that a session's name denotes, if they have records.

    Those are the run of that name, even of a tool without a session, and those of its subagents.
    """
    rows = tx.all("SELECT * FROM sessions WHERE session_id = :name", name=name)
    names = {run_of_session(Key("", name)), *map(run_of_row, rows)}
    there = "SELECT 1 AS there FROM runs WHERE id = :id"
    found = {name for name in names if tx.exists(there, id=name)}
    below = tx.all(
        "SELECT id, agent_id FROM runs WHERE substr(id, 1, length(:below)) = :below",
        below=f"{run_of_session(Key('', name))}.",
    )
    return sorted(found | {r["id"] for r in below if r["agent_id"] in (None, *agents)})


def _recorded_runs(tx: Tx, agents: list[str]) -> set[str]:
    """Return the runs that were recorded of agents, and those they registered with."""
    a, params = inside_of("a", agents), named_params("a", agents)
    recorded = tx.all(
        f"SELECT id FROM runs WHERE agent_id IN ({a})"
        f" UNION SELECT run_id FROM snapshots WHERE agent_id IN ({a})",
        **params,
    )
    registered = tx.all(
        "SELECT harness, session_id FROM agents WHERE session_id IS NOT NULL"
        f" AND session_id <> '' AND id IN ({a})",
        **params,
    )
    own = {run_of_session(Key(row["harness"] or "", row["session_id"])) for row in registered}
    return own | {row["id"] for row in recorded}


def _others_recorded(tx: Tx, run_id: str, agents: list[str]) -> bool:
    """Whether other agents recorded something in a run, or are in it now."""
    a = inside_of("a", agents)
    return tx.exists(
        f"SELECT 1 AS other FROM runs WHERE id = :run AND agent_id NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM snapshots WHERE run_id = :run AND agent_id NOT IN ({a}) LIMIT 1",
        run=run_id,
        **named_params("a", agents),
    )


def counts(tx: Tx, scope: Scope, since: int, only: Mapping[str, str]) -> dict[str, int]:
    """Count the rows to delete of each table; see ``Scope.clauses`` for ``since``.

    ``only`` says for some tables which of their rows to count.
    """
    chosen = dict.fromkeys(scope.clauses(), "1 = 1") | dict(only)
    return {
        table: tx.value(
            f"SELECT count(*) FROM {table} WHERE {chosen[table]} AND ({where})", **scope.params
        )
        for table, where in scope.clauses(since).items()
    }


def _run_name_params(runs: Sequence[str]) -> Row:
    """Return how events name runs: as a value, and within the path of a file."""
    return named_params("v", [f'"run_id":"{run}"' for run in runs]) | named_params(
        "p", [f"/{run}/" for run in runs]
    )


def _place_params(directory: str | None, machine: str = "") -> Row:
    """Return the parameters of the conditions on a directory."""
    if directory is None:
        return {}
    below = directory.rstrip("/") + "/"
    return {
        "at": machine,
        "directory": directory,
        "below": below,
        "own": machine_key(machine, ""),
        "key": machine_key(machine, directory),
        "below_key": machine_key(machine, below),
        "quoted": msgspec.json.encode(directory).decode(),
        "quoted_below": msgspec.json.encode(below).decode()[:-1],
    }


def below(column: str, name: str = "directory") -> str:
    """Return the condition that a path is the directory or in it; with ``key``, that a key is."""
    return f"{column} = :{name} OR {starts_with(column, 'below_key' if name == 'key' else 'below')}"
