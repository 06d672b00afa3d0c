"""Brings the checkpoint files up to date after commits; the rows are its list of work.

Automatic checkpoints never wait for this. What fails is tried again with growing pauses; what a
crash left undone is found in the rows at start-up.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from .domain.content import to_file
from .domain.copies import (
    BackupGet,
    BackupNotWritten,
    BackupWritten,
    OutboxGet,
    Purge,
)
from .domain.tx import RemoveBackup, WriteBackup
from .store.backups import Backups
from .wire.errors import FleetError, NotFound, Storage, Unavailable

T = TypeVar("T")
Work = WriteBackup | RemoveBackup
log = logging.getLogger("fleetd")
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0


class Outbox:
    """Writes and removes files in the order of the commits that asked for it."""

    def __init__(
        self, execute: Callable[[Any], Awaitable[Any]], backups: Backups, *, inline: bool
    ) -> None:
        self._execute = execute
        self._backups = backups
        self._inline = inline
        self._send, self._receive = trio.open_memory_channel[Work](float("inf"))
        self._attempted: dict[str, trio.Event] = {}
        self._failed: dict[str, Work] = {}
        self._trouble = trio.Event()
        self.at_work = trio.Lock()
        """Held while a file is written or removed; who holds it finds all of them at rest."""

    def post(self, work: Work) -> None:
        """Take on a piece of work; called right after its commit."""
        self._attempted.setdefault(work.checkpoint_id, trio.Event())
        self._send.send_nowait(work)

    async def attempted(self, checkpoint_id: str) -> None:
        """Wait until the file of a checkpoint was written or removed, or could not be."""
        event = self._attempted.get(checkpoint_id)
        if event is not None:
            await event.wait()

    async def settled(self) -> None:
        """Wait until everything that is queued now was attempted."""
        for event in list(self._attempted.values()):
            await event.wait()

    async def catch_up(self) -> None:
        """Take on what is still to do according to the rows."""
        removed = await self.in_thread(self._backups.sweep)
        if removed:
            log.info("Removed %d temporary files that a crash had left", removed)
        todo = await self._execute(OutboxGet())
        for checkpoint_id in todo.unwritten:
            self.post(WriteBackup(checkpoint_id))
        for checkpoint_id in todo.deleted:
            self.post(RemoveBackup(checkpoint_id))

    async def run(self) -> None:
        """Work until cancelled; a piece of work that was begun is finished."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._retry)
            async for work in self._receive:
                with trio.CancelScope(shield=True):
                    await self._do(work)

    async def drain(self) -> None:
        """Do what is queued and return; for an orderly end."""
        while True:
            try:
                work = self._receive.receive_nowait()
            except trio.WouldBlock:
                return
            await self._do(work)

    async def _do(self, work: Work) -> None:
        try:
            async with self.at_work:
                await (self._write(work) if isinstance(work, WriteBackup) else self._remove(work))
        except NotFound:
            self._failed.pop(work.checkpoint_id, None)
            log.debug("Nothing left to do for %s", work.checkpoint_id)
        except FleetError as error:
            log.warning("The files are behind the database: %s", error.message)
            if isinstance(error, Storage | Unavailable):
                self._try_again(work)
        finally:
            event = self._attempted.pop(work.checkpoint_id, None)
            if event is not None:
                event.set()

    async def _write(self, work: WriteBackup) -> None:
        backup = await self._execute(BackupGet(work.checkpoint_id))
        checkpoint = backup.checkpoint
        if checkpoint is None:
            return
        data, backups = to_file(checkpoint), self._backups
        try:
            await self.in_thread(
                lambda: backups.write(backup.mission_id, checkpoint.id, data, backup.latest_id)
            )
        except OSError as error:
            await self._not_written(work, error)
            return
        self._failed.pop(checkpoint.id, None)
        await self._execute(BackupWritten(checkpoint.id))
        log.info("Written to %s", backups.path_of(backup.mission_id, checkpoint.id))

    async def _not_written(self, work: WriteBackup, error: OSError) -> None:
        first = work.checkpoint_id not in self._failed
        self._try_again(work)
        log.warning("Failed to write checkpoint file of %s: %s", work.checkpoint_id, error)
        await self._execute(
            BackupNotWritten(checkpoint_id=work.checkpoint_id, error=str(error), first=first)
        )

    async def _remove(self, work: Work) -> None:
        backup = await self._execute(BackupGet(work.checkpoint_id))
        backups = self._backups
        try:
            await self.in_thread(
                lambda: backups.remove(backup.mission_id, work.checkpoint_id, backup.latest_id)
            )
        except OSError as error:
            self._try_again(work)
            log.warning("Failed to remove the file of %s: %s", work.checkpoint_id, error)
            return
        self._failed.pop(work.checkpoint_id, None)
        await self._execute(Purge(work.checkpoint_id))

    def _try_again(self, work: Work) -> None:
        self._failed[work.checkpoint_id] = work
        self._trouble.set()

    async def _retry(self) -> None:
        """Try what failed again, after growing pauses, as long as there is anything."""
        while True:
            await self._trouble.wait()
            pause = FIRST_PAUSE_S
            while self._failed:
                await trio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
                for work in list(self._failed.values()):
                    self.post(work)
                await self.settled()
            self._trouble = trio.Event()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run file work on a thread, or inline where time is virtual; it is never abandoned."""
        if self._inline:
            await trio.lowlevel.checkpoint()
            return work()
        return await trio.to_thread.run_sync(work)
