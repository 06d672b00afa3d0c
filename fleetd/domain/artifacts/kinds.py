"""Kinds of record that have a row and a file, and the differences between them.

The code that keeps such a record safe (writing and removing its file, comparing the copies,
repairing one from the other, pruning) exists once and uses the kind. A noun of a higher layer
registers its own.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ...config import Retention
from ...protocol.events import CheckpointsPruned, SnapshotsPruned
from ...protocol.records import CHECKPOINT_VERSION, Checkpoint
from ...protocol.snapshots import Snapshot
from ...protocol.types import OPEN_MISSION, Noun
from ..checkpoints import codec
from ..checkpoints.codec import to_columns
from ..checkpoints.state import State, origin_of
from ..core.context import Context
from ..core.ids import find
from ..core.tx import Row, Tx
from ..locks.leases import raise_tokens


def insert_checkpoint(tx: Tx, ctx: Context, content: Checkpoint) -> tuple[Row, bool]:
    """Write the row of a checkpoint that has none; later tokens are above those of its locks.

    Returns its columns, and whether its mission had to be made: then it must be caught up.
    """
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=content.mission_id)
    made = mission is None
    mission = mission or _make_mission(tx, ctx, content)
    raise_tokens(tx, max((lock.fencing_token for lock in content.active_locks), default=0))
    columns = to_columns(content)
    then = mission | ({"status": content.mission.status} if content.mission else {})
    state = State(then, content.sorties, content.active_locks, content.pending_messages)
    beside = {
        "state_digest": state.digest(),
        "backed_up_at": ctx.now,
        "verified_at": ctx.now,
        "machine": ctx.machine,
    }
    tx.insert("checkpoints", columns | beside)
    return columns, made


def _make_mission(tx: Tx, ctx: Context, content: Checkpoint) -> Row:
    """Write the row of a mission from a checkpoint; it stays open until it is caught up."""
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
        "briefing": known.briefing if known else "on",
        "machine": ctx.machine,
    }
    tx.insert("missions", columns)
    return find(tx, "mission", content.mission_id)


FileRecord = Checkpoint | Snapshot


class RecordKind(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of one noun are kept.

    ``table`` has their rows, ``owner`` is the column of their owner, ``whose`` the kind of owner.
    ``nameable`` is the condition, in SQL, on those that ``latest.json`` may be. ``copies`` says
    that it holds a copy and no link, ``compressible`` that old files are compressed. ``file_of``
    returns what a row's file must hold. ``insert`` writes the row of a record that has none, and
    returns whether its mission had to be made. ``seq_of`` returns the position in the log at which
    a record was taken. ``to_rewrite`` says that a record's file must be written again: it is of an
    older version, or another copy was read instead.
    ``retention`` picks from the settings how many days records stay, and how many of each owner.
    ``judged`` are the columns that decide it, ``pruned`` is the event that reports it.
    ``announced`` says that a record is announced once its file was tried, not when it was taken.
    ``list`` is the command that shows the others, ``verify`` the one that checks all of them.
    ``write_failed`` and ``prune_failed`` are the reason codes that a document gives.
    """

    noun: Noun
    table: Literal["checkpoints", "snapshots"]
    owner: str
    whose: Literal["mission", "run"]
    version: str
    nameable: str
    copies: bool
    compressible: bool
    from_row: Callable[[Row], Any]
    from_file: Callable[[bytes, str], Any]
    to_file: Callable[[Any], bytes]
    file_of: Callable[[Row], bytes]
    to_columns: Callable[[Any], Row]
    insert: Callable[[Tx, Context, Any], tuple[Row, bool]]
    seq_of: Callable[[Any], int]
    to_rewrite: Callable[[Any], bool]
    retention: Callable[[Retention], tuple[int, int]]
    judged: str
    pruned: type[CheckpointsPruned] | type[SnapshotsPruned]
    announced: bool
    list: str
    verify: str
    way_out: Callable[[str], str]
    write_failed: str | None = None
    prune_failed: str | None = None


KINDS: dict[Noun, RecordKind] = {}


def register_kind(kind: RecordKind) -> None:
    """Register how the records of a noun are kept; ``domain.rules`` imports the callers."""
    KINDS[kind.noun] = kind


register_kind(
    RecordKind(
        noun="checkpoint",
        table="checkpoints",
        owner="mission_id",
        whose="mission",
        version=CHECKPOINT_VERSION,
        nameable="undo = 0",
        copies=False,
        compressible=False,
        from_row=codec.from_row,
        from_file=codec.from_file,
        to_file=codec.to_file,
        file_of=codec.file_of,
        to_columns=codec.to_columns,
        insert=insert_checkpoint,
        seq_of=lambda checkpoint: checkpoint.seq,
        to_rewrite=codec.is_migrated,
        retention=lambda settings: (settings.days, settings.keep),
        judged="id, mission_id AS owner_id, timestamp, trigger AS cause, seq, undo, consumed_at,"
        " size_bytes",
        pruned=CheckpointsPruned,
        announced=True,
        list="fleetctl checkpoint list",
        verify="fleetctl checkpoint verify --all",
        way_out=lambda record_id: f"delete it: fleetctl checkpoint delete {record_id}",
    )
)


def id_of(record: FileRecord) -> str:
    """Return the id of a record."""
    return record.id if isinstance(record, Checkpoint) else record.snapshot_id


def owner_of(record: FileRecord) -> str:
    """Return the mission or the run that a record belongs to."""
    return record.mission_id if isinstance(record, Checkpoint) else record.run_id


def noun_of(record: FileRecord) -> Noun:
    """Return the noun of a record."""
    return "checkpoint" if isinstance(record, Checkpoint) else "snapshot"


def seq_of(record: FileRecord) -> int:
    """Return the position in the log of a record: it orders the records of one owner."""
    return KINDS[noun_of(record)].seq_of(record)


def counters_in(record: FileRecord) -> list[int]:
    """Return the numbers above which the counters continue when a record is restored."""
    if isinstance(record, Checkpoint):
        return [record.seq, *(lock.fencing_token for lock in record.active_locks)]
    return [seq_of(record)]
