"""Writing a record's row again from its verified file; must not know where the file lies.

Nothing here is on the wire; the daemon's own work asks for it.
"""

from ...protocol.errors import Corrupt, InvalidState
from ...protocol.records import Checkpoint
from ...protocol.request import Mutation
from ...protocol.snapshots import Snapshot
from ...protocol.types import OPEN_MISSION, Noun
from ..checkpoints.codec import to_columns
from ..checkpoints.state import State, origin_of
from ..core.context import Context
from ..core.ids import find
from ..core.registry import handler
from ..core.tx import Row, Tx, WriteBackup
from ..erasure.tombstones import was_forgotten
from ..locks.leases import raise_tokens
from ..snapshots.codec import insert_snapshot
from ..system.startup import Done
from .kinds import POLICIES, Kept, id_of, noun_of, owner_of, seq_of
from .soft_delete import find_live


def stored(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> Kept:
    """Return a record from its row; raises NotFound, Corrupt or Incompatible."""
    record: Kept = POLICIES[noun].from_row(find_live(tx, noun, record_id))
    return record


class Heal(Mutation[Done], frozen=True):
    """Write the row of a record again from its verified file."""

    record: Checkpoint | Snapshot


@handler
def heal(tx: Tx, ctx: Context, request: Heal) -> Done:
    """Bring a row back; one that was deleted does not come back. Raises InvalidState."""
    record = request.record
    noun, record_id = noun_of(record), id_of(record)
    policy = POLICIES[noun]
    old = tx.one(f"SELECT deleted_at FROM {policy.table} WHERE id = :id", id=record_id)
    if old is not None and old["deleted_at"] is not None:
        raise InvalidState(
            f"{noun.capitalize()} {record_id} was deleted and does not come back.",
            hint=f"Use another {noun}.",
        )
    if was_forgotten(tx, policy.whose, owner_of(record), seq_of(record)):
        raise InvalidState(
            f"The {policy.whose} of {noun} {record_id} was forgotten and does not come back.",
            hint="Remove the file; nothing else is left of it.",
        )
    if old is None:
        insert(tx, ctx, record)
    else:
        _overwrite(tx, ctx, record)
    return Done(done=True)


def _overwrite(tx: Tx, ctx: Context, record: Kept) -> None:
    policy = POLICIES[noun_of(record)]
    columns = policy.to_columns(record)
    names = ", ".join(f"{name} = :{name}" for name in columns if name != "id")
    tx.run(
        f"UPDATE {policy.table} SET {names}, backed_up_at = CASE WHEN machine = :machine"
        " THEN coalesce(backed_up_at, :now) ELSE backed_up_at END WHERE id = :id",
        **columns,
        now=ctx.now,
        machine=ctx.machine,
    )
    _file_again(tx, record, columns)
    try:
        policy.from_row(find(tx, policy.noun, columns["id"]))
    except Corrupt:  # what stands beside the content stands nowhere else: it is lost
        tx.run(
            f"UPDATE {policy.table} SET source_details_json = '[]', warnings_json = '[]'"
            " WHERE id = :id",
            id=columns["id"],
        )


def insert(tx: Tx, ctx: Context, record: Kept) -> bool:
    """Write the row of a record that has none, and its owner's if that is missing too.

    Returns whether a mission had to be made: it is to be caught up then.
    """
    if isinstance(record, Checkpoint):
        return _insert_checkpoint(tx, ctx, record)
    _file_again(tx, record, insert_snapshot(tx, ctx, record))
    return False


def _insert_checkpoint(tx: Tx, ctx: Context, content: Checkpoint) -> bool:
    """Write the row of a checkpoint; tokens go on above those of its locks."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=content.mission_id)
    made = mission is None
    mission = mission or _make_mission(tx, ctx, content)
    raise_tokens(tx, max((lock.fencing_token for lock in content.active_locks), default=0))
    digest = _state(content, mission).digest()
    beside = {
        "state_digest": digest,
        "backed_up_at": ctx.now,
        "verified_at": ctx.now,
        "machine": ctx.machine,
    }
    columns = to_columns(content)
    tx.insert("checkpoints", columns | beside)
    _file_again(tx, content, columns)
    return made


def _file_again(tx: Tx, record: Kept, columns: Row) -> None:
    """Have a record's file written whose texts the store does not hold as they are there."""
    if record.integrity and columns["digest"] != record.integrity.digest:
        tx.after_commit(WriteBackup(noun_of(record), id_of(record)))


def _state(content: Checkpoint, mission: Row) -> State:
    """Return the state of the mission that a checkpoint was taken of."""
    status = content.mission.status if content.mission else mission["status"]
    then = mission | {"status": status}
    return State(then, content.sorties, content.active_locks, content.pending_messages)


def _make_mission(tx: Tx, ctx: Context, content: Checkpoint) -> Row:
    """Write the row of a mission from what a checkpoint knows of it; open until it is caught up."""
    known = content.mission
    status = known.status if known and known.status in OPEN_MISSION else "in_progress"
    columns: Row = {
        "id": content.mission_id,
        "title": known.title if known else content.recovery_context.mission_summary or "Recovered",
        "description": known.description if known else None,
        "status": status,
        "priority": known.priority if known else "medium",
        "project_dir": known.project_dir if known else None,
        "created_at": (known and known.created_at) or content.timestamp,
        "updated_at": ctx.now,
        "started_at": (known and known.started_at)
        or (content.timestamp if status == "in_progress" else None),
        "origin": origin_of(known),
        "machine": ctx.machine,
    }
    tx.insert("missions", columns)
    return find(tx, "mission", content.mission_id)
