"""Locks: leases on files with fencing tokens, and those who wait for them, in order of arrival.

Expiry is decided by comparing with ``now`` in the same transaction; no sweep is needed for it.
Paths come in as facts: rules do not look at the file system.
"""

from ..wire.base import Mutation
from ..wire.errors import InvalidState, LockConflict
from ..wire.events import (
    LockAcquired,
    LockExpired,
    LockForceReleased,
    LockReleased,
    LockRenewed,
)
from ..wire.model import Lock, Record
from ..wire.requests import (
    ErrorReport,
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockList,
    LockRelease,
    LockRenew,
)
from ..wire.requests.lock import LockPage, Validity
from .context import Context
from .events import emit
from .ids import find, fresh_id
from .records import lock_of
from .registry import handler
from .tx import Row, Tx


class Waiting(Record, frozen=True, kw_only=True):
    """Where a waiter stands: its lock, once granted, else when to look again."""

    wait_id: int
    lock: Lock | None
    look_again_at: str | None


class LockEnqueue(Mutation[Waiting], frozen=True):
    """Line up for a lock, or get it at once; not on the wire."""

    request: LockAcquire


class LockPoll(Mutation[Waiting], frozen=True):
    """See whether a waiter has been served; not on the wire."""

    wait_id: int


class LockLeaveQueue(Mutation[Waiting], frozen=True):
    """Stop waiting; a lock that was granted meanwhile is in the answer; not on the wire."""

    wait_id: int


class Claim(Record, frozen=True, kw_only=True):
    """A wish for a lock, from a request or from a waiter's row."""

    path: str
    file: str
    agent_id: str
    mission_id: str | None
    purpose: str
    timeout_ms: int


def claim_of(tx: Tx, ctx: Context, request: LockAcquire) -> Claim:
    """Fill a request in: the file's real path, the agent's mission, the default lease."""
    if ctx.facts.real_path is None:
        raise AssertionError("lock requests need the fact real_path")
    if request.mission_id:
        mission_id = find(tx, "mission", request.mission_id)["id"]
    else:
        agent = tx.one("SELECT mission_id FROM agents WHERE id = :id", id=request.agent_id)
        mission_id = agent["mission_id"] if agent else None
    return Claim(
        path=ctx.facts.real_path,
        file=request.file,
        agent_id=request.agent_id,
        mission_id=mission_id,
        purpose=request.purpose,
        timeout_ms=request.timeout_ms or ctx.config.locks.lease_ms,
    )


def holder(tx: Tx, path: str) -> Row | None:
    """Return the active lock on a path, also one whose lease ran out unnoticed."""
    return tx.one(
        "SELECT * FROM locks WHERE normalized_path = :path AND status = 'active'", path=path
    )


def grant(tx: Tx, ctx: Context, claim: Claim) -> Row | None:
    """Give a lock to an agent, or prolong the one it has; None when somebody else holds it.

    One statement on a unique index decides, so that two can never both be granted.
    """
    lock_id = fresh_id(tx, ctx, "lock")
    row = tx.one(
        "INSERT INTO locks (id, file, normalized_path, held_by, mission_id, purpose, acquired_at,"
        " expires_at, timeout_ms, fencing_token, status) VALUES (:id, :file, :path, :agent,"
        " :mission, :purpose, :now, :until, :length, :token, 'active')"
        " ON CONFLICT (normalized_path) WHERE status = 'active' DO UPDATE SET"
        " expires_at = excluded.expires_at, timeout_ms = excluded.timeout_ms,"
        " purpose = excluded.purpose,"
        " mission_id = coalesce(excluded.mission_id, locks.mission_id)"
        " WHERE locks.held_by = excluded.held_by RETURNING *",
        id=lock_id,
        file=claim.file,
        path=claim.path,
        agent=claim.agent_id,
        mission=claim.mission_id,
        purpose=claim.purpose,
        now=ctx.now,
        until=ctx.at(claim.timeout_ms),
        length=claim.timeout_ms,
        token=next_token(tx),
    )
    if row is None:
        return None
    if row["id"] == lock_id:
        emit(
            tx,
            ctx,
            LockAcquired(
                lock_id=lock_id,
                file=row["file"],
                held_by=row["held_by"],
                purpose=row["purpose"],
                fencing_token=row["fencing_token"],
            ),
            mission_id=row["mission_id"],
            agent_id=row["held_by"],
        )
    else:
        _say_renewed(tx, ctx, row)
    return row


def next_token(tx: Tx) -> int:
    """Return a fencing token higher than every one before, for any path."""
    token: int = tx.value(
        "INSERT INTO counters (name, value) VALUES ('fencing', 1)"
        " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value"
    )
    return token


def _say_renewed(tx: Tx, ctx: Context, row: Row) -> None:
    payload = LockRenewed(lock_id=row["id"], file=row["file"], held_by=row["held_by"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["held_by"])


def expire(tx: Tx, ctx: Context, path: str) -> None:
    """Note that the lease on a path ran out, if it did, and serve whoever waits for it."""
    row = holder(tx, path)
    if row is not None and row["expires_at"] <= ctx.now:
        _end(tx, row["id"], "expired", row["expires_at"])
        payload = LockExpired(lock_id=row["id"], file=row["file"], held_by=row["held_by"])
        emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["held_by"])
    serve(tx, ctx, path)


def serve(tx: Tx, ctx: Context, path: str) -> None:
    """Give a free lock to the one who has waited longest."""
    if holder(tx, path) is not None:
        return
    first = tx.one(
        "SELECT * FROM lock_waits WHERE normalized_path = :path AND lock_id IS NULL"
        " ORDER BY id LIMIT 1",
        path=path,
    )
    if first is None:
        return
    row = grant(tx, ctx, _claim_of_wait(first))
    if row is not None:
        tx.run(
            "UPDATE lock_waits SET lock_id = :lock WHERE id = :id",
            lock=row["id"],
            id=first["id"],
        )


def _claim_of_wait(wait: Row) -> Claim:
    return Claim(
        path=wait["normalized_path"],
        file=wait["file"],
        agent_id=wait["agent_id"],
        mission_id=wait["mission_id"],
        purpose=wait["purpose"],
        timeout_ms=wait["timeout_ms"],
    )


def _end(tx: Tx, lock_id: str, status: str, at: str) -> None:
    tx.run(
        "UPDATE locks SET status = :status, released_at = :at WHERE id = :id",
        status=status,
        at=at,
        id=lock_id,
    )


def conflict(tx: Tx, claim: Claim, *, waited_ms: int = 0) -> LockConflict:
    """Return the error that says who holds a file; an empty wait leaves an error checkpoint."""
    row = holder(tx, claim.path)
    existing = lock_of(row) if row else None
    who = existing.held_by if existing else "another agent"
    until = f" until {existing.expires_at}" if existing else ""
    record = ()
    if waited_ms:
        error = ErrorReport(
            agent_id=claim.agent_id,
            kind="lock_timeout",
            name="LockTimeout",
            message=f"waited {waited_ms} ms for {claim.file}, held by {who}",
            mission_id=claim.mission_id,
        )
        record = (error,)
    return LockConflict(
        f"{claim.file} is locked by {who}{until}.",
        hint="Wait with wait_ms, write to the holder, or work on another file.",
        record=record,
        existing_lock=existing,
    )


@handler
def acquire(tx: Tx, request: LockAcquire, ctx: Context) -> Lock:
    """Take a lease on a file now, or learn who holds it."""
    claim = claim_of(tx, ctx, request)
    expire(tx, ctx, claim.path)
    row = grant(tx, ctx, claim)
    if row is None:
        raise conflict(tx, claim)
    return lock_of(row)


@handler
def enqueue(tx: Tx, request: LockEnqueue, ctx: Context) -> Waiting:
    """Take a lease on a file, or line up for it."""
    claim = claim_of(tx, ctx, request.request)
    expire(tx, ctx, claim.path)
    row = grant(tx, ctx, claim)
    if row is not None:
        return Waiting(wait_id=0, lock=lock_of(row), look_again_at=None)
    wait_id = tx.value(
        "INSERT INTO lock_waits (normalized_path, file, agent_id, mission_id, purpose, timeout_ms)"
        " VALUES (:path, :file, :agent, :mission, :purpose, :length) RETURNING id",
        path=claim.path,
        file=claim.file,
        agent=claim.agent_id,
        mission=claim.mission_id,
        purpose=claim.purpose,
        length=claim.timeout_ms,
    )
    return _waiting(tx, ctx, wait_id)


@handler
def poll(tx: Tx, request: LockPoll, ctx: Context) -> Waiting:
    """Look whether the wait is over, after seeing to a lease that ran out."""
    return _waiting(tx, ctx, request.wait_id)


def _waiting(tx: Tx, ctx: Context, wait_id: int) -> Waiting:
    path = tx.value("SELECT normalized_path FROM lock_waits WHERE id = :id", id=wait_id)
    expire(tx, ctx, path)
    wait = tx.one("SELECT * FROM lock_waits WHERE id = :id", id=wait_id) or {}
    if wait["lock_id"] is not None:
        tx.run("DELETE FROM lock_waits WHERE id = :id", id=wait_id)
        lock = lock_of(find(tx, "lock", wait["lock_id"]))
        return Waiting(wait_id=wait_id, lock=lock, look_again_at=None)
    held = holder(tx, path)
    return Waiting(
        wait_id=wait_id, lock=None, look_again_at=held["expires_at"] if held else ctx.now
    )


@handler
def leave_queue(tx: Tx, request: LockLeaveQueue, ctx: Context) -> Waiting:
    """Take a waiter out of its line; if it was just served, it gets what it waited for."""
    waiting = _waiting(tx, ctx, request.wait_id)
    tx.run("DELETE FROM lock_waits WHERE id = :id", id=request.wait_id)
    return waiting


def _own(tx: Tx, ctx: Context, lock_id: str, agent_id: str) -> Row:
    """Return the row of an active lock that the agent holds; raises NotFound, InvalidState."""
    row = find(tx, "lock", lock_id)
    if row["held_by"] != agent_id:
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is held by {row['held_by']}, not by {agent_id}.",
            hint="Only its holder can renew or release a lock.",
            held_by=row["held_by"],
        )
    status = row["status"]
    if status == "active" and row["expires_at"] <= ctx.now:
        status = "expired"
    if status != "active":
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is {status}; its token "
            f"{row['fencing_token']} guards nothing any more.",
            hint="Acquire the file again before writing to it.",
            status=status,
        )
    return row


@handler
def renew(tx: Tx, request: LockRenew, ctx: Context) -> Lock:
    """Prolong one's own lease, with its old length or a new one."""
    row = _own(tx, ctx, request.lock_id, request.agent_id)
    length = request.timeout_ms or row["timeout_ms"]
    tx.run(
        "UPDATE locks SET expires_at = :until, timeout_ms = :length WHERE id = :id",
        until=ctx.at(length),
        length=length,
        id=row["id"],
    )
    _say_renewed(tx, ctx, row)
    return lock_of(find(tx, "lock", row["id"]))


@handler
def release(tx: Tx, request: LockRelease, ctx: Context) -> Lock:
    """Give one's own lock back; whoever waited longest gets it in the same transaction."""
    row = _own(tx, ctx, request.lock_id, request.agent_id)
    end_held(tx, ctx, row)
    return lock_of(find(tx, "lock", row["id"]))


def end_held(tx: Tx, ctx: Context, row: Row) -> None:
    """Release a lock in its holder's name and serve whoever waits for it."""
    _end(tx, row["id"], "released", ctx.now)
    payload = LockReleased(lock_id=row["id"], file=row["file"], held_by=row["held_by"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["held_by"])
    serve(tx, ctx, row["normalized_path"])


def release_all(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Release every lock of an agent."""
    rows = tx.all("SELECT * FROM locks WHERE held_by = :id AND status = 'active'", id=agent_id)
    for row in rows:
        end_held(tx, ctx, row)


@handler
def force_release(tx: Tx, request: LockForceRelease, ctx: Context) -> Lock:
    """Take a lock away from its holder, whose token is refused from then on."""
    row = find(tx, "lock", request.lock_id)
    if row["status"] != "active":
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is already {row['status']}.",
            hint="Nothing is left to release.",
            status=row["status"],
        )
    end_by_force(tx, ctx, row, request.agent_id, request.reason)
    serve(tx, ctx, row["normalized_path"])
    return lock_of(find(tx, "lock", row["id"]))


def end_by_force(tx: Tx, ctx: Context, row: Row, by: str | None, reason: str) -> None:
    """End somebody's lock against its holder; the caller says who gets it next."""
    _end(tx, row["id"], "forced", ctx.now)
    payload = LockForceReleased(
        lock_id=row["id"], file=row["file"], held_by=row["held_by"], reason=reason
    )
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)


@handler
def check(tx: Tx, request: LockCheck, ctx: Context) -> Validity:
    """Say whether a token is the one in force: the guard before a write."""
    row = holder(tx, ctx.facts.real_path or request.file)
    valid = (
        row is not None
        and row["fencing_token"] == request.fencing_token
        and row["expires_at"] > ctx.now
    )
    return Validity(valid=valid)


@handler
def list_locks(tx: Tx, request: LockList, ctx: Context) -> LockPage:
    """Return locks, oldest first; a lease that ran out counts as ended."""
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    only = " WHERE status = 'active' AND expires_at > :now" if request.active else ""
    rows = tx.all(
        f"SELECT * FROM locks{only} ORDER BY acquired_at, id",  # noqa: S608
        **({"now": ctx.now} if request.active else {}),
    )
    path = ctx.facts.real_path or request.file
    return LockPage(
        locks=[
            lock_of(row)
            for row in rows
            if mission_id in (None, row["mission_id"])
            and request.held_by in (None, row["held_by"])
            and path in (None, row["normalized_path"])
        ]
    )
