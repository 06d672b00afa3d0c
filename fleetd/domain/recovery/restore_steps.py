"""Steps of a recovery: sorties, locks and messages return to their state in the checkpoint."""

from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter

import msgspec

from ...protocol.events import LockConflicted, MessageRequeued, SortieRestored
from ...protocol.records import Kept, Lock, PendingMessage, SortieState
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import CLOSED_SORTIE
from ..agents import mailbox
from ..core.changes import fields_of, sortie_changed
from ..core.event_log import emit, emit_each
from ..core.ids import find
from ..core.mappers import SORTIE_LISTS, states_of
from ..core.sql import chunks, inside_of, named_params
from ..core.tx import LogLine, Row
from ..locks import leases
from ..locks.keys import display_file, display_name, is_key, key_of_lock, locks_by_project
from ..locks.targets import Target, target_of
from ..missions import dependencies
from ..search import index as search_index
from ..sessions.plan_sync import invalidate_plan_items
from .restore_context import RestoreContext

_encode = msgspec.json.Encoder().encode
_states = msgspec.json.Decoder(list[SortieState]).decode
# The fields of a sortie that a recovery restores.
_FIELDS = (
    "status",
    "assigned_to",
    "progress",
    "progress_notes",
    "blocked_reason",
    "result",
    "started_at",
    "completed_at",
    "files",
    "depends_on",
)
_restored = attrgetter(*_FIELDS)


def restore_sorties(
    restore: RestoreContext, present: list[SortieState]
) -> tuple[int, list[SortieState]]:
    """Restore sorties; return how many, and all sorties of the mission afterwards.

    ``present`` are the sorties before. Those finished or added since the checkpoint stay. Only a
    recovery that rewinds takes finished work back.
    """
    live = {sortie.id: sortie for sortie in present}
    changed: list[tuple[SortieState | None, SortieState]] = []
    restored = 0
    # A checkpoint without any dependency may be older than they are: those added since stay.
    keeps = not restore.request.rewind and not any(
        then.depends_on for then in restore.checkpoint.sorties
    )
    for then in restore.checkpoint.sorties:
        now = live.pop(then.id, None)
        if not restore.includes(then.assigned_to):
            continue
        if now and (reason := _reason_to_keep(restore, then, now)):
            restore.report.kept.append(Kept(sortie_id=then.id, reason=reason))
            continue
        if now is None and (owner := _elsewhere(restore, then)):
            restore.report.warnings.append(
                f"Sortie {then.id} belongs to mission {owner}; left there"
            )
            continue
        goal = _goal(restore, then)
        if now is not None and keeps:
            goal = msgspec.structs.replace(goal, depends_on=now.depends_on)
        if now is None or _restored(now) != _restored(goal):
            changed.append((now, goal))
        restored += 1
    values = _write(restore, changed)
    added = [sortie for sortie in live.values() if restore.includes(sortie.assigned_to)]
    removed = _keep_added(restore, added)
    untied = bool(changed or removed) and _untie(restore)
    if removed or untied or any(now is None for now, _ in changed):
        return restored, states_of(restore.tx, restore.mission_id)
    return restored, [
        msgspec.structs.replace(sortie, **values[sortie.id]) if sortie.id in values else sortie
        for sortie in present
    ]


def _untie(restore: RestoreContext) -> bool:
    """Drop dependencies on missing sorties, and those that would close a cycle.

    Kept and restored sorties may not fit together. Return whether any was dropped.
    """
    dropped = dependencies.drop_outside(restore.tx, restore.mission_id)
    known = dependencies.of_mission(restore.tx, restore.mission_id)
    cut: dict[str, list[str]] = {}
    for sortie_id, ids in list(known.items()):
        left = [each for each in ids if not dependencies.cycle_of(known, sortie_id, [each])]
        if left != ids:
            known[sortie_id] = cut[sortie_id] = left
            restore.report.warnings.append(
                f"Dependencies of sortie {sortie_id} not restored: they would wait for each other"
            )
    dependencies.write(restore.tx, restore.mission_id, cut)
    return bool(dropped or cut)


def _keep_added(restore: RestoreContext, added: Sequence[SortieState]) -> bool:
    """Keep sorties added since the checkpoint, except those that another recovery brought back.

    Return whether anything was removed.
    """
    removed = False
    brought_back = _revived_sorties(restore) if added else set()
    for sortie in added:
        if sortie.id in brought_back and sortie.status in ("pending", "assigned"):
            restore.tx.run("DELETE FROM sorties WHERE id = :id", id=sortie.id)
            sortie_changed(restore.tx, restore.mission_id, sortie.id, None)
            invalidate_plan_items(restore.tx, [sortie.id])
            restore.report.changed("sortie", sortie.id, _summary(sortie), "removed")
            removed = True
        else:
            reason = "created since the checkpoint"
            restore.report.kept.append(Kept(sortie_id=sortie.id, reason=reason))
    return removed


def _elsewhere(restore: RestoreContext, then: SortieState) -> str | None:
    """Return the mission that a sortie's id belongs to: files from elsewhere may reuse it."""
    owner: str | None = restore.tx.value(
        "SELECT mission_id FROM sorties WHERE id = :id", id=then.id
    )
    return owner


def _revived_sorties(restore: RestoreContext) -> set[str]:
    """Return the sorties that recoveries since the checkpoint took from older ones.

    Those missing from the checkpoint were removed before it was taken, so going back to it removes
    them again. Clocks do not tell this: they may have been set meanwhile.
    """
    rows = restore.tx.all(
        "SELECT DISTINCT c.id, c.sorties_json FROM recoveries r"
        " JOIN checkpoints c ON c.id = r.checkpoint_id"
        " WHERE r.mission_id = :mission AND r.seq > :seq AND c.seq < :seq"
        " AND r.briefed_at IS NOT NULL",
        mission=restore.mission_id,
        seq=restore.checkpoint.seq,
    )
    revived: set[str] = set()
    for row in rows:
        with suppress(msgspec.DecodeError):  # another checkpoint's row may be damaged
            revived.update(state.id for state in _states(row["sorties_json"]))
    return revived


def _reason_to_keep(restore: RestoreContext, then: SortieState, now: SortieState) -> str | None:
    theirs = (None, then.assigned_to, restore.request.agent_id)
    handed_over = then.assigned_to and then.assigned_to == restore.request.take_over_from
    if (restore.only_agent or handed_over) and now.assigned_to not in theirs:
        return f"now with {now.assigned_to}"
    finished_since = now.status == "completed" and then.status != "completed"
    if finished_since and not restore.request.rewind:
        return "completed since the checkpoint"
    return None


def _goal(restore: RestoreContext, then: SortieState) -> SortieState:
    """Return a sortie's goal: a successor gets open work, not the credit for finished work."""
    if then.assigned_to is None or then.status in CLOSED_SORTIE:
        return then
    owner = restore.new_owner(then.assigned_to)
    return then if owner == then.assigned_to else msgspec.structs.replace(then, assigned_to=owner)


def _write(
    restore: RestoreContext, changed: list[tuple[SortieState | None, SortieState]]
) -> dict[str, Row]:
    """Write all sorties together, invalidate their plan items, and emit an event for each.

    A recovery can change every sortie of a mission. Return what was written over existing sorties.
    """
    for now, goal in changed:
        if now is None:
            _recreate(restore, goal)
        restore.report.changed("sortie", goal.id, _summary(now), _summary(goal))
    if not changed:
        return {}
    values = _overwrite(restore, [(now, goal) for now, goal in changed if now])
    invalidate_plan_items(restore.tx, [goal.id for _, goal in changed])
    payloads = [
        (SortieRestored(sortie_id=goal.id, title=goal.title, status=goal.status), goal.assigned_to)
        for _, goal in changed
    ]
    emit_each(restore.tx, restore.ctx, payloads, mission_id=restore.mission_id)
    return values


def _summary(sortie: SortieState | None) -> str:
    if sortie is None:
        return "missing"
    suffix = f", {sortie.assigned_to}" if sortie.assigned_to else ""
    return f"{sortie.status} {sortie.progress}%{suffix}"


def _overwrite(
    restore: RestoreContext, changed: list[tuple[SortieState, SortieState]]
) -> dict[str, Row]:
    """Overwrite sorties with their goals, only in the fields that any of them changes.

    Return the written fields by the sorties' ids.
    """
    if not changed:
        return {}
    before, after = (zip(*map(_restored, each), strict=True) for each in zip(*changed, strict=True))
    compared = zip(_FIELDS, before, after, strict=True)
    differ, at = [name for name, was, shall in compared if was != shall], restore.ctx.now
    values: dict[str, Row] = {
        goal.id: {name: getattr(goal, name) for name in differ} | {"updated_at": at}
        for _, goal in changed
    }
    columns = ((name, f"{name}_json" if name in SORTIE_LISTS else name) for name in differ)
    assignments = "".join(f"{column} = :{name}, " for name, column in columns)
    lists = [name for name in differ if name in SORTIE_LISTS]
    as_json = {
        goal.id: {name: _encode(getattr(goal, name)).decode() for name in lists}
        for _, goal in changed
    }
    restore.tx.many(
        f"UPDATE sorties SET {assignments}updated_at = :updated_at WHERE id = :id",
        [each | as_json[sortie_id] | {"id": sortie_id} for sortie_id, each in values.items()],
    )
    for sortie_id, each in values.items():
        sortie_changed(restore.tx, restore.mission_id, sortie_id, each)
    return values


def _recreate(restore: RestoreContext, goal: SortieState) -> None:
    """Write back a sortie that the store has lost or that was removed since."""
    columns: Row = {
        name: getattr(goal, name)
        for name in SortieState.__struct_fields__
        if name not in SORTIE_LISTS
    }
    columns |= {
        "mission_id": restore.mission_id,
        "title": goal.title or goal.id,
        "created_at": goal.created_at or restore.ctx.now,
        "updated_at": restore.ctx.now,
        **{f"{name}_json": _encode(getattr(goal, name)).decode() for name in SORTIE_LISTS},
    }
    restore.tx.insert("sorties", columns)
    fields = fields_of(goal) | {
        name: columns[name] for name in ("title", "created_at", "updated_at")
    }
    sortie_changed(restore.tx, restore.mission_id, goal.id, fields)


def restore_locks(restore: RestoreContext) -> int:
    """Take the checkpoint's locks again, each with a new lease and token; return how many.

    Orphaned locks are released first: a lost agent must not keep a file from its holder. Agents
    that wait for a lock are served last, or they would keep a file from its holder, too.
    """
    _name_orphans_that_ended(restore)
    freed = _release_orphans(restore)
    wanted = [then for then in restore.checkpoint.active_locks if restore.includes(then.held_by)]
    now = _lock_state(restore, wanted)
    restored = sum(_restore_lock(restore, then, now) for then in wanted)
    leases.serve(restore.tx, restore.ctx, *freed)
    return restored


class _LockState(msgspec.Struct, frozen=True):
    """What restored locks meet: the agents that have left, and the active locks by target.

    ``active`` is None if any lock is on a directory or a pattern: then each target is looked up.
    """

    gone: frozenset[str]
    active: dict[Target, list[Row]] | None


def _lock_state(restore: RestoreContext, wanted: Sequence[Lock]) -> _LockState:
    """Read, for all locks together, what has to be known before they are restored."""
    owners = sorted({restore.new_owner(then.held_by) for then in wanted})
    paths = sorted({key_of_lock(then) for then in wanted})
    gone = set[str]()
    for some in chunks(owners):
        rows = restore.tx.all(
            f"SELECT id FROM agents WHERE id IN ({inside_of('owner', some)}) AND status = 'gone'",
            **named_params("owner", some),
        )
        gone |= {row["id"] for row in rows}
    wide = "SELECT 1 AS wide FROM locks WHERE status = 'active' AND directory IS NOT NULL LIMIT 1"
    if any(then.directory is not None for then in wanted) or restore.tx.exists(wide):
        return _LockState(frozenset(gone), None)
    active: dict[Target, list[Row]] = {}
    for some in chunks(paths):
        rows = restore.tx.all(
            f"SELECT * FROM locks WHERE normalized_path IN ({inside_of('path', some)})"
            " AND status = 'active' ORDER BY fencing_token",
            **named_params("path", some),
        )
        for row in rows:
            active.setdefault(target_of(row), []).append(row)
    return _LockState(frozenset(gone), active)


def _holders(restore: RestoreContext, now: _LockState, target: Target) -> list[Row]:
    """Return the active locks on a target, and end those whose leases ran out unnoticed."""
    if now.active is None:
        found = leases.look(restore.tx, target).held
    else:
        found = now.active.get(target, [])
    lapsed = [row for row in found if row["expires_at"] <= restore.ctx.now]
    for row in lapsed:
        leases.end_expired(restore.tx, restore.ctx, row)
    return [row for row in found if row not in lapsed]


def _restore_lock(restore: RestoreContext, then: Lock, now: _LockState) -> bool:
    tx, ctx, owner = restore.tx, restore.ctx, restore.new_owner(then.held_by)
    path = key_of_lock(then)
    name, warn = display_name(tx, ctx, path, then.file), restore.report.warnings.append
    if owner in now.gone:
        warn(f"Lock not restored: {name} ({owner} has left the fleet)")
        return False
    if _has_foreign_key(restore, path):
        # Its key names no file any more: only the name that its holder gave is left.
        why = f"the store was moved since; {owner} can lock it again"
        warn(f"Lock not restored: {then.file} ({why})")
        return False
    claim = leases.LeaseRequest(
        path=path,
        directory=then.directory,
        mode=then.mode,
        automatic=int(then.automatic),
        file=then.file,
        agent_id=owner,
        mission_id=restore.mission_id,
        purpose=then.purpose,
        timeout_ms=then.timeout_ms,
    )
    held = [row for row in _holders(restore, now, claim.target) if _is_relevant(row, claim, then)]
    own = next((row for row in held if row["held_by"] == owner), None)
    if own is not None and restore.repeated:
        return True  # its token was in a briefing a moment ago, and stays valid
    ours = (owner, then.held_by, restore.undone_successor(then.held_by))
    others = [row for row in held if row["held_by"] not in ours]
    if others and not restore.request.force_locks:
        _note_other(restore, then, owner, others[0], name)
        return False
    if not held:
        _note_expiry(restore, then, owner, name)
    for row in held:
        if row not in others:
            leases.end(tx, row, "released", ctx.now)
            continue
        leases.end_by_force(tx, ctx, row, None, f"recovery from {restore.checkpoint.id}")
        what = name if target_of(row) == claim.target else display_file(tx, ctx, row)
        warn(f"Force-released lock: {what} (was held by {row['held_by']})")
    granted = leases.grant(tx, ctx, claim, activity=False)
    if granted is not None and now.active is not None:
        kept = [row for row in now.active.get(claim.target, []) if row not in held]
        now.active[claim.target] = [*kept, granted]
    before = f"held by {held[0]['held_by']}" if held else "free"
    if before != f"held by {owner}":
        restore.report.changed("lock", name, before, f"held by {owner}")
    return True


def _is_relevant(row: Row, claim: leases.LeaseRequest, then: Lock) -> bool:
    """Return whether an active lock is the checkpoint's own, or prevents its restoration.

    Other locks of its owner stay.
    """
    same = target_of(row) == claim.target
    if row["held_by"] == claim.agent_id:
        return same
    return (same and row["held_by"] == then.held_by) or not row["mode"] == claim.mode == "shared"


def _note_other(restore: RestoreContext, then: Lock, owner: str, held: Row, name: str) -> None:
    """Report that another agent holds a lock that the checkpoint would give back."""
    if held["held_by"] != restore.request.agent_id:
        _note_conflict(restore, then, owner, held, name)
        return
    restore.report.warnings.append(
        f"Lock not restored: {name} ({held['held_by']}, who recovers, holds it)"
    )


def _has_foreign_key(restore: RestoreContext, key: str) -> bool:
    """Return whether a key comes from a store before this one, so that nobody uses it any more.

    A store can be moved to a server that several daemons share, and back.
    """
    if restore.ctx.shared:
        return key.startswith("/")
    if not is_key(key):
        return False
    mission = find(restore.tx, "mission", restore.mission_id)
    return key.startswith("machine:") or not locks_by_project(restore.ctx, mission)


def _note_expiry(restore: RestoreContext, then: Lock, owner: str, name: str) -> None:
    """Report an expired lease; nobody else holds the file, so its holder gets it anyway."""
    end = then.expires_at or iso(to_ms(then.acquired_at) + then.timeout_ms)
    if end <= restore.ctx.now:
        restore.report.warnings.append(f"Lock expired: {name} (was held by {then.held_by})")
        restore.report.blockers.append((owner, f"Lock expired: {name}"))


def _note_conflict(restore: RestoreContext, then: Lock, owner: str, held: Row, name: str) -> None:
    text = f"Lock conflict: {name} held by {held['held_by']}"
    restore.report.errors.append(text)
    restore.report.blockers.append((owner, text))
    payload = LockConflicted(
        lock_id=held["id"], file=then.file, held_by=held["held_by"], wanted_by=owner
    )
    emit(restore.tx, restore.ctx, payload, mission_id=restore.mission_id, agent_id=owner)


def _name_orphans_that_ended(restore: RestoreContext) -> None:
    """Report the files that lost agents held until their grace ended, since the last recovery."""
    for row in restore.tx.all(
        "SELECT file, normalized_path, held_by FROM locks"
        " WHERE mission_id = :mission AND status = 'expired' AND orphaned_at > coalesce("
        "(SELECT max(briefed_at) FROM recoveries WHERE mission_id = :mission), '')"
        " ORDER BY orphaned_at, id",
        mission=restore.mission_id,
    ):
        if restore.includes(row["held_by"]):
            name = display_file(restore.tx, restore.ctx, row)
            text = f"Lock released: {name} ({row['held_by']} was lost while holding it)"
            restore.report.warnings.append(text)


def _release_orphans(restore: RestoreContext) -> list[Target]:
    """Release locks of the mission's lost agents that the checkpoint does not give back.

    Return the targets that became free.
    """
    tx, ctx = restore.tx, restore.ctx
    kept = {(key_of_lock(lock), lock.held_by) for lock in restore.checkpoint.active_locks}
    rows = tx.all(
        "SELECT l.* FROM locks l JOIN agents a ON a.id = l.held_by AND a.status = 'lost'"
        " WHERE l.mission_id = :mission AND l.status = 'active' ORDER BY l.acquired_at, l.id",
        mission=restore.mission_id,
    )
    freed = []
    for row in rows:
        path, holder = row["normalized_path"], row["held_by"]
        if (path, holder) in kept or restore.only_agent not in (None, holder):
            continue
        leases.end_by_force(tx, ctx, row, None, f"{holder} was lost")
        freed.append(target_of(row))
        name = display_file(tx, ctx, row)
        restore.report.released.append(name)
        restore.report.changed("lock", name, f"held by {holder}", "released")
    return freed


def restore_mail(restore: RestoreContext) -> int:
    """Queue the checkpoint's messages again; return how many the recovery queued."""
    for message in restore.checkpoint.pending_messages:
        if message.delivered:
            continue
        waiting = [
            _requeue(restore, message, agent) for agent in message.to if restore.includes(agent)
        ]
        if any(waiting):
            restore.report.messages.add(message.id)
    return len(restore.report.messages)


def _requeue(restore: RestoreContext, message: PendingMessage, agent_id: str) -> bool:
    tx = restore.tx
    # Any earlier take-over counts: the successor has the messages too.
    recipient = mailbox.mail_reader(tx, restore.new_owner(agent_id))
    row = tx.one("SELECT * FROM messages WHERE id = :id", id=message.id) or _repost(
        restore, message
    )
    status = _delivery(restore, message.id, agent_id) or _delivery(restore, message.id, recipient)
    if status in ("delivered", "acked"):
        text = f"Message {message.id} not queued again for {recipient}: it was {status} already"
        tx.after_commit(LogLine("INFO", text))
        return False
    if status != "queued":
        mailbox.enqueue_delivery(tx, message.id, recipient, row["seq"])
        restore.report.changed("message", message.id, status or "missing", "queued")
        payload = MessageRequeued(message_id=message.id, to=[recipient])
        emit(tx, restore.ctx, payload, mission_id=restore.mission_id)
    return True


def _delivery(restore: RestoreContext, message_id: str, agent_id: str) -> str | None:
    status: str | None = restore.tx.value(
        "SELECT status FROM deliveries WHERE message_id = :id AND agent_id = :agent",
        id=message_id,
        agent=agent_id,
    )
    return status


def _repost(restore: RestoreContext, message: PendingMessage) -> Row:
    """Write back a message that the store has lost."""
    columns: Row = {
        "id": message.id,
        "seq": restore.checkpoint.seq,
        "mission_id": restore.mission_id,
        "thread_id": message.thread_id,
        "sender": message.sender,
        "to_json": msgspec.json.encode(message.to).decode(),
        "subject": message.subject,
        "body": message.body,
        "priority": message.priority,
        "sent_at": message.sent_at,
    }
    restore.tx.insert("messages", columns)
    search_index.add_message(restore.tx, columns)
    return columns
