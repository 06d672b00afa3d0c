"""Erasure on request, step by step: files first, then rows, then the bytes they left.

The journal records what was begun first, so that the next start finishes it after a crash. Records
to delete are soft-deleted, so that no file restores them. Deleted missions and runs lose their
directories; a run that stays loses single files.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import RecordsForgotten
from ...protocol.records import Record
from ...protocol.request import Mutation
from ...protocol.requests.system import Forgotten, ForgottenMission, ForgottenRun
from ..artifacts.inventory import machine_label
from ..artifacts.kinds import KINDS
from ..artifacts.outbox import Removal, removals_by_owner
from ..core import soft_delete
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.mappers import columns_of
from ..core.registry import frees_space
from ..core.sql import inside_of
from ..core.tx import LogLine, Row, Tx
from . import journal
from .erase import delete_mission, drop_answers, erase, find_finished
from .scope import ErasureTarget, Scope, counts, scope_of

_NOTHING = re.compile(r"(?!)")


class OtherMachines(Record, frozen=True, kw_only=True):
    """The names of machines that keep files of the scope; ``silent`` are all out of touch.

    What their hooks have left since is unknown here, and arrives when they are back.
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
    # The ids are known only now: a row may be gone when the other answers are deleted.
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
        keeping=[machine_label(row["id"], row["name"]) for row in rows],
        silent=[machine_label(row["id"], row["name"]) for row in silent],
    )


def blank_remote_snapshots(tx: Tx, ctx: Context, scope: Scope) -> None:
    """Reduce single snapshots that other machines keep to a mark without content.

    The daemons there find the mark and remove their files. A run that is deleted whole may leave no
    row, so it is noted as forgotten.
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


def runs_losing_files(tx: Tx, scope: Scope) -> list[str]:
    """Return the runs whose files must be deleted, whole or in part."""
    return sorted({*scope.runs, *(row["run_id"] for row in _parts(tx, scope))})


def parts(tx: Tx, ctx: Context, scope: Scope) -> list[Removal]:
    """Return the snapshots to delete of runs that stay, whether marked already or not.

    They come run by run, with what latest.json must be afterwards.
    """
    ids: dict[str, list[str]] = {}
    for row in _parts(tx, scope):
        ids.setdefault(row["run_id"], []).append(row["id"])
    return removals_by_owner(tx, ctx, KINDS["snapshot"], ids)


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


_COUNTED = dict.fromkeys(("checkpoints", "snapshots"), soft_delete.LIVE)


class Erasure(Record, frozen=True, kw_only=True):
    """The scope to delete, and the event ``before`` which batches search large tables.

    ``marked`` counts the records that were marked only now: marked rows are deleted by themselves.
    ``resumed`` says whether an earlier attempt began it.
    """

    scope: Scope
    before: int
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    resumed: bool = False


class ErasureStep(Record, frozen=True, kw_only=True):
    """The missions and runs whose files to delete next; if there are none, what was forgotten."""

    scope: Scope
    missions: list[str] = msgspec.field(default_factory=list)
    runs: list[str] = msgspec.field(default_factory=list)
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    forgotten: Forgotten | None = None


def find(tx: Tx, ctx: Context, target: ErasureTarget) -> Erasure:
    """Return the scope to delete as of now, and the end of the log."""
    return Erasure(scope=scope_of(tx, target), before=position(tx))


def preview(
    tx: Tx, ctx: Context, target: ErasureTarget, scope: Scope, before: int, counted: dict[str, int]
) -> Forgotten:
    """Count what would be deleted, and name the missions and the agents that are at work on them.

    ``counted`` are the rows found in batches, which reach to the event ``before``.
    """
    rest = dict.fromkeys(("events", "messages"), f"seq >= {before:d}")
    only = {**_COUNTED, **rest, "locks": "status = 'active'"}
    return _result(tx, target, scope, _sum(counts(tx, scope, before, only), counted), dry_run=True)


@frees_space
def begin(
    tx: Tx, ctx: Context, target: ErasureTarget, found: Scope, asked: Mutation[Any] | None = None
) -> Erasure:
    """Record the erasure in the journal, and mark the records of what was ``found``.

    An erasure that began before a crash is resumed. ``asked`` is the client's request. Its answer
    is stored already, for a client that repeats it after a crash: the next start finishes the
    erasure.
    """
    if target.kind == "deletion":
        find_finished(tx, target.name)
    earlier = journal.recorded_scope(tx, target)
    scope = earlier.joined(found) if earlier else found
    journal.record(tx, ctx, target, scope)
    if asked is not None:
        journal.remember_answer(tx, ctx, asked, scope)
    marked = mark(tx, ctx, scope, scope.missions)
    return Erasure(scope=scope, before=position(tx), marked=marked, resumed=earlier is not None)


def _sum(one: dict[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {table: number + other.get(table, 0) for table, number in one.items()}


def _result(
    tx: Tx, target: ErasureTarget, scope: Scope, found: dict[str, int], *, dry_run: bool
) -> Forgotten:
    if not any(found.values()):
        raise InvalidState(
            f"fleetd has no records of {target.name}.",
            hint="fleetctl mission list shows all missions with their directories.",
            project_dir=target.name,
        )
    return Forgotten(
        dry_run=dry_run,
        **columns_of(Forgotten, found),
        shared_missions=len(scope.shared),
        shared=scope.shared,
        details=_missions(tx, scope) if dry_run else [],
        run_details=_runs(tx, scope) if dry_run else [],
        living_agents=_living(tx, scope) if dry_run else [],
    )


def _missions(tx: Tx, scope: Scope) -> list[ForgottenMission]:
    rows = [
        tx.one("SELECT id, title, status FROM missions WHERE id = :id", id=mission_id)
        for mission_id in scope.missions
    ]
    return [
        ForgottenMission(mission_id=row["id"], title=row["title"], status=row["status"], bytes=0)
        for row in rows
        if row
    ]


def _runs(tx: Tx, scope: Scope) -> list[ForgottenRun]:
    """Return the runs that lose snapshots, also those that stay."""
    rows = tx.all(
        "SELECT r.id, r.status, count(*) AS number FROM snapshots s JOIN runs r ON r.id = s.run_id"
        f" WHERE s.id IN (SELECT id FROM snapshots WHERE {scope.clauses()['snapshots']})"
        f" AND s.{soft_delete.LIVE} GROUP BY r.id, r.status ORDER BY r.id",
        **scope.params,
    )
    return [
        ForgottenRun(run_id=row["id"], status=row["status"], snapshots=row["number"], bytes=0)
        for row in rows
    ]


def _living(tx: Tx, scope: Scope) -> list[str]:
    """Return agents at work that lose something: deleted ones, and others of the missions."""
    rows = tx.all(
        "SELECT id, mission_id FROM agents WHERE status IN ('active', 'waiting', 'idle')"
        " ORDER BY id"
    )
    gone, missions = set(scope.agents), set(scope.missions)
    return [row["id"] for row in rows if row["id"] in gone or row["mission_id"] in missions]


@frees_space
def step(
    tx: Tx,
    ctx: Context,
    target: ErasureTarget,
    cleared: Collection[str],
    before: int = 0,
    dropped: Mapping[str, int] | None = None,
) -> ErasureStep:
    """Mark the records whose files still exist; once all are ``cleared``, delete everything.

    Each step finds the scope again, because agents go on working between the steps. ``dropped``
    says how many rows were deleted in batches, which reach to the event ``before``.
    """
    scope = scope_of(tx, target)
    recorded = journal.recorded_scope(tx, target)
    if recorded is not None:
        scope = recorded.joined(scope)
    missions = sorted(set(scope.missions) - set(cleared))
    runs = sorted(set(runs_losing_files(tx, scope)) - set(cleared))
    if missions or runs:
        journal.record(tx, ctx, target, recorded or scope)
        marked = mark(tx, ctx, scope, missions)
        return ErasureStep(scope=scope, missions=missions, runs=runs, marked=marked)
    # The batches did not search for what came into the scope since then.
    since = before if scope == recorded else 0
    found = _sum(counts(tx, scope, since, _COUNTED), dropped or {})
    result = _result(tx, target, scope, found, dry_run=False)
    journal.remove(tx, ctx, target)
    blank_remote_snapshots(tx, ctx, scope)
    if target.kind == "deletion":
        tx.run(f"DELETE FROM snapshots WHERE {scope.clauses()['snapshots']}", **scope.params)
        delete_mission(tx, ctx, target.name)
    else:
        erase(tx, ctx, scope, since)
        journal.record_bytes(tx, ctx)
        emit(tx, ctx, RecordsForgotten(missions=result.missions, agents=result.agents))
        message = f"Forgot {result.missions} missions and {result.agents} agents"
        tx.after_commit(LogLine("INFO", message))
    return ErasureStep(scope=scope, forgotten=result)
