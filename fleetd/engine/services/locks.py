"""Locks for clients: real paths and patterns, and waiting in order of arrival."""

import os
from typing import NamedTuple

import msgspec
import trio

from ...domain.checkpoints import on_error
from ...domain.core.context import Caller, Facts, Here, LockScope
from ...domain.core.registry import method
from ...domain.locks import locks, queue
from ...domain.locks.keys import is_key, may_be_asked_for
from ...domain.locks.leases import KeyScope, OtherKey
from ...domain.locks.queue import LockTicket
from ...domain.locks.targets import parse_pattern
from ...host.file_system import PathWalk, within
from ...protocol.errors import InvalidParams, LockConflict, Unavailable
from ...protocol.records import Lock
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.requests.lock import LockAcquire, LockCheck, LockList, LockPage, Validity
from ...protocol.timestamps import to_ms
from ...store.api import StoreAway
from ..engine import Engine
from ..projects import check_not_ignored

# A lease may be renewed during a wait for its end; then the wait is simply checked again.
LONGEST_NAP_S = 60.0
# How often a refused request is tried. A full disk may prevent a due grant to the first in line.
_AGAIN = 3


@method(LockAcquire, slow=True)
async def acquire(engine: Engine, request: LockAcquire, caller: Caller) -> Lock:
    """Take a lock now, or wait for it up to ``wait_ms``."""
    if (request.file is None) == (request.pattern is None):
        raise InvalidParams(
            "lock.acquire needs a file or a pattern" + (", not both." if request.file else "."),
            hint="Give file for a file or a directory, pattern for files such as src/**/*.py.",
            field="file",
        )
    if not request.wait_ms:
        return await _acquire(engine, request, caller)
    # Waiting takes several transactions, so the idempotency key covers all of them together.
    bare = msgspec.structs.replace(request, idempotency_key=None)
    return await engine.run_once(request, lambda: _acquire(engine, bare, caller))


async def _acquire(engine: Engine, request: LockAcquire, caller: Caller) -> Lock:
    """Take a lock, first by the key that nearly all missions' locks have.

    Only the rule sees the mission: if the mission's locks have another key, the rule asks for it.
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
    """Take a lock; raises LockConflict, which names a lock in force.

    If a lease ran out, the first in line comes first and the request is refused. That refusal names
    the lock that it took back, so the request is repeated now that the lock is granted.
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
    """Return the key of the lock, and the directory that it covers or is in.

    The key is the real path or the place in its project, as the mission ``wanted`` it. A given key,
    as a lock shows it, is used as a key, and not as the name of a file.
    """
    scope = wanted.scope if wanted else engine.projects.scopes[0]
    base = request.cwd or (wanted.project_dir if wanted else None)
    try:
        if request.pattern is not None:
            place = await _pattern(engine, request.pattern, base, everything=request.all)
        elif is_key(request.file or ""):
            return msgspec.structs.replace(known, **await _given_key(engine, request))
        else:
            place = await _file(engine, request, base)
        if place is None and wanted is None:
            return known
        if place is None:
            named, kind = request.file or request.pattern, "path" if request.file else "pattern"
            field = "file" if request.file else "pattern"
            raise InvalidParams(
                f"{field} is {named!r}, a relative {kind}, and no directory is given for it.",
                hint="Give an absolute path, or cwd, or a mission with a project directory.",
                field=field,
            )
        key, directory = await _key(engine, place, scope)
    except Unavailable:
        if wanted:
            raise
        return known  # the mission may use a key that can be determined
    return msgspec.structs.replace(known, lock_key=key, lock_directory=directory, lock_scope=scope)


class _Place(NamedTuple):
    """The place of a lock: its real path; for a directory or a pattern, that of the directory."""

    path: str
    is_directory: bool = False
    pattern: str = ""


async def _key(engine: Engine, place: _Place, scope: LockScope) -> tuple[str, str | None]:
    """Return the key of a place, and that of its directory."""
    if not place.is_directory:
        return await engine.projects.key(place.path, scope), None
    directory = await engine.projects.directory_key(place.path, scope)
    return directory + place.pattern, directory


async def _file(engine: Engine, request: LockAcquire, base: str | None) -> _Place | None:
    """Return where a file or a directory is; None for a relative one without a base."""
    file = request.file or ""
    path = await engine.files.real_path(file, base)
    if path is None:
        return None
    [facts] = await engine.files.look(path)
    # A path that is named as a directory may not exist yet.
    if not (facts.is_directory or _names_directory(file)):
        return _Place(path)
    if not request.all and await _holds_repository(engine, path):
        raise InvalidParams(
            f"{file} is a whole repository, or more.",
            hint="Lock the directories that you will change, or give all (--all).",
            field="file",
        )
    return _Place(path, is_directory=True)


def _names_directory(file: str) -> bool:
    return file.rpartition("/")[2] in ("", ".", "..")


async def _holds_repository(engine: Engine, path: str) -> bool:
    """Return whether a directory is the root of a repository, the home directory or above it."""

    def look(walk: PathWalk) -> bool:
        home = walk.facts(os.path.expanduser("~")).real  # noqa: PTH111
        return within(path, home) or walk.root(path) == path

    return await engine.files.run_short(look, path)


async def _pattern(
    engine: Engine, pattern: str, base: str | None, *, everything: bool
) -> _Place | None:
    """Return the directory of a pattern, and the rest that matches in it; None without a base.

    Raises InvalidParams for one that is refused.
    """
    parsed = parse_pattern(pattern)
    if parsed.is_everything and not everything:
        raise InvalidParams(
            f"The pattern {pattern!r} covers everything.",
            hint="Lock the directories that you will change, or give all (--all).",
            field="pattern",
        )
    if base is None:
        return None
    here = await engine.files.real_path(base, None) or base
    there = await engine.files.real_path("/".join([".."] * parsed.parents + [*parsed.names]), here)
    root = await engine.files.run_short(lambda walk: walk.root(here), here) or here
    if there is None or not within(root, there):
        raise InvalidParams(
            f"The pattern {pattern!r} leaves {root}: it matches in {there}.",
            hint="Lock files of one repository, from a directory inside it (cwd).",
            field="pattern",
        )
    check_not_ignored([there], engine.config.project_ignore)
    return _Place(there, is_directory=True, pattern=parsed.rest)


async def _given_key(engine: Engine, request: LockAcquire) -> dict[str, str | None]:
    """Return a given key, and its directory if it is the key of a directory."""
    key = (request.file or "").rstrip("/")
    if not may_be_asked_for(engine.machine, key):
        raise InvalidParams(
            f"file is {request.file!r}, which looks like the key of a lock, but not of this"
            " machine.",
            hint="Give project:NAME:PATH as in a lock, or the path of the file. For a file"
            " of that name: ./…",
            field="file",
        )
    # One of the possible real paths of the key on this machine can be a directory.
    places = await engine.files.look(*await engine.projects.paths(key, request.cwd))
    if key == request.file and not any(facts.is_directory for facts in places):
        return {"lock_key": key, "lock_directory": None}
    return {"lock_key": f"{key}/", "lock_directory": f"{key}/"}


async def _wait(engine: Engine, request: LockAcquire, caller: Caller, facts: Facts) -> Lock | None:
    """Queue and wait; None after the timeout. A client that disconnects leaves the queue."""
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
            await engine.bell.wait(change)


async def _report_timeout(
    engine: Engine, request: LockAcquire, caller: Caller, conflict: LockConflict
) -> None:
    """Take the error checkpoint of a wait that timed out."""
    held = conflict.values.get("existing_lock")
    holder = held.held_by if isinstance(held, Lock) else "another agent"
    error = ErrorReport(
        agent_id=request.agent_id,
        kind="lock_timeout",
        name="LockTimeout",
        message=f"waited {request.wait_ms} ms for {request.file or request.pattern},"
        f" held by {holder}",
        mission_id=request.mission_id,
    )
    await engine.run(on_error.report, error, caller)


@method(LockCheck)
async def check(engine: Engine, request: LockCheck, caller: Caller) -> Validity:
    """Check a token for a file by any name of the file, or by the key of its lock."""
    path = await engine.files.real_path(request.file, None)
    if path is None and is_key(request.file):
        return await engine.run(locks.check, request, caller)
    if path is None:
        raise InvalidParams(
            f"file is {request.file!r}, a relative path.",
            hint="Give the absolute path.",
            field="file",
        )
    here = await engine.projects.here(request.cwd, any_place=True) if request.cwd else Here()
    keys = {await engine.projects.key(path, scope): None for scope in engine.projects.scopes}
    first, *others = keys
    facts = Facts(lock_key=first, other_keys=tuple(others), here=here)
    return await engine.run(locks.check, request, caller, facts)


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
    place = None
    if request.pattern is not None:
        place = await _pattern(engine, request.pattern, request.cwd, everything=True)
    elif request.file and (path := await engine.files.real_path(request.file, None)):
        [found] = await engine.files.look(path)
        place = _Place(path, is_directory=found.is_directory or _names_directory(request.file))
    if place is None:
        return await engine.run(locks.list_locks, request, caller, Facts(here=here))
    for scope in engine.projects.scopes:
        key, _ = await _key(engine, place, scope)
        page = await engine.run(locks.list_locks, request, caller, Facts(lock_key=key, here=here))
        if page.locks:
            break
    return page
