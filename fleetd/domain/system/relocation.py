"""Relocation: what a store knows of having been moved to another one.

Where a store was moved away from, it says so: a daemon that opened it all the same would begin a
second truth. Where it arrived, a first start settles what cannot be carried.
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
    """To where a store was moved, or from where it came, and when."""

    where: str
    at: str


class StoreIdentity(Record, frozen=True, kw_only=True):
    """What a store says of itself: which it is, how long its log is, and of its moves."""

    epoch: str | None
    end: int
    moved_to: Relocation | None
    arrived: Relocation | None
    moving_to: Relocation | None


class Arrival(Record, frozen=True, kw_only=True):
    """To where the store was moved; null for one that is in use.

    ``moving_to`` says the same of a move whose end nobody saw: the other one may be in use by now.

    ``unnamed`` are the directories of open missions that have just come to a store which several
    share: what other machines call them, only whoever looks at them can tell.
    """

    moved_to: Relocation | None
    unnamed: dict[str, str]
    moving_to: Relocation | None = None


def identity(tx: Tx) -> StoreIdentity:
    """Return what a store says of itself."""
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
    """Have a store say that it was moved."""
    _note(tx, "moved_to", where, at)
    note_staying(tx)


def note_moving(tx: Tx, where: str, at: str) -> None:
    """Have a store say that another one is about to count instead of it."""
    _note(tx, "moving_to", where, at)


def note_arrived(tx: Tx, where: str, at: str) -> None:
    """Have a store say that it has come, for the first start in its new place."""
    _note(tx, "arrived", where, at)


def _note(tx: Tx, key: str, where: str, at: str) -> None:
    tx.run(_SET, key=key, value=msgspec.json.encode(Relocation(where=where, at=at)).decode())


def note_staying(tx: Tx) -> None:
    """Have a store say no longer that another one is about to count."""
    tx.run("DELETE FROM store_meta WHERE key = 'moving_to'")


def arrive(tx: Tx, ctx: Context) -> Arrival:
    """Change nothing of a store that was moved away; settle one that has just come.

    Before anything else of a start.
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
    """Note what a mission's directory is called, so that other machines find it by theirs."""
    tx.run("UPDATE missions SET project = :project WHERE id = :id", project=project, id=mission_id)


def _end_locks(tx: Tx, ctx: Context) -> None:
    """End every lease: what a lock is called differs between a path here and a project's file.

    Whoever still edits takes its lock again, and nobody holds one under a name that none asks for.
    """
    for row in tx.all("SELECT * FROM locks WHERE status = 'active' ORDER BY fencing_token"):
        end_by_force(tx, ctx, row, None, REASON)


def reopen(tx: Tx, ctx: Context) -> bool:
    """Go on, under a new epoch, with a store that was moved away; return whether it was.

    What the other one has seen since then has numbers of its own.
    """
    if not tx.all("DELETE FROM store_meta WHERE key IN ('moved_to', 'moving_to') RETURNING key"):
        return False
    token = (tx.value("SELECT value FROM counters WHERE name = 'fencing'") or 0) + TOKENS_UNSEEN
    begin_epoch(tx, ctx, position(tx), token, "copy")
    return True
