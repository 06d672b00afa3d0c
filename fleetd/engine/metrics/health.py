"""Health: whether the daemon works, check by check."""

from collections.abc import Awaitable, Callable

from ...domain.artifacts import outbox
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.core.tx import Tx
from ...domain.system.daily_rounds import Round, rounds
from ...protocol.display import duration
from ...protocol.errors import FleetError
from ...protocol.requests.system import Check, Health, SystemHealth
from ...store import disk_audit
from ..engine import Engine
from ..services.doctor import LOW_BYTES

# A commit needs room in the WAL; with less than this the next one may find none.
FULL_BYTES = 4_000_000
# Requests that wait for more than four full batches: several tenths of a second.
LONG_QUEUE = 1_024
STUCK_S = 60.0
# The timers that a promise depends on.
VITAL = frozenset({"silence", "machines"})


@method(SystemHealth, without_store=True)
async def health(engine: Engine, request: SystemHealth, caller: Caller) -> Health:
    """Look at everything that the daemon's work depends on."""
    checks = [
        await _round_trip(engine, "database writer", engine.store.write),
        await _round_trip(engine, "database reader", engine.store.read),
        _queue(engine),
        *engine.store.checks(),
        await _backups(engine),
        *await _rounds(engine),
        *_disk(engine),
        *_timers(engine),
        _connections(engine),
    ]
    return Health(
        ok=all(check.ok or not check.vital for check in checks),
        restart_mends=any(check.restart_mends and not check.ok for check in checks),
        checks=checks,
    )


async def _round_trip(
    engine: Engine, name: str, use: Callable[[Callable[[Tx], object]], Awaitable[object]]
) -> Check:
    """Go the whole way of a request.

    An error reply also went the whole way: its cause is outside of this process, unless the store
    has failed, which starts again with the next process. Without a reply, this check does not end,
    and so the watchdog gets no notification.
    """
    try:
        answer = await use(lambda tx: tx.value("SELECT 1"))
    except FleetError as error:
        failed = engine.store.failed.is_set()
        return _check(name, ok=False, detail=error.message, vital=True, restart_mends=failed)
    ok = answer == 1
    detail = "answers" if ok else "answers incorrectly"
    return _check(name, ok=ok, detail=detail, vital=True, restart_mends=True)


def _queue(engine: Engine) -> Check:
    load = engine.store.load
    detail = f"{load.waiting} requests wait, {load.most_waiting} at most so far"
    return _check("queue", ok=load.waiting <= LONG_QUEUE, detail=detail)


async def _backups(engine: Engine) -> Check:
    """Check the files to write; rows are durable without them, so this is a warning."""
    name = "backups"
    try:
        files = await engine.read(outbox.unwritten)
    except FleetError as error:
        return _check(name, ok=False, detail=error.message)
    detail = f"files still to write: {files}"
    failures, waited_s = engine.outbox.failures, engine.outbox.waited_s
    if failures:
        detail += f"; {failures[0].work.record_id} failed; fleetd tries again: {failures[0].why}"
    if waited_s > STUCK_S:
        detail += f"; the oldest has waited for {duration(round(waited_s * 1_000))}"
    return _check(name, ok=not failures and waited_s <= STUCK_S, detail=detail)


async def _rounds(engine: Engine) -> list[Check]:
    """Report the last rounds of the daily work; files that stay damaged are a warning."""
    try:
        last = await engine.read(rounds)
    except FleetError:  # the round trips report this
        return []
    checks = [_check("daily work", ok=True, detail=_ago(engine, last.housekeeping))]
    if (verified := last.verification) is not None:
        detail = (
            f"{_ago(engine, verified)}: {verified.files} files, {verified.healed} restored from"
            f" their other copy, {verified.damaged} still damaged"
        )
        if verified.damaged:
            detail += "; fleetctl doctor names them"
        checks.append(_check("verification", ok=not verified.damaged, detail=detail))
    return checks


def _ago(engine: Engine, last: Round | None) -> str:
    if last is None:
        return "not done yet"
    return f"last done {duration(max(0, engine.clock() - last.at_ms))} ago"


def _disk(engine: Engine) -> list[Check]:
    """Check the disk: no room for a commit is a broken promise; little room is a warning.

    A daemon that keeps no room for commits needs none here.
    """
    database, files = engine.config.database.parent, engine.config.checkpoints
    free = disk_audit.free_bytes(database)
    room = free is None or free >= FULL_BYTES
    detail = "space for the next commits" if room else f"full: {free} bytes are left"
    own = engine.disk_reserve.size > 0
    checks = [_check("room to store", ok=room, detail=detail, vital=True)] if own else []
    for directory in dict.fromkeys((database, files)):
        if (free := disk_audit.free_bytes(directory)) is not None:
            detail = f"{free // 1_000_000} MB free in {directory}"
            checks.append(_check("disk", ok=free >= LOW_BYTES, detail=detail))
    if not own:
        return checks
    left = engine.disk_reserve.left
    detail = f"{left // 1_048_576} MiB are reserved for pruning"
    checks.append(
        _check("room to prune", ok=bool(left) or engine.disk_reserve.fits(), detail=detail)
    )
    return checks


def _timers(engine: Engine) -> list[Check]:
    checks = []
    for name in engine.timer_health.names:
        since_s, late = engine.timer_health.since_s(name), engine.timer_health.late(name)
        detail = f"last ran {duration(round(since_s * 1_000))} ago"
        if late:
            detail += ", and is late"
        vital = name in VITAL
        checks.append(
            _check(f"{name} timer", ok=not late, detail=detail, vital=vital, restart_mends=True)
        )
    return checks


def _connections(engine: Engine) -> Check:
    now, limit = engine.traffic.open, engine.config.limits.connections
    detail = f"{now} of {limit} open"
    if now >= limit:
        detail += "; further clients wait until one disconnects"
    return _check("connections", ok=now < limit, detail=detail)


def _check(
    name: str, *, ok: bool, detail: str, vital: bool = False, restart_mends: bool = False
) -> Check:
    return Check(name=name, ok=ok, detail=detail, vital=vital, restart_mends=restart_mends)
