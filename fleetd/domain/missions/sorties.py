"""Sorties of a mission: add, assign, work on, list, remove.

Single reports of agents are observed; a plan, which reports more at once, calls the rules itself.
"""

from collections.abc import Callable, Container
from functools import wraps
from typing import Any, TypeVar

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import (
    Payload,
    SortieAssigned,
    SortieBlocked,
    SortieCompleted,
    SortieCreated,
    SortieFailed,
    SortieProgressed,
    SortieRemoved,
    SortieReopened,
    SortieStarted,
    SortieUnblocked,
    SortieUpdated,
)
from ...protocol.records import RecoveryContext, Sortie
from ...protocol.requests.mission import Deleted, NewSortie
from ...protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieGet,
    SortieList,
    SortiePage,
    SortieProgress,
    SortieRemove,
    SortieStart,
    SortieUnblock,
    SortieUpdate,
)
from ...protocol.types import CLOSED_SORTIE, OPEN_MISSION
from ..core.changes import sortie_changed
from ..core.context import Context
from ..core.event_log import emit
from ..core.history import agent_changed
from ..core.ids import find, fresh_id
from ..core.mappers import ended_as
from ..core.observers import sortie_reported
from ..core.registry import method, optimistic
from ..core.tx import Row, Tx
from ..liveness.process_identity import who_asks
from . import dependencies
from .milestones import begin_mission, reach_milestones, update_sortie_counts

Work = SortieStart | SortieProgress | SortieBlock | SortieUnblock | SortieComplete | SortieFail
F = TypeVar("F", bound=Callable[[Tx, Context, Any], Sortie])
_DERIVED = ("files", "depends_on", "waits_for", "recovery_context")
_COLUMNS = [n for n in Sortie.__struct_fields__ if n not in _DERIVED]
_strings = msgspec.json.Decoder(list[str]).decode
_context = msgspec.json.Decoder(RecoveryContext).decode


def sortie_of(tx: Tx, row: Row) -> Sortie:
    """Build a Sortie from its row, with the part of a recovery context that it refers to.

    An agent has many sorties and one part, so the part is stored once.
    """
    context = None
    if row["briefing_id"] is not None:
        context = tx.value(
            "SELECT context_json FROM briefings WHERE id = :id", id=row["briefing_id"]
        )
    completed: set[str] = set()
    if row["depends_on_json"] != "[]":
        rows = tx.tuples(
            "SELECT id FROM sorties WHERE mission_id = :mission AND status = 'completed'",
            mission=row["mission_id"],
        )
        completed = {sortie_id for (sortie_id,) in rows}
    return _sortie_of(row, _context(context) if context else None, completed)


def _sortie_of(row: Row, context: RecoveryContext | None, completed: Container[str]) -> Sortie:
    columns = {name: row[name] for name in _COLUMNS}
    depends_on: list[str] = []
    waits_for: list[str] = []
    if row["depends_on_json"] != "[]":
        depends_on = dependencies.of_row(row)
        if row["status"] not in CLOSED_SORTIE:
            waits_for = [each for each in depends_on if each not in completed]
    return Sortie(
        **columns,
        files=_strings(row["files_json"]),
        depends_on=depends_on,
        waits_for=waits_for,
        recovery_context=context,
    )


def sorties_of(tx: Tx, mission_id: str) -> list[Sortie]:
    """Return every sortie of a mission in order."""
    rows = tx.all("SELECT * FROM sorties WHERE mission_id = :id ORDER BY position", id=mission_id)
    left = {
        found["id"]: _context(found["context_json"])
        for found in tx.all(
            "SELECT id, context_json FROM briefings WHERE mission_id = :mission", mission=mission_id
        )
    }
    completed = {row["id"] for row in rows if row["status"] == "completed"}
    return [_sortie_of(row, left.get(row["briefing_id"]), completed) for row in rows]


def add(
    tx: Tx, ctx: Context, mission_id: str, new: NewSortie | SortieCreate, by: str | None = None
) -> Sortie:
    """Append a sortie to a mission; ``by`` is the agent that adds it, if known."""
    sortie_id = _insert(tx, ctx, mission_id, new, by)
    update_sortie_counts(tx, mission_id)
    return sortie_of(tx, find(tx, "sortie", sortie_id))


def add_all(
    tx: Tx, ctx: Context, mission_id: str, several: list[NewSortie], by: str | None = None
) -> None:
    """Append sorties to a mission and count once: counting for each of thousands takes seconds."""
    for new in several:
        _insert(tx, ctx, mission_id, new, by)
    if several:
        update_sortie_counts(tx, mission_id)


def _insert(
    tx: Tx, ctx: Context, mission_id: str, new: NewSortie | SortieCreate, by: str | None
) -> str:
    sortie_id = fresh_id(tx, ctx, "sortie")
    depends_on: list[str] = []
    if new.depends_on:
        depends_on = dependencies.checked(tx, mission_id, None, new.depends_on)
    position = tx.value(
        "INSERT INTO sorties (id, mission_id, position, title, description, status, priority,"
        " assigned_to, files_json, depends_on_json, created_at, updated_at, author)"
        " SELECT :id, :mission, coalesce(max(position), 0) + 1, :title, :description, :status,"
        " :priority, :assigned_to, :files, :depends_on, :now, :now, :author FROM sorties"
        " WHERE mission_id = :mission RETURNING position",
        id=sortie_id,
        mission=mission_id,
        title=new.title,
        description=new.description,
        status="assigned" if new.assigned_to else "pending",
        priority=new.priority,
        assigned_to=new.assigned_to,
        files=msgspec.json.encode(new.files).decode(),
        depends_on=dependencies.as_json(depends_on),
        now=ctx.now,
        author=by,
    )
    made = {
        "position": position,
        "title": new.title,
        "description": new.description,
        "status": "assigned" if new.assigned_to else "pending",
        "priority": new.priority,
        "assigned_to": new.assigned_to,
        "files": new.files,
        "depends_on": depends_on,
        "created_at": ctx.now,
        "updated_at": ctx.now,
    }
    sortie_changed(tx, mission_id, sortie_id, {k: v for k, v in made.items() if v})
    payload = SortieCreated(sortie_id=sortie_id, title=new.title)
    emit(tx, ctx, payload, mission_id=mission_id, agent_id=by)
    return sortie_id


def create(tx: Tx, ctx: Context, request: SortieCreate) -> Sortie:
    """Add a sortie; it may lower the progress, but no milestone fires twice."""
    mission = find(tx, "mission", request.mission_id)
    refuse_closed(mission)
    return add(tx, ctx, mission["id"], request, who_asks(tx, ctx, request.agent_id))


def refuse_closed(mission: Row) -> None:
    """Raise InvalidState for an ended mission: nothing is added to it."""
    if mission["status"] not in OPEN_MISSION:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)} and accepts no more sorties.",
            hint="Create a new mission for further work.",
            status=mission["status"],
        )


@method(SortieAssign)
def assign(tx: Tx, ctx: Context, request: SortieAssign) -> Sortie:
    """Give a sortie to an agent; a sortie in progress continues under its new agent."""
    row, _ = _open_row(tx, request.sortie_id, "assigned")
    status = "assigned" if row["status"] == "pending" else row["status"]
    assigned = _update(tx, ctx, row, status=status, assigned_to=request.agent_id)
    payload = SortieAssigned(sortie_id=row["id"], title=row["title"], assigned_to=request.agent_id)
    # The assigning agent is not known, and the assigned agent has done nothing yet.
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return sortie_of(tx, assigned)


def update(tx: Tx, ctx: Context, request: SortieUpdate) -> Sortie:
    """Change a sortie's texts or dependencies; the agent that works on it continues."""
    row, _ = _open_row(tx, request.sortie_id, "changed")
    given = {
        "title": request.title,
        "description": request.description,
        "priority": request.priority,
    }
    changes: dict[str, Any] = {
        name: value for name, value in given.items() if value not in (None, row[name])
    }
    fields = [*changes]
    if request.depends_on is not None:
        wanted = dependencies.checked(tx, row["mission_id"], row["id"], request.depends_on)
        if wanted != dependencies.of_row(row):
            changes["depends_on_json"] = dependencies.as_json(wanted)
            fields.append("depends_on")
    if not fields:
        return sortie_of(tx, row)
    by = who_asks(tx, ctx, request.agent_id)
    if "title" in changes:
        changes["author"] = by
    updated = _update(tx, ctx, row, **changes)
    payload = SortieUpdated(sortie_id=row["id"], title=updated["title"], fields=fields)
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    return sortie_of(tx, updated)


def depend_on(tx: Tx, ctx: Context, row: Row, wanted: list[str], agent_id: str) -> None:
    """Set the dependencies of a sortie, which were checked already; for plans."""
    changed = _update(tx, ctx, row, depends_on_json=dependencies.as_json(wanted))
    payload = SortieUpdated(sortie_id=row["id"], title=changed["title"], fields=["depends_on"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=agent_id)


@method(SortieGet)
def get(tx: Tx, ctx: Context, request: SortieGet) -> Sortie:
    """Return one sortie."""
    return sortie_of(tx, find(tx, "sortie", request.sortie_id))


@method(SortieList)
def list_sorties(tx: Tx, ctx: Context, request: SortieList) -> SortiePage:
    """Return the sorties of a mission in order."""
    mission = find(tx, "mission", request.mission_id)
    return SortiePage(
        sorties=[
            sortie
            for sortie in sorties_of(tx, mission["id"])
            if request.status in (None, sortie.status)
            and request.assigned_to in (None, sortie.assigned_to)
            and (not request.ready or dependencies.is_ready(sortie))
        ]
    )


@method(SortieRemove)
def remove(tx: Tx, ctx: Context, request: SortieRemove) -> Deleted:
    """Remove a sortie that nobody has started."""
    row, _ = _open_row(tx, request.sortie_id, "removed")
    if row["status"] not in ("pending", "assigned"):
        raise InvalidState(
            f"Sortie {row['id']} is {row['status']}; only an unstarted sortie can be removed.",
            hint=f"Fail it with a reason instead: fleetctl sortie fail {row['id']} --reason …",
            status=row["status"],
        )
    delete_sortie(tx, ctx, row)
    return Deleted(deleted=True)


def delete_sortie(tx: Tx, ctx: Context, row: Row, by: str | None = None) -> None:
    """Remove a sortie that nobody has begun; ``by`` is the agent that removes it, if known."""
    tx.run("DELETE FROM sorties WHERE id = :id", id=row["id"])
    sortie_changed(tx, row["mission_id"], row["id"], None)
    dependencies.drop(tx, row["mission_id"], {row["id"]})
    payload = SortieRemoved(sortie_id=row["id"], title=row["title"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    reach_milestones(tx, ctx, row["mission_id"], by)


def _open_row(tx: Tx, sortie_id: str, verb: str) -> tuple[Row, Row]:
    """Return the row of a sortie that may still change, and the row of its open mission."""
    row = find(tx, "sortie", sortie_id)
    if row["status"] in CLOSED_SORTIE:
        by = f" by {row['assigned_to']}" if row["assigned_to"] else ""
        raise InvalidState(
            f"Sortie {row['id']} was already {row['status']}{by} at {row['completed_at']}.",
            hint="Add a new sortie for further work.",
            status=row["status"],
            assigned_to=row["assigned_to"],
        )
    mission = find(tx, "mission", row["mission_id"])
    if mission["status"] not in OPEN_MISSION:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)}; its sorties cannot be {verb}.",
            hint=f"fleetctl resume --mission {mission['id']} --rewind reopens it.",
            status=mission["status"],
        )
    return row, mission


def _reported(request: type[Work]) -> Callable[[F], F]:
    """Register a rule for an agent's report, and notify the sortie's observers of each report."""

    def register(rule: F) -> F:
        @method(request)
        @wraps(rule)
        def report(tx: Tx, ctx: Context, request: Any) -> Sortie:
            before = find(tx, "sortie", request.sortie_id)
            sortie = rule(tx, ctx, request)
            if agent_id := request.agent_id or before["assigned_to"]:
                sortie_reported(tx, ctx, agent_id, before)
            return sortie

        if request is SortieProgress:  # the others are rare
            optimistic(report)
        return rule

    return register


def _own_row(tx: Tx, request: Work, verb: str) -> tuple[Row, Row]:
    """Return what ``_open_row`` does; refuse a sortie of an agent other than the reporting one."""
    row, mission = _open_row(tx, request.sortie_id, verb)
    owner, agent_id = row["assigned_to"], request.agent_id
    if agent_id and owner and owner != agent_id:
        raise InvalidState(
            f"Sortie {row['id']} is assigned to {owner}, not to {agent_id}.",
            hint=f"Assign it first: fleetctl sortie assign {row['id']} {agent_id}",
            assigned_to=owner,
        )
    return row, mission


def _to_work_on(tx: Tx, ctx: Context, request: Work, verb: str) -> Row:
    """Return the row of a sortie that is worked on, which begins its mission too."""
    row, mission = _own_row(tx, request, verb)
    begin_mission(tx, ctx, mission)
    return row


def _update(tx: Tx, ctx: Context, row: Row, **changes: Any) -> Row:
    """Change columns of a sortie and return the changed row."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    tx.run(
        f"UPDATE sorties SET {assignments}, updated_at = :now WHERE id = :id",
        **changes,
        now=ctx.now,
        id=row["id"],
    )
    fields = {
        name.removesuffix("_json"): _strings(value) if name.endswith("_json") else value
        for name, value in changes.items()
        if name not in ("briefing_id", "author")
    }
    sortie_changed(tx, row["mission_id"], row["id"], fields | {"updated_at": ctx.now})
    return {**row, **changes, "updated_at": ctx.now}


def _change(
    tx: Tx,
    ctx: Context,
    row: Row,
    event: Callable[..., Payload],
    agent_id: str | None,
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> Sortie:
    """Change a sortie's columns, emit the event, and check whether a milestone was passed.

    ``data`` is the event's data in addition to the sortie's id and title.
    """
    changed = _update(tx, ctx, row, **changes)
    by = agent_id or row["assigned_to"]
    payload = event(**{"sortie_id": row["id"], "title": row["title"], **(data or {})})
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    if "status" in changes:
        reach_milestones(tx, ctx, row["mission_id"], by)
    return sortie_of(tx, changed)


@_reported(SortieStart)
def start(tx: Tx, ctx: Context, request: SortieStart) -> Sortie:
    """Begin a sortie, or continue one's own."""
    row = _to_work_on(tx, ctx, request, "started")
    # An agent that works on a mission belongs to it: checkpoints must hold its locks and notes.
    if tx.one(
        "UPDATE agents SET mission_id = :mission WHERE id = :id AND mission_id IS NULL"
        " RETURNING id",
        mission=row["mission_id"],
        id=request.agent_id,
    ):
        agent_changed(tx, request.agent_id)
    return _change(
        tx,
        ctx,
        row,
        SortieStarted,
        request.agent_id,
        status="in_progress",
        assigned_to=request.agent_id,
        started_at=row["started_at"] or ctx.now,
        blocked_reason=None,
    )


@_reported(SortieProgress)
def progress(tx: Tx, ctx: Context, request: SortieProgress) -> Sortie:
    """Report progress; it ends the briefing that a recovery left for the sortie."""
    row = _to_work_on(tx, ctx, request, "changed")
    reached = row["progress"] if request.percent is None else request.percent
    changes: dict[str, Any] = {
        "progress": reached,
        "progress_notes": row["progress_notes"] if request.notes is None else request.notes,
        "briefing_id": None,
        "started_at": row["started_at"] or ctx.now,
    }
    if request.files is not None:
        changes["files_json"] = msgspec.json.encode(request.files).decode()
    if row["status"] in ("pending", "assigned"):
        changes["status"] = "in_progress"
        changes["assigned_to"] = row["assigned_to"] or request.agent_id
    data = {"percent": reached, "notes": request.notes}
    return _change(tx, ctx, row, SortieProgressed, request.agent_id, data, **changes)


@_reported(SortieBlock)
def block(tx: Tx, ctx: Context, request: SortieBlock) -> Sortie:
    """Record that a sortie cannot continue."""
    row, _ = _own_row(tx, request, "blocked")
    changes = {"status": "blocked", "blocked_reason": request.reason}
    data = {"reason": request.reason}
    return _change(tx, ctx, row, SortieBlocked, request.agent_id, data, **changes)


@_reported(SortieUnblock)
def unblock(tx: Tx, ctx: Context, request: SortieUnblock) -> Sortie:
    """Let a blocked sortie continue from where it was."""
    row, _ = _own_row(tx, request, "unblocked")
    if row["status"] != "blocked":
        raise InvalidState(
            f"Sortie {row['id']} is {row['status']}, not blocked.",
            hint="Only a blocked sortie can be unblocked.",
            status=row["status"],
        )
    status = "pending"
    if row["assigned_to"]:
        status = "in_progress" if row["started_at"] else "assigned"
    by = request.agent_id
    return _change(tx, ctx, row, SortieUnblocked, by, status=status, blocked_reason=None)


@_reported(SortieComplete)
def complete(tx: Tx, ctx: Context, request: SortieComplete) -> Sortie:
    """Complete a sortie; of two agents that try, the second learns who did."""
    row = _to_work_on(tx, ctx, request, "completed")
    return _change(
        tx,
        ctx,
        row,
        SortieCompleted,
        request.agent_id,
        status="completed",
        assigned_to=row["assigned_to"] or request.agent_id,
        progress=100,
        result=request.result,
        blocked_reason=None,
        briefing_id=None,
        started_at=row["started_at"] or ctx.now,
        completed_at=ctx.now,
    )


@_reported(SortieFail)
def fail(tx: Tx, ctx: Context, request: SortieFail) -> Sortie:
    """Fail a sortie; it no longer blocks its mission's completion."""
    row, _ = _own_row(tx, request, "failed")
    return _change(
        tx,
        ctx,
        row,
        SortieFailed,
        request.agent_id,
        {"reason": request.reason},
        status="failed",
        assigned_to=row["assigned_to"] or request.agent_id,
        blocked_reason=request.reason,
        briefing_id=None,
        completed_at=ctx.now,
    )


def reopen(tx: Tx, ctx: Context, row: Row, agent_id: str) -> Sortie:
    """Reopen a sortie that was closed or in progress; for plans that change."""
    return _change(
        tx,
        ctx,
        row,
        SortieReopened,
        agent_id,
        status="assigned",
        assigned_to=agent_id,
        progress=0 if row["status"] == "completed" else row["progress"],
        result=None,
        blocked_reason=None,
        completed_at=None,
    )


def retitle(tx: Tx, ctx: Context, row: Row, title: str, agent_id: str) -> Sortie:
    """Change a sortie's title; for plans that reword their items."""
    data = {"title": title, "fields": ["title"]}
    return _change(tx, ctx, row, SortieUpdated, agent_id, data, title=title, author=agent_id)
