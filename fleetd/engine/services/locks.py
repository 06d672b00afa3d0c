"""Locks as clients ask for them: real paths, and waiting in order of arrival."""

import msgspec
import trio

from ...domain.checkpoints import on_error
from ...domain.core.context import Caller, Facts, Here, LockScope
from ...domain.core.registry import method
from ...domain.locks import locks, queue
from ...domain.locks.keys import is_key, may_be_asked_for
from ...domain.locks.leases import KeyScope, OtherKey
from ...domain.locks.queue import LockTicket
from ...protocol.errors import InvalidParams, LockConflict, Unavailable
from ...protocol.records import Lock
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.requests.lock import LockAcquire, LockCheck, LockList, LockPage, Validity
from ...protocol.timestamps import to_ms
from ...store.api import StoreAway
from ..engine import Engine

# A lease may be renewed while somebody waits for its end; then the wait is simply looked at again.
LONGEST_NAP_S = 60.0
# A full disk may keep the first in line from being granted what it is due.
_AGAIN = 3


@method(LockAcquire, slow=True)
async def acquire(engine: Engine, request: LockAcquire, caller: Caller) -> Lock:
    """Take a lock now, or wait for it up to ``wait_ms``."""
    if not request.wait_ms:
        return await _acquire(engine, request, caller)
    # Waiting takes several transactions: the key is kept for all of them together.
    bare = msgspec.structs.replace(request, idempotency_key=None)
    return await engine.run_once(request, lambda: _acquire(engine, bare, caller))


async def _acquire(engine: Engine, request: LockAcquire, caller: Caller) -> Lock:
    """Take a lock, first by the key that nearly all missions' locks have.

    Only the rule sees the mission: where that one's locks have another key, it asks for it.
    """
    known = Facts(places=await engine.projects.shared_names(request.cwd))
    wanted = None
    while True:
        facts = await _facts(engine, request, known, wanted)
        try:
            return await _take_or_wait(engine, request, caller, facts)
        except OtherKey as other:
            wanted = other.wanted


async def _take_or_wait(engine: Engine, request: LockAcquire, caller: Caller, facts: Facts) -> Lock:
    try:
        return await _take(engine, request, caller, facts)
    except LockConflict as conflict:
        if not request.wait_ms:
            raise
        lock = await _wait(engine, request, caller, facts)
        if lock is not None:
            return lock
        await _report_timeout(engine, request, caller, conflict)
        raise


async def _take(engine: Engine, request: LockAcquire, caller: Caller, facts: Facts) -> Lock:
    """Take a lock; raises LockConflict, which tells of a lock that stands.

    Whoever is refused because a lease ran out and the first in line comes first was told of a lock
    that the refusal took back, and asks again now that it was granted.
    """
    for _ in range(_AGAIN):
        try:
            return await engine.run(locks.acquire, request, caller, facts)
        except LockConflict as conflict:
            if not conflict.record:
                raise
    return await engine.run(locks.acquire, request, caller, facts)


async def _facts(
    engine: Engine, request: LockAcquire, known: Facts, wanted: KeyScope | None
) -> Facts:
    """Return what is known of a file: its key, and whether it is a directory.

    The key is its real path or its place in the project it belongs to, as the mission ``wanted``
    it. Where the key itself is given, as a lock shows it, it is meant, and no file of that name.
    """
    key: str | None
    scope = None
    if is_key(request.file):
        key, paths = await _given_key(engine, request)
    else:
        base = request.cwd or (wanted.project_dir if wanted else None)
        path = await engine.files.real_path(request.file, base)
        paths = (path,) if path is not None else ()
        scope = wanted.scope if wanted else engine.projects.scopes[0]
        key = await (_key if wanted else _usual_key)(engine, request, path, scope)
    # Named as a directory, or one of the real paths that it may have is one.
    is_directory = request.file.rpartition("/")[2] in ("", ".", "..") or any(
        facts.is_directory for facts in await engine.files.look(*paths)
    )
    return msgspec.structs.replace(known, lock_key=key, lock_scope=scope, is_directory=is_directory)


async def _given_key(engine: Engine, request: LockAcquire) -> tuple[str, tuple[str, ...]]:
    """Return a key, and where on this machine its file is, as far as that is known."""
    if not may_be_asked_for(engine.machine, key := request.file):
        raise InvalidParams(
            f"file is {key!r}, which looks like the key of a lock, but not of this machine.",
            hint="Give project:NAME:PATH as in a lock, or the path of the file. For a file"
            " of that name: ./…",
            field="file",
        )
    return key, await engine.projects.paths(key, request.cwd)


async def _usual_key(
    engine: Engine, request: LockAcquire, path: str | None, scope: LockScope
) -> str | None:
    """Return the key of a real path, None where the mission may know a better one, or a base."""
    try:
        return None if path is None else await engine.projects.key(path, scope)
    except Unavailable:
        return None


async def _key(engine: Engine, request: LockAcquire, path: str | None, scope: LockScope) -> str:
    """Return the key of a real path, which is None for a relative one without a base."""
    if path is None:
        raise InvalidParams(
            f"file is {request.file!r}, a relative path, and no directory is given for it.",
            hint="Give an absolute path, or cwd, or a mission with a project directory.",
            field="file",
        )
    return await engine.projects.key(path, scope)


async def _wait(engine: Engine, request: LockAcquire, caller: Caller, facts: Facts) -> Lock | None:
    """Line up and wait; None when the time is over. A client that goes away leaves the line."""
    of_caller = engine.on_behalf_of(caller, facts)
    ticket = await of_caller.write(queue.enqueue, request)
    if isinstance(ticket, Lock):
        return ticket
    lock = None
    engine.waiting_locks.add(ticket.wait_id)
    try:
        with trio.move_on_after(request.wait_ms / 1000):
            lock = await _until_granted(engine, ticket)
    except BaseException:
        with trio.CancelScope(shield=True):
            await of_caller.write(queue.dequeue, ticket, keep=False)
        raise
    finally:
        engine.waiting_locks.discard(ticket.wait_id)
    return lock or await of_caller.write(queue.dequeue, ticket, keep=True)


async def _until_granted(engine: Engine, ticket: LockTicket) -> Lock:
    while True:
        change = engine.bell.ticket()
        if engine.closing:
            raise Unavailable(
                "fleetd is shutting down; the wait has ended.",
                hint="Request it again after fleetd has started.",
                retry=True,
            )
        turn = await engine.read_when_available(queue.check_turn, ticket)
        if turn.due:
            try:
                lock = await engine.write(queue.take_turn, ticket)
            except StoreAway:  # it stays in the queue
                continue
            if lock is not None:
                return lock
        nap = LONGEST_NAP_S
        if turn.look_again_at is not None:
            nap = min(nap, max(0.001, (to_ms(turn.look_again_at) - engine.clock()) / 1000))
        with trio.move_on_after(nap):
            await change.wait()


async def _report_timeout(
    engine: Engine, request: LockAcquire, caller: Caller, conflict: LockConflict
) -> None:
    """Take the error checkpoint that a wait without result leaves behind."""
    held = conflict.values.get("existing_lock")
    who = held.held_by if isinstance(held, Lock) else "another agent"
    error = ErrorReport(
        agent_id=request.agent_id,
        kind="lock_timeout",
        name="LockTimeout",
        message=f"waited {request.wait_ms} ms for {request.file}, held by {who}",
        mission_id=request.mission_id,
    )
    await engine.run(on_error.report, error, caller)


@method(LockCheck)
async def check(engine: Engine, request: LockCheck, caller: Caller) -> Validity:
    """Check a token for a file, whatever name the file goes by; also by the key of its lock."""
    path = await engine.files.real_path(request.file, None)
    if path is None and is_key(request.file):
        return await engine.run(locks.check, request, caller)
    if path is None:
        raise InvalidParams(
            f"file is {request.file!r}, a relative path.",
            hint="Give the absolute path.",
            field="file",
        )
    for scope in engine.projects.scopes:
        facts = Facts(lock_key=await engine.projects.key(path, scope))
        found = await engine.run(locks.check, request, caller, facts)
        if found.valid:
            break
    return found


@method(LockList)
async def list_locks(engine: Engine, request: LockList, caller: Caller) -> LockPage:
    """List locks; ``file`` is found by its keys, the usual one first."""
    if request.here and request.cwd is None:
        raise InvalidParams(
            "here is true, and cwd is missing.",
            hint="Give the directory as cwd.",
            field="cwd",
        )
    here = await engine.projects.here(request.cwd, any_place=True) if request.cwd else Here()
    path = await engine.files.real_path(request.file, None) if request.file else None
    if path is None:
        return await engine.run(locks.list_locks, request, caller, Facts(here=here))
    for scope in engine.projects.scopes:
        facts = Facts(lock_key=await engine.projects.key(path, scope), here=here)
        page = await engine.run(locks.list_locks, request, caller, facts)
        if page.locks:
            break
    return page
