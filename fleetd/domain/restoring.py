"""Bringing one kind of thing back from a checkpoint: sorties, locks, mail; one step of recovery.

Each function changes the store, notes what it did in the ``Ledger`` and returns how many came
back. Must not decide whether a recovery may happen; ``recovery`` does.
"""

from typing import Any

import msgspec

from ..wire.events import LockConflicted, MessageRequeued, SortieRestored
from ..wire.model import Change, Checkpoint, Kept, Lock, PendingMessage, SortieState
from ..wire.times import iso, to_ms
from . import leases, mailbox
from .capture import state_of
from .context import Context
from .events import emit
from .narrate import obstacle, step
from .records import sorties_of
from .tx import LogLine, Row, Tx


class Ledger(msgspec.Struct, kw_only=True):
    """What a recovery did so far."""

    changes: list[Change] = []
    kept: list[Kept] = []
    errors: list[str] = []
    warnings: list[str] = []
    blockers: list[tuple[str, str]] = []
    """What blocks whom: the agent, and the sentence."""
    outdated: set[str] = set()
    """Steps and blockers of the checkpoint that no longer hold."""
    released: list[str] = []


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose part is restored: everybody's, or one agent's; and who succeeds a lost agent."""

    agent_id: str | None = None
    take_over_from: str | None = None
    rewind: bool = False
    force_locks: bool = False

    def holder(self, name: str) -> str:
        """Return who gets what an agent of the checkpoint had."""
        if self.agent_id and name == self.take_over_from:
            return self.agent_id
        return name

    def covers(self, name: str | None, narrow: str | None) -> bool:
        """Whether something of this agent is restored; ``narrow`` is the only one, if any."""
        return narrow is None or (name is not None and self.holder(name) == narrow)


_RESTORED_FIELDS = (
    "status",
    "assigned_to",
    "progress",
    "progress_notes",
    "blocked_reason",
    "result",
    "started_at",
    "completed_at",
)


def sorties(
    tx: Tx, ctx: Context, checkpoint: Checkpoint, scope: Scope, narrow: str | None, ledger: Ledger
) -> int:
    """Restore sorties; what was finished or added since stays, unless the recovery rewinds."""
    live = {sortie.id: sortie for sortie in sorties_of(tx, checkpoint.mission_id)}
    restored = 0
    for then in checkpoint.sorties:
        now = live.pop(then.id, None)
        if not scope.covers(then.assigned_to, narrow):
            continue
        if now and narrow and now.assigned_to not in (None, then.assigned_to, narrow):
            ledger.kept.append(Kept(sortie_id=then.id, reason=f"now with {now.assigned_to}"))
            continue
        if now and _finished_since(then, now) and not scope.rewind:
            ledger.kept.append(Kept(sortie_id=then.id, reason="completed since the checkpoint"))
            ledger.outdated |= {_told(then)}
            continue
        _restore_sortie(tx, ctx, checkpoint, scope, then, state_of(now) if now else None, ledger)
        restored += 1
    if narrow is None:
        for sortie_id in live:
            ledger.kept.append(Kept(sortie_id=sortie_id, reason="created since the checkpoint"))
    return restored


def _finished_since(then: SortieState, now: SortieState) -> bool:
    return now.status == "completed" and then.status != "completed"


def _told(sortie: SortieState) -> str:
    return obstacle(sortie) if sortie.status == "blocked" else step_of(sortie)


def step_of(sortie: SortieState) -> str:
    """Return what the checkpoint's next steps say about a sortie, empty for a finished one."""
    return "" if sortie.status in ("completed", "failed") else step(sortie)


def _restore_sortie(
    tx: Tx,
    ctx: Context,
    checkpoint: Checkpoint,
    scope: Scope,
    then: SortieState,
    now: SortieState | None,
    ledger: Ledger,
) -> None:
    owner = scope.holder(then.assigned_to) if then.assigned_to else None
    goal = msgspec.structs.replace(then, assigned_to=owner)
    if now is None:
        _recreate(tx, ctx, checkpoint.mission_id, goal)
    elif all(getattr(now, f) == getattr(goal, f) for f in (*_RESTORED_FIELDS, "files")):
        return
    else:
        tx.run(
            "UPDATE sorties SET "
            + ", ".join(f"{name} = :{name}" for name in _RESTORED_FIELDS)
            + ", files_json = :files, updated_at = :now WHERE id = :id",
            **{name: getattr(goal, name) for name in _RESTORED_FIELDS},
            files=msgspec.json.encode(goal.files).decode(),
            now=ctx.now,
            id=goal.id,
        )
    ledger.changes.append(Change(what="sortie", id=goal.id, before=_state(now), after=_state(goal)))
    payload = SortieRestored(sortie_id=goal.id, title=goal.title, status=goal.status)
    emit(tx, ctx, payload, mission_id=checkpoint.mission_id, agent_id=goal.assigned_to)


def _state(sortie: SortieState | None) -> str:
    if sortie is None:
        return "missing"
    who = f", {sortie.assigned_to}" if sortie.assigned_to else ""
    return f"{sortie.status} {sortie.progress}%{who}"


def _recreate(tx: Tx, ctx: Context, mission_id: str, goal: SortieState) -> None:
    columns: Row = {
        name: getattr(goal, name) for name in SortieState.__struct_fields__ if name != "files"
    }
    columns |= {
        "mission_id": mission_id,
        "title": goal.title or goal.id,
        "created_at": goal.created_at or ctx.now,
        "updated_at": ctx.now,
        "files_json": msgspec.json.encode(goal.files).decode(),
    }
    names = ", ".join(columns)
    values = ", ".join(f":{name}" for name in columns)
    tx.run(f"INSERT INTO sorties ({names}) VALUES ({values})", **columns)


def file_locks(
    tx: Tx, ctx: Context, checkpoint: Checkpoint, scope: Scope, narrow: str | None, ledger: Ledger
) -> int:
    """Take the checkpoint's locks again for their holders, each with a new lease and token."""
    return sum(
        _restore_lock(tx, ctx, checkpoint, scope, then, ledger)
        for then in checkpoint.active_locks
        if scope.covers(then.held_by, narrow)
    )


def _restore_lock(
    tx: Tx, ctx: Context, checkpoint: Checkpoint, scope: Scope, then: Lock, ledger: Ledger
) -> bool:
    owner = scope.holder(then.held_by)
    path = then.normalized_path or then.file
    leases.expire(tx, ctx, path)
    held = leases.holder(tx, path)
    ours = held is not None and held["held_by"] in (owner, then.held_by)
    if held is not None and not ours:
        if not scope.force_locks:
            _conflict(tx, ctx, checkpoint, owner, held, then, ledger)
            return False
        leases.end_by_force(tx, ctx, held, None, f"recovery from {checkpoint.id}")
        ledger.warnings.append(f"Force-released lock: {then.file} (was held by {held['held_by']})")
    elif held is None and _lease_end(then) <= ctx.now:
        ledger.warnings.append(f"Lock expired: {then.file} (was held by {then.held_by})")
        ledger.blockers.append((owner, f"Lock expired: {then.file}"))
    if held is not None and ours:
        leases.supersede(tx, ctx, held)
    claim = leases.Claim(
        path=path,
        file=then.file,
        agent_id=owner,
        mission_id=checkpoint.mission_id,
        purpose=then.purpose,
        timeout_ms=then.timeout_ms,
    )
    leases.grant(tx, ctx, claim, activity=False)
    before = f"held by {held['held_by']}" if held is not None else "free"
    if before != f"held by {owner}":
        ledger.changes.append(
            Change(what="lock", id=then.file, before=before, after=f"held by {owner}")
        )
    return True


def _lease_end(lock: Lock) -> str:
    if lock.expires_at:
        return lock.expires_at
    return iso(to_ms(lock.acquired_at) + lock.timeout_ms)


def _conflict(
    tx: Tx,
    ctx: Context,
    checkpoint: Checkpoint,
    owner: str,
    held: Row,
    then: Lock,
    ledger: Ledger,
) -> None:
    text = f"Lock conflict: {then.file} held by {held['held_by']}"
    ledger.errors.append(text)
    ledger.blockers.append((owner, text))
    payload = LockConflicted(
        lock_id=held["id"], file=then.file, held_by=held["held_by"], wanted_by=owner
    )
    emit(tx, ctx, payload, mission_id=checkpoint.mission_id, agent_id=owner)


def orphaned_locks(
    tx: Tx, ctx: Context, checkpoint: Checkpoint, narrow: str | None, ledger: Ledger
) -> None:
    """Release what lost agents of the mission still hold and the checkpoint does not give back."""
    kept = {lock.normalized_path or lock.file for lock in checkpoint.active_locks}
    rows = tx.all(
        "SELECT l.* FROM locks l JOIN agents a ON a.id = l.held_by AND a.status = 'lost'"
        " WHERE l.mission_id = :mission AND l.status = 'active' ORDER BY l.acquired_at, l.id",
        mission=checkpoint.mission_id,
    )
    for row in rows:
        if row["normalized_path"] in kept or narrow not in (None, row["held_by"]):
            continue
        leases.end_by_force(tx, ctx, row, None, f"{row['held_by']} was lost")
        leases.serve(tx, ctx, row["normalized_path"])
        ledger.released.append(row["file"])
        ledger.changes.append(
            Change(
                what="lock", id=row["file"], before=f"held by {row['held_by']}", after="released"
            )
        )


def mail(
    tx: Tx, ctx: Context, checkpoint: Checkpoint, scope: Scope, narrow: str | None, ledger: Ledger
) -> int:
    """Queue the checkpoint's letters again for those who have not had them."""
    requeued = 0
    for letter in checkpoint.pending_messages:
        if letter.delivered:
            continue
        to = [agent for agent in letter.to if scope.covers(agent, narrow)]
        again = [a for a in to if _requeue(tx, ctx, checkpoint, scope, letter, a, ledger)]
        if again:
            requeued += 1
    return requeued


def _requeue(
    tx: Tx,
    ctx: Context,
    checkpoint: Checkpoint,
    scope: Scope,
    letter: PendingMessage,
    agent_id: str,
    ledger: Ledger,
) -> bool:
    row = tx.one("SELECT * FROM messages WHERE id = :id", id=letter.id)
    if row is None:
        row = _repost(tx, checkpoint, letter)
    recipient = scope.holder(agent_id)
    status = _delivery(tx, letter.id, agent_id) or _delivery(tx, letter.id, recipient)
    if status in ("delivered", "acked"):
        text = f"Message {letter.id} not queued again for {recipient}: it was {status} already"
        tx.after_commit(LogLine("INFO", text))
        return False
    if status != "queued":
        mailbox.queue(tx, letter.id, recipient, row["seq"])
        ledger.changes.append(
            Change(what="message", id=letter.id, before=status or "missing", after="queued")
        )
        payload = MessageRequeued(message_id=letter.id, to=[recipient])
        emit(tx, ctx, payload, mission_id=checkpoint.mission_id)
    return True


def _delivery(tx: Tx, message_id: str, agent_id: str) -> str | None:
    status: str | None = tx.value(
        "SELECT status FROM deliveries WHERE message_id = :id AND agent_id = :agent",
        id=message_id,
        agent=agent_id,
    )
    return status


def _repost(tx: Tx, checkpoint: Checkpoint, letter: PendingMessage) -> Row:
    """Write a letter back that the store has lost."""
    columns: dict[str, Any] = {
        "id": letter.id,
        "seq": checkpoint.seq,
        "mission_id": checkpoint.mission_id,
        "thread_id": letter.thread_id,
        "sender": letter.sender,
        "to_json": msgspec.json.encode(letter.to).decode(),
        "subject": letter.subject,
        "body": letter.body,
        "priority": letter.priority,
        "sent_at": letter.sent_at,
    }
    names = ", ".join(columns)
    values = ", ".join(f":{name}" for name in columns)
    tx.run(f"INSERT INTO messages ({names}) VALUES ({values})", **columns)
    return columns
