"""Lock queue: waiting in order of arrival; a wait lives as long as its client."""

from msgspec import to_builtins

from ...protocol.errors import NotFound
from ...protocol.events import LockWaitEnded
from ...protocol.records import Lock, Record
from ...protocol.requests.lock import LockAcquire
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.mappers import lock_of
from ..core.tx import Row, Tx
from . import leases
from .targets import Target, target_of

# More waits than can have begun after the last known one.
UNSEEN = 1_000_000
# Shorter waits leave no event.
REPORTED_WAIT_MS = 1_000


class LockTicket(Record, frozen=True, kw_only=True):
    """A place in the queue, and its agent.

    A store restored from a copy may have given the number to another wait meanwhile.
    """

    wait_id: int
    agent_id: str
    target: Target


class LockTurn(Record, frozen=True, kw_only=True):
    """Whether a waiter should claim its lock now, else when its turn may come by itself."""

    due: bool
    look_again_at: str | None


def enqueue(tx: Tx, ctx: Context, request: LockAcquire) -> Lock | LockTicket:
    """Take a lease, or join the queue for it."""
    wanted = leases.lease_request(tx, ctx, request)
    near, _ = leases.settle(tx, ctx, wanted.target)
    found = leases.blocker(tx, ctx, wanted, near)
    if found is None:
        return lock_of(leases.take(tx, ctx, wanted, near.own(wanted)))
    columns = to_builtins(wanted)
    del columns["automatic"]  # nobody waits for those
    wait_id = tx.value(
        "INSERT INTO lock_waits (normalized_path, directory, mode, file, agent_id, mission_id,"
        " purpose, timeout_ms, machine, began_ms, waited_for)"
        " VALUES (:normalized_path, :directory, :mode, :file,"
        " :agent_id, :mission_id, :purpose, :timeout_ms, :machine, :began, :holder) RETURNING id",
        machine=ctx.machine,
        began=ctx.now_ms,
        holder=found.lock["held_by"],
        **columns,
    )
    return LockTicket(wait_id=wait_id, agent_id=wanted.agent_id, target=wanted.target)


def _found(tx: Tx, ctx: Context, ticket: LockTicket) -> Row | None:
    """Return a wait; None when it is gone or its number belongs to another wait by now."""
    wait = tx.one(
        "SELECT * FROM lock_waits WHERE id = :id AND machine = :machine AND agent_id = :agent",
        machine=ctx.machine,
        id=ticket.wait_id,
        agent=ticket.agent_id,
    )
    return wait if wait is not None and target_of(wait) == ticket.target else None


def check_turn(tx: Tx, ctx: Context, ticket: LockTicket) -> LockTurn:
    """Return whether a claim can succeed; only then is it worth a writing transaction."""
    wait = _found(tx, ctx, ticket)
    if wait is None or wait["lock_id"] is not None:
        return LockTurn(due=True, look_again_at=None)
    wanted = leases.lease_request_from(wait, wait["agent_id"])
    near = leases.look(tx, ticket.target)
    ends = [row["expires_at"] for row in near.held if row["held_by"] != wanted.agent_id]
    due = any(end <= ctx.now for end in ends) or not leases.blocker(
        tx, ctx, wanted, near, ticket.wait_id
    )
    return LockTurn(due=due, look_again_at=min(ends, default=None))


def take_turn(tx: Tx, ctx: Context, ticket: LockTicket) -> Lock | None:
    """Claim the lock of a wait whose turn has come, after ending expired leases.

    Raises NotFound when the wait itself was forgotten.
    """
    if _found(tx, ctx, ticket) is None:
        raise NotFound(
            "The wait for the lock has ended: its mission or its agent was deleted, or its"
            " machine was lost.",
            hint="Request the lock again if you still need it.",
        )
    return _claimed(tx, ctx, ticket)


def _claimed(tx: Tx, ctx: Context, ticket: LockTicket) -> Lock | None:
    """Return the lock of a wait whose turn has come, or whose agent already has it.

    An agent may wait twice for one file, in two calls: both get the same lease.
    """
    near, _ = leases.settle(tx, ctx, ticket.target)
    wait = _found(tx, ctx, ticket)
    if wait is None:
        return None
    if wait["lock_id"] is not None:
        row = find(tx, "lock", wait["lock_id"])
    else:
        wanted = leases.lease_request_from(wait, ticket.agent_id)
        if leases.blocker(tx, ctx, wanted, near, ticket.wait_id) is not None:
            return None
        row = leases.take(tx, ctx, wanted, near.own(wanted))
    tx.run("DELETE FROM lock_waits WHERE id = :id", id=ticket.wait_id)
    _emit_wait_ended(tx, ctx, wait, row["id"])
    return lock_of(row)


def _emit_wait_ended(tx: Tx, ctx: Context, wait: Row, lock_id: str | None) -> None:
    """Append an event that a wait is over, unless it was short."""
    waited_ms = ctx.now_ms - wait["began_ms"]
    if wait["began_ms"] and waited_ms >= REPORTED_WAIT_MS:
        payload = LockWaitEnded(
            file=wait["file"],
            waited_ms=waited_ms,
            waited_for=wait["waited_for"],
            lock_id=lock_id,
        )
        emit(tx, ctx, payload, mission_id=wait["mission_id"], agent_id=wait["agent_id"])


def dequeue(tx: Tx, ctx: Context, ticket: LockTicket, *, keep: bool) -> Lock | None:
    """Remove a wait from the queue.

    With ``keep``, return a lock that its agent already holds. Otherwise, release the lock that this
    wait was just granted.
    """
    if keep and (lock := _claimed(tx, ctx, ticket)) is not None:
        return lock
    wait = _found(tx, ctx, ticket)
    if wait is None:
        return None
    # A wait's row never names a lock that its agent knows of by another call.
    if not keep and wait["lock_id"] is not None:
        row = find(tx, "lock", wait["lock_id"])
        if row["status"] == "active" and row["expires_at"] > ctx.now:
            leases.end_held(tx, ctx, row)
    tx.run("DELETE FROM lock_waits WHERE id = :id", id=ticket.wait_id)
    _emit_wait_ended(tx, ctx, wait, None)
    # A wait to write blocked readers, which can read now.
    leases.serve(tx, ctx, ticket.target)
    return None


def skip_waits(tx: Tx) -> None:
    """Number future waits above every number that the lost end of the store has given out."""
    nobody = "'', '', '', '', 0"
    row = "normalized_path, file, agent_id, purpose, timeout_ms"
    first = tx.value(f"INSERT INTO lock_waits ({row}) VALUES ({nobody}) RETURNING id")
    last = first + UNSEEN
    tx.run(f"INSERT INTO lock_waits (id, {row}) VALUES (:id, {nobody})", id=last)
    tx.run("DELETE FROM lock_waits WHERE id IN (:first, :last)", first=first, last=last)
