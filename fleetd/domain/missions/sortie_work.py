"""Work on a sortie: starting, reporting, blocking, completing, failing; must not know runs."""

from typing import Any

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import (
    Payload,
    SortieBlocked,
    SortieCompleted,
    SortieFailed,
    SortieProgressed,
    SortieReopened,
    SortieStarted,
    SortieUnblocked,
    SortieUpdated,
)
from ...protocol.records import Sortie
from ...protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from ...protocol.types import CLOSED_SORTIE, OPEN_MISSION
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.mappers import ended_as
from ..core.tx import Row, Tx
from .milestones import begin_mission, reach_milestones
from .sortie_records import sortie_of

Work = SortieStart | SortieProgress | SortieBlock | SortieUnblock | SortieComplete | SortieFail


def open_row(tx: Tx, sortie_id: str, verb: str) -> Row:
    """Return the row of a sortie that may still change, in a mission that is not over."""
    row = find(tx, "sortie", sortie_id)
    if row["status"] in CLOSED_SORTIE:
        by = f" by {row['assigned_to']}" if row["assigned_to"] else ""
        raise InvalidState(
            f"Sortie {row['id']} was already {row['status']}{by} at {row['completed_at']}.",
            hint="Nothing is left to do here; add a new sortie for further work.",
            status=row["status"],
            assigned_to=row["assigned_to"],
        )
    mission = find(tx, "mission", row["mission_id"])
    if mission["status"] not in OPEN_MISSION:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)}; its sorties cannot be {verb}.",
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


def _own_row(tx: Tx, request: Work, verb: str) -> Row:
    """Return the row of an open sortie that the reporting agent may change."""
    row = open_row(tx, request.sortie_id, verb)
    _allow(row, request.agent_id)
    return row


def _to_work_on(tx: Tx, ctx: Context, request: Work, verb: str) -> Row:
    """Return the row of a sortie that somebody works on, which begins its mission too."""
    row = _own_row(tx, request, verb)
    begin_mission(tx, ctx, find(tx, "mission", row["mission_id"]))
    return row


def _change(
    tx: Tx, ctx: Context, row: Row, payload: Payload, agent_id: str | None, **changes: Any
) -> Sortie:
    """Change a sortie's columns, say so in the log, and see whether a milestone was passed."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    tx.run(
        f"UPDATE sorties SET {assignments}, updated_at = :now WHERE id = :id",
        **changes,
        now=ctx.now,
        id=row["id"],
    )
    by = agent_id or row["assigned_to"]
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    if "status" in changes:
        reach_milestones(tx, ctx, row["mission_id"], by)
    return sortie_of(tx, find(tx, "sortie", row["id"]))


def start(tx: Tx, ctx: Context, request: SortieStart) -> Sortie:
    """Begin a sortie, or go on with one's own."""
    row = _to_work_on(tx, ctx, request, "started")
    # Whoever works on a mission belongs to it: its locks and notes must be in the checkpoints.
    tx.run(
        "UPDATE agents SET mission_id = :mission WHERE id = :id AND mission_id IS NULL",
        mission=row["mission_id"],
        id=request.agent_id,
    )
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


def progress(tx: Tx, ctx: Context, request: SortieProgress) -> Sortie:
    """Report progress; it ends what a recovery left as the sortie's briefing."""
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
    payload = SortieProgressed(
        sortie_id=row["id"], title=row["title"], percent=reached, notes=request.notes
    )
    return _change(tx, ctx, row, payload, request.agent_id, **changes)


def block(tx: Tx, ctx: Context, request: SortieBlock) -> Sortie:
    """Note that a sortie cannot go on."""
    row = _own_row(tx, request, "blocked")
    payload = SortieBlocked(sortie_id=row["id"], title=row["title"], reason=request.reason)
    changes = {"status": "blocked", "blocked_reason": request.reason}
    return _change(tx, ctx, row, payload, request.agent_id, **changes)


def unblock(tx: Tx, ctx: Context, request: SortieUnblock) -> Sortie:
    """Let a blocked sortie go on from where it was."""
    row = _own_row(tx, request, "unblocked")
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


def complete(tx: Tx, ctx: Context, request: SortieComplete) -> Sortie:
    """Complete a sortie; of two that try, the second learns who did."""
    row = _to_work_on(tx, ctx, request, "completed")
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
        briefing_id=None,
        started_at=row["started_at"] or ctx.now,
        completed_at=ctx.now,
    )


def fail(tx: Tx, ctx: Context, request: SortieFail) -> Sortie:
    """Give a sortie up; it blocks its mission's completion no longer."""
    row = _own_row(tx, request, "failed")
    return _change(
        tx,
        ctx,
        row,
        SortieFailed(sortie_id=row["id"], title=row["title"], reason=request.reason),
        request.agent_id,
        status="failed",
        assigned_to=row["assigned_to"] or request.agent_id,
        blocked_reason=request.reason,
        briefing_id=None,
        completed_at=ctx.now,
    )


def reopen(tx: Tx, ctx: Context, row: Row, agent_id: str) -> Sortie:
    """Let a sortie that was closed, or under way, be one to do again; for plans that change."""
    return _change(
        tx,
        ctx,
        row,
        SortieReopened(sortie_id=row["id"], title=row["title"]),
        agent_id,
        status="assigned",
        assigned_to=agent_id,
        progress=0 if row["status"] == "completed" else row["progress"],
        result=None,
        blocked_reason=None,
        completed_at=None,
    )


def retitle(tx: Tx, ctx: Context, row: Row, title: str, agent_id: str) -> Sortie:
    """Give a sortie other words; for plans that reword their items."""
    payload = SortieUpdated(sortie_id=row["id"], title=title, fields=["title"])
    return _change(tx, ctx, row, payload, agent_id, title=title, author=agent_id)
