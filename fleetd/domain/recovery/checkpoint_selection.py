"""Which checkpoint a recovery starts from, of which mission; must not change anything."""

from ...protocol.errors import Corrupt, InvalidParams, InvalidState, NotFound
from ...protocol.records import Checkpoint, Record
from ...protocol.request import Query
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ..checkpoints import checkpoints
from ..core.context import Context
from ..core.ids import find
from ..core.registry import handler
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from ..missions.selection import Wanted, selected
from .restore_context import Ledger


class Target(Record, frozen=True, kw_only=True):
    """The mission that a recovery or a briefing would be about, None without one."""

    mission_id: str | None


class TargetGet(Query[Target], frozen=True):
    """Ask which mission a request means; not on the wire."""

    request: RecoveryRestore | RecoveryContextGet


@handler
def target(tx: Tx, ctx: Context, request: TargetGet) -> Target:
    """Return the mission that a request without a checkpoint means, also one that has no row."""
    wanted = request.request
    try:
        if isinstance(wanted, RecoveryRestore):
            return Target(mission_id=_mission_to_recover(tx, ctx, wanted))
        return Target(mission_id=mission_to_brief(tx, ctx, wanted)["id"])
    except (NotFound, InvalidState, InvalidParams):
        return Target(mission_id=wanted.mission_id)


def mission_to_brief(tx: Tx, ctx: Context, request: RecoveryContextGet) -> Row:
    """Return the mission to brief about: the one that is named, else see ``selection``."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return selected(tx, ctx, Wanted("briefing", request.cwd, request.agent_id)).row


def choose(tx: Tx, ctx: Context, request: RecoveryRestore, ledger: Ledger) -> Checkpoint:
    """Return the checkpoint a request names, or the newest usable one of the mission it means.

    What was passed over on the way is warned of in the ledger. Raises NotFound, InvalidParams,
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
    return _newest_usable(tx, ctx, _mission_to_recover(tx, ctx, request), ledger)


def _mission_to_recover(tx: Tx, ctx: Context, request: RecoveryRestore) -> str:
    """Return the mission to bring back: the one that is named, else see ``selection``."""
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    wanted = Wanted("recovery", request.cwd, request.agent_id, request.take_over_from)
    return str(selected(tx, ctx, wanted).row["id"])


def _newest_usable(tx: Tx, ctx: Context, mission_id: str, ledger: Ledger) -> Checkpoint:
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
            ledger.warnings.append(f"Checkpoint {row['id']} has expired and was passed over")
        elif row["id"] in ctx.facts.unreadable:
            ledger.warnings.append(f"{ctx.facts.unreadable[row['id']]}; it was passed over")
        else:
            return checkpoints.load(tx, row["id"])
    if ctx.facts.unreadable:
        raise Corrupt(
            f"No checkpoint of mission {mission_id} can be used: {'; '.join(ledger.warnings)}.",
            hint="fleetctl checkpoints verify --all shows what is wrong; an expired one can be "
            "named: fleetctl resume --checkpoint <id>",
            mission_id=mission_id,
        )
    raise checkpoints.none_for(mission_id)
