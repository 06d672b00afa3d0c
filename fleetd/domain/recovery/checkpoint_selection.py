"""Selection: which mission and checkpoint a recovery starts from, and what to look at first."""

from ...protocol.errors import Corrupt, InvalidParams, InvalidState, NotFound
from ...protocol.records import Checkpoint, Record
from ...protocol.requests.mission import MissionSelect
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ..agents.agent_loss import living_processes
from ..checkpoints import checkpoints
from ..core.context import Context
from ..core.ids import find
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx, WatchProcess
from ..missions.selection import select_row
from .restore_context import RestoreReport


class Surroundings(Record, frozen=True, kw_only=True):
    """What to look at outside the store: the project and the agents' processes of this machine."""

    project_dir: str | None
    processes: list[WatchProcess]
    agent_cwd: str | None = None
    """Where on this machine the agent works that is to be briefed."""


def mission_meant(
    tx: Tx, ctx: Context, request: RecoveryRestore | RecoveryContextGet
) -> str | None:
    """Return the mission that a request without a checkpoint means, also one that has no row."""
    try:
        if isinstance(request, RecoveryRestore):
            return _mission_to_recover(tx, ctx, request)
        return str(mission_to_brief(tx, ctx, request)["id"])
    except (NotFound, InvalidState, InvalidParams):
        return request.mission_id


def surroundings(
    tx: Tx, ctx: Context, mission_id: str | None, checkpoint_id: str | None, agent_id: str | None
) -> Surroundings:
    """Return the project a request is about, and the processes that should be alive."""
    return Surroundings(
        project_dir=_project_dir(tx, ctx, mission_id, checkpoint_id, agent_id),
        processes=living_processes(tx, ctx),
        agent_cwd=_agent_cwd(tx, ctx, agent_id),
    )


def _project_dir(
    tx: Tx, ctx: Context, mission_id: str | None, checkpoint_id: str | None, agent_id: str | None
) -> str | None:
    """Return the project directory of the mission that these lead to, if it leads to one.

    That of another machine may be another project here: there the agent's own directory counts.
    """
    of_checkpoint = "JOIN checkpoints c ON c.mission_id = m.id WHERE c.id = :id"
    of_agent = "JOIN agents a ON a.mission_id = m.id WHERE a.id = :id"
    ways = (
        ("WHERE m.id = :id", mission_id),
        (of_checkpoint, checkpoint_id),
        (of_agent, agent_id),
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
    directory: str | None = tx.value(
        "SELECT cwd FROM agents WHERE id = :id AND machine = :machine",
        id=agent_id,
        machine=ctx.machine,
    )
    return directory


def mission_to_brief(tx: Tx, ctx: Context, request: RecoveryContextGet) -> Row:
    """Return the mission to brief about: the one that is named, else see ``selection``."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return select_row(tx, ctx, MissionSelect("briefing", request.cwd, request.agent_id)).row


def choose(tx: Tx, ctx: Context, request: RecoveryRestore, report: RestoreReport) -> Checkpoint:
    """Return the checkpoint a request names, or the newest usable one of the mission it means.

    What was passed over on the way is warned of in the report. Raises NotFound, InvalidParams,
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
                    hint="Leave one of the two out.",
                    field="checkpoint_id",
                )
        return checkpoint
    return _newest_usable(tx, ctx, _mission_to_recover(tx, ctx, request), report)


def _mission_to_recover(tx: Tx, ctx: Context, request: RecoveryRestore) -> str:
    """Return the mission to bring back: the one that is named, else see ``selection``."""
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    wanted = MissionSelect("recovery", request.cwd, request.agent_id, request.take_over_from)
    return str(select_row(tx, ctx, wanted).row["id"])


def _newest_usable(tx: Tx, ctx: Context, mission_id: str, report: RestoreReport) -> Checkpoint:
    """Return the newest checkpoint that automatic recovery may use.

    Undo checkpoints and expired ones are passed over; so are those known to be of no use. Raises
    Corrupt for a damaged row, so that the caller can try to heal it, and Incompatible.
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
            report.warnings.append(f"Checkpoint {row['id']} has expired and was passed over")
        elif row["id"] in ctx.facts.unreadable:
            report.warnings.append(f"{ctx.facts.unreadable[row['id']]}; it was passed over")
        else:
            return checkpoints.load(tx, row["id"])
    if ctx.facts.unreadable:
        raise Corrupt(
            f"No checkpoint of mission {mission_id} can be used: {'; '.join(report.warnings)}.",
            hint="fleetctl checkpoints verify --all shows what is wrong; an expired one can be "
            "named: fleetctl resume --checkpoint <id>",
            mission_id=mission_id,
        )
    raise checkpoints.none_for(mission_id)
