"""Restored sorties: back to what the checkpoint says, finished work kept."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ...protocol.events import SortieRestored
from ...protocol.records import Kept, SortieState
from ...protocol.types import CLOSED_SORTIE
from ..core.event_log import emit_each
from ..core.tx import Row
from ..sessions.plan_sync import invalidate_plan_items
from .restore_context import RestoreContext

_states = msgspec.json.Decoder(list[SortieState]).decode
_FIELDS = (
    "status",
    "assigned_to",
    "progress",
    "progress_notes",
    "blocked_reason",
    "result",
    "started_at",
    "completed_at",
)


_OVERWRITE = (
    "UPDATE sorties SET "
    + ", ".join(f"{name} = :{name}" for name in _FIELDS)
    + ", files_json = :files, updated_at = :now WHERE id = :id"
)
_restored = attrgetter(*_FIELDS, "files")


class _Work(msgspec.Struct):
    """What is to be written, all at once: a recovery can change every sortie of a mission."""

    changed: list[SortieState] = []
    overwritten: list[Row] = []


def restore_sorties(restore: RestoreContext, present: Sequence[SortieState]) -> int:
    """Restore sorties and return how many; what was finished or added since stays.

    ``present`` are those of the mission as they are. Only a recovery that rewinds takes finished
    work back.
    """
    live = {sortie.id: sortie for sortie in present}
    work, restored = _Work(), 0
    for then in restore.checkpoint.sorties:
        now = live.pop(then.id, None)
        if not restore.covers(then.assigned_to):
            continue
        if now and (reason := _reason_to_keep(restore, then, now)):
            restore.report.kept.append(Kept(sortie_id=then.id, reason=reason))
            continue
        if now is None and (owner := _elsewhere(restore, then)):
            restore.report.warnings.append(
                f"Sortie {then.id} belongs to mission {owner}; left there"
            )
            continue
        _restore(restore, work, then, now)
        restored += 1
    _write(restore, work)
    _judge_added(
        restore, [sortie for sortie in live.values() if restore.covers(sortie.assigned_to)]
    )
    return restored


def _judge_added(restore: RestoreContext, added: Sequence[SortieState]) -> None:
    """Keep what came since the checkpoint, but for what only came back by another recovery."""
    brought_back = _brought_back(restore) if added else set()
    for sortie in added:
        if sortie.id in brought_back and sortie.status in ("pending", "assigned"):
            _take_out(restore, sortie)
        else:
            reason = "created since the checkpoint"
            restore.report.kept.append(Kept(sortie_id=sortie.id, reason=reason))


def _elsewhere(restore: RestoreContext, then: SortieState) -> str | None:
    """Return the mission that a sortie's id belongs to: files from elsewhere may use it again."""
    owner: str | None = restore.tx.value(
        "SELECT mission_id FROM sorties WHERE id = :id", id=then.id
    )
    return owner


def _brought_back(restore: RestoreContext) -> set[str]:
    """Return the sorties that recoveries since the checkpoint took from older ones.

    Those that are not in the checkpoint had been removed before it was taken; going back to it
    undoes that they came back. Clocks do not tell this: they may have been set meanwhile.
    """
    rows = restore.tx.all(
        "SELECT DISTINCT c.id, c.sorties_json FROM recoveries r"
        " JOIN checkpoints c ON c.id = r.checkpoint_id"
        " WHERE r.mission_id = :mission AND r.seq > :seq AND c.seq < :seq"
        " AND r.briefed_at IS NOT NULL",
        mission=restore.mission_id,
        seq=restore.checkpoint.seq,
    )
    return {state.id for row in rows for state in _readable(row["sorties_json"])}


def _readable(sorties_json: str) -> list[SortieState]:
    """Return the sorties of another checkpoint's row; a damaged one brings nothing to light."""
    try:
        return _states(sorties_json)
    except msgspec.DecodeError:
        return []


def _take_out(restore: RestoreContext, sortie: SortieState) -> None:
    restore.tx.run("DELETE FROM sorties WHERE id = :id", id=sortie.id)
    invalidate_plan_items(restore.tx, [sortie.id])
    restore.report.changed("sortie", sortie.id, _summary(sortie), "removed")


def _reason_to_keep(restore: RestoreContext, then: SortieState, now: SortieState) -> str | None:
    theirs = (None, then.assigned_to, restore.request.agent_id)
    handed_over = then.assigned_to and then.assigned_to == restore.request.take_over_from
    if (restore.narrow or handed_over) and now.assigned_to not in theirs:
        return f"now with {now.assigned_to}"
    finished_since = now.status == "completed" and then.status != "completed"
    if finished_since and not restore.request.rewind:
        return "completed since the checkpoint"
    return None


def _restore(
    restore: RestoreContext, work: _Work, then: SortieState, now: SortieState | None
) -> None:
    owner = _owner(restore, then)
    goal = then if owner == then.assigned_to else msgspec.structs.replace(then, assigned_to=owner)
    if now is None:
        _recreate(restore, goal)
    elif _restored(now) == _restored(goal):
        return
    else:
        work.overwritten.append(_columns(restore, goal))
    work.changed.append(goal)
    restore.report.changed("sortie", goal.id, _summary(now), _summary(goal))


def _write(restore: RestoreContext, work: _Work) -> None:
    """Write sorties over, let their plans speak of them anew, and tell of each."""
    restore.tx.many(_OVERWRITE, work.overwritten)
    invalidate_plan_items(restore.tx, [goal.id for goal in work.changed])
    told = [
        (SortieRestored(sortie_id=goal.id, title=goal.title, status=goal.status), goal.assigned_to)
        for goal in work.changed
    ]
    emit_each(restore.tx, restore.ctx, told, mission_id=restore.mission_id)


def _owner(restore: RestoreContext, then: SortieState) -> str | None:
    """Return whose sortie it is now: a successor gets open work, not the credit for finished."""
    if then.assigned_to is None or then.status in CLOSED_SORTIE:
        return then.assigned_to
    return restore.holder(then.assigned_to)


def _summary(sortie: SortieState | None) -> str:
    if sortie is None:
        return "missing"
    who = f", {sortie.assigned_to}" if sortie.assigned_to else ""
    return f"{sortie.status} {sortie.progress}%{who}"


def _columns(restore: RestoreContext, goal: SortieState) -> Row:
    return {
        "id": goal.id,
        **{name: getattr(goal, name) for name in _FIELDS},
        "files": msgspec.json.encode(goal.files).decode(),
        "now": restore.ctx.now,
    }


def _recreate(restore: RestoreContext, goal: SortieState) -> None:
    """Write a sortie back that the store has lost or that was removed since."""
    columns: Row = {
        name: getattr(goal, name) for name in SortieState.__struct_fields__ if name != "files"
    }
    columns |= {
        "mission_id": restore.mission_id,
        "title": goal.title or goal.id,
        "created_at": goal.created_at or restore.ctx.now,
        "updated_at": restore.ctx.now,
        "files_json": msgspec.json.encode(goal.files).decode(),
    }
    restore.tx.insert("sorties", columns)
