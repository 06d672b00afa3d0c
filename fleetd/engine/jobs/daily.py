"""Daily work: deletes expired records, compresses old ones, and verifies some files.

A day is one of the wall clock: a laptop that sleeps most of the day still has its daily round.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
import trio

from ...domain.artifacts import outbox
from ...domain.core import idempotency
from ...domain.core.context import Context
from ...domain.core.tx import Tx
from ...domain.retention import events_and_locks, pruning, sessions
from ...domain.sessions import deliveries, sightings
from ...domain.snapshots.snapshots import note_compressed, uncompressed
from ...domain.system import daily_rounds
from ...domain.system.daily_rounds import Round
from ...domain.usage import records, transcripts
from ...protocol.errors import Corrupt, FleetError, InvalidState, NotFound
from ...protocol.requests.checkpoint import CheckpointPrune
from ...protocol.requests.mission import MissionDelete
from ...protocol.requests.snapshot import SnapshotPrune
from ...store.api import StoreAway
from ...store.files.record_files import RecordFiles, packed
from ..engine import DAEMON, Engine
from .verification import verify_some

log = logging.getLogger("fleetd")
DAY_S = 86_400
# How often the clock is checked: it may have been set, or the machine may have slept.
LOOK_S = 300
# A smaller correction of the clock is ignored: the next round is that much later.
STEPPED_BACK_S = 3_600
# A round that takes longer than this hangs, however much there is to clean up.
ROUND_S = 6 * 3_600


async def run_daily_work(engine: Engine) -> None:
    """Do a round now and whenever a day has passed since the last one, until cancelled.

    With a shared store, a restart brings no new round within the day: hundreds of machines may
    start together, and their rounds would delay all requests. A restart does bring one if the
    settings have changed, or if the last round failed in part.
    """
    settings = msgspec.json.encode(engine.config.retention).decode()
    _beat(engine)
    last_ms = await _last_round_ms(engine, settings) if engine.machine else None
    while True:
        _beat(engine)
        now_ms = engine.clock()
        # The check before the day is over counts: else each round would be later than the last.
        if _is_due(now_ms, last_ms, DAY_S - LOOK_S):
            succeeded = await tidy(engine)
            last_ms = now_ms
            try:
                done = Round(at_ms=now_ms, settings=settings if succeeded else "")
                await engine.write(daily_rounds.round_done, "housekeeping", done)
            except FleetError as error:
                log.warning("The time of the daily work could not be stored: %s", error.message)
        await trio.sleep(LOOK_S)


async def _last_round_ms(engine: Engine, settings: str) -> int | None:
    """Return when this machine had its last round with these settings; None if unknown."""
    try:
        last = (await engine.read_when_available(daily_rounds.rounds)).housekeeping
    except FleetError as error:
        log.warning("The time of the last daily work could not be read: %s", error.message)
        return None
    except Exception:
        log.exception("The time of the last daily work could not be read")
        return None
    return last.at_ms if last and last.settings == settings else None


def _is_due(now_ms: int, last_ms: int | None, after_s: float) -> bool:
    """Return whether the last round is longer ago than ``after_s``, or unknown.

    A round in the future was noted while the clock was ahead.
    """
    if last_ms is None:
        return True
    passed_s = (now_ms - last_ms) / 1_000
    return passed_s > after_s or passed_s < -STEPPED_BACK_S


def _beat(engine: Engine) -> None:
    engine.timer_health.beat("housekeeping", LOOK_S + ROUND_S)


async def tidy(engine: Engine) -> bool:
    """Clean up once; return whether all of it succeeded.

    Failed work is tried again the next day, and does not stop the rest.
    """
    succeeded = True
    for what, clean in _WORK.items():
        try:
            await _while_available(engine, clean)
        except FleetError as error:
            log.warning("The cleanup of %s is postponed for a day: %s", what, error.message)
            succeeded = False
        except Exception:
            log.exception("The cleanup of %s failed", what)
            succeeded = False
    return succeeded


async def _while_available(engine: Engine, clean: Callable[[Engine], Awaitable[object]]) -> None:
    """Clean up, again from the start whenever the store was away meanwhile."""
    while True:
        await engine.admission.wait_open(lambda: _beat(engine))
        try:
            await clean(engine)
        except StoreAway:
            await trio.lowlevel.checkpoint()
        else:
            return


def _repeated(rule: Callable[[Tx, Context], object]) -> Callable[[Engine], Awaitable[None]]:
    """Return work that runs a rule until it finds nothing more."""

    async def clean(engine: Engine) -> None:
        while await engine.write(rule):
            continue

    return clean


async def compress(engine: Engine) -> int:
    """Compress the history files that are old enough; returns how many.

    A damaged row or a file that cannot be written is left for later. Raises FleetError when the
    store refuses.
    """
    done, since, passed_over = 0, "", set[str]()
    while not engine.closing:
        old, until = await engine.read(uncompressed, since)
        new = [each for each in old if each not in passed_over]
        for snapshot_id in new:
            if await _compress(engine, snapshot_id):
                done += 1
            else:
                passed_over.add(snapshot_id)
        if until is None or not new:
            break
        since = until
    if done:
        log.info("Compressed %d snapshot files", done)
    return done


async def _compress(engine: Engine, snapshot_id: str) -> bool:
    backups = engine.backups["snapshot"]
    async with engine.outbox.file_lock:
        try:
            backup = await engine.read(outbox.backup, "snapshot", snapshot_id)
        except NotFound:  # pruned meanwhile
            return False
        except Corrupt as error:
            log.warning("A snapshot was not compressed: %s", error.message)
            return False
        if backup.data is None:
            return False
        data = await engine.outbox.in_thread(lambda: packed(backup.data or b""))
        try:
            await engine.outbox.in_thread(
                lambda: backups.compress(backup.owner_id, snapshot_id, data)
            )
        except OSError as error:
            log.warning("The file of %s could not be compressed: %s", snapshot_id, error)
            return False
        digest = hashlib.sha256(data).hexdigest()
        return await engine.write(note_compressed, snapshot_id, digest, len(data))


async def _verify_files(engine: Engine) -> None:
    """Verify the files of a day, unless an earlier daemon did: this takes long."""
    last = (await engine.read(daily_rounds.rounds)).verification
    if _is_due(engine.clock(), last.at_ms if last else None, DAY_S / 2):
        await verify_some(engine)


async def _drop_events(engine: Engine) -> None:
    """Walk through the old part of the log; each piece is a short transaction of its own."""
    dropped = 0
    since: int | None = 0
    try:
        while since is not None:
            batch = await engine.read(events_and_locks.find_old, since)
            if batch.found.unneeded:
                dropped += await engine.write(events_and_locks.drop_old, since, batch.found.until)
            since = batch.following
    finally:
        if dropped:
            days = engine.config.retention.event_days
            log.info("Removed %d unneeded events older than %d days", dropped, days)


async def _drop_missions(engine: Engine) -> None:
    """Delete expired automatic missions in the same way as a client."""
    since: str | None = ""
    while since is not None:
        batch = await engine.read(sessions.find_expired, since)
        for mission_id in batch.found:
            # Another machine that shares the store may be cleaning up as well.
            with suppress(NotFound, InvalidState):
                await engine.handle(MissionDelete(mission_id), DAEMON)
        since = batch.following


async def _drop_sessions(engine: Engine) -> None:
    since: sessions.SessionCursor | None = ("", "", "")
    while since is not None:
        since = (await engine.write(sessions.drop_old_sessions, since)).following


async def _purge_abandoned(engine: Engine) -> None:
    purged = 0
    while some := await engine.write(outbox.purge_departed):
        purged += some
    if purged:
        log.info("Removed %d rows that were deleted while their machine was away", purged)


async def _drop_runs(engine: Engine) -> None:
    """Drop the runs that nobody needs, then their directories; a file without a row stays."""
    run_ids = [""]
    while run_ids:
        async with engine.outbox.file_lock:  # a run recorded again has no file before the end
            run_ids = await engine.write(pruning.drop_empty_runs)
            remove = partial(_remove_empty, engine.backups["snapshot"], run_ids)
            await engine.outbox.in_thread(remove)


def _remove_empty(backups: RecordFiles, run_ids: list[str]) -> None:
    for run_id in run_ids:
        try:
            found = backups.list(run_id)
            if not found.files and found.latest_kind == "missing":  # it may be an only copy
                backups.remove(run_id, [], None)
        except OSError as error:
            log.warning("The directory of run %s could not be removed: %s", run_id, error)


_WORK: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "sessions left behind": _repeated(sessions.close_abandoned),
    "checkpoints": lambda engine: engine.handle(CheckpointPrune(), DAEMON),
    "snapshots": lambda engine: engine.handle(SnapshotPrune(), DAEMON),
    "the history of runs": compress,
    "data of removed machines": _purge_abandoned,
    "automatic missions": _drop_missions,
    "sessions": _drop_sessions,
    "runs": _drop_runs,
    "events": _drop_events,
    "usage of tokens": _repeated(records.drop_old),
    "transcripts": _repeated(transcripts.drop_orphans),
    "locks": _repeated(events_and_locks.drop_old_locks),
    "history": _repeated(events_and_locks.drop_old_history),
    "idempotency keys": _repeated(idempotency.drop_expired),
    "hook deliveries": _repeated(deliveries.prune_deliveries),
    "names that hooks told": _repeated(sightings.prune_sightings),
    "rotten files": _verify_files,
}
