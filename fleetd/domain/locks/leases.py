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
from ...protocol.types import ID_PREFIXES
from ..cluster.membership import agent_label
from ..core.changes import fields_of, lock_changed, lock_orphaned
from ..core.context import Context, LockScope
from ..core.event_log import emit
from ..core.ids import find
from ..core.mappers import lock_of
from ..core.tx import Row, Tx
from ..missions.selection import mission_of_agent, mission_of_directory
from .keys import locks_by_project

_LOCKED = (
    "Wait (wait_ms; fleetctl lock acquire --wait-ms), write to the holder, or work on another file."
)
# Its lease runs its course: nobody can tell whether a machine that is cut off goes on writing.
_LOST = (
    "Take its work over (fleetctl resume --agent NAME --take-over-from {}), release the lock if you"
    " know that nobody writes there (fleetctl lock force-release {}), or wait."
)


class KeyScope(Record, frozen=True, kw_only=True):
    """What the mission of a lock says about its key."""

    scope: LockScope
    project_dir: str | None
    """As far as it is a directory of this machine."""


class OtherKey(Exception):
    """A lock was asked for by a key that is not its mission's, or by none; nothing was changed."""

    def __init__(self, wanted: KeyScope) -> None:
        super().__init__(f"the lock needs a key by its {wanted.scope}")
        self.wanted = wanted


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

    Raises InvalidParams for a directory: two could hold a file then, one by its own lock. Raises
    OtherKey where the mission's locks go by another key than the one that was found.
    """
    mission = _mission_of(tx, ctx, request)
    wanted = _key_scope(ctx, mission)
    if ctx.facts.lock_key is None or ctx.facts.lock_scope not in (None, wanted.scope):
        raise OtherKey(wanted)
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
        mission_id=mission["id"] if mission else None,
        purpose=request.purpose,
        timeout_ms=request.timeout_ms or ctx.config.locks.lease_ms,
    )


def _mission_of(tx: Tx, ctx: Context, request: LockAcquire) -> Row | None:
    """Return the mission that a lock is for: as named, the agent's, else that of the directory."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return mission_of_agent(tx, request.agent_id) or mission_of_directory(tx, ctx, request.cwd)


def _key_scope(ctx: Context, mission: Row | None) -> KeyScope:
    if mission is None:
        return KeyScope(scope="project" if ctx.shared else "machine", project_dir=None)
    return KeyScope(
        scope="project" if locks_by_project(ctx, mission) else "machine",
        project_dir=mission["project_dir"] if ctx.is_here(mission) else None,
    )


def holder(tx: Tx, path: str) -> Row | None:
    """Return the active lock on a path, also one whose lease ran out unnoticed."""
    return tx.one(
        "SELECT * FROM locks WHERE normalized_path = :path AND status = 'active'", path=path
    )


def grant(tx: Tx, ctx: Context, wanted: LeaseRequest, *, activity: bool = True) -> Row | None:
    """Give a lock to an agent, or prolong the one it has; None when somebody else holds it.

    ``activity`` is False when the daemon does it by itself: a recovery must not look like work.
    """
    held = holder(tx, wanted.path)
    return take(tx, ctx, wanted, held, activity=activity) if open_to(wanted, held) else None


def open_to(wanted: LeaseRequest, held: Row | None) -> bool:
    """Whether an agent can have a lock, with the active one on its path."""
    return held is None or bool(held["held_by"] == wanted.agent_id)


def take(
    tx: Tx, ctx: Context, wanted: LeaseRequest, own: Row | None, *, activity: bool = True
) -> Row:
    """Give a lock to an agent, or prolong its ``own``: ask ``open_to`` before."""
    if own is None:
        return _grant_free(tx, ctx, wanted, activity=activity)
    # No wait gives a lock back by itself of which its agent hears by another call.
    tx.run(
        "UPDATE lock_waits SET lock_id = NULL WHERE normalized_path = :path AND lock_id = :lock",
        path=own["normalized_path"],
        lock=own["id"],
    )
    asked = {"purpose": wanted.purpose, "mission_id": wanted.mission_id or own["mission_id"]}
    if asked["mission_id"] != own["mission_id"]:
        lock_changed(tx, own["mission_id"], own["id"], None)
    return prolong(tx, ctx, {**own, **asked}, wanted.timeout_ms, activity=activity)


def prolong(tx: Tx, ctx: Context, row: Row, timeout_ms: int, *, activity: bool = True) -> Row:
    """Prolong a lease from now on, with what its row says of purpose and mission."""
    prolonged = {
        **row,
        "expires_at": ctx.at(timeout_ms),
        "timeout_ms": timeout_ms,
        "orphaned_at": None,
    }
    tx.run(
        "UPDATE locks SET expires_at = :expires_at, timeout_ms = :timeout_ms, purpose = :purpose,"
        " mission_id = :mission_id, orphaned_at = :orphaned_at WHERE id = :id",
        **prolonged,
    )
    if row["orphaned_at"] is not None:
        lock_orphaned(tx, row["mission_id"], row["id"], False)
    lock_changed(tx, row["mission_id"], row["id"], fields_of(lock_of(prolonged)))
    _emit(tx, ctx, prolonged, LockRenewed, row["held_by"], activity=activity)
    return prolonged


def _grant_free(tx: Tx, ctx: Context, wanted: LeaseRequest, *, activity: bool = True) -> Row:
    """Give a lock on a path without an active one: a unique index refuses a second.

    An id that another lock has is drawn again.
    """
    token, row = next_token(tx), None
    while row is None:
        row = tx.one(
            "INSERT INTO locks (id, file, normalized_path, held_by, mission_id, purpose,"
            " acquired_at, expires_at, timeout_ms, fencing_token, status) VALUES (:id, :file,"
            " :normalized_path, :agent_id, :mission_id, :purpose, :now, :until, :timeout_ms,"
            " :token, 'active') ON CONFLICT (id) DO NOTHING RETURNING *",
            id=ctx.new_id(ID_PREFIXES["lock"]),
            now=ctx.now,
            until=ctx.at(wanted.timeout_ms),
            token=token,
            **to_builtins(wanted),
        )
    lock_changed(tx, row["mission_id"], row["id"], fields_of(lock_of(row)))
    shown = {name: row[name] for name in ("purpose", "fencing_token")}
    _emit(tx, ctx, row, LockAcquired, row["held_by"], activity=activity, **shown)
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


def look(tx: Tx, path: str) -> tuple[Row | None, int | None]:
    """Return the active lock on a path, as ``holder`` does, and the wait that is first in line."""
    row = tx.all(
        "SELECT l.*, (SELECT id FROM lock_waits WHERE normalized_path = :path AND lock_id IS NULL"
        " ORDER BY id LIMIT 1) AS first_wait FROM (SELECT 1 AS one) AS it"
        " LEFT JOIN locks l ON l.normalized_path = :path AND l.status = 'active'",
        path=path,
    )[0]
    first = row.pop("first_wait")
    return (row if row["id"] is not None else None), first


def expire(tx: Tx, ctx: Context, path: str) -> tuple[Row | None, bool]:
    """Note that the lease on a path ran out, if it did, and serve the next in line.

    Return the active lock that is there then, and whether somebody was served.
    """
    held, first = look(tx, path)
    if held is not None and held["expires_at"] <= ctx.now:
        _end_expired(tx, ctx, held)
        held = None
    if held is None and first is not None:
        return _serve(tx, ctx, first), True
    return held, False


def end_expired(tx: Tx, ctx: Context, path: str) -> None:
    """Note that the lease on a path ran out, if it did; the caller says who gets it next."""
    row = holder(tx, path)
    if row is not None and row["expires_at"] <= ctx.now:
        _end_expired(tx, ctx, row)


def _end_expired(tx: Tx, ctx: Context, row: Row) -> None:
    end(tx, row, "expired", row["expires_at"])
    _emit(tx, ctx, row, LockExpired, row["held_by"])


def serve(tx: Tx, ctx: Context, path: str) -> None:
    """Give a free lock to the one who has waited longest, if anybody waits."""
    held, first = look(tx, path)
    if held is None and first is not None:
        _serve(tx, ctx, first)


def _serve(tx: Tx, ctx: Context, wait_id: int) -> Row:
    """Give a free lock to a wait, and return it."""
    wait = tx.all("SELECT * FROM lock_waits WHERE id = :id", id=wait_id)[0]
    row = _grant_free(tx, ctx, lease_request_from(wait, wait["agent_id"]))
    tx.run("UPDATE lock_waits SET lock_id = :lock WHERE id = :id", lock=row["id"], id=wait_id)
    return row


def lease_request_from(row: Row, agent_id: str) -> LeaseRequest:
    """Return the request of a wait, or of a lock, from its row."""
    return convert({**row, "agent_id": agent_id}, LeaseRequest)


def end(tx: Tx, row: Row, status: str, at: str) -> None:
    """Close the row of a lock; it stays as history, and its token is refused from then on."""
    tx.run(
        "UPDATE locks SET status = :status, released_at = :at WHERE id = :id",
        status=status,
        at=at,
        id=row["id"],
    )
    lock_changed(tx, row["mission_id"], row["id"], None)


def _end_now(tx: Tx, ctx: Context, row: Row, status: str) -> Row:
    end(tx, row, status, ctx.now)
    return {**row, "status": status, "released_at": ctx.now}


def conflict(
    tx: Tx, ctx: Context, wanted: LeaseRequest, held: Row, *, again: bool = False
) -> LockConflict:
    """Return the error that says who holds a file.

    The refusal takes back what this transaction granted to the first in line: with ``again`` that
    is done once more after the rollback.
    """
    existing = lock_of(held)
    who, hint = f"{agent_label(tx, ctx, existing.held_by)} until {existing.expires_at}", _LOCKED
    if tx.value("SELECT status FROM agents WHERE id = :id", id=existing.held_by) == "lost":
        who, hint = f"{who}; that agent is lost", _LOST.format(existing.held_by, existing.id)
    return LockConflict(
        f"{wanted.file} is locked by {who}.",
        hint=hint,
        record=(lambda tx, ctx: expire(tx, ctx, wanted.path),) if again else (),
        existing_lock=existing,
        file=wanted.file,
    )


def end_held(tx: Tx, ctx: Context, row: Row, *, activity: bool = True) -> Row:
    """Release a lock in its holder's name, serve the next in line, and return what it is now."""
    ended = _end_now(tx, ctx, row, "released")
    _emit(tx, ctx, row, LockReleased, row["held_by"], activity=activity)
    serve(tx, ctx, row["normalized_path"])
    return ended


def release_all(tx: Tx, ctx: Context, agent_id: str, *, activity: bool) -> None:
    """Release every lock of an agent."""
    rows = tx.all("SELECT * FROM locks WHERE held_by = :id AND status = 'active'", id=agent_id)
    for row in rows:
        end_held(tx, ctx, row, activity=activity)


def end_by_force(tx: Tx, ctx: Context, row: Row, by: str | None, reason: str) -> Row:
    """End somebody's lock against its holder, and return what it is now.

    The caller says who gets it next. ``by`` is None when a recovery does it, which must not look
    like work.
    """
    ended = _end_now(tx, ctx, row, "forced")
    _emit(tx, ctx, row, LockForceReleased, by, activity=by is not None, reason=reason)
    return ended
