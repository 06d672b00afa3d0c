"""Forgetting on request, step by step: files first, then rows, then the bytes they left.

What was begun is written down first, so that a crash in the middle is finished at the next start.
Nothing here but ``system.forget`` is on the wire; source: behaviour, Secrets.
"""

from typing import Any

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import RecordsForgotten
from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.requests.system import Forgotten, ForgottenMission, ForgottenRun
from ..core import soft_delete
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.registry import handler
from ..core.tx import LogLine, Tx
from ..locks.keys import of_machine
from . import deletion, forget_answers, journal, marks
from .clauses import Scope
from .erase import erase
from .scope import Target, counts, scope_of

_COUNTED = dict.fromkeys(("checkpoints", "snapshots"), soft_delete.LIVE)


class ForgetPreview(Query[Forgotten], frozen=True):
    """Count what would go beside the ``counted`` rows that were met in pieces of before that."""

    target: Target
    scope: Scope
    before: int
    counted: dict[str, int]


class Found(Record, frozen=True, kw_only=True):
    """What goes, and the event ``before`` which large tables are looked through in pieces.

    ``marked`` counts the records that were marked only now: marked rows go by themselves.
    ``owed`` is what was begun at an earlier attempt.
    """

    scope: Scope
    before: int
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    owed: bool = False


class ForgetFind(Query[Found], frozen=True):
    """Find what goes, changing nothing."""

    target: Target


class ForgetBegin(Mutation[Found], frozen=True):
    """Write down what is meant to go, as it was ``found``, and mark its records.

    ``asked`` is the client's request. It is answered already, for whoever repeats it after a crash:
    then the next start has finished it.
    """

    target: Target
    found: Scope
    asked: Mutation[Any] | None = None


class Step(Record, frozen=True, kw_only=True):
    """Whose files must go next, runs whole or in part; when nobody's, what was forgotten."""

    scope: Scope
    missions: list[str] = msgspec.field(default_factory=list)
    runs: list[str] = msgspec.field(default_factory=list)
    marked: dict[str, int] = msgspec.field(default_factory=dict)
    forgotten: Forgotten | None = None


class ForgetStep(Mutation[Step], frozen=True):
    """Mark what goes; once the files of its missions and runs are ``cleared``, delete the rows.

    ``dropped`` says how many rows went in pieces already, from ``before`` the event of that seq.
    """

    target: Target
    cleared: list[str]
    before: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)


@handler
def preview(tx: Tx, ctx: Context, request: ForgetPreview) -> Forgotten:
    """Count what would go, and name the missions and the agents that are at work on them."""
    rest = dict.fromkeys(("events", "messages"), f"seq >= {request.before:d}")
    only = {**_COUNTED, **rest, "locks": "status = 'active'"}
    found = counts(tx, request.scope, request.before, only)
    return _result(tx, request.target, request.scope, _sum(found, request.counted), dry_run=True)


@handler
def find(tx: Tx, ctx: Context, request: ForgetFind) -> Found:
    """Return what goes as things stand, and where the log ends."""
    return Found(scope=scope_of(tx, request.target), before=position(tx))


@handler
def begin(tx: Tx, ctx: Context, request: ForgetBegin) -> Found:
    """Write the intention down; what was begun before a crash is taken up again."""
    if request.target.kind == "deletion":
        deletion.find_finished(tx, request.target.name)
    earlier = journal.recorded(tx, request.target)
    scope = earlier.joined(request.found) if earlier else request.found
    _owe(tx, ctx, request.target, scope)
    if request.asked is not None:
        forget_answers.promise(tx, ctx, request.asked, scope)
    marked = marks.mark(tx, ctx, scope, scope.missions)
    return Found(scope=scope, before=position(tx), marked=marked, owed=earlier is not None)


def _owe(tx: Tx, ctx: Context, target: Target, scope: Scope) -> None:
    name = of_machine(target.machine, target.name)
    journal.owe(tx, ctx, target.kind, name, msgspec.json.encode(scope).decode())


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {table: number + other.get(table, 0) for table, number in one.items()}


def _result(
    tx: Tx, target: Target, scope: Scope, found: dict[str, int], *, dry_run: bool
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


@handler
def step(tx: Tx, ctx: Context, request: ForgetStep) -> Step:
    """Mark the records whose files lie there still, or delete everything.

    The scope is found anew each time: agents go on working between the steps.
    """
    scope = scope_of(tx, request.target)
    recorded = journal.recorded(tx, request.target)
    if recorded is not None:
        scope = recorded.joined(scope)
    missions = sorted(set(scope.missions) - set(request.cleared))
    runs = sorted(set(marks.lying(tx, scope)) - set(request.cleared))
    if missions or runs:
        _owe(tx, ctx, request.target, recorded or scope)
        marked = marks.mark(tx, ctx, scope, missions)
        return Step(scope=scope, missions=missions, runs=runs, marked=marked)
    # Whoever came into the scope since then was not looked for in pieces.
    since = request.before if scope == recorded else 0
    found = _sum(counts(tx, scope, since, _COUNTED), request.dropped)
    result = _result(tx, request.target, scope, found, dry_run=False)
    journal.drop_target(tx, request.target)
    marks.leave_to_others(tx, ctx, scope)
    if request.target.kind == "deletion":
        tx.run(f"DELETE FROM snapshots WHERE {scope.clauses()['snapshots']}", **scope.params)
        deletion.delete_mission(tx, ctx, request.target.name)
    else:
        _erase(tx, ctx, scope, since, result)
    return Step(scope=scope, forgotten=result)


def _erase(tx: Tx, ctx: Context, scope: Scope, since: int, result: Forgotten) -> None:
    erase(tx, ctx, scope, since)
    journal.owe(tx, ctx, "bytes", "", "")
    emit(tx, ctx, RecordsForgotten(missions=result.missions, agents=result.agents))
    tx.after_commit(
        LogLine("INFO", f"Forgot {result.missions} missions and {result.agents} agents")
    )
