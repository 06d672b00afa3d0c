"""Restored locks: taken again for their holders; orphaned ones are released."""

from ...protocol.events import LockConflicted
from ...protocol.records import Lock
from ...protocol.timestamps import iso, to_ms
from ..core.event_log import emit
from ..core.ids import find
from ..core.tx import Row
from ..locks import leases
from ..locks.keys import display_file, display_name, is_key, key_of_lock, locks_by_project
from .restore_context import RestoreContext


def restore_locks(restore: RestoreContext) -> int:
    """Take the checkpoint's locks again, each with a new lease and token; return how many.

    Orphaned locks go first: the dead must not keep a file from its holder. Those who wait for one
    come last, or they would.
    """
    _name_orphans_that_ended(restore)
    freed = _release_orphans(restore)
    restored = sum(
        _restore(restore, then)
        for then in restore.checkpoint.active_locks
        if restore.covers(then.held_by)
    )
    for path in freed:
        leases.serve(restore.tx, restore.ctx, path)
    return restored


def _restore(restore: RestoreContext, then: Lock) -> bool:
    tx, ctx, owner = restore.tx, restore.ctx, restore.holder(then.held_by)
    path = key_of_lock(then)
    name = display_name(tx, ctx, path, then.file)
    if _has_left(restore, owner):
        text = f"Lock not restored: {name} ({owner} has left the fleet)"
        restore.report.warnings.append(text)
        return False
    if _is_strange(restore, path):
        why = f"the store was moved since; {owner} can lock it again"
        # Its key means no file any more: only its holder's word is left.
        restore.report.warnings.append(f"Lock not restored: {then.file} ({why})")
        return False
    leases.end_expired(tx, ctx, path)
    held = leases.holder(tx, path)
    if held is not None and held["held_by"] == owner and restore.repeated:
        return True  # its token was handed out in a briefing a moment ago, and stays good
    if held is None:
        _note_expiry(restore, then, owner, name)
    elif held["held_by"] in (owner, then.held_by, restore.gives_back(then.held_by)):
        leases.end(tx, held["id"], "released", ctx.now)
    elif restore.request.force_locks:
        leases.end_by_force(tx, ctx, held, None, f"recovery from {restore.checkpoint.id}")
        text = f"Force-released lock: {name} (was held by {held['held_by']})"
        restore.report.warnings.append(text)
    elif held["held_by"] == restore.request.agent_id:
        text = f"Lock not restored: {name} ({held['held_by']}, who recovers, holds it)"
        restore.report.warnings.append(text)
        return False
    else:
        _note_conflict(restore, then, owner, held, name)
        return False
    leases.grant(tx, ctx, _claim(restore, then, owner, path), activity=False)
    before = f"held by {held['held_by']}" if held is not None else "free"
    if before != f"held by {owner}":
        restore.report.changed("lock", name, before, f"held by {owner}")
    return True


def _is_strange(restore: RestoreContext, key: str) -> bool:
    """Whether nobody asks for a file by such a key any more: it is of a store before this one.

    A store can be moved to a server that several share, and back.
    """
    if restore.ctx.shared:
        return key.startswith("/")
    if not is_key(key):
        return False
    mission = find(restore.tx, "mission", restore.mission_id)
    return key.startswith("machine:") or not locks_by_project(restore.ctx, mission)


def _has_left(restore: RestoreContext, agent_id: str) -> bool:
    status = restore.tx.value("SELECT status FROM agents WHERE id = :id", id=agent_id)
    return bool(status == "gone")


def _claim(restore: RestoreContext, then: Lock, owner: str, path: str) -> leases.LeaseRequest:
    return leases.LeaseRequest(
        path=path,
        file=then.file,
        agent_id=owner,
        mission_id=restore.mission_id,
        purpose=then.purpose,
        timeout_ms=then.timeout_ms,
    )


def _note_expiry(restore: RestoreContext, then: Lock, owner: str, name: str) -> None:
    """Say that a lease ran out; nobody else holds the file, so its holder gets it all the same."""
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
    """Say which files lost agents held until their grace was over, since the last recovery."""
    last = restore.tx.value(
        "SELECT max(briefed_at) FROM recoveries WHERE mission_id = :id", id=restore.mission_id
    )
    rows = restore.tx.all(
        "SELECT file, normalized_path, held_by FROM locks"
        " WHERE mission_id = :mission AND status = 'expired' AND orphaned_at > :since"
        " ORDER BY orphaned_at, id",
        mission=restore.mission_id,
        since=last or "",
    )
    for row in rows:
        if restore.covers(row["held_by"]):
            name = display_file(restore.tx, restore.ctx, row)
            text = f"Lock released: {name} ({row['held_by']} was lost while holding it)"
            restore.report.warnings.append(text)


def _release_orphans(restore: RestoreContext) -> list[str]:
    """Release what lost agents of the mission hold and the checkpoint does not give back.

    Return the paths that came free.
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
        if (path, holder) in kept or restore.narrow not in (None, holder):
            continue
        leases.end_by_force(tx, ctx, row, None, f"{holder} was lost")
        freed.append(path)
        name = display_file(tx, ctx, row)
        restore.report.released.append(name)
        restore.report.changed("lock", name, f"held by {holder}", "released")
    return freed
