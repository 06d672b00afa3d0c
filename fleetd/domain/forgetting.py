"""Forgetting on request, step by step: files first, then rows, then the bytes they left.

What was begun is written down first, so that a crash in the middle is finished at the next start.
Nothing here but ``system.forget`` is on the wire; source: behaviour, Secrets.
"""

from ..wire.base import Mutation, Query
from ..wire.events import RecordsForgotten
from ..wire.model import Record
from ..wire.requests.system import Forgotten, ForgottenMission
from . import bounds
from .context import Context
from .erasing import erase
from .events import emit
from .forget_scope import Scope, Target, counts, scope_of
from .registry import handler
from .tx import LogLine, Tx
from .upkeep import Done


class ForgetPreview(Query[Forgotten], frozen=True):
    """Say what would go, changing nothing."""

    target: Target


class Step(Record, frozen=True, kw_only=True):
    """Missions whose files must go next; when there are none, what was forgotten."""

    missions: list[str]
    forgotten: Forgotten | None = None


class ForgetStep(Mutation[Step], frozen=True):
    """Mark what goes; once the files of all its missions are ``cleared``, delete the rows."""

    target: Target
    cleared: list[str]


class ForgetWithdraw(Mutation[Done], frozen=True):
    """Give up what was begun: somebody was told that it failed, and may go on working."""

    target: Target


class Owed(Record, frozen=True, kw_only=True):
    """What a crash left to do: targets, and whether deleted bytes still stand in the files."""

    targets: list[Target]
    bytes: bool


class OwedGet(Query[Owed], frozen=True):
    """Ask what is left to forget."""


class BytesScrubbed(Mutation[Done], frozen=True):
    """Note that what was deleted is in none of the database's files any more."""


@handler
def preview(tx: Tx, request: ForgetPreview, ctx: Context) -> Forgotten:
    """Count what would go, and name the missions and the agents that are at work on them."""
    scope = scope_of(tx, request.target)
    return _result(tx, scope, dry_run=True)


def _result(tx: Tx, scope: Scope, *, dry_run: bool) -> Forgotten:
    found = counts(tx, scope)
    return Forgotten(
        dry_run=dry_run,
        missions=found["missions"],
        sorties=found["sorties"],
        agents=found["agents"],
        locks=found["locks"],
        messages=found["messages"],
        events=found["events"],
        checkpoints=found["checkpoints"],
        recoveries=found["recoveries"],
        cursors=found["cursors"],
        shared_missions=len(scope.shared),
        shared=scope.shared,
        details=_missions(tx, scope) if dry_run else [],
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


def _living(tx: Tx, scope: Scope) -> list[str]:
    """Return who is at work and loses something: agents that go, and others of the missions."""
    rows = tx.all(
        "SELECT id, mission_id FROM agents WHERE status IN ('active', 'waiting', 'idle')"
        " ORDER BY id"
    )
    gone, missions = set(scope.agents), set(scope.missions)
    return [row["id"] for row in rows if row["id"] in gone or row["mission_id"] in missions]


@handler
def step(tx: Tx, request: ForgetStep, ctx: Context) -> Step:
    """Mark the checkpoints of missions whose files lie there still, or delete everything.

    The scope is found anew each time: agents go on working between the steps.
    """
    scope = scope_of(tx, request.target)
    waiting = sorted(set(scope.missions) - set(request.cleared))
    if waiting:
        _begin(tx, ctx, request.target, waiting)
        return Step(missions=waiting)
    result = _result(tx, scope, dry_run=False)
    erase(tx, ctx, scope)
    _drop_target(tx, request.target)
    _owe(tx, "bytes", "")
    emit(tx, ctx, RecordsForgotten(missions=result.missions, agents=result.agents))
    tx.after_commit(
        LogLine("INFO", f"Forgot {result.missions} missions and {result.agents} agents")
    )
    return Step(missions=[], forgotten=result)


def _begin(tx: Tx, ctx: Context, target: Target, missions: list[str]) -> None:
    """Write down what is meant to go, and mark its checkpoints: a file brings none of them back."""
    _owe(tx, target.kind, target.name)
    for mission_id in missions:
        rows = tx.all(
            f"SELECT id FROM checkpoints WHERE mission_id = :id AND {bounds.LIVE}", id=mission_id
        )
        for row in rows:
            bounds.mark_deleted(tx, ctx, row["id"])


def _owe(tx: Tx, kind: str, name: str) -> None:
    tx.run(
        "INSERT INTO forgetting (kind, name) VALUES (:kind, :name)"
        " ON CONFLICT (kind, name) DO NOTHING",
        kind=kind,
        name=name,
    )


def _drop_target(tx: Tx, target: Target) -> None:
    tx.run(
        "DELETE FROM forgetting WHERE kind = :kind AND name = :name",
        kind=target.kind,
        name=target.name,
    )


@handler
def withdraw(tx: Tx, request: ForgetWithdraw, ctx: Context) -> Done:
    """Take a target off the list; its marked checkpoints are on their way out all the same."""
    _drop_target(tx, request.target)
    return Done(done=True)


@handler
def owed(tx: Tx, request: OwedGet, ctx: Context) -> Owed:
    """Return what is left to forget."""
    rows = tx.all("SELECT kind, name FROM forgetting ORDER BY kind, name")
    return Owed(
        targets=[
            Target(kind=row["kind"], name=row["name"]) for row in rows if row["kind"] != "bytes"
        ],
        bytes=any(row["kind"] == "bytes" for row in rows),
    )


@handler
def bytes_scrubbed(tx: Tx, request: BytesScrubbed, ctx: Context) -> Done:
    """Take the scrubbing off the list."""
    tx.run("DELETE FROM forgetting WHERE kind = 'bytes'")
    return Done(done=True)
