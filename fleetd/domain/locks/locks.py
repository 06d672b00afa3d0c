"""Locks as agents request them: acquire, renew, release, check, list."""

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.records import Lock
from ...protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockList,
    LockPage,
    LockRelease,
    LockRenew,
    Validity,
)
from ..cluster.membership import agent_label
from ..core.context import Context
from ..core.ids import find
from ..core.mappers import lock_of
from ..core.registry import method, optimistic
from ..core.sql import Where, named_params, starts_with
from ..core.tx import Row, Tx
from . import leases
from .keys import display_file, machine_key
from .targets import target_of


@optimistic
def acquire(tx: Tx, ctx: Context, request: LockAcquire) -> Lock:
    """Take a lease on a file, a directory or a pattern now, or learn who holds it."""
    wanted = leases.lease_request(tx, ctx, request)
    near, served = leases.settle(tx, ctx, wanted.target)
    found = leases.blocker(tx, ctx, wanted, near)
    if found is not None:
        raise leases.conflict(tx, ctx, wanted, found, again=served)
    return lock_of(leases.take(tx, ctx, wanted, near.own(wanted)))


def _own(tx: Tx, ctx: Context, lock_id: str, agent_id: str) -> Row:
    """Return the row of an active lock that the agent holds; raises NotFound, InvalidState."""
    row = find(tx, "lock", lock_id)
    if row["held_by"] != agent_id:
        holder = agent_label(tx, ctx, row["held_by"])
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is held by {holder}, not by {agent_id}.",
            hint="Only the holder can renew or release a lock.",
            held_by=row["held_by"],
        )
    status = row["status"]
    if status == "active" and row["expires_at"] <= ctx.now:
        status = "expired"
    if status != "active":
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is {status}; its token "
            f"{row['fencing_token']} is no longer valid.",
            hint="Acquire the lock again before you write to the file.",
            status=status,
        )
    return row


@optimistic
@method(LockRenew)
def renew(tx: Tx, ctx: Context, request: LockRenew) -> Lock:
    """Prolong the agent's own lease, with its old length or a new one."""
    row = _own(tx, ctx, request.lock_id, request.agent_id)
    return lock_of(leases.prolong(tx, ctx, row, request.timeout_ms or row["timeout_ms"]))


@optimistic
@method(LockRelease)
def release(tx: Tx, ctx: Context, request: LockRelease) -> Lock:
    """Release the agent's own lock; the next wait gets it in the same transaction."""
    row = _own(tx, ctx, request.lock_id, request.agent_id)
    return lock_of(leases.end_held(tx, ctx, row))


@method(LockForceRelease)
def force_release(tx: Tx, ctx: Context, request: LockForceRelease) -> Lock:
    """Take a lock away from its holder, whose token is refused from then on."""
    row = find(tx, "lock", request.lock_id)
    if row["status"] != "active":
        raise InvalidState(
            f"Lock {row['id']} on {row['file']} is already {row['status']}.",
            hint="No further step is needed.",
            status=row["status"],
        )
    ended = leases.end_by_force(tx, ctx, row, request.agent_id, request.reason)
    leases.serve(tx, ctx, target_of(row))
    return lock_of(ended)


def check(tx: Tx, ctx: Context, request: LockCheck) -> Validity:
    """Return the leases that cover a file, and whether a token belongs to one of them.

    This is the guard before a write.
    """
    keys = (ctx.facts.lock_key or request.file, *ctx.facts.other_keys)
    rows = [row for row in leases.covering(tx, *keys) if row["expires_at"] > ctx.now]
    valid = None
    if request.fencing_token is not None:
        valid = any(row["fencing_token"] == request.fencing_token for row in rows)
    paths = {row["id"]: display_file(tx, ctx, row) for row in rows} if request.cwd else {}
    return Validity(valid=valid, locks=[lock_of(row) for row in rows], paths=paths)


def _as_of(ctx: Context, lock: Lock) -> Lock:
    """Return a lock with its present status: an expired lease has ended."""
    if lock.status == "active" and lock.expires_at is not None and lock.expires_at <= ctx.now:
        return msgspec.structs.replace(lock, status="expired", released_at=lock.expires_at)
    return lock


def list_locks(tx: Tx, ctx: Context, request: LockList) -> LockPage:
    """Return locks, oldest first; an expired lease counts as ended."""
    where = Where()
    if request.active:
        where.add("status = 'active' AND expires_at > :now", now=ctx.now)
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    where.equal(held_by=request.held_by)
    if path := ctx.facts.lock_key or request.file or request.pattern:
        # Match a file and a directory: the path may be the other one by now, or may be gone.
        bare = path.rstrip("/")
        where.add(
            "(normalized_path IN (:path, :bare, :slashed) OR file = :path)",
            path=path,
            bare=bare,
            slashed=f"{bare}/",
        )
    if request.here:  # on files below the directory, and on those of its project there
        here = ctx.facts.here
        begins = [machine_key(ctx.machine, f"{here.place.rstrip('/')}/"), here.project]
        named = named_params("begin", [*filter(None, begins)])
        below = " OR ".join(starts_with("normalized_path", name) for name in named)
        where.add(f"({below})", **named)
    if request.after:
        last = find(tx, "lock", request.after)
        behind = "acquired_at >= :at AND (acquired_at > :at OR id > :after)"
        where.add(behind, at=last["acquired_at"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM locks WHERE {where} ORDER BY acquired_at, id LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return LockPage(
        locks=[_as_of(ctx, lock_of(row)) for row in rows],
        paths={row["id"]: display_file(tx, ctx, row) for row in rows} if request.cwd else {},
    )
