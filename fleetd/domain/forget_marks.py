"""Marking what a forgetting takes, so that no file brings it back, and naming the files that go.

Whole missions and runs lose their directories. Of a run that stays single files go. Nothing here is
on the wire.
"""

import re

from ..wire.base import Query
from . import marks
from .context import Context
from .erasing import drop_answers
from .forget_clauses import Scope, inside_of
from .policy import POLICIES
from .registry import handler
from .removal import Removals, removals_of
from .tx import Row, Tx

_NOTHING = re.compile(r"(?!)")


class PartsGet(Query[Removals], frozen=True):
    """Ask for the snapshots that go of runs that stay, be they marked already or not."""

    scope: Scope


def mark(tx: Tx, ctx: Context, scope: Scope, missions: list[str]) -> dict[str, int]:
    """Mark the checkpoints of missions and the snapshots of a scope; return how many of each."""
    checkpoints = [
        row["id"]
        for mission_id in missions
        for row in tx.all(
            f"SELECT id FROM checkpoints WHERE mission_id = :id AND {marks.LIVE}", id=mission_id
        )
    ]
    for checkpoint_id in checkpoints:
        marks.mark_deleted(tx, ctx, "checkpoint", checkpoint_id)
    snapshots = [row["id"] for row in _snapshots(tx, scope, marks.LIVE)]
    for snapshot_id in snapshots:
        marks.mark_deleted(tx, ctx, "snapshot", snapshot_id)
    # Only now is it known which ones: a row may be gone when the others go.
    if snapshots:
        drop_answers(tx, _NOTHING, set(snapshots))
    return {"checkpoints": len(checkpoints), "snapshots": len(snapshots)}


def lying(tx: Tx, scope: Scope) -> list[str]:
    """Return the runs whose files must go, whole or in part."""
    return sorted({*scope.runs, *(row["run_id"] for row in _parts(tx, scope))})


@handler
def parts(tx: Tx, request: PartsGet, ctx: Context) -> Removals:
    """Return single snapshots run by run, with what latest.json must be afterwards."""
    ids: dict[str, list[str]] = {}
    for row in _parts(tx, request.scope):
        ids.setdefault(row["run_id"], []).append(row["id"])
    return removals_of(tx, ctx, POLICIES["snapshot"], ids)


def _parts(tx: Tx, scope: Scope) -> list[Row]:
    return _snapshots(
        tx, scope, f"run_id NOT IN ({inside_of('r', scope.runs)})" if scope.runs else "1 = 1"
    )


def _snapshots(tx: Tx, scope: Scope, which: str) -> list[Row]:
    going = scope.clauses()["snapshots"]
    return tx.all(
        f"SELECT id, run_id FROM snapshots WHERE ({going}) AND {which} ORDER BY run_id, seq",
        **scope.params,
    )
