"""Restore context: one recovery in progress, with its mission, checkpoint and report."""

import msgspec

from ...protocol.errors import Corrupt, InvalidParams, InvalidState, NotFound
from ...protocol.records import Change, Checkpoint, Kept, Record
from ...protocol.requests.mission import MissionSelect
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ..agents.agent_loss import living_processes
from ..checkpoints import checkpoints
from ..core.context import Context
from ..core.ids import find, missing
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx, WatchProcess
from ..missions.selection import select_row


class RestoreReport(msgspec.Struct, kw_only=True):
    """The results of a recovery so far."""

    changes: list[Change] = []
    kept: list[Kept] = []
    errors: list[str] = []
    warnings: list[str] = []
    blockers: list[tuple[str, str]] = []
    """Blocked agents, each with the sentence that tells why."""
    released: list[str] = []
    messages: set[str] = set()
    """Messages that wait for somebody because of this recovery."""

    def changed(self, what: str, record_id: str, before: str, after: str) -> None:
        """Add a change to the report."""
        self.changes.append(Change(what=what, id=record_id, before=before, after=after))


class RestoreContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the steps of a recovery need."""

    tx: Tx
    ctx: Context
    request: RecoveryRestore
    checkpoint: Checkpoint
    report: RestoreReport = msgspec.field(default_factory=RestoreReport)
    repeated: bool = False
    """Whether the last recovery was from the same checkpoint, with nothing done since."""
    undoes: Row | None = None
    """The recovery that is undone, if it was a take-over whose successor still has the work."""

    @property
    def mission_id(self) -> str:
        """Return the mission that is recovered."""
        return self.checkpoint.mission_id

    @property
    def only_agent(self) -> str | None:
        """Return the only agent whose part is restored, None for the whole mission."""
        return self.request.agent_id if self.request.scope == "agent" else None

    @property
    def rewind_seq(self) -> int | None:
        """Return the position in the log that a rewind goes back to, None without a rewind."""
        return self.checkpoint.seq if self.request.rewind else None

    def new_owner(self, name: str) -> str:
        """Return the new owner of an agent's work: the agent itself, or its successor."""
        if self.request.agent_id and name == self.request.take_over_from:
            return self.request.agent_id
        return name

    def undone_successor(self, name: str) -> str | None:
        """Return the successor whose take-over is undone, which gives an agent its locks back."""
        if self.undoes and name == self.undoes["taken_over_from"]:
            return str(self.undoes["agent_id"])
        return None

    def includes(self, name: str | None) -> bool:
        """Return whether the work of this agent is restored."""
        return self.only_agent is None or (
            name is not None and self.new_owner(name) == self.only_agent
        )


def check_agents(request: RecoveryRestore) -> None:
    """Refuse a request with an invalid combination of agents; raises InvalidParams."""
    if request.scope == "agent" and request.force_locks:
        raise InvalidParams(
            "force_locks takes other agents' locks, which scope agent never does.",
            hint="Omit one of the two.",
            field="force_locks",
        )
    if request.agent_id is not None:
        if request.agent_id == request.take_over_from:
            raise InvalidParams(
                f"{request.agent_id} cannot take over from itself.",
                hint="To restore its own part, use scope agent without take_over_from.",
                field="take_over_from",
            )
        return
    if request.take_over_from:
        raise InvalidParams(
            "take_over_from names a lost agent, but agent_id, its successor, is missing.",
            hint="Give the successor as agent_id.",
            field="agent_id",
        )
    if request.scope == "agent":
        raise InvalidParams(
            "scope is agent, but agent_id is missing.",
            hint="Give the agent whose part is to be restored.",
            field="agent_id",
        )


def refuse_unknown_agent(restore: RestoreContext, name: str) -> None:
    """Refuse a name that neither the store nor the checkpoint knows; raises NotFound."""
    # One query after the other: only for a name that no other table has are all sorties read.
    known = any(
        restore.tx.exists(f"SELECT 1 AS known FROM {where} LIMIT 1", id=name)
        for where in (
            "agents WHERE id = :id",
            "locks WHERE held_by = :id",
            "deliveries WHERE agent_id = :id",
            "sorties WHERE assigned_to = :id",
        )
    )
    then = restore.checkpoint
    held = {lock.held_by for lock in then.active_locks} | {s.assigned_to for s in then.sorties}
    if not known and name not in held:
        raise missing("agent", name)


class Surroundings(Record, frozen=True, kw_only=True):
    """What to check outside the store: the project, and the agents' processes on this machine."""

    project_dir: str | None
    processes: list[WatchProcess]
    agent_cwd: str | None = None
    """The directory on this machine in which the agent to brief works."""


def first_look(
    tx: Tx, ctx: Context, request: RecoveryRestore | RecoveryContextGet
) -> tuple[str | None, Surroundings]:
    """Return the mission that a request without a checkpoint means, and what to check outside.

    The mission may have no row; it is None if the request names a checkpoint.
    """
    selected = None if request.checkpoint_id else _selected_mission(tx, ctx, request)
    return selected, surroundings(tx, ctx, request, selected)


def _selected_mission(
    tx: Tx, ctx: Context, request: RecoveryRestore | RecoveryContextGet
) -> str | None:
    try:
        if isinstance(request, RecoveryRestore):
            return _mission_to_recover(tx, ctx, request)
        return str(mission_to_brief(tx, ctx, request)["id"])
    except (NotFound, InvalidState, InvalidParams):
        return request.mission_id


def surroundings(
    tx: Tx, ctx: Context, request: RecoveryRestore | RecoveryContextGet, selected: str | None
) -> Surroundings:
    """Return the project a request is about, and the processes that should be alive.

    ``selected`` is the mission that the request means, if that is known.
    """
    mission_id, agent_id = selected or request.mission_id, request.agent_id
    return Surroundings(
        project_dir=_project_dir(tx, ctx, mission_id, request.checkpoint_id, agent_id),
        processes=living_processes(tx, ctx),
        agent_cwd=_agent_cwd(tx, ctx, agent_id),
    )


def _project_dir(
    tx: Tx, ctx: Context, mission_id: str | None, checkpoint_id: str | None, agent_id: str | None
) -> str | None:
    """Return the project directory of the mission that the ids lead to, None if it has none.

    A directory of another machine may be another project here: then the agent's own one counts.
    """
    ways = (
        ("WHERE m.id = :id", mission_id),
        ("JOIN checkpoints c ON c.mission_id = m.id WHERE c.id = :id", checkpoint_id),
        ("JOIN agents a ON a.mission_id = m.id WHERE a.id = :id", agent_id),
    )
    found = (
        tx.one(f"SELECT m.project_dir, m.machine FROM missions m {where}", id=record_id)
        for where, record_id in ways
        if record_id
    )
    row = next((row for row in found if row and row["project_dir"]), None)
    if row is None:
        return None
    if ctx.is_here(row):
        return str(row["project_dir"])
    return _agent_cwd(tx, ctx, agent_id)


def _agent_cwd(tx: Tx, ctx: Context, agent_id: str | None) -> str | None:
    if agent_id is None:
        return None
    directory: str | None = tx.value(
        "SELECT cwd FROM agents WHERE id = :id AND machine = :machine",
        id=agent_id,
        machine=ctx.machine,
    )
    return directory


def mission_to_brief(tx: Tx, ctx: Context, request: RecoveryContextGet) -> Row:
    """Return the mission to brief about: the named one, else see ``selection``."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return select_row(tx, ctx, MissionSelect("briefing", request.cwd, request.agent_id)).row


def choose_checkpoint(
    tx: Tx, ctx: Context, request: RecoveryRestore, report: RestoreReport
) -> Checkpoint:
    """Return the checkpoint a request names, or the newest usable one of the mission it means.

    The report warns of each checkpoint that was skipped. Raises NotFound, InvalidParams,
    InvalidState when no mission is meant, Corrupt for a damaged row, Incompatible.
    """
    if request.checkpoint_id:
        checkpoint = checkpoints.load(tx, request.checkpoint_id)
        if request.mission_id:
            wanted = find(tx, "mission", request.mission_id)["id"]
            if checkpoint.mission_id != wanted:
                raise InvalidParams(
                    f"Checkpoint {checkpoint.id} belongs to mission {checkpoint.mission_id}, "
                    f"not to {wanted}.",
                    hint="Omit one of the two.",
                    field="checkpoint_id",
                )
        return checkpoint
    return _newest_usable(tx, ctx, _mission_to_recover(tx, ctx, request), report)


def _mission_to_recover(tx: Tx, ctx: Context, request: RecoveryRestore) -> str:
    """Return the mission to restore: the named one, else see ``selection``."""
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    wanted = MissionSelect("recovery", request.cwd, request.agent_id, request.take_over_from)
    return str(select_row(tx, ctx, wanted).row["id"])


def _newest_usable(tx: Tx, ctx: Context, mission_id: str, report: RestoreReport) -> Checkpoint:
    """Return the newest checkpoint that automatic recovery may use.

    Undo checkpoints, expired ones and those known to be unusable are skipped. Raises Corrupt for a
    damaged row, so that the caller can try to repair it, and Incompatible.
    """
    rows = tx.all(
        "SELECT id, timestamp FROM checkpoints WHERE mission_id = :id"
        f" AND {LIVE} AND undo = 0 ORDER BY seq DESC",
        id=mission_id,
    )
    retention = ctx.config.retention
    oldest = ctx.days_ago(retention.days)
    for index, row in enumerate(rows):
        if index >= retention.keep and row["timestamp"] < oldest:
            report.warnings.append(f"Checkpoint {row['id']} has expired and was skipped")
        elif row["id"] in ctx.facts.unreadable:
            report.warnings.append(f"{ctx.facts.unreadable[row['id']]}; it was skipped")
        else:
            return checkpoints.load(tx, row["id"])
    if ctx.facts.unreadable:
        raise Corrupt(
            f"No checkpoint of mission {mission_id} can be used: {'; '.join(report.warnings)}.",
            hint="fleetctl checkpoint verify --all shows the damage. To use an expired "
            "checkpoint: fleetctl resume --checkpoint <id>",
            mission_id=mission_id,
        )
    raise checkpoints.none_for(mission_id)
