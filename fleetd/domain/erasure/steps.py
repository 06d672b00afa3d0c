"""Erasure on request, step by step: files first, then rows, then the bytes they left.

What was begun is written down first, so that a crash in the middle is finished at the next start.
Source: behaviour, Secrets.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import RecordsForgotten
from ...protocol.records import Record
from ...protocol.request import Mutation
from ...protocol.requests.system import Forgotten, ForgottenMission, ForgottenRun
from ..core import soft_delete
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.registry import frees_space
from ..core.tx import LogLine, Tx
from . import journal, marks
from .erase import delete_mission, erase, find_finished
from .scope import ErasureTarget, Scope, counts, scope_of

_COUNTED = dict.fromkeys(("checkpoints", "snapshots"), soft_delete.LIVE)


class Erasure(Record, frozen=True, kw_only=True):
    """What goes, and the event ``before`` which large tables are looked through in batches.

    ``marked`` counts the records that were marked only now: marked rows go by themselves.
    ``resumed`` is what was begun at an earlier attempt.
    """

    scope: Scope
    before: int
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    resumed: bool = False


class ErasureStep(Record, frozen=True, kw_only=True):
    """Whose files must go next, runs whole or in part; when nobody's, what was forgotten."""

    scope: Scope
    missions: list[str] = msgspec.field(default_factory=list)
    runs: list[str] = msgspec.field(default_factory=list)
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    forgotten: Forgotten | None = None


def find(tx: Tx, ctx: Context, target: ErasureTarget) -> Erasure:
    """Return what goes as things stand, and where the log ends."""
    return Erasure(scope=scope_of(tx, target), before=position(tx))


def preview(
    tx: Tx, ctx: Context, target: ErasureTarget, scope: Scope, before: int, counted: dict[str, int]
) -> Forgotten:
    """Count what would go, and name the missions and the agents that are at work on them.

    ``counted`` are the rows that were met in batches, which reach to the event ``before``.
    """
    rest = dict.fromkeys(("events", "messages"), f"seq >= {before:d}")
    only = {**_COUNTED, **rest, "locks": "status = 'active'"}
    found = _sum(counts(tx, scope, before, only), counted)
    return _result(tx, target, scope, found, dry_run=True)


@frees_space
def begin(
    tx: Tx, ctx: Context, target: ErasureTarget, found: Scope, asked: Mutation[Any] | None = None
) -> Erasure:
    """Write the intention down, and mark the records of what was ``found``.

    What was begun before a crash is taken up again. ``asked`` is the client's request. It is
    answered already, for whoever repeats it after a crash: then the next start has finished it.
    """
    if target.kind == "deletion":
        find_finished(tx, target.name)
    earlier = journal.recorded(tx, target)
    scope = earlier.joined(found) if earlier else found
    journal.note(tx, ctx, target, scope)
    if asked is not None:
        journal.promise(tx, ctx, asked, scope)
    marked = marks.mark(tx, ctx, scope, scope.missions)
    return Erasure(scope=scope, before=position(tx), marked=marked, resumed=earlier is not None)


def _sum(one: dict[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {table: number + other.get(table, 0) for table, number in one.items()}


def _result(
    tx: Tx, target: ErasureTarget, scope: Scope, found: dict[str, int], *, dry_run: bool
) -> Forgotten:
    if not any(found.values()):
        raise InvalidState(
            f"Nothing is remembered of {target.name}.",
            hint="fleetctl mission list shows the missions there are, and their directories.",
            project_dir=target.name,
        )
    return Forgotten(
        dry_run=dry_run,
        missions=found["missions"],
        sorties=found["sorties"],
        agents=found["agents"],
        locks=found["locks"],
        messages=found["messages"],
        events=found["events"],
        checkpoints=found["checkpoints"],
        runs=found["runs"],
        snapshots=found["snapshots"],
        recoveries=found["recoveries"],
        cursors=found["cursors"],
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
    """Return who is at work and loses something: agents that go, and others of the missions."""
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
    """Mark the records whose files lie there still; once all are ``cleared``, delete everything.

    The scope is found anew each time: agents go on working between the steps. ``dropped`` says how
    many rows went in batches already, which reach to the event ``before``.
    """
    scope = scope_of(tx, target)
    recorded = journal.recorded(tx, target)
    if recorded is not None:
        scope = recorded.joined(scope)
    missions = sorted(set(scope.missions) - set(cleared))
    runs = sorted(set(marks.lying(tx, scope)) - set(cleared))
    if missions or runs:
        journal.note(tx, ctx, target, recorded or scope)
        marked = marks.mark(tx, ctx, scope, missions)
        return ErasureStep(scope=scope, missions=missions, runs=runs, marked=marked)
    # Whoever came into the scope since then was not looked for in batches.
    since = before if scope == recorded else 0
    found = _sum(counts(tx, scope, since, _COUNTED), dropped or {})
    result = _result(tx, target, scope, found, dry_run=False)
    journal.withdraw(tx, ctx, target)
    marks.leave_to_others(tx, ctx, scope)
    if target.kind == "deletion":
        tx.run(f"DELETE FROM snapshots WHERE {scope.clauses()['snapshots']}", **scope.params)
        delete_mission(tx, ctx, target.name)
    else:
        erase(tx, ctx, scope, since)
        journal.note_bytes(tx, ctx)
        emit(tx, ctx, RecordsForgotten(missions=result.missions, agents=result.agents))
        told = f"Forgot {result.missions} missions and {result.agents} agents"
        tx.after_commit(LogLine("INFO", told))
    return ErasureStep(scope=scope, forgotten=result)
