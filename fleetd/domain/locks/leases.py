"""Lease table: the holders of leases, grant, renew, expire and end, and the order of waits.

Two leases of different agents conflict if both cover some file, unless both are shared. Expiry is
decided by comparing with ``now`` in the same transaction; no sweep is needed for it.
Paths come in as facts: rules do not look at the file system.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from msgspec import Struct, convert, to_builtins

from ...protocol.errors import LockConflict
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
from ...protocol.types import ID_PREFIXES, LockMode
from ..cluster.membership import agent_label
from ..core.changes import fields_of, lock_changed, lock_orphaned
from ..core.context import Context, LockScope
from ..core.event_log import emit
from ..core.history import NEXT, locks_change
from ..core.ids import find
from ..core.mappers import lock_of
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx
from ..missions.selection import mission_of_agent, mission_of_directory
from .keys import locks_by_project
from .targets import Target, is_exact, literal_of, overlap, parents, target_of

_LOCKED = (
    "Wait (wait_ms; fleetctl lock acquire --wait-ms), write to the holder, or work on another file."
)
# The lease of a lost agent stays until it expires: a disconnected machine may still be writing.
_LOST = (
    "Take its work over (fleetctl resume --agent NAME --take-over-from {}), release the lock if you"
    " know that nobody writes there (fleetctl lock force-release {}), or wait."
)


class KeyScope(Record, frozen=True, kw_only=True):
    """What kind of key a lock has, by its mission."""

    scope: LockScope
    project_dir: str | None
    """Only where it is a directory of this machine."""


class OtherKey(Exception):
    """A lock request has no key, or one of another kind than its mission's; nothing was changed."""

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
    directory: str | None = None
    mode: LockMode = "exclusive"
    automatic: int = 0

    @property
    def target(self) -> Target:
        """Return the files that the lock should cover."""
        return Target(path=self.path, directory=self.directory)


def lease_request(tx: Tx, ctx: Context, request: LockAcquire) -> LeaseRequest:
    """Complete a request: add the target's key, the agent's mission, the default lease.

    Raises OtherKey when the mission's locks use another kind of key than the one that was found.
    """
    mission = _mission_of(tx, ctx, request)
    wanted = key_scope(ctx, mission)
    if ctx.facts.lock_key is None or ctx.facts.lock_scope not in (None, wanted.scope):
        raise OtherKey(wanted)
    return LeaseRequest(
        path=ctx.facts.lock_key,
        directory=ctx.facts.lock_directory,
        mode=request.mode,
        file=request.file or request.pattern or "",
        agent_id=request.agent_id,
        mission_id=mission["id"] if mission else None,
        purpose=request.purpose,
        timeout_ms=request.timeout_ms or ctx.config.locks.lease_ms,
    )


def _mission_of(tx: Tx, ctx: Context, request: LockAcquire) -> Row | None:
    """Return the mission of a lock: the named one, else the agent's, else the directory's."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    return mission_of_agent(tx, request.agent_id) or mission_of_directory(tx, ctx, request.cwd)


def key_scope(ctx: Context, mission: Row | None) -> KeyScope:
    """Return what kind of key the locks of a mission have, or locks without a mission."""
    if mission is None:
        return KeyScope(scope="project" if ctx.shared else "machine", project_dir=None)
    return KeyScope(
        scope="project" if locks_by_project(ctx, mission) else "machine",
        project_dir=mission["project_dir"] if ctx.is_here(mission) else None,
    )


class Near(Struct, frozen=True):
    """The active leases that cover some file of a target, oldest first.

    They include leases whose expiry was not noticed yet. ``waited`` says whether any wait exists,
    for any target.
    """

    held: list[Row]
    waited: bool

    def own(self, wanted: LeaseRequest) -> Row | None:
        """Return the lease that the agent of a request has on exactly the same target."""
        for row in self.held:
            if row["held_by"] == wanted.agent_id and target_of(row) == wanted.target:
                return row
        return None

    def other(self, wanted: LeaseRequest) -> Row | None:
        """Return the first lease that keeps a request from being granted."""
        return next((row for row in self.held if _excludes(row, row["held_by"], wanted)), None)


def _excludes(row: Row, agent_id: str, wanted: LeaseRequest) -> bool:
    """Return whether a lease or a wait of an agent conflicts with a request that it overlaps."""
    shared = row["mode"] == wanted.mode == "shared"
    return agent_id != wanted.agent_id and not shared


def look(tx: Tx, target: Target) -> Near:
    """Return the active leases that overlap a target.

    The common case takes one statement: the target is a file, nobody waits, and no lock is on a
    directory or a pattern.
    """
    rows = tx.all(
        "SELECT EXISTS (SELECT 1 FROM lock_waits WHERE lock_id IS NULL) AS waited, EXISTS (SELECT 1"
        " FROM locks WHERE status = 'active' AND directory IS NOT NULL) AS wide, l.*"
        " FROM (SELECT 1 AS one) AS it LEFT JOIN locks l"
        " ON l.normalized_path = :path AND l.status = 'active' ORDER BY l.fencing_token",
        path=target.path,
    )
    waited, wide = bool(rows[0]["waited"]), bool(rows[0]["wide"])
    if target.directory is not None:
        return Near(_near(tx, target, "locks", "fencing_token"), waited)
    if wide:
        return Near(covering(tx, target.path), waited)
    for row in rows:
        del row["waited"], row["wide"]
    return Near([row for row in rows if row["id"] is not None], waited)


def covering(tx: Tx, *paths: str) -> list[Row]:
    """Return the active leases that cover any of some files, oldest first.

    Only patterns whose literal is in the path are read as rows.
    """
    # The path may also be a directory that is locked with all its files.
    places = [(above, path[len(above) :]) for path in paths for above in parents(f"{path}/")]
    above, inside = zip(*places, strict=True)
    pairs = ", ".join(f"(:above{number}, :inside{number})" for number in range(len(places)))
    rows = tx.all(
        f"WITH above (directory, inside) AS (VALUES {pairs})"
        " SELECT * FROM locks WHERE status = 'active' AND directory IS NULL"
        f" AND normalized_path IN ({inside_of('path', paths)})"
        " UNION ALL SELECT l.* FROM above JOIN locks l ON l.directory = above.directory"
        " WHERE l.status = 'active' AND l.directory IS NOT NULL"
        " AND instr(above.inside, l.literal) > 0",
        **named_params("above", above),
        **named_params("inside", inside),
        **named_params("path", paths),
    )
    files = [Target(path=path) for path in paths]
    covers = [row for row in rows if any(overlap(target_of(row), file) for file in files)]
    return sorted(covers, key=itemgetter("fencing_token"))


def _near(tx: Tx, target: Target, table: str, order: str) -> list[Row]:
    """Return the active locks, or the waits without a lock, that overlap a target.

    Each part of the query uses its own index.
    """
    of_table = {"locks": "status = 'active'", "lock_waits": "lock_id IS NULL"}[table]
    params: Row = named_params("above", parents(target.directory or target.path))
    where = ["directory IS NULL AND normalized_path = :path"]
    where += [f"directory IS NOT NULL AND directory IN ({inside_of('above', [*params])})"]
    params["path"] = target.path
    if target.directory is not None:
        begin, params["path"] = target.directory, target.directory[:-1]
        # The range of keys that begin with the directory: its end has the character after "/".
        params |= {"begin": begin, "end": begin[:-1] + chr(ord(begin[-1]) + 1)}
        where += ["directory IS NULL AND normalized_path > :begin AND normalized_path < :end"]
        where += ["directory IS NOT NULL AND directory > :begin AND directory < :end"]
    parts = (f"SELECT * FROM {table} WHERE {of_table} AND {each}" for each in where)
    rows = tx.all(f"{' UNION ALL '.join(parts)} ORDER BY {order}", **params)
    return [row for row in rows if overlap(target_of(row), target)]


def settle(tx: Tx, ctx: Context, target: Target) -> tuple[Near, bool]:
    """End the expired leases on a target, and grant what is free to the waits for it.

    Returns the leases that are active afterwards, and whether a wait was granted.
    """
    near = look(tx, target)
    lapsed = [row for row in near.held if row["expires_at"] <= ctx.now]
    for row in lapsed:
        end_expired(tx, ctx, row)
    if near.waited and serve(tx, ctx, target, *map(target_of, lapsed)):
        return look(tx, target), True
    return (Near([r for r in near.held if r not in lapsed], near.waited) if lapsed else near), False


class Blocker(Struct, frozen=True):
    """The lease that blocks a request, directly or through an earlier ``wait``."""

    lock: Row
    wait: Row | None = None


def blocker(
    tx: Tx, ctx: Context, wanted: LeaseRequest, near: Near, before: int | None = None
) -> Blocker | None:
    """Return what a request has to wait for, None when it can be granted.

    For the request of a wait, ``before`` is its id: only earlier waits count. So a wait to write
    blocks new readers. But a request never waits behind a wait for a lease of its own agent.
    """
    held = near.other(wanted)
    if held is not None:
        return Blocker(held)
    if not near.waited:
        return None
    first = [
        wait
        for wait in waits_near(tx, wanted.target)
        if (before is None or wait["id"] < before) and _excludes(wait, wait["agent_id"], wanted)
    ]
    behind_us = _waiting_for(tx, ctx, wanted.agent_id) if first else set()
    for wait in first:
        if wait["id"] not in behind_us and (lock := _awaited(tx, wait)) is not None:
            return Blocker(lock, wait)
    return None


def _awaited(tx: Tx, wait: Row) -> Row | None:
    """Return the lease that a wait waits for; None if it can be granted, which happens next."""
    wanted = lease_request_from(wait, wait["agent_id"])
    near = look(tx, wanted.target)
    return near.other(wanted) or near.own(wanted)


def _waiting_for(tx: Tx, ctx: Context, agent_id: str) -> set[int]:
    """Return the waits that depend on a lease of an agent, directly or behind other such waits."""
    own = tx.all(
        "SELECT * FROM locks WHERE held_by = :agent AND status = 'active' AND expires_at > :now",
        agent=agent_id,
        now=ctx.now,
    )
    found: dict[int, LeaseRequest] = {}
    if not own:
        return set()
    for wait in tx.all("SELECT * FROM lock_waits WHERE lock_id IS NULL ORDER BY id"):
        wanted = lease_request_from(wait, wait["agent_id"])
        for row in own:
            if _excludes(row, agent_id, wanted) and overlap(target_of(row), wanted.target):
                found[wait["id"]] = wanted
        for other in [*found.values()]:
            conflicts = not other.mode == wanted.mode == "shared"
            if (
                conflicts
                and other.agent_id != wanted.agent_id
                and overlap(other.target, wanted.target)
            ):
                found[wait["id"]] = wanted
    return set(found)


def waits_near(tx: Tx, target: Target) -> list[Row]:
    """Return the waits without a lock that overlap a target, oldest first."""
    return _near(tx, target, "lock_waits", "id")


def grant(tx: Tx, ctx: Context, wanted: LeaseRequest, *, activity: bool = True) -> Row | None:
    """Give a lock to an agent, or prolong the one it has; None when somebody else holds it.

    Waits are ignored, because a recovery gives back what the agent had before. ``activity`` is
    False when the daemon acts by itself, because a recovery must not look like work.
    """
    near = look(tx, wanted.target)
    if near.other(wanted) is not None:
        return None
    return take(tx, ctx, wanted, near.own(wanted), activity=activity)


def take(
    tx: Tx, ctx: Context, wanted: LeaseRequest, own: Row | None, *, activity: bool = True
) -> Row:
    """Give a lock to an agent, or prolong its ``own``; call ``blocker`` first."""
    if own is None:
        return _grant_free(tx, ctx, wanted, activity=activity)
    # The agent learns of this lock by another call, so no wait may give it back by itself.
    tx.run("UPDATE lock_waits SET lock_id = NULL WHERE lock_id = :lock", lock=own["id"])
    asked = {
        "purpose": wanted.purpose,
        "mission_id": wanted.mission_id or own["mission_id"],
        "mode": wanted.mode,
        "automatic": wanted.automatic,
    }
    if asked["mission_id"] != own["mission_id"]:
        lock_changed(tx, own["mission_id"], own["id"], None)
    row = prolong(tx, ctx, {**own, **asked}, wanted.timeout_ms, activity=activity)
    if wanted.mode != own["mode"]:  # others may read now
        serve(tx, ctx, wanted.target)
    return row


def prolong(tx: Tx, ctx: Context, row: Row, timeout_ms: int, *, activity: bool = True) -> Row:
    """Prolong a lease from now on, with the purpose and mission of its row."""
    prolonged = {
        **row,
        "expires_at": ctx.at(timeout_ms),
        "timeout_ms": timeout_ms,
        "orphaned_at": None,
    }
    locks_change(tx, row["id"])
    tx.run(
        "UPDATE locks SET expires_at = :expires_at, timeout_ms = :timeout_ms, purpose = :purpose,"
        " mission_id = :mission_id, mode = :mode, automatic = :automatic,"
        " orphaned_at = :orphaned_at WHERE id = :id",
        **prolonged,
    )
    if row["orphaned_at"] is not None:
        lock_orphaned(tx, row["mission_id"], row["id"], False)
    lock_changed(tx, row["mission_id"], row["id"], fields_of(lock_of(prolonged)))
    _emit(tx, ctx, prolonged, LockRenewed, row["held_by"], activity=activity)
    return prolonged


def _grant_free(tx: Tx, ctx: Context, wanted: LeaseRequest, *, activity: bool = True) -> Row:
    """Grant a lock that conflicts with no other lock.

    If another lock already has the new id, a new one is drawn.
    """
    row: Row = {
        **to_builtins(wanted),
        "held_by": wanted.agent_id,
        "literal": literal_of(wanted.target.pattern),
        "acquired_at": ctx.now,
        "expires_at": ctx.at(wanted.timeout_ms),
        "fencing_token": next_token(tx),
        "status": "active",
        "released_at": None,
        "orphaned_at": None,
    }
    given = False
    while not given:
        row["id"] = ctx.new_id(ID_PREFIXES["lock"])
        given = tx.exists(
            "INSERT INTO locks (id, file, normalized_path, directory, literal, mode, automatic,"
            " held_by, mission_id, purpose, acquired_at, expires_at, timeout_ms, fencing_token,"
            " granted_seq, status)"
            " VALUES (:id, :file, :normalized_path, :directory, :literal, :mode, :automatic,"
            " :held_by, :mission_id, :purpose, :acquired_at, :expires_at, :timeout_ms,"
            f" :fencing_token, {NEXT}, :status)"
            " ON CONFLICT (id) DO NOTHING RETURNING id",
            **row,
        )
    lock_changed(tx, row["mission_id"], row["id"], fields_of(lock_of(row)))
    shown = {name: row[name] for name in ("purpose", "fencing_token")}
    if row["mode"] == "shared":
        shown["mode"] = "shared"
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
    """Make the next fencing token higher than one that a file contains.

    A database restored from files counts from one; an old token must not become valid again.
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
    """Append an event about a lock; ``by`` is the agent of the event."""
    payload = kind(lock_id=row["id"], file=row["file"], held_by=row["held_by"], **more)
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by, activity=activity)


def end_expired(tx: Tx, ctx: Context, row: Row) -> None:
    """End an expired lease; the caller decides who gets it next."""
    end(tx, row, "expired", row["expires_at"])
    _emit(tx, ctx, row, LockExpired, row["held_by"])


def serve(tx: Tx, ctx: Context, *targets: Target) -> bool:
    """Grant freed targets to the oldest waits; return whether any was granted.

    An agent that already has a lease on the target of its wait claims that by itself.
    """
    if not tx.exists("SELECT 1 AS waits FROM lock_waits WHERE lock_id IS NULL LIMIT 1"):
        return False
    todo, served = [*targets], False
    seen: dict[Target, Near] = {}
    while todo:
        waits = {wait["id"]: wait for target in todo for wait in waits_near(tx, target)}
        todo = []
        for wait_id, wait in sorted(waits.items()):
            wanted = lease_request_from(wait, wait["agent_id"])
            near = seen.get(wanted.target) or look(tx, wanted.target)
            for row in near.held:
                if row["expires_at"] <= ctx.now:
                    end_expired(tx, ctx, row)
                    todo.append(target_of(row))
            if todo:  # include the waits for that, in order of arrival
                todo += targets
                break
            seen[wanted.target] = near
            if near.own(wanted) or blocker(tx, ctx, wanted, near, wait_id) is not None:
                continue
            lock = _grant_free(tx, ctx, wanted)["id"]
            tx.run("UPDATE lock_waits SET lock_id = :lock WHERE id = :id", lock=lock, id=wait_id)
            seen, served = {}, True
    return served


def lease_request_from(row: Row, agent_id: str) -> LeaseRequest:
    """Return the request of a wait, or of a lock, from its row."""
    return convert({**row, "agent_id": agent_id}, LeaseRequest)


def end(tx: Tx, row: Row, status: str, at: str) -> None:
    """Close the row of a lock; it stays as history, and its token is refused from then on."""
    tx.run(
        f"UPDATE locks SET status = :status, released_at = :at, ended_seq = {NEXT} WHERE id = :id",
        status=status,
        at=at,
        id=row["id"],
    )
    lock_changed(tx, row["mission_id"], row["id"], None)


def _end_now(tx: Tx, ctx: Context, row: Row, status: str) -> Row:
    end(tx, row, status, ctx.now)
    return {**row, "status": status, "released_at": ctx.now}


def conflict(
    tx: Tx, ctx: Context, wanted: LeaseRequest, found: Blocker, *, again: bool = False
) -> LockConflict:
    """Return the error that names the holder of a target.

    The error rolls back what this transaction granted to the oldest waits. With ``again``, that is
    repeated after the rollback.
    """
    existing = lock_of(found.lock)
    holder, hint = f"{agent_label(tx, ctx, existing.held_by)} until {existing.expires_at}", _LOCKED
    if tx.value("SELECT status FROM agents WHERE id = :id", id=existing.held_by) == "lost":
        holder, hint = f"{holder}; that agent is lost", _LOST.format(existing.held_by, existing.id)
    what = f"{wanted.file} is locked by {holder}"
    if (there := target_of(found.lock)) != wanted.target:
        sure = is_exact(wanted.target) and is_exact(there)
        what = f"{wanted.file} {'overlaps' if sure else 'may overlap'} {existing.file}"
        what = f"{what}, which is locked by {holder}"
    if found.wait is not None:
        first = agent_label(tx, ctx, found.wait["agent_id"])
        what = f"{what}, and {first} waits for {found.wait['file']} first"
    return LockConflict(
        f"{what}.",
        hint=hint,
        record=(lambda tx, ctx: settle(tx, ctx, wanted.target),) if again else (),
        existing_lock=existing,
        file=wanted.file,
    )


def end_held(tx: Tx, ctx: Context, row: Row, *, activity: bool = True) -> Row:
    """Release a lock in its holder's name, grant it to the next wait, and return its new row."""
    ended = _end_now(tx, ctx, row, "released")
    _emit(tx, ctx, row, LockReleased, row["held_by"], activity=activity)
    serve(tx, ctx, target_of(row))
    return ended


def release_all(tx: Tx, ctx: Context, agent_id: str, *, activity: bool) -> None:
    """Release every lock of an agent."""
    rows = tx.all("SELECT * FROM locks WHERE held_by = :id AND status = 'active'", id=agent_id)
    for row in rows:
        end_held(tx, ctx, row, activity=activity)


def end_by_force(tx: Tx, ctx: Context, row: Row, by: str | None, reason: str) -> Row:
    """End a lock against its holder's will, and return its new row.

    The caller decides who gets it next. ``by`` is None when a recovery does it, which must not look
    like work.
    """
    ended = _end_now(tx, ctx, row, "forced")
    _emit(tx, ctx, row, LockForceReleased, by, activity=by is not None, reason=reason)
    return ended
