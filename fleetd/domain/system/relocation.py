"""Relocation: what a store records about a move to another one.

The old store is marked as moved: a daemon that opened it anyway would begin a second, different
state. In the new store, the first start settles what cannot be moved.
"""

import msgspec

from ...protocol.records import Record
from ..core.context import Context
from ..core.event_log import position
from ..core.observers import store_arrived
from ..core.tx import LogLine, Tx
from ..liveness.silence import rebase_awake_times
from ..locks.leases import end_by_force
from .epoch import TOKENS_UNSEEN, begin_epoch

REASON = "the store was moved to another one"
_SET = (
    "INSERT INTO store_meta (key, value) VALUES (:key, :value)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Relocation(Record, frozen=True, kw_only=True):
    """The place that a store was moved to, or came from, and the time."""

    where: str
    at: str


class StoreIdentity(Record, frozen=True, kw_only=True):
    """What a store records about itself: its epoch, the end of its log, and its moves."""

    epoch: str | None
    end: int
    moved_to: Relocation | None
    arrived: Relocation | None
    moving_to: Relocation | None


class Arrival(Record, frozen=True, kw_only=True):
    """The place that the store was moved to; null for one that is in use.

    ``moving_to`` is the same for a move whose end is unknown: the other store may be in use by now.

    ``unnamed`` are the directories of open missions that have just come to a shared store. Their
    names on other machines can only be found by looking at the directories.
    """

    moved_to: Relocation | None
    unnamed: dict[str, str]
    moving_to: Relocation | None = None


def identity(tx: Tx) -> StoreIdentity:
    """Return what a store records about itself."""
    known = {row["key"]: row["value"] for row in tx.all("SELECT key, value FROM store_meta")}
    return StoreIdentity(
        epoch=known.get("epoch"),
        end=position(tx),
        moved_to=_read(known.get("moved_to")),
        arrived=_read(known.get("arrived")),
        moving_to=_read(known.get("moving_to")),
    )


def _read(text: str | None) -> Relocation | None:
    return None if text is None else msgspec.json.decode(text, type=Relocation)


def note_moved(tx: Tx, where: str, at: str) -> None:
    """Mark a store as moved."""
    _note(tx, "moved_to", where, at)
    note_staying(tx)


def note_moving(tx: Tx, where: str, at: str) -> None:
    """Mark a store as about to be replaced by another one."""
    _note(tx, "moving_to", where, at)


def note_arrived(tx: Tx, where: str, at: str) -> None:
    """Mark a store as arrived, for the first start in its new place."""
    _note(tx, "arrived", where, at)


def _note(tx: Tx, key: str, where: str, at: str) -> None:
    tx.run(_SET, key=key, value=msgspec.json.encode(Relocation(where=where, at=at)).decode())


def note_staying(tx: Tx) -> None:
    """Remove the mark that another store is about to replace this one."""
    tx.run("DELETE FROM store_meta WHERE key = 'moving_to'")


def arrive(tx: Tx, ctx: Context) -> Arrival:
    """Leave a store unchanged that was moved away; settle one that has just arrived.

    This comes before anything else at a start.
    """
    known = identity(tx)
    if known.moved_to or known.moving_to or known.arrived is None:
        return Arrival(moved_to=known.moved_to, unnamed={}, moving_to=known.moving_to)
    rebase_awake_times(tx, ctx)
    _end_locks(tx, ctx)
    store_arrived(tx, ctx)
    tx.run("DELETE FROM store_meta WHERE key = 'arrived'")
    tx.after_commit(LogLine("INFO", f"The store was moved here from {known.arrived.where}"))
    return Arrival(moved_to=None, unnamed=_unnamed(tx, ctx))


def _unnamed(tx: Tx, ctx: Context) -> dict[str, str]:
    rows = tx.all(
        "SELECT id, project_dir FROM missions WHERE machine = :machine AND machine <> ''"
        " AND project_dir IS NOT NULL AND project IS NULL AND status IN ('pending', 'in_progress')",
        machine=ctx.machine,
    )
    return {row["id"]: row["project_dir"] for row in rows}


def name_project(tx: Tx, ctx: Context, mission_id: str, project: str) -> None:
    """Note the project of a mission's directory, so that other machines find it by theirs."""
    tx.run("UPDATE missions SET project = :project WHERE id = :id", project=project, id=mission_id)


def _end_locks(tx: Tx, ctx: Context) -> None:
    """End every lease: the key of a lock differs between a path here and a project's file.

    An agent that still edits takes its lock again, and no lock keeps a key that no request uses.
    """
    for row in tx.all("SELECT * FROM locks WHERE status = 'active' ORDER BY fencing_token"):
        end_by_force(tx, ctx, row, None, REASON)


def reopen(tx: Tx, ctx: Context) -> bool:
    """Go on, under a new epoch, with a store that was moved away; return whether it was.

    The other store has given out its own numbers since then.
    """
    if not tx.all("DELETE FROM store_meta WHERE key IN ('moved_to', 'moving_to') RETURNING key"):
        return False
    token = (tx.value("SELECT value FROM counters WHERE name = 'fencing'") or 0) + TOKENS_UNSEEN
    begin_epoch(tx, ctx, position(tx), token, "copy")
    return True
