"""Waiting for a lock, in order of arrival; a wait lives as long as its client."""

from ...protocol.errors import NotFound
from ...protocol.records import Lock, Record
from ...protocol.request import Mutation, Query
from ...protocol.requests.lock import LockAcquire
from ..core.context import Context
from ..core.ids import find
from ..core.mappers import lock_of
from ..core.registry import handler
from ..core.tx import Row, Tx
from ..system.startup import Done
from . import leases

# More waits than began between what is known and what began last.
UNSEEN = 1_000_000
_MINE = "id = :id AND machine = :machine AND agent_id = :agent AND normalized_path = :path"


class Stand(Record, frozen=True, kw_only=True):
    """A place in a line, and whose it is.

    A store that came back from a copy may have given the number to another wait meanwhile.
    """

    wait_id: int
    agent_id: str
    path: str


class Waiting(Record, frozen=True, kw_only=True):
    """Where a waiter stands: its lock, once granted."""

    stand: Stand
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

    stand: Stand


class LockPoll(Mutation[Waiting], frozen=True):
    """Claim the lock of a waiter whose turn has come; not on the wire."""

    stand: Stand


class LockServe(Mutation[Done], frozen=True):
    """End a lease that ran out and serve the first in line; not on the wire."""

    path: str


class LockLeaveQueue(Mutation[Waiting], frozen=True):
    """Stop waiting; not on the wire.

    With ``keep`` a lock that the agent holds by now is in the answer; else what this wait was
    granted a moment ago is given back.
    """

    stand: Stand
    keep: bool


@handler
def enqueue(tx: Tx, ctx: Context, request: LockEnqueue) -> Waiting:
    """Take a lease on a file, or line up for it."""
    claim = leases.claim_of(tx, ctx, request.request)
    leases.expire(tx, ctx, claim.path)
    row = leases.grant(tx, ctx, claim)
    if row is not None:
        return Waiting(stand=_stand(claim, 0), lock=lock_of(row))
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
    return _waiting(tx, ctx, _stand(claim, wait_id))


def _stand(claim: leases.Claim, wait_id: int) -> Stand:
    return Stand(wait_id=wait_id, agent_id=claim.agent_id, path=claim.path)


def _found(tx: Tx, ctx: Context, stand: Stand) -> Row | None:
    """Return a wait; None when it is gone, also when its number is another one's by now."""
    return tx.one(f"SELECT * FROM lock_waits WHERE {_MINE}", **_mine(ctx, stand))


def _mine(ctx: Context, stand: Stand) -> Row:
    return {
        "id": stand.wait_id,
        "machine": ctx.machine,
        "agent": stand.agent_id,
        "path": stand.path,
    }


@handler
def look(tx: Tx, ctx: Context, request: LockLook) -> Look:
    """Look at the wait and at the lock; only what can succeed is worth a transaction."""
    wait = _found(tx, ctx, request.stand)
    if wait is None or wait["lock_id"] is not None:
        return Look(due=True, look_again_at=None)
    held = leases.holder(tx, wait["normalized_path"])
    due = held is None or held["expires_at"] <= ctx.now or held["held_by"] == wait["agent_id"]
    return Look(due=due, look_again_at=held["expires_at"] if held else None)


@handler
def poll(tx: Tx, ctx: Context, request: LockPoll) -> Waiting:
    """Look whether the wait is over, after seeing to a lease that ran out.

    Raises NotFound when the waiter itself was forgotten.
    """
    if _found(tx, ctx, request.stand) is None:
        raise NotFound(
            "The wait for the lock has ended: its mission or its agent was taken out of the store,"
            " or its machine was not heard of.",
            hint="Ask for the lock again if there is still something to do.",
        )
    return _waiting(tx, ctx, request.stand)


def _waiting(tx: Tx, ctx: Context, stand: Stand) -> Waiting:
    """Return the lock of a wait whose turn has come, or whose agent holds the file by now.

    An agent may wait twice for one file, in two calls: both get the same lease.
    """
    leases.expire(tx, ctx, stand.path)
    wait = _found(tx, ctx, stand)
    row = _gotten(tx, ctx, wait) if wait is not None else None
    if row is None:
        return Waiting(stand=stand, lock=None)
    tx.run("DELETE FROM lock_waits WHERE id = :id", id=stand.wait_id)
    return Waiting(stand=stand, lock=lock_of(row))


def _gotten(tx: Tx, ctx: Context, wait: Row) -> Row | None:
    """Return the lock that a wait was granted, or its agent's own, renewed as if asked for now."""
    if wait["lock_id"] is not None:
        return find(tx, "lock", wait["lock_id"])
    held = leases.holder(tx, wait["normalized_path"])
    if held is None or held["held_by"] != wait["agent_id"]:
        return None
    return leases.grant(tx, ctx, leases.claim_of_wait(wait))


@handler
def serve(tx: Tx, ctx: Context, request: LockServe) -> Done:
    """Do what a newcomer noticed who was refused; done when somebody was served."""
    return Done(done=leases.expire(tx, ctx, request.path))


@handler
def leave_queue(tx: Tx, ctx: Context, request: LockLeaveQueue) -> Waiting:
    """Take a waiter out of its line; one that was just served keeps the lock or gives it back."""
    if request.keep:
        waiting = _waiting(tx, ctx, request.stand)
    else:
        waiting = Waiting(stand=request.stand, lock=None)
        _give_back(tx, ctx, request.stand)
    tx.run(f"DELETE FROM lock_waits WHERE {_MINE}", **_mine(ctx, request.stand))
    return waiting


def _give_back(tx: Tx, ctx: Context, stand: Stand) -> None:
    """Release what a wait was granted, unless its agent has heard of the lock by another call."""
    wait = _found(tx, ctx, stand)
    if wait is None or wait["lock_id"] is None:
        return
    row = find(tx, "lock", wait["lock_id"])
    if row["status"] == "active" and row["expires_at"] > ctx.now:
        leases.end_held(tx, ctx, row)


def skip_waits(tx: Tx) -> None:
    """Number the waits to come above every one that a lost end of the store has given out."""
    nobody = "'', '', '', '', 0"
    row = "normalized_path, file, agent_id, purpose, timeout_ms"
    first = tx.value(f"INSERT INTO lock_waits ({row}) VALUES ({nobody}) RETURNING id")
    last = first + UNSEEN
    tx.run(f"INSERT INTO lock_waits (id, {row}) VALUES (:id, {nobody})", id=last)
    tx.run("DELETE FROM lock_waits WHERE id IN (:first, :last)", first=first, last=last)
