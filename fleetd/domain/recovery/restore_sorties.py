"""One step of recovery: sorties back to what the checkpoint says, finished work kept."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ...protocol.events import SortieRestored
from ...protocol.records import Kept, SortieState
from ...protocol.types import CLOSED_SORTIE
from ..core.event_log import emit_each
from ..core.tx import Row
from ..sessions.plan_rows import mark_dirty
from .restore_context import Case

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


def restore_sorties(case: Case, present: Sequence[SortieState]) -> int:
    """Restore sorties and return how many; what was finished or added since stays.

    ``present`` are those of the mission as they are. Only a recovery that rewinds takes finished
    work back.
    """
    live = {sortie.id: sortie for sortie in present}
    work, restored = _Work(), 0
    for then in case.checkpoint.sorties:
        now = live.pop(then.id, None)
        if not case.covers(then.assigned_to):
            continue
        if now and (reason := _reason_to_keep(case, then, now)):
            case.ledger.kept.append(Kept(sortie_id=then.id, reason=reason))
            continue
        if now is None and (owner := _elsewhere(case, then)):
            case.ledger.warnings.append(f"Sortie {then.id} belongs to mission {owner}; left there")
            continue
        _restore(case, work, then, now)
        restored += 1
    _write(case, work)
    _judge_added(case, [sortie for sortie in live.values() if case.covers(sortie.assigned_to)])
    return restored


def _judge_added(case: Case, added: Sequence[SortieState]) -> None:
    """Keep what came since the checkpoint, but for what only came back by another recovery."""
    brought_back = _brought_back(case) if added else set()
    for sortie in added:
        if sortie.id in brought_back and sortie.status in ("pending", "assigned"):
            _take_out(case, sortie)
        else:
            reason = "created since the checkpoint"
            case.ledger.kept.append(Kept(sortie_id=sortie.id, reason=reason))


def _elsewhere(case: Case, then: SortieState) -> str | None:
    """Return the mission that a sortie's id belongs to: files from elsewhere may use it again."""
    owner: str | None = case.tx.value("SELECT mission_id FROM sorties WHERE id = :id", id=then.id)
    return owner


def _brought_back(case: Case) -> set[str]:
    """Return the sorties that recoveries since the checkpoint took from older ones.

    Those that are not in the checkpoint had been removed before it was taken; going back to it
    undoes that they came back. Clocks do not tell this: they may have been set meanwhile.
    """
    rows = case.tx.all(
        "SELECT DISTINCT c.id, c.sorties_json FROM recoveries r"
        " JOIN checkpoints c ON c.id = r.checkpoint_id"
        " WHERE r.mission_id = :mission AND r.seq > :seq AND c.seq < :seq"
        " AND r.briefed_at IS NOT NULL",
        mission=case.mission_id,
        seq=case.checkpoint.seq,
    )
    return {state.id for row in rows for state in _readable(row["sorties_json"])}


def _readable(sorties_json: str) -> list[SortieState]:
    """Return the sorties of another checkpoint's row; a damaged one brings nothing to light."""
    try:
        return _states(sorties_json)
    except msgspec.DecodeError:
        return []


def _take_out(case: Case, sortie: SortieState) -> None:
    case.tx.run("DELETE FROM sorties WHERE id = :id", id=sortie.id)
    mark_dirty(case.tx, [sortie.id])
    case.ledger.changed("sortie", sortie.id, _told(sortie), "removed")


def _reason_to_keep(case: Case, then: SortieState, now: SortieState) -> str | None:
    theirs = (None, then.assigned_to, case.request.agent_id)
    handed_over = then.assigned_to and then.assigned_to == case.request.take_over_from
    if (case.narrow or handed_over) and now.assigned_to not in theirs:
        return f"now with {now.assigned_to}"
    finished_since = now.status == "completed" and then.status != "completed"
    if finished_since and not case.request.rewind:
        return "completed since the checkpoint"
    return None


def _restore(case: Case, work: _Work, then: SortieState, now: SortieState | None) -> None:
    owner = _owner(case, then)
    goal = then if owner == then.assigned_to else msgspec.structs.replace(then, assigned_to=owner)
    if now is None:
        _recreate(case, goal)
    elif _restored(now) == _restored(goal):
        return
    else:
        work.overwritten.append(_columns(case, goal))
    work.changed.append(goal)
    case.ledger.changed("sortie", goal.id, _told(now), _told(goal))


def _write(case: Case, work: _Work) -> None:
    """Write sorties over, let their plans speak of them anew, and tell of each."""
    case.tx.many(_OVERWRITE, work.overwritten)
    mark_dirty(case.tx, [goal.id for goal in work.changed])
    told = [
        (SortieRestored(sortie_id=goal.id, title=goal.title, status=goal.status), goal.assigned_to)
        for goal in work.changed
    ]
    emit_each(case.tx, case.ctx, told, mission_id=case.mission_id)


def _owner(case: Case, then: SortieState) -> str | None:
    """Return whose sortie it is now: a successor gets open work, not the credit for finished."""
    if then.assigned_to is None or then.status in CLOSED_SORTIE:
        return then.assigned_to
    return case.holder(then.assigned_to)


def _told(sortie: SortieState | None) -> str:
    if sortie is None:
        return "missing"
    who = f", {sortie.assigned_to}" if sortie.assigned_to else ""
    return f"{sortie.status} {sortie.progress}%{who}"


def _columns(case: Case, goal: SortieState) -> Row:
    return {
        "id": goal.id,
        **{name: getattr(goal, name) for name in _FIELDS},
        "files": msgspec.json.encode(goal.files).decode(),
        "now": case.ctx.now,
    }


def _recreate(case: Case, goal: SortieState) -> None:
    """Write a sortie back that the store has lost or that was removed since."""
    columns: Row = {
        name: getattr(goal, name) for name in SortieState.__struct_fields__ if name != "files"
    }
    columns |= {
        "mission_id": case.mission_id,
        "title": goal.title or goal.id,
        "created_at": goal.created_at or case.ctx.now,
        "updated_at": case.ctx.now,
        "files_json": msgspec.json.encode(goal.files).decode(),
    }
    case.tx.insert("sorties", columns)
