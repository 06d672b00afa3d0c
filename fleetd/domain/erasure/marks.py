"""Marks: records that go are soft-deleted, so that no file brings them back; their files.

Whole missions and runs lose their directories. Of a run that stays single files go.
"""

import re

from ...protocol.records import Record
from ..artifacts.kinds import KINDS
from ..artifacts.ownership import called
from ..artifacts.removal import Removal, removals_of
from ..core import soft_delete
from ..core.context import Context
from ..core.sql import inside_of
from ..core.tx import Row, Tx
from .erase import drop_answers
from .scope import Scope

_NOTHING = re.compile(r"(?!)")


class OtherMachines(Record, frozen=True, kw_only=True):
    """Those that keep files of what goes, as people call them; ``silent`` are all out of touch.

    What their hooks have left since is not known here, and comes when they are back.
    """

    keeping: list[str]
    silent: list[str]


def mark(tx: Tx, ctx: Context, scope: Scope, missions: list[str]) -> dict[str, int]:
    """Mark the checkpoints of missions and the snapshots of a scope; return how many of each."""
    checkpoints = [
        row["id"]
        for mission_id in missions
        for row in tx.all(
            f"SELECT id FROM checkpoints WHERE mission_id = :id AND {soft_delete.LIVE}",
            id=mission_id,
        )
    ]
    for checkpoint_id in checkpoints:
        soft_delete.mark_deleted(tx, ctx, "checkpoint", checkpoint_id)
    snapshots = [row["id"] for row in _snapshots(tx, scope, soft_delete.LIVE)]
    for snapshot_id in snapshots:
        soft_delete.mark_deleted(tx, ctx, "snapshot", snapshot_id)
    # Only now is it known which ones: a row may be gone when the others go.
    if snapshots:
        drop_answers(tx, ctx, _NOTHING, set(snapshots))
    return {"checkpoints": len(checkpoints), "snapshots": len(snapshots)}


def other_machines(tx: Tx, ctx: Context, scope: Scope) -> OtherMachines:
    """Return the machines whose daemons have files to remove."""
    clauses = scope.clauses()
    kept = " UNION ".join(
        f"SELECT machine FROM {table} WHERE machine <> :machine AND ({clauses[table]})"
        for table in ("checkpoints", "snapshots")
    )
    rows = tx.all(
        f"SELECT k.machine AS id, m.name AS name FROM ({kept}) k"
        " LEFT JOIN machines m ON m.id = k.machine ORDER BY k.machine",
        machine=ctx.machine,
        **scope.params,
    )
    silent = tx.all(
        "SELECT id, name FROM machines WHERE id <> :machine AND status <> 'here' ORDER BY id",
        machine=ctx.machine,
    )
    return OtherMachines(
        keeping=[called(row["id"], row["name"]) for row in rows],
        silent=[called(row["id"], row["name"]) for row in silent],
    )


def leave_to_others(tx: Tx, ctx: Context, scope: Scope) -> None:
    """Leave of single snapshots that other machines keep a mark that says nothing.

    The daemons there find it and remove their files. Of a run that goes whole no row may stay:
    those are noted as forgotten.
    """
    if not ctx.machine:  # there are no others
        return
    for row in _snapshots(tx, scope, "machine <> :machine", machine=ctx.machine):
        if row["run_id"] not in scope.runs:
            tx.run(
                "UPDATE snapshots SET deleted_at = coalesce(deleted_at, :now), document_json = '',"
                " agent_id = NULL, step_id = NULL, note = NULL, source_details_json = '[]',"
                " warnings_json = '[]' WHERE id = :id",
                now=ctx.now,
                id=row["id"],
            )
            tx.run("DELETE FROM snapshot_missions WHERE snapshot_id = :id", id=row["id"])


def lying(tx: Tx, scope: Scope) -> list[str]:
    """Return the runs whose files must go, whole or in part."""
    return sorted({*scope.runs, *(row["run_id"] for row in _parts(tx, scope))})


def parts(tx: Tx, ctx: Context, scope: Scope) -> list[Removal]:
    """Return the snapshots that go of runs that stay, be they marked already or not.

    Run by run, with what latest.json must be afterwards.
    """
    ids: dict[str, list[str]] = {}
    for row in _parts(tx, scope):
        ids.setdefault(row["run_id"], []).append(row["id"])
    return removals_of(tx, ctx, KINDS["snapshot"], ids)


def _parts(tx: Tx, scope: Scope) -> list[Row]:
    return _snapshots(
        tx, scope, f"run_id NOT IN ({inside_of('r', scope.runs)})" if scope.runs else "1 = 1"
    )


def _snapshots(tx: Tx, scope: Scope, which: str, **also: str) -> list[Row]:
    going = scope.clauses()["snapshots"]
    return tx.all(
        f"SELECT id, run_id FROM snapshots WHERE ({going}) AND {which} ORDER BY run_id, seq",
        **scope.params,
        **also,
    )
