"""Life cycle of an engine: open the store, get ready to serve, serve, close.

It gets ready in the same way at the start and whenever the store is back: without a daemon and
without a store, the same work was missed. That work must be done before newer requests are
admitted.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from ..config import Loaded
from ..domain.core.context import BatchSizes
from ..domain.erasure.scope import ErasureTarget
from ..domain.system import relocation
from ..domain.system.epoch import continue_after_loss, start_up
from ..host.clock import Uptime
from ..protocol.errors import FleetError
from ..store.api import LostCommits, StoreFailed, StoreFull, StoreRefused
from ..store.sqlite.disk_reserve import DiskReserve
from . import methods  # noqa: F401 - registers the services
from .engine import Engine, random_id
from .files.reconcile import reconcile
from .hooks.deliver import tidy_spool
from .hooks.sightings import write_sightings
from .hooks.training import training_hooks
from .jobs.cluster import check_processes, leave_cluster, refuse_duplicate_id
from .jobs.legacy_import import import_legacy
from .services.erasure import finish, finish_these
from .usage.reading import write_noted_last

log = logging.getLogger("fleetd")
SPOOL_S = 1.0
RETRY_S = 5.0
ERASURE_RETRY_S = 600.0
FAILURE_GRACE_S = 0.5


@asynccontextmanager
async def open_engine(
    loaded: Loaded,
    *,
    clock: Callable[[], int] | None = None,
    uptime: Callable[[], Uptime] | None = None,
    new_id: Callable[[str], str] = random_id,
    inline: bool = False,
    vfs: str | None = None,
    machine: str | None = None,
    batches: BatchSizes | None = None,
) -> AsyncIterator[Engine]:
    """Open the store and serve requests until the block ends; then finish what was begun.

    If the store is away, the engine waits for it inside the block. Raises StoreRefused before the
    block when the store cannot be opened, StoreFailed out of the block when the disk fails inside
    it. ``inline`` runs everything on the trio thread, so that virtual time is exact.
    """
    engine: Engine | None = None
    while engine is None:
        try:
            engine = Engine(
                loaded,
                clock=clock,
                uptime=uptime,
                new_id=new_id,
                inline=inline,
                vfs=vfs,
                machine=machine,
                batches=batches,
            )
        except StoreFull:  # the reserve is kept for freeing space
            if not DiskReserve(loaded.config.database).give():
                raise
    engine.disk_reserve.close_to_others()
    if not inline:  # inline, no request waits for a turn
        engine.store.train(training_hooks(engine))
    engine.store.start()
    # With a local database, the event loop waits for its file system anyway. With a database on a
    # server, it must not wait for another computer, such as one with a home directory on NFS.
    shared = bool(loaded.config.store)
    own_files = loaded.config.checkpoints if shared else loaded.config.database
    try:
        try:
            with engine.files.near(own_files, local_only=shared):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_watch_disk, engine)
                    nursery.start_soon(engine.outbox.run)
                    nursery.start_soon(engine.store.run)
                    begun = trio.Event()
                    nursery.start_soon(keep_ready, engine, begun)
                    await begun.wait()
                    yield engine
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only(group) from None
        with trio.CancelScope(shield=True):
            # It comes first, as it seldom needs a turn: the others may wait in vain for theirs.
            await leave_cluster(engine)
            await write_sightings(engine)
            await write_noted_last(engine)
            await engine.outbox.drain()
            await engine.store.last_look()
    finally:
        with trio.CancelScope(shield=True):
            await engine.store.aclose()


async def _watch_disk(engine: Engine) -> None:
    await engine.store.failed.wait()
    engine.stop_waiting()
    # Clients whose requests just failed still receive the error, and reads are answered. Nothing
    # more is stored.
    await trio.sleep(FAILURE_GRACE_S)
    raise StoreFailed(str(engine.store.failure))


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error inside a group of one; callers then need no except*."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def keep_ready(engine: Engine, begun: trio.Event) -> None:
    """Make the daemon ready now, and again after each time that the store was away.

    ``begun`` is set once that is done, or immediately while the store is away. Raises FleetError
    when a reachable store refuses what a start needs, StoreRefused when it was moved away.
    """
    availability, since = engine.store.availability, trio.current_time()
    readiness = _Readiness(engine)
    while True:
        if availability.away is not None:
            begun.set()
        await availability.up.wait()
        down = availability.down
        if begun.is_set() and not readiness.complete:
            # The time by the store's clock is known only now.
            engine.started_ms = engine.clock() - round((trio.current_time() - since) * 1_000)
        try:
            await readiness.catch_up()
        except FleetError as error:
            if not down.is_set():
                if not begun.is_set():
                    raise
                log.error("fleetd cannot catch up with the store: %s", error.message)
                await trio.sleep(RETRY_S)
            continue
        engine.admit_all()
        begun.set()
        while not down.is_set():
            with trio.move_on_after(ERASURE_RETRY_S) as pause:
                await down.wait()
            if pause.cancelled_caught:
                await readiness.retry_erasures()
        engine.admit_nobody()


class _Readiness:
    """How far the daemon is with the work of a start, and with the work of each catch-up."""

    def __init__(self, engine: Engine) -> None:
        self.complete = False
        """Whether the work that only a start needs is done."""
        self._engine = engine
        self._lost: LostCommits | None = None
        self._unfinished: list[ErasureTarget] = []
        """Erasures that failed: clients do not wait for them a second time."""

    async def catch_up(self) -> None:
        """Catch up with everything that was missed; raises FleetError when the store refuses.

        Raises StoreRefused for a store that was moved away, since only its new place counts. Raises
        StoreUnready while another daemon works under this machine's id.
        """
        engine = self._engine
        lost = engine.store.lost if engine.store.lost != self._lost else None
        engine.awake_since_ms = engine.uptime().awake_ms
        if engine.machine:
            await refuse_duplicate_id(engine)
        await _check_relocation(engine)
        await engine.write(start_up, tuple(engine.waiting_locks))
        self._unfinished += await finish(engine, self._unfinished)
        if not self.complete or lost is not None:
            async with engine.outbox.file_lock:
                await reconcile(engine, lost.reached if lost else 0)
        if lost is not None:
            log.warning("%s. fleetd serves the remaining events under a new epoch", lost.why)
            await engine.write(continue_after_loss, lost.end, lost.reached)
            self._lost = lost
        if not self.complete:
            await import_legacy(engine)
        await engine.outbox.catch_up()
        if engine.machine:  # before events in the spool register agents again
            await check_processes(engine)
        with trio.move_on_after(SPOOL_S):  # the rest while it serves, before anything newer
            await tidy_spool(engine)
        self.complete = True

    async def retry_erasures(self) -> None:
        """Retry the erasures that failed while all clients waited."""
        unfinished, self._unfinished = self._unfinished, []
        try:
            self._unfinished = await finish_these(self._engine, unfinished)
        except FleetError as error:
            self._unfinished = unfinished
            log.warning("Forgetting records is postponed: %s", error.message)


async def _check_relocation(engine: Engine) -> None:
    """Settle a store that was moved here; raises StoreRefused for one that was moved away."""
    found = await engine.write(relocation.arrive)
    if (moved := found.moved_to) is not None:
        # No setting names a local database as the store.
        advice = "Remove the setting store, or FLEET_DATABASE_URL"
        if "://" in moved.where:
            advice = "Set store to its new place"
        raise StoreRefused(
            f"{engine.store.where} was moved to {moved.where} at {moved.at}. {advice}"
            " (fleetctl config shows the settings), or continue with the old one: fleetctl"
            " migrate --undo"
        )
    if (moving := found.moving_to) is not None:
        raise StoreRefused(
            f"{engine.store.where} was being moved to {moving.where} at {moving.at}, but the"
            " move did not finish. Run the same command again: fleetctl migrate; or continue with"
            " this one: fleetctl migrate --undo"
        )
    for mission_id, directory in found.unnamed.items():
        if names := await engine.projects.shared_names(directory):
            await engine.write(relocation.name_project, mission_id, names[0])
