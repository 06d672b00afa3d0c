"""Lease table: holder, grant, renew, expire, end; the statements behind every lock.

Expiry is decided by comparing with ``now`` in the same transaction; no sweep is needed for it.
Paths come in as facts: rules do not look at the file system.
"""

from collections.abc import Callable
from typing import Any

from msgspec import convert, to_builtins

from ...protocol.errors import InvalidParams, LockConflict
from ...protocol.events import (
    LockAcquired,
    LockExpired,
    LockForceReleased,
    LockReleased,
    LockRenewed,
    Payload,
)
from ...protocol.records import Record
from ...protocol.requests.lock import LockAcquire
from ..cluster.membership import agent_label
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find, fresh_id
from ..core.mappers import lock_of
from ..core.tx import Row, Tx
from ..missions.selection import mission_of_directory

_LOCKED = (
    "Wait (wait_ms; fleetctl lock acquire --wait-ms), write to the holder, or work on another file."
)
# Its lease runs its course: nobody can tell whether a machine that is cut off goes on writing.
_LOST = (
    "Take its work over (fleetctl resume --agent NAME --take-over-from {}), release the lock if you"
    " know that nobody writes there (fleetctl lock force-release {}), or wait."
)


class LeaseRequest(Record, frozen=True, kw_only=True, rename={"path": "normalized_path"}):
    """The lock that an agent wants; its encoded names are those of columns."""

    path: str
    file: str
    agent_id: str
    mission_id: str | None
    purpose: str
    timeout_ms: int


def lease_request(tx: Tx, ctx: Context, request: LockAcquire) -> LeaseRequest:
    """Fill a request in: the file's real path, the agent's mission, the default lease.

    Raises InvalidParams for a directory: two could hold a file then, one by its own lock.
    """
    if ctx.facts.lock_key is None:
        raise AssertionError("lock requests need the fact lock_key")
    if ctx.facts.is_directory:
        raise InvalidParams(
            f"{request.file} is a directory, and a lock on it guards no file in it.",
            hint="Lock each file that you will change.",
            field="file",
        )
    return LeaseRequest(
        path=ctx.facts.lock_key,
        file=request.file,
        agent_id=request.agent_id,
        mission_id=mission_of(tx, ctx, request),
        purpose=request.purpose,
        timeout_ms=request.timeout_ms or ctx.config.locks.lease_ms,
    )


def mission_of(tx: Tx, ctx: Context, request: LockAcquire) -> str | None:
    """Return the mission that a lock is for: as named, the agent's, else that of the directory."""
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    agent = tx.one("SELECT mission_id FROM agents WHERE id = :id", id=request.agent_id)
    return (agent and agent["mission_id"]) or mission_of_directory(tx, ctx, request.cwd)


def holder(tx: Tx, path: str) -> Row | None:
    """Return the active lock on a path, also one whose lease ran out unnoticed."""
    return tx.one(
        "SELECT * FROM locks WHERE normalized_path = :path AND status = 'active'", path=path
    )


def grant(tx: Tx, ctx: Context, wanted: LeaseRequest, *, activity: bool = True) -> Row | None:
    """Give a lock to an agent, or prolong the one it has; None when somebody else holds it.

    One statement on a unique index decides, so that two can never both be granted. ``activity``
    is False when the daemon does it by itself: a recovery must not look like work.
    """
    lock_id = fresh_id(tx, ctx, "lock")
    row = tx.one(
        "INSERT INTO locks (id, file, normalized_path, held_by, mission_id, purpose, acquired_at,"
        " expires_at, timeout_ms, fencing_token, status) VALUES (:id, :file,"
        " :normalized_path, :agent_id, :mission_id, :purpose, :now, :until, :timeout_ms, :token,"
        " 'active')"
        " ON CONFLICT (normalized_path) WHERE status = 'active' DO UPDATE SET"
        " expires_at = excluded.expires_at, timeout_ms = excluded.timeout_ms,"
        " purpose = excluded.purpose, orphaned_at = NULL,"
        " mission_id = coalesce(excluded.mission_id, locks.mission_id)"
        " WHERE locks.held_by = excluded.held_by RETURNING *",
        id=lock_id,
        now=ctx.now,
        until=ctx.at(wanted.timeout_ms),
        token=next_token(tx),
        **to_builtins(wanted),
    )
    if row is None:
        return None
    if row["id"] == lock_id:
        shown = {name: row[name] for name in ("purpose", "fencing_token")}
        _emit(tx, ctx, row, LockAcquired, row["held_by"], activity=activity, **shown)
    else:
        # No wait gives a lock back by itself of which its agent hears by another call.
        tx.run(
            "UPDATE lock_waits SET lock_id = NULL"
            " WHERE normalized_path = :path AND lock_id = :lock",
            path=row["normalized_path"],
            lock=row["id"],
        )
        emit_renewed(tx, ctx, row, activity=activity)
    return row


def next_token(tx: Tx) -> int:
    """Return a fencing token higher than every one before, for any path."""
    token: int = tx.value(
        "INSERT INTO counters (name, value) VALUES ('fencing', 1)"
        " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value"
    )
    return token


def raise_tokens(tx: Tx, floor: int) -> None:
    """Let the next fencing token be higher than one that a file remembers.

    A database that came back from files counts from one; an old token must not become valid again.
    """
    tx.run(
        "INSERT INTO counters (name, value) VALUES ('fencing', :floor) ON CONFLICT (name)"
        " DO UPDATE SET value = excluded.value WHERE counters.value < excluded.value",
        floor=floor,
    )


def _emit(
    tx: Tx,
    ctx: Context,
    row: Row,
    kind: Callable[..., Payload],
    by: str | None,
    *,
    activity: bool | None = None,
    **more: Any,
) -> None:
    """Note in the log what became of a lock; ``by`` is the agent that the event is of."""
    payload = kind(lock_id=row["id"], file=row["file"], held_by=row["held_by"], **more)
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by, activity=activity)


def emit_renewed(tx: Tx, ctx: Context, row: Row, *, activity: bool = True) -> None:
    """Note that a holder prolonged its lease, or that the daemon did it by itself."""
    _emit(tx, ctx, row, LockRenewed, row["held_by"], activity=activity)


def expire(tx: Tx, ctx: Context, path: str) -> bool:
    """Note that the lease on a path ran out, if it did, and serve the next in line.

    Return whether somebody was served.
    """
    end_expired(tx, ctx, path)
    return serve(tx, ctx, path)


def end_expired(tx: Tx, ctx: Context, path: str) -> None:
    """Note that the lease on a path ran out, if it did; the caller says who gets it next."""
    row = holder(tx, path)
    if row is not None and row["expires_at"] <= ctx.now:
        end(tx, row["id"], "expired", row["expires_at"])
        _emit(tx, ctx, row, LockExpired, row["held_by"])


def serve(tx: Tx, ctx: Context, path: str) -> bool:
    """Give a free lock to the one who has waited longest; return whether there was one."""
    if holder(tx, path) is not None:
        return False
    first = tx.one(
        "SELECT * FROM lock_waits WHERE normalized_path = :path AND lock_id IS NULL"
        " ORDER BY id LIMIT 1",
        path=path,
    )
    row = (
        grant(tx, ctx, lease_request_from(first, first["agent_id"])) if first is not None else None
    )
    if first is None or row is None:
        return False
    tx.run("UPDATE lock_waits SET lock_id = :lock WHERE id = :id", lock=row["id"], id=first["id"])
    return True


def lease_request_from(row: Row, agent_id: str) -> LeaseRequest:
    """Return the request of a wait, or of a lock, from its row."""
    return convert({**row, "agent_id": agent_id}, LeaseRequest)


def end(tx: Tx, lock_id: str, status: str, at: str) -> None:
    """Close the row of a lock; it stays as history, and its token is refused from then on."""
    tx.run(
        "UPDATE locks SET status = :status, released_at = :at WHERE id = :id",
        status=status,
        at=at,
        id=lock_id,
    )


def conflict(tx: Tx, ctx: Context, wanted: LeaseRequest, *, again: bool = False) -> LockConflict:
    """Return the error that says who holds a file.

    The refusal takes back what this transaction granted to the first in line: with ``again`` that
    is done once more after the rollback.
    """
    row = holder(tx, wanted.path)
    existing = lock_of(row) if row else None
    who, hint = "another agent", _LOCKED
    if existing is not None:
        who = f"{agent_label(tx, ctx, existing.held_by)} until {existing.expires_at}"
        if tx.value("SELECT status FROM agents WHERE id = :id", id=existing.held_by) == "lost":
            who, hint = f"{who}; that agent is lost", _LOST.format(existing.held_by, existing.id)
    return LockConflict(
        f"{wanted.file} is locked by {who}.",
        hint=hint,
        record=(lambda tx, ctx: expire(tx, ctx, wanted.path),) if again else (),
        existing_lock=existing,
        file=wanted.file,
    )


def end_held(tx: Tx, ctx: Context, row: Row, *, activity: bool = True) -> None:
    """Release a lock in its holder's name and serve the next in line."""
    end(tx, row["id"], "released", ctx.now)
    _emit(tx, ctx, row, LockReleased, row["held_by"], activity=activity)
    serve(tx, ctx, row["normalized_path"])


def release_all(tx: Tx, ctx: Context, agent_id: str, *, activity: bool) -> None:
    """Release every lock of an agent."""
    rows = tx.all("SELECT * FROM locks WHERE held_by = :id AND status = 'active'", id=agent_id)
    for row in rows:
        end_held(tx, ctx, row, activity=activity)


def end_by_force(tx: Tx, ctx: Context, row: Row, by: str | None, reason: str) -> None:
    """End somebody's lock against its holder; the caller says who gets it next.

    ``by`` is None when a recovery does it, which must not look like work.
    """
    end(tx, row["id"], "forced", ctx.now)
    _emit(tx, ctx, row, LockForceReleased, by, activity=by is not None, reason=reason)
