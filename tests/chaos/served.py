"""A server as the daemon runs it, inside this program and under virtual time."""

import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
import trio.testing

from fleetd import daemon
from fleetd.config import Hooks, Limits
from fleetd.engine import repositories
from fleetd.host.systemd import Notifier
from fleetd.server.listener import ListeningSockets
from fleetd.server.server import Server
from tests.chaos.inflight import LARGE_BYTES, LINE_BYTES
from tests.chaos.steps import tasks_of
from tests.support.fleet import Clock, Fleet, opened

CONNECTIONS = 4


@dataclass
class Life:
    """A server that runs in this program."""

    fleet: Fleet
    server: Server
    path: Path
    nursery: trio.Nursery
    stop: trio.Event
    ended: trio.Event

    def drop(self) -> None:
        """Cancel all work for clients."""
        for connection in tuple(self.server._limit.connections):
            connection._scope.cancel()

    def leaks(self) -> dict[str, Any]:
        """Return resources that should have been released; none of them may differ later."""
        engine = self.fleet.engine
        return {
            "tasks": tasks_of(self.nursery),
            "connections": len(self.server._limit.connections),
            "places for clients": self.server._limit._free.value,
            "what is to be sent": len(self.server._unsent._writers),
            "places for large lines": self.server._large._room.value,
            "keys under way": list(engine._under_way),
            "turns of hooks": list(engine.session_queue._turns),
            "the spool is held": engine.session_queue.spool.locked(),
            "files are held": engine.outbox.file_lock.locked(),
            "files attempted": list(engine.outbox._jobs),
            "waiters": self.fleet.sql("SELECT * FROM lock_waits"),
        }


@asynccontextmanager
async def living(place: Path, clock: Clock) -> AsyncIterator[Life]:
    """Serve below ``place`` as the daemon does, until stopped or until the block ends."""
    limits = Limits(line_bytes=LINE_BYTES, connections=CONNECTIONS)
    servers: list[Server] = []

    class Known(Server):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            servers.append(self)

    path = place / "s"
    hooks = Hooks(line_bytes=LARGE_BYTES)
    async with opened(place, clock=clock, limits=limits, hooks=hooks) as fleet:
        with _no_real_time(), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(16)
            async with trio.open_nursery() as nursery:
                stop, ended = trio.Event(), trio.Event()
                with instead(daemon, "Server", Known):
                    nursery.start_soon(
                        _serve, fleet, ListeningSockets([listener], path), stop, ended
                    )
                    await trio.testing.wait_all_tasks_blocked()
                life = Life(fleet, servers[0], path, nursery, stop, ended)
                try:
                    yield life
                finally:
                    gc.unfreeze()  # this program outlives its daemons
                life.stop.set()


@contextmanager
def _no_real_time() -> Iterator[None]:
    """Run other work of threads and Git synchronously: virtual time would not wait."""

    async def on_the_spot(work: Callable[..., Any], *given: Any) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return work(*given)
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def nothing(_: str | None) -> None:
        await trio.lowlevel.checkpoint()

    with (
        instead(trio.to_thread, "run_sync", on_the_spot),
        instead(trio.from_thread, "check_cancelled", lambda: None),
        instead(repositories, "working_tree", nothing),
    ):
        yield


async def _serve(fleet: Fleet, held: ListeningSockets, stop: trio.Event, ended: trio.Event) -> None:
    await daemon._serve(fleet.engine, held, Notifier({}), stop)
    ended.set()


@contextmanager
def instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
