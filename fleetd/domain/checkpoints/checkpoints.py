"""Checkpoints: taking, finding and listing them, their size, and how many a mission keeps.

The checksum of a checkpoint is compared before the checkpoint is served.
"""

from collections.abc import Collection, Set

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...protocol.errors import InvalidParams, InvalidState, NotFound
from ...protocol.events import CheckpointDeleted, FleetCheckpointed
from ...protocol.records import Checkpoint, CheckpointContent, percent
from ...protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointList,
    CheckpointPage,
    DeclaredContext,
)
from ...protocol.requests.mission import Deleted
from ...protocol.types import ID_PREFIXES, Trigger
from ..core.context import Context
from ..core.counters import tally
from ..core.event_log import emit
from ..core.ids import find
from ..core.mappers import summary_of
from ..core.registry import frees_space, method
from ..core.soft_delete import LIVE, find_live, mark_deleted
from ..core.sql import Where
from ..core.tx import LogLine, Row, Tx, WriteBackup
from .codec import as_stored, as_taken, from_row, to_columns
from .derived_context import derive
from .state import State, capture

_encode = msgspec.json.Encoder().encode


# The columns before the content. Reading them touches none of the pages that hold the JSON.
HEAD = "id, timestamp, progress_percent, seq, state_digest"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a checkpoint is taken, and what its creator adds to it.

    ``progress`` overrides the computed progress: a completed mission is at 100 %.
    ``pinned`` is a checkpoint that must not be deleted to make room for this one.
    """

    trigger: Trigger
    created_by: str
    details: str | None = None
    declared: DeclaredContext | None = None
    errors: tuple[str, ...] = ()
    progress: int | None = None
    undo: bool = False
    pinned: str | None = None
    activity: bool = False


def take(
    tx: Tx, ctx: Context, mission_id: str, reason: Reason, state: State | None = None
) -> Checkpoint:
    """Take a checkpoint of a mission; its file is written after COMMIT."""
    state = state or capture(tx, ctx, find(tx, "mission", mission_id))
    slot = _free_slot(tx, ctx, state.mission["id"])
    taken = _content(tx, ctx, state, reason, slot)
    known = state.kept.canonical if state.kept else None
    columns = to_columns(taken, known)
    content, warnings = bounded(ctx, taken, columns["size_bytes"])
    if content is not taken:
        columns = to_columns(content, known)
    beside = {
        "state_digest": state.digest(),
        "warnings_json": _encode(warnings).decode(),
        "machine": ctx.machine,
    }
    tx.insert("checkpoints", columns | beside)
    emit(
        tx,
        ctx,
        FleetCheckpointed(
            checkpoint_id=content.id,
            mission_id=content.mission_id,
            trigger=content.trigger,
            progress_percent=content.progress_percent,
            sortie_count=len(content.sorties),
            lock_count=len(content.active_locks),
            message_count=len(content.pending_messages),
        ),
        mission_id=content.mission_id,
        activity=reason.activity,
    )
    for warning in warnings:
        tx.after_commit(LogLine("WARNING", f"Checkpoint {content.id}: {warning}"))
    tx.after_commit(LogLine("INFO", f"Checkpoint created: {content.id} ({content.trigger})"))
    tx.after_commit(WriteBackup("checkpoint", content.id))
    excess = slot.others + 1 - ctx.config.limits.checkpoints_per_mission
    if excess > 0:
        _drop_surplus(tx, ctx, content.mission_id, reason.pinned, excess)
    return as_taken(content, columns["digest"], warnings)


class _Slot(msgspec.Struct, frozen=True):
    """A free checkpoint id, the end of the log, and how many other checkpoints the mission has."""

    id: str
    seq: int
    others: int


def _free_slot(tx: Tx, ctx: Context, mission_id: str) -> _Slot:
    while True:
        candidate = ctx.new_id(ID_PREFIXES["checkpoint"])
        (row,) = tx.all(
            "SELECT (SELECT max(seq) FROM events) AS seq, (SELECT count(*) FROM checkpoints"
            f" WHERE mission_id = :mission AND {LIVE}) AS others,"
            " EXISTS (SELECT 1 FROM checkpoints WHERE id = :id) AS taken",
            mission=mission_id,
            id=candidate,
        )
        if not row["taken"]:
            return _Slot(candidate, row["seq"] or 0, row["others"])


def _content(tx: Tx, ctx: Context, state: State, reason: Reason, slot: _Slot) -> CheckpointContent:
    mission = state.mission
    progress = percent(mission["completed_sorties"], mission["total_sorties"])
    return CheckpointContent(
        id=slot.id,
        mission_id=mission["id"],
        timestamp=ctx.now,
        trigger=reason.trigger,
        trigger_details=reason.details,
        progress_percent=progress if reason.progress is None else reason.progress,
        mission=state.mission_state(),
        sorties=state.sorties,
        active_locks=state.locks,
        pending_messages=state.messages,
        recovery_context=derive(
            tx, ctx, mission, state.sorties, declared=reason.declared, errors=reason.errors
        ),
        created_by=reason.created_by,
        seq=slot.seq,
        undo=reason.undo,
    )


def load(tx: Tx, checkpoint_id: str) -> Checkpoint:
    """Return a checkpoint from its row; raises NotFound, Corrupt or Incompatible."""
    return from_row(find_live(tx, "checkpoint", checkpoint_id))


def latest_row(
    tx: Tx, mission_id: str, *, undo: bool = False, but: Collection[str] = (), columns: str = "*"
) -> Row | None:
    """Return the row of a mission's newest checkpoint, except those named in ``but``.

    Undo checkpoints count only on request. ``columns`` is ``HEAD`` for callers that do not read
    the content.
    """
    also = "" if undo else " AND undo = 0"
    rows = tx.all(
        f"SELECT {columns} FROM checkpoints WHERE mission_id = :id"
        f" AND {LIVE}{also} ORDER BY seq DESC LIMIT :limit",
        id=mission_id,
        limit=len(but) + 1,
    )
    return next((row for row in rows if row["id"] not in but), None)


def outdated(row: Row, mission: Row) -> bool:
    """Return whether anything was done on a mission since a checkpoint was taken.

    The event right after ``seq`` announces the checkpoint, and can itself be activity.
    """
    return bool(mission["last_activity_seq"] > row["seq"] + 1)


def none_for(mission_id: str) -> InvalidState:
    """Return the error of a mission that has no checkpoint to use."""
    return InvalidState(
        f"No checkpoint found for mission: {mission_id}",
        hint=f"fleetctl checkpoint --mission {mission_id} takes one.",
        mission_id=mission_id,
    )


def create(tx: Tx, ctx: Context, request: CheckpointCreate) -> Checkpoint:
    """Take a checkpoint on request."""
    mission_id = request.mission_id or ctx.facts.mission_id
    if mission_id is None:
        raise InvalidParams(
            "Neither mission_id nor cwd names a mission.",
            hint="Give mission_id, or the cwd of a project with a mission in progress.",
            field="mission_id",
        )
    mission = find(tx, "mission", mission_id)
    reason = Reason(
        trigger=request.trigger,
        details=request.trigger_details,
        created_by=request.created_by,
        declared=request.recovery_context,
        activity=request.trigger == "manual" and mission["status"] == "in_progress",
    )
    return take(tx, ctx, mission["id"], reason, capture(tx, ctx, mission))


def latest(tx: Tx, ctx: Context, mission_id: str) -> Checkpoint:
    """Return the newest checkpoint of a mission, undo checkpoints excepted."""
    mission = find(tx, "mission", mission_id)
    row = latest_row(tx, mission["id"])
    if row is None:
        none = none_for(mission["id"])
        raise NotFound(none.message, hint=none.hint, mission_id=mission["id"])
    return from_row(row)


def get_stored(tx: Tx, ctx: Context, checkpoint_id: str) -> Raw | None:
    """Return the stored JSON of a checkpoint; None where its copies have to be checked."""
    row = tx.one(f"SELECT * FROM checkpoints WHERE id = :id AND {LIVE}", id=checkpoint_id)
    return _stored(ctx, row) if row else None


class StoredLatest(msgspec.Struct, frozen=True):
    """The newest checkpoint of a mission, as stored JSON, and how many rows the mission has."""

    id: str
    json: Raw
    rows: int


def latest_stored(
    tx: Tx, ctx: Context, mission_id: str, files: Set[str] = frozenset()
) -> StoredLatest | None:
    """Return the stored JSON of a mission's newest checkpoint, undo checkpoints excepted.

    Returns None where its copies have to be checked, and when one of the mission's ``files`` has
    no row.
    """
    rows = tx.value(
        "SELECT (SELECT count(*) FROM checkpoints c WHERE c.mission_id = m.id) AS rows"
        " FROM missions m WHERE m.id = :id",
        id=mission_id,
    )
    row = latest_row(tx, mission_id) if rows else None
    json = _stored(ctx, row) if row else None
    if row is None or json is None or not _have_rows(tx, mission_id, files):
        return None
    return StoredLatest(row["id"], json, rows)


def _have_rows(tx: Tx, mission_id: str, files: Set[str]) -> bool:
    if not files:
        return True
    rows = tx.tuples("SELECT id FROM checkpoints WHERE mission_id = :id", id=mission_id)
    return files <= {checkpoint_id for (checkpoint_id,) in rows}


def _stored(ctx: Context, row: Row) -> Raw | None:
    # When another machine keeps the file, the reply names that machine: this needs a lookup.
    return as_stored(row) if ctx.is_here(row) else None


_SUMMARY = (
    "id, mission_id, timestamp, trigger, trigger_details, progress_percent, sortie_count,"
    " lock_count, message_count, size_bytes, consumed_at, undo"
)


@frees_space
def delete(tx: Tx, ctx: Context, request: CheckpointDelete) -> Deleted:
    """Mark a checkpoint deleted; its file and then its row go after COMMIT."""
    row = find_live(tx, "checkpoint", request.checkpoint_id)
    mark_deleted(tx, ctx, "checkpoint", row["id"])
    emit(tx, ctx, CheckpointDeleted(checkpoint_id=row["id"]), mission_id=row["mission_id"])
    return Deleted(deleted=True)


@method(CheckpointList)
def list_checkpoints(tx: Tx, ctx: Context, request: CheckpointList) -> CheckpointPage:
    """Return summaries, newest first, without touching the JSON."""
    where = Where()
    where.add(LIVE)
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    where.equal(trigger=request.trigger, created_by=request.agent_id)
    where.since("timestamp", request.since_time)
    where.until("timestamp", request.until_time)
    rows = tx.all(
        f"SELECT {_SUMMARY} FROM checkpoints WHERE {where} ORDER BY seq DESC LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    if request.mission_id or request.agent_id or request.since_time or request.until_time:
        total = tx.value(f"SELECT count(*) FROM checkpoints WHERE {where}", **where.params)
    else:
        total = tally(tx, "checkpoints", request.trigger)
    return CheckpointPage(checkpoints=[summary_of(row) for row in rows], total=total)


MANY_SORTIES = 100
FILES_KEPT = 200
NEVER_DROPPED = 3
# The trigger details of the final checkpoint of a completed mission.
COMPLETED = "Mission completed"
# The trigger details of the last checkpoint of a mission that was closed with its session.
WITH_SESSION = "Session ended"


def bounded(
    ctx: Context, content: CheckpointContent, size: int
) -> tuple[CheckpointContent, list[str]]:
    """Keep a checkpoint of ``size`` bytes within its limits, and return warnings about it.

    An unchanged checkpoint is returned as the same object.
    """
    warnings = []
    if len(content.sorties) > MANY_SORTIES:
        warnings.append(
            f"{len(content.sorties)} sorties; a checkpoint of more than {MANY_SORTIES} takes longer"
        )
    limit = ctx.config.limits.checkpoint_bytes
    if size > limit:
        warnings.append(f"{size} bytes, over the limit of {limit}")
        files = content.recovery_context.files_modified
        if len(files) > FILES_KEPT:
            context = replace(content.recovery_context, files_modified=files[:FILES_KEPT])
            content = replace(content, recovery_context=context)
            warnings.append(f"{len(files) - FILES_KEPT} older files left out of files_modified")
    return content, warnings


def _drop_surplus(tx: Tx, ctx: Context, mission_id: str, pinned: str | None, excess: int) -> None:
    """Keep a mission's checkpoints within their number; the oldest error checkpoints go first.

    The newest three and the newest milestone are never deleted. Neither is ``pinned``, which a
    recovery is using.
    """
    # After the limit was lowered, the surplus goes in batches: a new checkpoint must not wait.
    for checkpoint_id in _superfluous(tx, mission_id, pinned, min(excess, ctx.batches.surplus)):
        mark_deleted(tx, ctx, "checkpoint", checkpoint_id)
        emit(tx, ctx, CheckpointDeleted(checkpoint_id=checkpoint_id), mission_id=mission_id)


_OF_MISSION = f"FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
# An index finds it, however many checkpoints there are.
_MILESTONE = f"SELECT id {_OF_MISSION} AND trigger = 'progress' ORDER BY seq DESC LIMIT 1"
_MAY_GO = (
    f" AND id <> :pinned AND seq < (SELECT seq {_OF_MISSION} ORDER BY seq DESC"
    " LIMIT 1 OFFSET :never) ORDER BY seq LIMIT :most"
)


def _superfluous(tx: Tx, mission_id: str, pinned: str | None, most: int) -> list[str]:
    """Return the ids of a mission's surplus checkpoints, in the order of deletion."""
    params: Row = {"mission": mission_id, "pinned": pinned or "", "never": NEVER_DROPPED - 1}
    rows = tx.all(f"SELECT id {_OF_MISSION} AND trigger = 'error'{_MAY_GO}", **params, most=most)
    if len(rows) < most:
        rows += tx.all(
            f"SELECT id {_OF_MISSION} AND trigger <> 'error'"
            f" AND id <> coalesce(({_MILESTONE}), ''){_MAY_GO}",
            **params,
            most=most - len(rows),
        )
    return [row["id"] for row in rows]
