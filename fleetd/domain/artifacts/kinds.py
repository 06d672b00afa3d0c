"""The two kinds of record that have a row and a file, and in what they differ; holds no rules.

Everything that keeps such a record safe (writing and removing its file, comparing the copies,
healing one from the other, pruning) goes by its policy and is written once.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ...config import Retention
from ...protocol.errors import AtomicWriteFailed, RetentionPruneFailed
from ...protocol.events import CheckpointsPruned, SnapshotsPruned
from ...protocol.records import CHECKPOINT_VERSION, Checkpoint
from ...protocol.request import Request
from ...protocol.requests.checkpoint import CheckpointGet
from ...protocol.requests.snapshot import SnapshotGet
from ...protocol.snapshots import Snapshot
from ...protocol.types import Noun
from ..checkpoints import codec
from ..core.tx import Row
from ..snapshots import codec as document

Kept = Checkpoint | Snapshot


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of one noun are kept.

    ``table`` has their rows, ``owner`` is the column that says whose they are, ``whose`` what
    kind that is. ``nameable`` is the condition, in SQL, on those that ``latest.json`` may be;
    ``copies`` says that it holds a copy and no link, ``compressible`` that old files are
    compressed. ``emptied`` are the columns that a deletion mark empties. ``file_of`` makes what a
    row's file must hold. ``to_rewrite`` says that the file of a record is not what it should be:
    of an older version, or another copy stood in.
    ``retention`` picks from the settings for how many days records stay, and how many of each
    owner; ``judged`` are the columns that decide it, ``pruned`` is the event that tells of it.
    ``announced`` says that a record is told of when its file was tried and not when it was taken.
    ``get`` makes the request that reads one, ``list`` is the command that shows the others,
    ``verify`` the one that checks all of them.
    ``write_failed`` and ``prune_failed`` are the reason codes that a document gives.
    """

    noun: Noun
    table: str
    owner: str
    whose: Literal["mission", "run"]
    version: str
    nameable: str
    copies: bool
    compressible: bool
    emptied: tuple[str, ...]
    from_row: Callable[[Row], Any]
    from_file: Callable[[bytes, str], Any]
    to_file: Callable[[Any], bytes]
    file_of: Callable[[Row], bytes]
    to_columns: Callable[[Any], Row]
    to_rewrite: Callable[[Any], bool]
    retention: Callable[[Retention], tuple[int, int]]
    judged: str
    pruned: type[CheckpointsPruned] | type[SnapshotsPruned]
    announced: bool
    get: Callable[[str], Request[Any]]
    list: str
    verify: str
    way_out: Callable[[str], str]
    write_failed: str | None = None
    prune_failed: str | None = None


POLICIES: dict[Noun, Policy] = {
    "checkpoint": Policy(
        noun="checkpoint",
        table="checkpoints",
        owner="mission_id",
        whose="mission",
        version=CHECKPOINT_VERSION,
        nameable="undo = 0",
        copies=False,
        compressible=False,
        emptied=("sorties_json", "locks_json", "messages_json", "recovery_context_json"),
        from_row=codec.from_row,
        from_file=codec.from_file,
        to_file=codec.to_file,
        file_of=codec.file_of,
        to_columns=codec.to_columns,
        to_rewrite=codec.is_migrated,
        retention=lambda settings: (settings.days, settings.keep),
        judged="id, mission_id AS owner_id, timestamp, trigger AS cause, seq, undo, consumed_at,"
        " size_bytes",
        pruned=CheckpointsPruned,
        announced=True,
        get=CheckpointGet,
        list="fleetctl checkpoints list",
        verify="fleetctl checkpoints verify --all",
        way_out=lambda record_id: f"delete it: fleetctl checkpoints delete {record_id}",
    ),
    "snapshot": Policy(
        noun="snapshot",
        table="snapshots",
        owner="run_id",
        whose="run",
        version=document.VERSION,
        nameable="1 = 1",
        copies=True,
        compressible=True,
        emptied=("document_json",),
        from_row=document.from_row,
        from_file=document.from_file,
        to_file=document.to_file,
        file_of=lambda row: document.to_file(document.from_row(row)),
        to_columns=document.to_columns,
        to_rewrite=document.stands_in,
        retention=lambda settings: (settings.snapshot_days, settings.snapshots_per_run),
        judged="id, run_id AS owner_id, timestamp, source AS cause, seq, status, size_bytes",
        pruned=SnapshotsPruned,
        announced=False,
        get=SnapshotGet,
        list="fleetctl snapshot list",
        verify="fleetctl snapshot verify",
        way_out=lambda record_id: "it goes when its time has come: fleetctl snapshot prune",
        write_failed=AtomicWriteFailed.kind,
        prune_failed=RetentionPruneFailed.kind,
    ),
}


def id_of(record: Kept) -> str:
    """Return the id of a record."""
    return record.id if isinstance(record, Checkpoint) else record.snapshot_id


def owner_of(record: Kept) -> str:
    """Return the mission or the run that a record belongs to."""
    return record.mission_id if isinstance(record, Checkpoint) else record.run_id


def seq_of(record: Kept) -> int:
    """Return where in the log a record was taken: the order of records of one owner."""
    return record.seq if isinstance(record, Checkpoint) else document.seq_of(record.snapshot_id)


def figures_in(record: Kept) -> list[int]:
    """Return the figures above which the counters go on when a record comes back."""
    if isinstance(record, Checkpoint):
        return [record.seq, *(lock.fencing_token for lock in record.active_locks)]
    return [seq_of(record)]


def noun_of(record: Kept) -> Noun:
    """Return what a record is."""
    return "checkpoint" if isinstance(record, Checkpoint) else "snapshot"
