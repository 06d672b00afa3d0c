"""Makes the daemon ready to serve, at the start and whenever the store is back; knows no sockets.

Both are one way: what was missed while there was no daemon is what was missed while there was no
store, and must be done before anything newer is let in.
"""

import logging

import trio

from ..domain.erasure.scope import Target
from ..domain.system.epoch import GoOnWithout
from ..domain.system.startup import StartUp
from ..protocol.errors import FleetError
from ..store.api import LostCommits
from .arriving import arrive
from .engine import Engine
from .files.reconcile import reconcile
from .hooks.spool import tidy
from .jobs.cluster import catch_up, refuse_twin
from .jobs.legacy_import import import_legacy
from .services.erasure import finish, finish_these

log = logging.getLogger("fleetd")
SPOOL_S = 1.0
AGAIN_S = 5.0
OWED_S = 600.0


async def keep_ready(engine: Engine, begun: trio.Event) -> None:
    """Make the daemon ready now, and again after each time that the store was away.

    ``begun`` is set once that is done, or at once while the store is away. Raises FleetError when
    a store that is there refuses what a start needs, StoreRefused when it was moved away.
    """
    availability, readiness, since = (
        engine.store.availability,
        _Readiness(engine),
        trio.current_time(),
    )
    while True:
        if availability.away is not None:
            begun.set()
        await availability.up.wait()
        down = availability.down
        if begun.is_set() and not readiness.complete:
            # Only now it is known what time it is by the store's clock.
            engine.started_ms = engine.clock() - round((trio.current_time() - since) * 1_000)
        try:
            await readiness.restore()
        except FleetError as error:
            if not down.is_set():
                if not begun.is_set():
                    raise
                log.error("fleetd cannot catch up with the store: %s", error.message)
                await trio.sleep(AGAIN_S)
            continue
        engine.admit_all()
        begun.set()
        await _serve(readiness, down)
        engine.admit_nobody()


async def _serve(readiness: "_Readiness", down: trio.Event) -> None:
    """Wait until the store is away; meanwhile what could not be forgotten is tried again."""
    while not down.is_set():
        with trio.move_on_after(OWED_S) as pause:
            await down.wait()
        if pause.cancelled_caught:
            await readiness.finish_later()


class _Readiness:
    """How far the daemon is with what must be done once, and what each time."""

    def __init__(self, engine: Engine) -> None:
        self.complete = False
        """Whether what only a start has to do is done."""
        self._engine = engine
        self._lost: LostCommits | None = None
        self._owing: list[Target] = []
        """What failed to be forgotten: nobody is kept out for it twice."""

    async def restore(self) -> None:
        """Catch up with everything that was missed; raises FleetError when the store refuses.

        Raises StoreRefused for one that was moved away: the other one is what counts now; and
        StoreUnready while another daemon is at work under this machine's id.
        """
        engine = self._engine
        lost = engine.store.lost if engine.store.lost != self._lost else None
        engine.awake_since_ms = engine.uptime().awake_ms
        if engine.machine:
            await refuse_twin(engine)
        await arrive(engine)
        await engine.execute(StartUp(in_line=tuple(engine.in_line)))
        self._owing += await finish(engine, self._owing)
        if not self.complete or lost is not None:
            async with engine.outbox.at_work:
                await reconcile(engine, lost.reached if lost else 0)
        if lost is not None:
            log.warning("%s. What is left is served under a new epoch", lost.why)
            await engine.execute(GoOnWithout(end=lost.end, reached=lost.reached))
            self._lost = lost
        if not self.complete:
            await import_legacy(engine)
        await engine.outbox.catch_up()
        if engine.machine:  # before what their hooks left would have them registered anew
            await catch_up(engine)
        with trio.move_on_after(SPOOL_S):  # the rest, before anything newer, while it serves
            await tidy(engine)
        self.complete = True

    async def finish_later(self) -> None:
        """Try once more to forget what could not be forgotten while everybody waited."""
        owing, self._owing = self._owing, []
        try:
            self._owing = await finish_these(self._engine, owing)
        except FleetError as error:
            self._owing = owing
            log.warning("What is to be forgotten has to wait: %s", error.message)
