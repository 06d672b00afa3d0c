"""Sorties and the milestones they pass; must not know missions' endings or recovery."""

from typing import Any

import msgspec

from ..wire.errors import InvalidState
from ..wire.events import (
    MissionStarted,
    Payload,
    SortieAssigned,
    SortieBlocked,
    SortieCompleted,
    SortieCreated,
    SortieFailed,
    SortieProgressed,
    SortieRemoved,
    SortieStarted,
    SortieUnblocked,
)
from ..wire.model import Sortie
from ..wire.requests import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieGet,
    SortieList,
    SortieProgress,
    SortieRemove,
    SortieStart,
    SortieUnblock,
)
from ..wire.requests.mission import Deleted, NewSortie
from ..wire.requests.sortie import SortiePage
from . import checkpoints
from .context import Context
from .events import emit
from .ids import find, fresh_id
from .progress import passed, percent, recount
from .records import sortie_of, sorties_of
from .registry import handler
from .tx import Row, Tx


def add(tx: Tx, ctx: Context, mission_id: str, new: NewSortie | SortieCreate) -> Sortie:
    """Append a sortie to a mission."""
    sortie_id = fresh_id(tx, ctx, "sortie")
    tx.run(
        "INSERT INTO sorties (id, mission_id, position, title, description, status, priority,"
        " assigned_to, files_json, created_at, updated_at) SELECT :id, :mission,"
        " coalesce(max(position), 0) + 1, :title, :description, :status, :priority, :assigned_to,"
        " :files, :now, :now FROM sorties WHERE mission_id = :mission",
        id=sortie_id,
        mission=mission_id,
        title=new.title,
        description=new.description,
        status="assigned" if new.assigned_to else "pending",
        priority=new.priority,
        assigned_to=new.assigned_to,
        files=msgspec.json.encode(new.files).decode(),
        now=ctx.now,
    )
    recount(tx, mission_id)
    payload = SortieCreated(sortie_id=sortie_id, title=new.title)
    emit(tx, ctx, payload, mission_id=mission_id)
    return sortie_of(find(tx, "sortie", sortie_id))


def begin_mission(tx: Tx, ctx: Context, mission: Row) -> None:
    """Put a pending mission in progress; work on a sortie begins its mission too.

    Otherwise a fleet that works on a pending mission would never be noticed when it falls silent.
    """
    if mission["status"] == "pending":
        tx.run(
            "UPDATE missions SET status = 'in_progress', started_at = :now, updated_at = :now"
            " WHERE id = :id",
            now=ctx.now,
            id=mission["id"],
        )
        emit(tx, ctx, MissionStarted(), mission_id=mission["id"])


def _open(tx: Tx, sortie_id: str, verb: str) -> Row:
    """Return the row of a sortie that may still change, in a mission that is not over."""
    row = find(tx, "sortie", sortie_id)
    if row["status"] in ("completed", "failed"):
        by = f" by {row['assigned_to']}" if row["assigned_to"] else ""
        raise InvalidState(
            f"Sortie {row['id']} was already {row['status']}{by} at {row['completed_at']}.",
            hint="Nothing is left to do here; add a new sortie for further work.",
            status=row["status"],
            assigned_to=row["assigned_to"],
        )
    mission = find(tx, "mission", row["mission_id"])
    if mission["status"] not in ("pending", "in_progress"):
        raise InvalidState(
            f"Mission {mission['id']} is {mission['status']}; its sorties cannot be {verb}.",
            hint=f"fleetctl resume --mission {mission['id']} --rewind would reopen it.",
            status=mission["status"],
        )
    return row


def _allow(row: Row, agent_id: str | None) -> None:
    """Refuse an agent that acts on another's sortie."""
    owner = row["assigned_to"]
    if agent_id and owner and owner != agent_id:
        raise InvalidState(
            f"Sortie {row['id']} is assigned to {owner}, not to {agent_id}.",
            hint=f"Assign it first: fleetctl sortie assign {row['id']} {agent_id}",
            assigned_to=owner,
        )


def _change(
    tx: Tx, ctx: Context, row: Row, payload: Payload, agent_id: str | None, **changes: Any
) -> Sortie:
    """Change a sortie's columns, say so in the log, and see whether a milestone was passed."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    tx.run(
        f"UPDATE sorties SET {assignments}, updated_at = :now WHERE id = :id",  # noqa: S608
        **changes,
        now=ctx.now,
        id=row["id"],
    )
    by = agent_id or row["assigned_to"]
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    if "status" in changes:
        _reach_milestones(tx, ctx, row["mission_id"], by)
    return sortie_of(find(tx, "sortie", row["id"]))


def _reach_milestones(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> None:
    """Take one checkpoint for the highest milestone just passed, in this same transaction."""
    mission = recount(tx, mission_id)
    progress = percent(mission["completed_sorties"], mission["total_sorties"])
    mark = passed(progress)
    if mark <= mission["milestone"]:
        return
    tx.run("UPDATE missions SET milestone = :mark WHERE id = :id", mark=mark, id=mission_id)
    reason = checkpoints.Reason(
        trigger="progress", details=f"Reached {mark}% milestone", created_by=agent_id or "fleetd"
    )
    checkpoints.take(tx, ctx, mission_id, reason)


@handler
def create(tx: Tx, request: SortieCreate, ctx: Context) -> Sortie:
    """Add a sortie; it may lower the progress, but no milestone fires twice."""
    mission = find(tx, "mission", request.mission_id)
    if mission["status"] not in ("pending", "in_progress"):
        raise InvalidState(
            f"Mission {mission['id']} is {mission['status']} and takes no more sorties.",
            hint="Create a new mission for further work.",
            status=mission["status"],
        )
    return add(tx, ctx, mission["id"], request)


@handler
def assign(tx: Tx, request: SortieAssign, ctx: Context) -> Sortie:
    """Give a sortie to an agent; one that is in progress goes on under its new agent."""
    row = _open(tx, request.sortie_id, "assigned")
    status = "assigned" if row["status"] == "pending" else row["status"]
    payload = SortieAssigned(
        sortie_id=row["id"], title=row["title"], assigned_to=request.agent_id
    )
    # The one who assigns is not known, and the one it is assigned to has done nothing yet.
    tx.run(
        "UPDATE sorties SET status = :status, assigned_to = :agent, updated_at = :now"
        " WHERE id = :id",
        status=status,
        agent=request.agent_id,
        now=ctx.now,
        id=row["id"],
    )
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return sortie_of(find(tx, "sortie", row["id"]))


@handler
def start(tx: Tx, request: SortieStart, ctx: Context) -> Sortie:
    """Begin a sortie, or go on with one's own."""
    row = _open(tx, request.sortie_id, "started")
    _allow(row, request.agent_id)
    begin_mission(tx, ctx, find(tx, "mission", row["mission_id"]))
    return _change(
        tx,
        ctx,
        row,
        SortieStarted(sortie_id=row["id"], title=row["title"]),
        request.agent_id,
        status="in_progress",
        assigned_to=request.agent_id,
        started_at=row["started_at"] or ctx.now,
        blocked_reason=None,
    )


@handler
def progress(tx: Tx, request: SortieProgress, ctx: Context) -> Sortie:
    """Report progress; it ends what a recovery left as the sortie's briefing."""
    row = _open(tx, request.sortie_id, "changed")
    _allow(row, request.agent_id)
    begin_mission(tx, ctx, find(tx, "mission", row["mission_id"]))
    reached = row["progress"] if request.percent is None else request.percent
    changes: dict[str, Any] = {
        "progress": reached,
        "progress_notes": row["progress_notes"] if request.notes is None else request.notes,
        "recovery_context_json": None,
        "started_at": row["started_at"] or ctx.now,
    }
    if request.files is not None:
        changes["files_json"] = msgspec.json.encode(request.files).decode()
    if row["status"] in ("pending", "assigned"):
        changes["status"] = "in_progress"
        changes["assigned_to"] = row["assigned_to"] or request.agent_id
    payload = SortieProgressed(
        sortie_id=row["id"], title=row["title"], percent=reached, notes=request.notes
    )
    return _change(tx, ctx, row, payload, request.agent_id, **changes)


@handler
def block(tx: Tx, request: SortieBlock, ctx: Context) -> Sortie:
    """Note that a sortie cannot go on."""
    row = _open(tx, request.sortie_id, "blocked")
    _allow(row, request.agent_id)
    payload = SortieBlocked(sortie_id=row["id"], title=row["title"], reason=request.reason)
    changes = {"status": "blocked", "blocked_reason": request.reason}
    return _change(tx, ctx, row, payload, request.agent_id, **changes)


@handler
def unblock(tx: Tx, request: SortieUnblock, ctx: Context) -> Sortie:
    """Let a blocked sortie go on from where it was."""
    row = _open(tx, request.sortie_id, "unblocked")
    _allow(row, request.agent_id)
    if row["status"] != "blocked":
        raise InvalidState(
            f"Sortie {row['id']} is {row['status']}, not blocked.",
            hint="Only a blocked sortie can be unblocked.",
            status=row["status"],
        )
    status = "pending"
    if row["assigned_to"]:
        status = "in_progress" if row["started_at"] else "assigned"
    payload = SortieUnblocked(sortie_id=row["id"], title=row["title"])
    changes = {"status": status, "blocked_reason": None}
    return _change(tx, ctx, row, payload, request.agent_id, **changes)


@handler
def complete(tx: Tx, request: SortieComplete, ctx: Context) -> Sortie:
    """Complete a sortie; of two that try, the second learns who did."""
    row = _open(tx, request.sortie_id, "completed")
    _allow(row, request.agent_id)
    begin_mission(tx, ctx, find(tx, "mission", row["mission_id"]))
    return _change(
        tx,
        ctx,
        row,
        SortieCompleted(sortie_id=row["id"], title=row["title"]),
        request.agent_id,
        status="completed",
        assigned_to=row["assigned_to"] or request.agent_id,
        progress=100,
        result=request.result,
        blocked_reason=None,
        recovery_context_json=None,
        started_at=row["started_at"] or ctx.now,
        completed_at=ctx.now,
    )


@handler
def fail(tx: Tx, request: SortieFail, ctx: Context) -> Sortie:
    """Give a sortie up; it blocks its mission's completion no longer."""
    row = _open(tx, request.sortie_id, "failed")
    _allow(row, request.agent_id)
    return _change(
        tx,
        ctx,
        row,
        SortieFailed(sortie_id=row["id"], title=row["title"], reason=request.reason),
        request.agent_id,
        status="failed",
        assigned_to=row["assigned_to"] or request.agent_id,
        blocked_reason=request.reason,
        recovery_context_json=None,
        completed_at=ctx.now,
    )


@handler
def get(tx: Tx, request: SortieGet, ctx: Context) -> Sortie:
    """Return one sortie."""
    return sortie_of(find(tx, "sortie", request.sortie_id))


@handler
def list_sorties(tx: Tx, request: SortieList, ctx: Context) -> SortiePage:
    """Return the sorties of a mission in order."""
    mission = find(tx, "mission", request.mission_id)
    return SortiePage(
        sorties=[
            sortie
            for sortie in sorties_of(tx, mission["id"])
            if request.status in (None, sortie.status)
            and request.assigned_to in (None, sortie.assigned_to)
        ]
    )


@handler
def remove(tx: Tx, request: SortieRemove, ctx: Context) -> Deleted:
    """Take out a sortie that nobody has begun."""
    row = _open(tx, request.sortie_id, "removed")
    if row["status"] not in ("pending", "assigned"):
        raise InvalidState(
            f"Sortie {row['id']} is {row['status']}; only one that nobody began can be removed.",
            hint=f"Fail it with a reason instead: fleetctl sortie fail {row['id']} <reason>",
            status=row["status"],
        )
    tx.run("DELETE FROM sorties WHERE id = :id", id=row["id"])
    payload = SortieRemoved(sortie_id=row["id"], title=row["title"])
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    _reach_milestones(tx, ctx, row["mission_id"], None)
    return Deleted(deleted=True)
