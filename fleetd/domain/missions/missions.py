"""Missions: create, start, change, end, reopen, list."""

import os.path

import msgspec

from ...protocol.errors import InvalidParams, InvalidState
from ...protocol.events import (
    MissionCancelled,
    MissionCompleted,
    MissionCreated,
    MissionFailed,
    MissionReopened,
    MissionUpdated,
    Payload,
)
from ...protocol.records import Mission
from ...protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionFail,
    MissionGet,
    MissionList,
    MissionPage,
    MissionStart,
    MissionUpdate,
)
from ...protocol.types import OPEN_MISSION, ClosedReason, MissionOrigin
from ..checkpoints import checkpoints
from ..checkpoints.checkpoints import COMPLETED
from ..core.changes import mission_changed
from ..core.context import Context
from ..core.counters import tally
from ..core.event_log import emit
from ..core.history import agent_changed
from ..core.ids import find, fresh_id
from ..core.mappers import ended_as, mission_of
from ..core.registry import method
from ..core.sql import Where
from ..core.tx import Row, Tx
from ..liveness.process_identity import who_asks
from . import sorties
from .milestones import begin_mission


def _get(tx: Tx, mission_id: str) -> Mission:
    return mission_of(tx, find(tx, "mission", mission_id))


def create(tx: Tx, ctx: Context, request: MissionCreate) -> Mission:
    """Create a mission and its first sorties; with ``start``, begin it for the requesting agent."""
    by = who_asks(tx, ctx, request.agent_id)
    mission_id = create_row(tx, ctx, request, by, project=next(iter(ctx.facts.places), None))
    if request.start:
        agent_id = find(tx, "agent", request.agent_id)["id"] if request.agent_id else None
        begin_mission(tx, ctx, find(tx, "mission", mission_id), agent_id)
        tx.run(
            "UPDATE agents SET mission_id = :mission WHERE id = :id",
            mission=mission_id,
            id=agent_id,
        )
        agent_changed(tx, agent_id)
    return _get(tx, mission_id)


def create_row(
    tx: Tx,
    ctx: Context,
    request: MissionCreate,
    by: str | None = None,
    project: str | None = None,
    origin: MissionOrigin = "person",
) -> str:
    """Create a pending mission and return its id; ``by`` is the agent that it is made for.

    ``project`` is the name of its directory on every machine.
    """
    project_dir = request.project_dir
    if project_dir is not None and not project_dir.startswith("/"):
        raise InvalidParams(
            f"project_dir is {project_dir!r}, which is not an absolute path.",
            hint="Give the absolute path of the project's directory.",
            field="project_dir",
        )
    mission_id = fresh_id(tx, ctx, "mission")
    columns = {
        "id": mission_id,
        "title": request.title,
        "description": request.description,
        "status": "pending",
        "priority": request.priority,
        "project_dir": os.path.normpath(project_dir) if project_dir else None,
        "created_at": ctx.now,
        "updated_at": ctx.now,
        "metadata_json": msgspec.json.encode(request.metadata).decode(),
        "machine": ctx.machine,
        "project": project,
        "origin": origin,
        "author": by,
        "briefing": request.briefing,
    }
    tx.insert("missions", columns)
    known = ("title", "description", "status", "priority", "project_dir", "created_at", "briefing")
    fields = {name: columns[name] for name in known if columns[name] is not None}
    mission_changed(tx, mission_id, fields | {"automatic": origin == "session"})
    created = MissionCreated(title=request.title, origin=origin if origin == "session" else None)
    emit(tx, ctx, created, mission_id=mission_id, agent_id=by)
    sorties.add_all(tx, ctx, mission_id, request.sorties, by)
    return mission_id


@method(MissionStart)
def start(tx: Tx, ctx: Context, request: MissionStart) -> Mission:
    """Start a pending mission."""
    row = find(tx, "mission", request.mission_id)
    if row["status"] != "pending":
        raise InvalidState(
            f"Mission {row['id']} is {ended_as(row)}; only a pending mission can be started.",
            hint=f"fleetctl mission show {row['id']} shows its state.",
            status=row["status"],
        )
    begin_mission(tx, ctx, row)
    return _get(tx, row["id"])


_STATE_FIELDS = ("title", "description", "priority", "briefing")


def update(tx: Tx, ctx: Context, request: MissionUpdate) -> Mission:
    """Change the fields that the request names, and add its sorties.

    A new title for a session's own mission makes it a person's mission.
    """
    row = find(tx, "mission", request.mission_id)
    changes: Row = {
        name: value for name in _STATE_FIELDS if (value := getattr(request, name)) is not None
    }
    by = who_asks(tx, ctx, request.agent_id)
    if request.title not in (None, row["title"]):
        changes["author"] = by
    if request.metadata is not None:
        changes["metadata_json"] = msgspec.json.encode(request.metadata).decode()
    if not changes and not request.sorties:
        raise InvalidParams(
            "Nothing to change: title, description, priority, metadata, sorties and briefing are"
            " missing.",
            hint="Give at least one of them.",
        )
    if request.title is not None and row["origin"] != "person":
        changes["origin"] = "person"
    if changes:
        assignments = ", ".join(f"{name} = :{name}" for name in changes)
        tx.run(
            f"UPDATE missions SET {assignments}, updated_at = :now WHERE id = :id",
            **changes,
            now=ctx.now,
            id=row["id"],
        )
        fields = {name: changes[name] for name in _STATE_FIELDS if name in changes}
        if "origin" in changes:
            fields["automatic"] = False
        mission_changed(tx, row["id"], fields)
        names = [name.removesuffix("_json") for name in changes if name != "author"]
        emit(tx, ctx, MissionUpdated(fields=names), mission_id=row["id"], agent_id=by)
    if request.sorties:
        sorties.refuse_closed(row)
        sorties.add_all(tx, ctx, row["id"], request.sorties, by)
    return _get(tx, row["id"])


@method(MissionComplete)
def complete(tx: Tx, ctx: Context, request: MissionComplete) -> Mission:
    """Complete a mission and take its final checkpoint, which is kept longest."""
    row = _open(tx, request.mission_id)
    waiting = tx.all(
        "SELECT id, title, status FROM sorties WHERE mission_id = :id"
        " AND status NOT IN ('completed', 'failed') ORDER BY position",
        id=row["id"],
    )
    if waiting:
        first = waiting[0]
        raise InvalidState(
            f"Mission {row['id']} has open sorties: {len(waiting)}, the first is {first['id']} "
            f"({first['title']}, {first['status']}).",
            hint="Complete, fail or remove them first.",
            open_sorties=[sortie["id"] for sortie in waiting[:20]],
        )
    close(tx, ctx, row["id"])
    return _get(tx, row["id"])


def close(
    tx: Tx,
    ctx: Context,
    mission_id: str,
    why: ClosedReason = "person",
    merged_into: str | None = None,
) -> None:
    """Complete a mission without open sorties; this is activity if a person requested it."""
    _end(tx, ctx, mission_id, "completed", why)
    reason = checkpoints.Reason(
        trigger="progress", details=COMPLETED, created_by="fleetd", progress=100
    )
    checkpoint = checkpoints.take(tx, ctx, mission_id, reason)
    payload = MissionCompleted(
        checkpoint_id=checkpoint.id, closed_reason=why, merged_into=merged_into
    )
    emit(tx, ctx, payload, mission_id=mission_id, activity=why == "person")


@method(MissionFail)
def fail(tx: Tx, ctx: Context, request: MissionFail) -> Mission:
    """Mark a mission as failed."""
    return _give_up(tx, ctx, request.mission_id, "failed", MissionFailed(reason=request.reason))


@method(MissionCancel)
def cancel(tx: Tx, ctx: Context, request: MissionCancel) -> Mission:
    """Cancel a mission."""
    payload = MissionCancelled(reason=request.reason)
    return _give_up(tx, ctx, request.mission_id, "cancelled", payload)


def _give_up(tx: Tx, ctx: Context, mission_id: str, status: str, payload: Payload) -> Mission:
    row = _open(tx, mission_id)
    _end(tx, ctx, row["id"], status, "person")
    emit(tx, ctx, payload, mission_id=row["id"])
    return _get(tx, row["id"])


def close_unfinished(tx: Tx, ctx: Context, mission_id: str, payload: MissionCancelled) -> None:
    """Close an unfinished mission, with the payload's reason; nobody cancelled it."""
    _end(tx, ctx, mission_id, "cancelled", payload.closed_reason)
    emit(tx, ctx, payload, mission_id=mission_id, activity=False)


def reopen(tx: Tx, ctx: Context, row: Row, why: ClosedReason) -> bool:
    """Reopen a mission with everything as it was; False if it ended for another reason.

    ``why`` is the reason of the end that this takes back. An open mission stays unchanged.
    """
    if row["status"] in OPEN_MISSION:
        return True
    if row["closed_reason"] != why:
        return False
    tx.run(
        "UPDATE missions SET status = 'in_progress', closed_reason = NULL, completed_at = NULL,"
        " updated_at = :now, active_awake_ms = :awake, silent = 0 WHERE id = :id",
        now=ctx.now,
        awake=ctx.awake_ms,
        id=row["id"],
    )
    mission_changed(tx, row["id"], {"status": "in_progress", "closed_reason": None})
    emit(tx, ctx, MissionReopened(), mission_id=row["id"])
    return True


def _open(tx: Tx, mission_id: str) -> Row:
    row = find(tx, "mission", mission_id)
    if row["status"] not in OPEN_MISSION:
        merged = row["closed_reason"] == "merged"  # its open sorties are elsewhere
        raise InvalidState(
            f"Mission {row['id']} is already {ended_as(row)} (since {row['completed_at']}).",
            hint=f"fleetctl mission timeline {row['id']} shows the mission that continues its work."
            if merged
            else f"fleetctl resume --mission {row['id']} --rewind reopens it.",
            status=row["status"],
        )
    return row


def _end(tx: Tx, ctx: Context, mission_id: str, status: str, why: ClosedReason) -> None:
    tx.run(
        "UPDATE missions SET status = :status, closed_reason = :why, completed_at = :now,"
        " updated_at = :now WHERE id = :id",
        status=status,
        why=why,
        now=ctx.now,
        id=mission_id,
    )
    mission_changed(tx, mission_id, {"status": status, "closed_reason": why})


@method(MissionGet)
def get(tx: Tx, ctx: Context, request: MissionGet) -> Mission:
    """Return one mission."""
    return _get(tx, request.mission_id)


# True if an agent works in a mission, worded its title or has sorties in it.
_INVOLVES = (
    "(author = :agent OR id IN (SELECT a.mission_id FROM agents a WHERE a.id = :agent)"
    " OR EXISTS (SELECT 1 FROM sorties s WHERE s.mission_id = missions.id"
    " AND s.assigned_to = :agent))"
)


@method(MissionList)
def list_missions(tx: Tx, ctx: Context, request: MissionList) -> MissionPage:
    """Return missions, newest first."""
    where = Where()
    where.equal(status=request.status, closed_reason=request.closed_reason)
    if request.project_dir:
        where.equal(machine=ctx.machine, project_dir=os.path.normpath(request.project_dir))
    if request.agent_id:
        where.add(_INVOLVES, agent=request.agent_id)
    if request.project_dir or request.closed_reason or request.agent_id:
        total = tx.value(f"SELECT count(*) FROM missions WHERE {where}", **where.params)
    else:
        total = tally(tx, "missions", request.status)
    if request.after:
        last = find(tx, "mission", request.after)
        behind = "created_at <= :at AND (created_at < :at OR id > :after)"
        where.add(behind, at=last["created_at"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM missions WHERE {where} ORDER BY created_at DESC, id LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return MissionPage(missions=[mission_of(tx, row) for row in rows], total=total)
