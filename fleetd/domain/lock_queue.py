"""Waiting for a lock, in order of arrival; a wait lives as long as its client."""

from ..wire.base import Mutation, Query
from ..wire.errors import NotFound
from ..wire.model import Lock, Record
from ..wire.requests.lock import LockAcquire
from . import leases
from .context import Context
from .ids import find
from .records import lock_of
from .registry import handler
from .tx import Tx
from .upkeep import Done


class Waiting(Record, frozen=True, kw_only=True):
    """Where a waiter stands: its lock, once granted."""

    wait_id: int
    lock: Lock | None


class LockEnqueue(Mutation[Waiting], frozen=True):
    """Line up for a lock, or get it at once; not on the wire."""

    request: LockAcquire


class Look(Record, frozen=True, kw_only=True):
    """Whether a waiter should claim its lock now, else when its turn may come by itself."""

    due: bool
    look_again_at: str | None


class LockLook(Query[Look], frozen=True):
    """Look whether a wait is over without changing anything; not on the wire."""

    wait_id: int


class LockPoll(Mutation[Waiting], frozen=True):
    """Claim the lock of a waiter whose turn has come; not on the wire."""

    wait_id: int


class LockServe(Mutation[Done], frozen=True):
    """End a lease that ran out and serve the first in line; not on the wire."""

    path: str


class LockLeaveQueue(Mutation[Waiting], frozen=True):
    """Stop waiting; a lock that was granted meanwhile is in the answer; not on the wire."""

    wait_id: int


@handler
def enqueue(tx: Tx, request: LockEnqueue, ctx: Context) -> Waiting:
    """Take a lease on a file, or line up for it."""
    claim = leases.claim_of(tx, ctx, request.request)
    leases.expire(tx, ctx, claim.path)
    row = leases.grant(tx, ctx, claim)
    if row is not None:
        return Waiting(wait_id=0, lock=lock_of(row))
    wait_id = tx.value(
        "INSERT INTO lock_waits (normalized_path, file, agent_id, mission_id, purpose, timeout_ms,"
        " machine) VALUES (:path, :file, :agent, :mission, :purpose, :length, :machine)"
        " RETURNING id",
        path=claim.path,
        file=claim.file,
        agent=claim.agent_id,
        mission=claim.mission_id,
        purpose=claim.purpose,
        length=claim.timeout_ms,
        machine=ctx.machine,
    )
    return _waiting(tx, ctx, wait_id)


@handler
def look(tx: Tx, request: LockLook, ctx: Context) -> Look:
    """Look at the wait and at the lock; only what can succeed is worth a transaction."""
    wait = tx.one("SELECT * FROM lock_waits WHERE id = :id", id=request.wait_id)
    if wait is None or wait["lock_id"] is not None:
        return Look(due=True, look_again_at=None)
    held = leases.holder(tx, wait["normalized_path"])
    due = held is None or held["expires_at"] <= ctx.now
    return Look(due=due, look_again_at=held["expires_at"] if held else None)


@handler
def poll(tx: Tx, request: LockPoll, ctx: Context) -> Waiting:
    """Look whether the wait is over, after seeing to a lease that ran out.

    Raises NotFound when the waiter itself was forgotten.
    """
    if tx.one("SELECT 1 AS there FROM lock_waits WHERE id = :id", id=request.wait_id) is None:
        raise NotFound(
            "The wait for the lock has ended: its mission or its agent was taken out of the store,"
            " or its machine was not heard of.",
            hint="Ask for the lock again if there is still something to do.",
        )
    return _waiting(tx, ctx, request.wait_id)


def _waiting(tx: Tx, ctx: Context, wait_id: int) -> Waiting:
    path = tx.value("SELECT normalized_path FROM lock_waits WHERE id = :id", id=wait_id)
    leases.expire(tx, ctx, path)
    wait = tx.one("SELECT * FROM lock_waits WHERE id = :id", id=wait_id)
    if wait is not None and wait["lock_id"] is not None:
        tx.run("DELETE FROM lock_waits WHERE id = :id", id=wait_id)
        lock = lock_of(find(tx, "lock", wait["lock_id"]))
        return Waiting(wait_id=wait_id, lock=lock)
    return Waiting(wait_id=wait_id, lock=None)


@handler
def serve(tx: Tx, request: LockServe, ctx: Context) -> Done:
    """Do what a newcomer noticed who was refused; done when somebody was served."""
    return Done(done=leases.expire(tx, ctx, request.path))


@handler
def leave_queue(tx: Tx, request: LockLeaveQueue, ctx: Context) -> Waiting:
    """Take a waiter out of its line; if it was just served, it gets what it waited for."""
    waiting = _waiting(tx, ctx, request.wait_id)
    tx.run("DELETE FROM lock_waits WHERE id = :id", id=request.wait_id)
    return waiting
