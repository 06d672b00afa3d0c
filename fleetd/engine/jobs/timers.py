"""Timers: work that the daemon does without a request."""

import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from ...domain.agents.agent_loss import living_processes
from ...domain.cluster.membership import HEARTBEAT_MS
from ...domain.core.tx import WatchProcess
from ...domain.liveness import needs
from ...protocol.errors import FleetError, Unavailable
from ...store.api import StoreAway, StoreRefused
from ..engine import Engine
from ..files.reconcile import collect_garbage
from ..hooks.deliver import tidy_spool
from ..hooks.sightings import write_sightings
from ..usage.reading import read_transcripts
from .cluster import heartbeat
from .daily import run_daily_work
from .liveness import process_ended, scan
from .search import index_backlog

T = TypeVar("T")
log = logging.getLogger("fleetd")
PAUSE_S = 10
SPOOL_S = 30
USAGE_S = 30
# A round that takes longer than this hangs; recording a long spool may take longer.
ROUND_S = 300
LONG_ROUND_S = 3_600
ROOM_S = 60
# A new request rings the bell; this is for a daemon that starts, and for clocks that were set.
ASKS_S = 600
FILES_S = 60
# One heartbeat in so many also looks for agents of machines that are already lost, and for machines
# of the same name.
THOROUGH = 6
INDEX_S = 60


async def run_timers(engine: Engine) -> None:
    """Run all timers until cancelled."""
    async with trio.open_nursery() as nursery:
        timers = [
            *(scan_liveness, confirm_asks, watch_processes),
            *(run_daily_work, drain_spool, refill_disk_reserve),
            *(read_usage, index_older_records),
        ]
        if engine.machine:
            timers += [send_heartbeats, follow_other_machines]
        for timer in timers:
            nursery.start_soon(timer, engine)


class Pauses:
    """The pauses of one timer, which end when the store was away and is back.

    With a shared store, the first pause after a start or an outage has a random length. Otherwise
    hundreds of machines would ask the server at the same moments, and hooks would wait for them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._returned: trio.Event | None = None
        """The ticket of the last pause: set if the store came back since that pause began."""

    async def sleep(self, seconds: float, returned: trio.Event | None = None) -> bool:
        """Sleep, and return whether the store came back.

        ``returned`` is a ticket of ``engine.store_back`` from before; by default it is taken now.
        """
        if returned is None:
            returned = self._engine.store_back.ticket()
        is_first = self._returned is None or self._returned.is_set()
        self._returned = returned
        if is_first and self._engine.machine:
            seconds *= random.random()  # noqa: S311 - nobody has to be kept from guessing
        with trio.move_on_after(seconds):
            await returned.wait()
        return returned.is_set()


async def scan_liveness(engine: Engine) -> None:
    """Look for silences whenever one can be due, also those from before this start."""
    pauses = Pauses(engine)
    while True:
        await _admitted(engine, "silence")
        look = partial(scan, engine, only_ours=True)
        pause_s = await _retry(engine, "ActivityScan", look, "silence") / 1000
        engine.timer_health.beat("silence", pause_s + ROUND_S)
        await pauses.sleep(pause_s)


async def confirm_asks(engine: Engine) -> None:
    """Let agents wait for permissions that they asked for and did not get immediately."""
    while True:
        ticket = engine.asks.ticket()
        await _admitted(engine, "asks")
        due_ms = await _retry(engine, "ConfirmAsks", partial(_confirm_asks, engine), "asks")
        pause_s = ASKS_S if due_ms is None else due_ms / 1000
        engine.timer_health.beat("asks", pause_s + ROUND_S)
        with trio.move_on_after(pause_s):
            await ticket.wait()


async def _confirm_asks(engine: Engine) -> int | None:
    """Return in how many ms the next one is due."""
    due_ms = await engine.read(needs.next_ask_ms)
    if due_ms == 0:
        await engine.write(needs.confirm_asks)
        due_ms = await engine.read(needs.next_ask_ms)
    return due_ms


async def drain_spool(engine: Engine) -> None:
    """Record payloads that hooks left in the spool, also if no hook comes any more."""
    pauses = Pauses(engine)
    while True:
        await _admitted(engine, "spool")
        engine.timer_health.beat("spool", SPOOL_S + LONG_ROUND_S)
        await tidy_spool(engine)
        await write_sightings(engine)
        await pauses.sleep(SPOOL_S)


async def read_usage(engine: Engine) -> None:
    """Read the token usage in transcripts of sessions, when no client has asked for long."""
    pauses = Pauses(engine)
    while True:
        await _admitted(engine, "usage")
        engine.timer_health.beat("usage", USAGE_S + LONG_ROUND_S)
        await _retry(engine, "ReadUsage", partial(read_transcripts, engine), "usage")
        await pauses.sleep(USAGE_S)


async def index_older_records(engine: Engine) -> None:
    """Index records from before there was a search index, and imported records."""
    pauses = Pauses(engine)
    while True:
        await _admitted(engine)
        await _retry(engine, "SearchIndex", partial(index_backlog, engine))
        await pauses.sleep(INDEX_S)


async def refill_disk_reserve(engine: Engine) -> None:
    """Keep the disk reserve for a full disk, and restore it when there is space again."""
    while True:
        await engine.outbox.in_thread(engine.disk_reserve.make)
        await trio.sleep(ROOM_S)


async def follow_other_machines(engine: Engine) -> None:
    """Write and remove files because of what other machines recorded or deleted."""
    forgotten: int | None = None
    pauses = Pauses(engine)
    while True:
        await _admitted(engine, "files")
        engine.timer_health.beat("files", FILES_S + ROUND_S)
        try:
            await engine.outbox.post_pending()
            forgotten = await collect_garbage(engine, forgotten)
        except StoreAway:  # the store reports this itself
            continue
        except FleetError as error:
            log.warning("The work on files is postponed: %s", error.message)
        except Exception:
            log.exception("The work on files failed")
        await pauses.sleep(FILES_S)


async def watch_processes(engine: Engine) -> None:
    """Notice when the process of an agent ends, also one that ended while no daemon ran."""

    async def ended(process: WatchProcess) -> None:
        # Payloads that its hooks left in the spool are from before its end.
        await tidy_spool(engine)
        await _retry(engine, "ProcessEnded", partial(process_ended, engine, process))

    await _admitted(engine)
    known = await _retry(engine, "LivingProcesses", partial(engine.read, living_processes))
    await engine.process_watcher.run(known, ended)


async def send_heartbeats(engine: Engine) -> None:
    """Send heartbeats to the machines that share the store, and look for missing machines.

    When the store is back, which rings ``engine.store_back``, a heartbeat is sent immediately:
    every machine waits then.
    """
    reconnected = True
    pauses = Pauses(engine)
    for number in itertools.count():
        returned = engine.store_back.ticket()
        engine.timer_health.beat("machines", ROUND_S)
        thorough = reconnected or number % THOROUGH == 0
        if await _beat(engine, reconnected=reconnected, thorough=thorough):
            reconnected = False
        reconnected = await pauses.sleep(HEARTBEAT_MS / 1_000, returned) or reconnected


async def _beat(engine: Engine, *, reconnected: bool, thorough: bool) -> bool:
    """Return whether a heartbeat worked; the store itself reports that it is away."""
    try:
        await heartbeat(engine, reconnected=reconnected, thorough=thorough)
    except Unavailable:
        return False
    except StoreRefused:  # another daemon has this machine's id: this one ends
        raise
    except FleetError as error:
        log.warning("The heartbeat of this machine failed: %s", error.message)
        return False
    except Exception:
        log.exception("The heartbeat of this machine failed")
        return False
    return True


async def _retry(
    engine: Engine, name: str, work: Callable[[], Awaitable[T]], timer: str | None = None
) -> T:
    """Do work, and repeat it until it succeeds: nothing else will ask for it.

    The log calls it by its ``name``. A timer whose work is refused is alive: the refusal has its
    cause elsewhere.
    """
    while True:
        await _admitted(engine, timer)
        try:
            return await work()
        except StoreAway:  # the store reports this itself
            continue
        except FleetError as error:
            log.warning("%s is postponed: %s", name, error.message)
        except Exception:
            log.exception("%s failed", name)
        if timer is not None:
            engine.timer_health.beat(timer, PAUSE_S + ROUND_S)
        await trio.sleep(PAUSE_S)


async def _admitted(engine: Engine, timer: str | None = None) -> None:
    """Wait while the store is away: a timer that waits is alive."""

    def beat() -> None:
        if timer is not None:
            engine.timer_health.beat(timer, ROUND_S)

    beat()
    await engine.admission.wait_open(beat)
