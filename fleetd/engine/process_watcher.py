"""Process watcher: waits for the processes of agents to end."""

import logging
from collections.abc import Awaitable, Callable

import trio

from ..domain.core.tx import WatchProcess
from ..host import processes

log = logging.getLogger("fleetd")


class ProcessWatcher:
    """Watches each process once, from the commit that registered it until it ends."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[WatchProcess](float("inf"))
        self._watched: set[WatchProcess] = set()

    def post(self, process: WatchProcess) -> None:
        """Take on a process; called right after the commit that registered its agent."""
        self._send.send_nowait(process)

    async def run(
        self,
        known: list[WatchProcess],
        ended: Callable[[WatchProcess], Awaitable[object]],
    ) -> None:
        """Watch until cancelled; ``ended`` is awaited for each process that is gone."""
        for process in known:
            self.post(process)
        async with trio.open_nursery() as nursery:
            async for work in self._receive:
                if work not in self._watched:
                    self._watched.add(work)
                    nursery.start_soon(self._watch, work, ended)

    async def _watch(
        self, work: WatchProcess, ended: Callable[[WatchProcess], Awaitable[object]]
    ) -> None:
        try:
            await processes.ended(work.pid, work.started)
            await ended(work)
        finally:
            self._watched.discard(work)
