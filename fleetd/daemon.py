"""The composition root: nests lifetimes, handles signals, shuts down in order.

Lifetimes are nested in the order things depend on each other: the lock and the socket's name
outermost, then the store, then connections, then the listener and the timers.
"""

import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import msgspec
import trio

from . import __version__
from .config import Loaded
from .engine.engine import DAEMON, Engine
from .engine.jobs.timers import run_timers
from .engine.lifecycle import open_engine
from .host.cpu_worker import SHARED_SWITCH_S, SWITCH_S
from .host.instance_lock import AlreadyRunning
from .host.paths import PathRefused
from .host.systemd import Notifier, feed_watchdog
from .protocol.errors import Corrupt, FleetError, Storage, Unavailable
from .protocol.requests.system import SystemHealth
from .server.listener import ListeningSockets, listening
from .server.progress import report_start
from .server.server import Server
from .store.api import StoreFailed, StoreRefused, StoreUnready
from .store.sqlite.integrity_check import unreadable_rows_in

log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_REFUSED = 78  # EX_CONFIG: starting again without a change would not help
_DESCRIPTORS = 4_096
_CONNECTION_SECONDS = 5.0
_SOCKET_SECONDS = 30.0
# fleetd promises 10 s; a forced exit takes a moment too.
_SHUTDOWN_SECONDS = 9.5
# After a failed sync nothing more is stored, and a hanging disk must not delay the exit.
_LEAVING_SECONDS = 1.0
_STORAGE_FAILED = "Storage failed: {} - fleetd stops, to acknowledge nothing that is not on disk"
_DAMAGED = "{}{rows} Replace it with a copy: fleetctl restore FILE."
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start(loaded: Loaded) -> int:
    """Run the daemon until it stops; return its exit status."""
    prepare_process(shared=bool(loaded.config.store))
    status = 0
    try:
        status = trio.run(_run, loaded, Notifier())
    except* StoreUnready as unready:
        status = _report(unready, EXIT_FAILED, "{}")
    except* (PathRefused, StoreRefused) as refused:
        status = _report(refused, EXIT_REFUSED, "{}")
    except* Corrupt as damaged:
        found = "" if loaded.config.store else unreadable_rows_in(loaded.config.database)
        rows = f" {found}." if found else ""
        status = _report(damaged, EXIT_REFUSED, _DAMAGED, rows=rows)
    except* (Storage, Unavailable) as unable:
        # Once fleetd serves, clients receive these errors; before, only the log can report them.
        status = _report(unable, EXIT_FAILED, "The database cannot be used: {}")
    except* AlreadyRunning as running:
        status = _report(running, EXIT_FAILED, "{}")
    except* StoreFailed as failed:
        status = _report(failed, EXIT_FAILED, _STORAGE_FAILED)
    except* Exception:
        log.exception("fleetd stopped because of a bug")
        status = EXIT_FAILED
    return status


def _report(group: BaseExceptionGroup[BaseException], status: int, text: str, **more: str) -> int:
    for error in _leaves(group):
        log.error("%s", text.format(error, **more))
    return status


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def prepare_process(*, shared: bool) -> None:
    """Set the thread switch interval, and raise the descriptor limit for connections.

    ``shared`` is whether the store is on a server.
    """
    prepare_decoders(msgspec.Struct)
    sys.setswitchinterval(SHARED_SWITCH_S if shared else SWITCH_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prepare_decoders(kind: type[msgspec.Struct]) -> None:
    """Make msgspec inspect all subclasses of a Struct, before there are threads.

    msgspec inspects a Struct at its first use. A second thread that uses it meanwhile crashes in
    msgspec's core: hardly ever with Python's own switch interval of 5 ms, now and then with ours.
    """
    for each in kind.__subclasses__():
        with contextlib.suppress(TypeError):  # some Structs are never decoded
            msgspec.json.Decoder(each)
        prepare_decoders(each)


async def _run(loaded: Loaded, notifier: Notifier) -> int:
    """Return the exit status; raises the error that keeps the daemon from starting or running."""
    stop = trio.Event()
    lost = trio.Event()
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as watch:
            watch.start_soon(_watch_signals, signals, stop)
            watch.start_soon(_exit_at_deadline, stop)
            with listening(loaded.config) as sockets:
                async with AsyncExitStack() as opened:
                    with report_start(notifier, watch):
                        engine = await opened.enter_async_context(open_engine(loaded))
                    watch.start_soon(_exit_after_disk_failure, engine)
                    watch.start_soon(_watch_socket, sockets, stop, lost)
                    await _serve(engine, sockets, notifier, stop)
            log.info("fleetd has stopped")
            watch.cancel_scope.cancel()
    return EXIT_FAILED if lost.is_set() else 0


async def _watch_signals(signals: AsyncIterator[int], stop: trio.Event) -> None:
    async for number in signals:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            log.info("SIGHUP is ignored: fleetd reads its settings only at the start")
        elif stop.is_set():
            log.warning("Received %s again: fleetd exits at once", name)
            _exit_now()
        else:
            log.info("Received %s: shutting down", name)
            stop.set()


async def _watch_socket(sockets: ListeningSockets, stop: trio.Event, lost: trio.Event) -> None:
    """Stop the daemon when clients cannot find its socket: it would only block the next daemon.

    This happens to a background daemon when a logout deletes its user's runtime directory.
    """
    await trio.sleep(_SOCKET_SECONDS)
    while sockets.in_place():  # noqa: ASYNC110 - the file system sends no notification
        await trio.sleep(_SOCKET_SECONDS)
    if not stop.is_set():
        log.error("The socket was removed or replaced, so no client can connect: shutting down")
        lost.set()
        stop.set()


async def _exit_at_deadline(stop: trio.Event) -> None:
    await stop.wait()
    await trio.sleep(_SHUTDOWN_SECONDS)
    log.error("The shutdown took longer than %s s: fleetd exits at once", _SHUTDOWN_SECONDS)
    _exit_now()


async def _exit_after_disk_failure(engine: Engine) -> None:
    """End the process when the disk has failed and something keeps it from ending by itself."""
    await engine.store.failed.wait()
    await trio.sleep(_LEAVING_SECONDS)
    log.error("%s", _STORAGE_FAILED.format(engine.store.failure))
    _exit_now()


def _exit_now() -> None:
    """End the process immediately; everything acknowledged is already on disk."""
    os._exit(EXIT_FAILED)


async def _serve(
    engine: Engine, sockets: ListeningSockets, notifier: Notifier, stop: trio.Event
) -> None:
    """Serve until ``stop`` is set; then let connections finish requests in flight."""
    server = Server(engine, engine.loaded.config.limits)
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as front:
            for sock in sockets.sockets:
                listener = trio.socket.from_stdlib_socket(sock)
                front.start_soon(server.accept, listener, connections)
            front.start_soon(run_timers, engine)
            if notifier.watchdog_seconds:
                # Twice per period, so that one late notification does not end the daemon.
                interval = notifier.watchdog_seconds / 2
                front.start_soon(feed_watchdog, notifier, interval, partial(_healthy, engine))
            # Exclude objects that live as long as the daemon from garbage collection: scanning them
            # again and again would block everything for tens of ms.
            gc.collect()
            gc.freeze()
            path = engine.loaded.config.socket
            log.info("fleetd %s listens on %s (pid %d)", __version__, path, os.getpid())
            notifier.send("READY=1", f"STATUS={_status_line(engine)}")
            front.start_soon(_report_availability, engine, notifier)
            await stop.wait()
            engine.store.hurry()  # a timer may wait for an answer, and nothing cancels that
            notifier.send("STOPPING=1", "STATUS=Finishing requests in flight")
            front.cancel_scope.cancel()
        sockets.close()
        engine.stop_waiting()
        connections.cancel_scope.deadline = trio.current_time() + _CONNECTION_SECONDS
        server.drain()


async def _report_availability(engine: Engine, notifier: Notifier) -> None:
    """Report when the store goes away and when it is back; the daemon stays ready in between."""
    availability = engine.store.availability
    while True:
        await availability.down.wait()
        if availability.away is not None:
            notifier.send(f"STATUS={_status_line(engine)}")
        returned = engine.store_back.ticket()
        await availability.up.wait()
        await returned.wait()
        log.info("fleetd has caught up with the store")
        notifier.send(f"STATUS={_status_line(engine)}")


def _status_line(engine: Engine) -> str:
    listening = f"Listening on {engine.loaded.config.socket}"
    away = engine.store.availability.away
    return listening if away is None else f"{listening}; the store is unreachable: {away.message}"


async def _healthy(engine: Engine) -> bool:
    """Check the whole path of a client's request.

    The check fails for problems that a restart repairs. Repeated restarts because of a full disk
    would only keep out clients that can still read.
    """
    try:
        health = await engine.ask(SystemHealth(), DAEMON)
    except FleetError as error:
        log.warning("The health check failed: %s", error)
        return False
    for check in health.checks:
        if check.restart_mends and not check.ok:
            log.warning("The health check failed: %s: %s", check.name, check.detail)
    return not health.restart_mends
