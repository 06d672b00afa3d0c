"""Outbox: brings files up to date after commits; the rows are its list of work.

Automatic checkpoints never wait for this. Failed work is retried with growing pauses; the rows show
at start-up what a crash left undone.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from ...domain.artifacts import outbox
from ...domain.artifacts.outbox import Removal, purge, removals
from ...domain.core.context import BatchSizes
from ...domain.core.tx import RemoveBackup, WriteBackup
from ...host import trace
from ...protocol.errors import FleetError, NotFound, Storage, Unavailable
from ...protocol.types import Noun
from ...store.files.record_files import RecordFiles
from .verified_read import latest_data

T = TypeVar("T")
Work = WriteBackup | RemoveBackup
log = logging.getLogger("fleetd")
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
# How long files are written before one transaction marks their rows: a transaction for each file
# would cost as much as taking the checkpoint did.
MARK_S = 0.05


class Failure(msgspec.Struct, frozen=True):
    """A piece of work that could not be done, why, and on whose behalf it was tried."""

    work: Work
    why: str
    asked: trace.TraceContext | None = msgspec.field(default_factory=trace.current)


class FileJob:
    """Work that is queued or in progress, on whose behalf, and whether a task waits for it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.asked = trace.current()
        self.attempted = trio.Event()
        self.awaited = False


class Outbox:
    """Writes files one by one and removes them many at a time.

    ``settle`` carries out the effects of earlier commits, so that waits include the work they post.

    Writes come before removals, since tasks wait for them more often. Once a record is marked
    deleted nothing is written for it, so their order does not matter.

    One transaction marks the rows of several files: immediately if a task waits for one, else after
    50 ms. After a crash before that the files are written again, under the same names.
    """

    def __init__(
        self,
        read: Callable[..., Awaitable[Any]],
        write: Callable[..., Awaitable[Any]],
        settle: Callable[[], None],
        backups: Mapping[Noun, RecordFiles],
        batches: BatchSizes,
        *,
        inline: bool,
    ) -> None:
        self._read = read
        self._write = write
        self._settle = settle
        self._backups = backups
        self._batches = batches
        self._inline = inline
        self._mark_after_s = 0.0 if inline else MARK_S
        self._writes: deque[FileJob] = deque()
        self._removals: deque[FileJob] = deque()
        self._posted = trio.Event()
        """Set by new work, and by each task that begins to wait for some."""
        self._queued: dict[Work, FileJob] = {}
        self._jobs: dict[str, list[FileJob]] = {}
        """Jobs that are queued or in progress, by the id of their record."""
        self._since: dict[str, float] = {}
        self._failed: dict[str, Failure] = {}
        self._trouble = trio.Event()
        self.file_lock = trio.Lock()
        """Held while a file is written or removed; its holder sees no file change."""

    def post(self, work: Work) -> None:
        """Queue work; called right after its commit.

        A job that is already queued will see that commit; a job in progress may not have.
        """
        self._since.setdefault(work.record_id, trio.current_time())
        if (queued := self._queued.get(work)) is not None:
            queued.asked = trace.current()
            return
        job = self._queued[work] = FileJob(work)
        self._jobs.setdefault(work.record_id, []).append(job)
        (self._writes if isinstance(work, WriteBackup) else self._removals).append(job)
        self._posted.set()

    async def attempted(self, record_id: str) -> None:
        """Wait until all work that was posted for a record is done or has failed."""
        self._settle()
        await self._wait_for(list(self._jobs.get(record_id, ())))

    async def settled(self) -> None:
        """Wait until everything that is queued now was attempted."""
        self._settle()
        await self._wait_for([job for jobs in self._jobs.values() for job in jobs])

    async def _wait_for(self, jobs: Sequence[FileJob]) -> None:
        for job in jobs:
            job.awaited = True
        self._posted.set()
        for job in jobs:
            await job.attempted.wait()

    async def catch_up(self) -> None:
        """Remove files that a crash left, and queue the work that is still to do."""
        every = self._backups.values()
        removed = await self.in_thread(lambda: sum(backups.sweep() for backups in every))
        if removed:
            log.info("Removed %d temporary files left by a crash", removed)
        await self.post_pending()

    async def post_pending(self) -> None:
        """Queue the work that is pending in the rows and neither queued nor retried."""
        for work in await self._read(outbox.pending):
            if work.record_id not in self._jobs and work.record_id not in self._failed:
                self.post(work)

    async def run(self) -> None:
        """Work until cancelled; a piece of work that was begun is finished."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._retry)
            while True:
                await self._posted.wait()
                self._posted = trio.Event()
                while self._writes or self._removals:
                    with trio.CancelScope(shield=True):
                        await self._work()
                    await trio.lowlevel.checkpoint_if_cancelled()

    async def drain(self) -> None:
        """Do the queued work and return; for an orderly shutdown."""
        self._settle()
        self._mark_after_s = 0.0
        while self._writes or self._removals:
            await self._work()

    async def _work(self) -> None:
        """Do what comes first in the queue: write files, or remove some."""
        if self._writes:
            await self._write_files(self._next_write())
        else:
            await self._remove(self._next_removals())

    def _next_write(self) -> FileJob:
        job = self._writes.popleft()
        del self._queued[job.work]
        return job

    def _next_removals(self) -> list[FileJob]:
        found: list[FileJob] = []
        while self._removals and len(found) < self._batches.records:
            if found and self._removals[0].work.noun != found[0].work.noun:
                break
            found.append(self._removals.popleft())
            del self._queued[found[-1].work]
        return found

    def _done(self, job: FileJob) -> None:
        """Wake the tasks that wait for a job; work that was posted since is another job."""
        record_id = job.work.record_id
        left = self._jobs[record_id]
        left.remove(job)
        if not left:
            del self._jobs[record_id]
            if record_id not in self._failed:
                self._since.pop(record_id, None)
        job.attempted.set()

    @contextmanager
    def _trying(self, jobs: Sequence[FileJob]) -> Iterator[None]:
        """Do work inside, and note what failed.

        Log lines name the request that asked for the work, if it was only one.
        """
        asked = {job.asked for job in jobs}
        with trace.on_behalf_of(asked.pop() if len(asked) == 1 else None):
            try:
                yield
            except NotFound:
                self._failed.pop(jobs[0].work.record_id, None)
                log.debug("No file work is left for %s", jobs[0].work.record_id)
            except FleetError as error:
                log.warning("The files are behind the database: %s", error.message)
                if isinstance(error, Storage | Unavailable):
                    self._retry_later(*(Failure(job.work, error.message) for job in jobs))

    async def _write_files(self, first: FileJob) -> None:
        """Write a file, and those that follow soon; then mark their rows."""
        written: dict[FileJob, Path] = {}
        async with self.file_lock:
            until = trio.current_time() + self._mark_after_s
            job: FileJob | None = first
            try:
                while job is not None:
                    await self._try_write(job, written)
                    job = await self._another(written, until)
                if written:
                    await self._mark(written)
            finally:
                for each in written:
                    self._done(each)

    async def _try_write(self, job: FileJob, written: dict[FileJob, Path]) -> None:
        """Write a file and add it to ``written``; a job that cannot be written is done."""
        try:
            with self._trying([job]):
                if path := await self._write_file(job.work, written):
                    written[job] = path
        finally:
            if job not in written:
                self._done(job)

    async def _another(self, written: Mapping[FileJob, Path], until: float) -> FileJob | None:
        """Return the next file to write before rows are marked, None when it is time for that."""
        while len(written) < self._batches.records and trio.current_time() < until:
            if not written or any(job.awaited for job in written):
                return None
            if self._writes:
                return self._next_write()
            if self._removals:
                return None
            self._posted = trio.Event()
            with trio.move_on_at(until):
                await self._posted.wait()
        return None

    async def _mark(self, written: Mapping[FileJob, Path]) -> None:
        with self._trying(list(written)):
            await self._write(outbox.files_written, [job.work for job in written])
            for job, path in written.items():
                self._failed.pop(job.work.record_id, None)
                with trace.on_behalf_of(job.asked):
                    log.info("Written to %s", path)

    async def _write_file(self, work: Work, written: Mapping[FileJob, Path]) -> Path | None:
        """Write the file of a record; return its path, None when there is nothing to write.

        A file in ``written``, whose row is not marked yet, counts as there.
        """
        there = [job.work.record_id for job in written]
        backup = await self._read(outbox.backup, work.noun, work.record_id, there)
        data, owner, latest = backup.data, backup.owner_id, backup.latest
        if data is None:
            return None
        backups = self._backups[work.noun]

        def write() -> None:
            newest = latest_data(backups, owner, latest)
            backups.write(owner, work.record_id, data, latest.id, newest)

        try:
            await self.in_thread(write)
        except OSError as error:
            await self._not_written(work, error)
            return None
        return backups.path_of(owner, work.record_id)

    async def _not_written(self, work: Work, error: OSError) -> None:
        first = work.record_id not in self._failed
        self._retry_later(Failure(work, str(error)))
        log.warning("Failed to write %s file of %s: %s", work.noun, work.record_id, error)
        if first:  # only the first failure is announced
            await self._write(outbox.file_not_written, work.noun, work.record_id, str(error))

    async def _remove(self, jobs: list[FileJob]) -> None:
        try:
            with self._trying(jobs):
                async with self.file_lock:
                    noun = jobs[0].work.noun
                    await self._remove_files(noun, [job.work.record_id for job in jobs])
        finally:
            for job in jobs:
                self._done(job)

    async def _remove_files(self, noun: Noun, record_ids: list[str]) -> None:
        """Remove files, then the rows of those that are gone; the others keep their mark."""
        stuck: set[str] = set()
        gone: list[str] = []
        for removal in await self._read(removals, noun, record_ids):
            stuck |= await self._unlink(noun, removal)
            gone += [each for each in removal.record_ids if each not in stuck]
        if gone:
            await self._write(purge, noun, gone)
        for record_id in set(record_ids) - stuck:
            self._failed.pop(record_id, None)

    async def _unlink(self, noun: Noun, removal: Removal) -> set[str]:
        """Remove files of one owner; returns the records whose files could not be removed."""
        ids, latest, backups = removal.record_ids, removal.latest, self._backups[noun]

        def remove() -> dict[str, OSError]:
            newest = latest_data(backups, removal.owner_id, latest)
            return backups.remove(removal.owner_id, ids, latest.id, newest)

        try:
            stuck = await self.in_thread(remove)
        except OSError as trouble:
            stuck = dict.fromkeys(ids, trouble)
        if stuck:
            first, error = next(iter(stuck.items()))
            others = f" and of {len(stuck) - 1} more" if len(stuck) > 1 else ""
            log.warning("Failed to remove the file of %s%s: %s", first, others, error)
            self._retry_later(*(Failure(RemoveBackup(noun, i), str(e)) for i, e in stuck.items()))
        return set(stuck)

    @property
    def waited_s(self) -> float:
        """Return for how many seconds the oldest piece of work has waited to be done."""
        now = trio.current_time()
        return max((now - since for since in self._since.values()), default=0.0)

    @property
    def failures(self) -> list[Failure]:
        """Return the work that failed when it was last tried."""
        return list(self._failed.values())

    def failure(self, record_id: str) -> str | None:
        """Return why the file of a record could not be written or removed, None if it could."""
        failure = self._failed.get(record_id)
        return failure.why if failure else None

    def _retry_later(self, *failures: Failure) -> None:
        for failure in failures:
            self._failed[failure.work.record_id] = failure
        self._trouble.set()

    async def _retry(self) -> None:
        """Retry failed work after growing pauses, as long as there is any."""
        while True:
            await self._trouble.wait()
            pause = FIRST_PAUSE_S
            while self._failed:
                await trio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
                for failure in list(self._failed.values()):
                    with trace.on_behalf_of(failure.asked):
                        self.post(failure.work)
                await self.settled()
            self._trouble = trio.Event()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run file work on a thread, or inline where time is virtual; it is never abandoned."""
        if self._inline:
            await trio.lowlevel.checkpoint()
            return work()
        return await trio.to_thread.run_sync(work)
