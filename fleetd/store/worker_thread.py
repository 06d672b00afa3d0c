"""Worker thread: runs the jobs of trio tasks in batches.

One hop to a thread of trio's pool costs as much as an fsync; a thread of our own with a queue is
cheaper, and it sees everything that waits at once, which is what makes group commit possible.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import outcome
import trio

from ..host import trace
from ..host.histogram import Histogram
from ..protocol.errors import Unavailable

log = logging.getLogger("fleetd")
T = TypeVar("T")
BATCH_MAX = 256


class JobFailed(Exception):
    """A job met what no caller can handle, or its batch did; a bug, and nothing of it is kept."""


class Job:
    """A function to run, the task that waits for it, and how it ended."""

    __slots__ = ("_task", "effects", "fn", "origin", "result")

    def __init__(self, fn: Callable[..., Any], task: trio.lowlevel.Task | None) -> None:
        self.fn = fn
        self.result: outcome.Value[Any] | outcome.Error | None = None
        self.effects: list[Any] = []
        self.origin = trace.current()
        self._task = task

    def run(self, argument: Any) -> Any:
        """Call the function on behalf of whoever waits for it.

        Raises nothing but an Exception: SystemExit would end the thread, and then the daemon.
        """
        token = trace.enter(self.origin)
        try:
            return self.fn(argument)
        except Exception:
            raise
        except BaseException as error:
            raise JobFailed(f"a job raised {error!r}") from error
        finally:
            trace.leave(token)

    def succeed(self, value: object) -> None:
        """Note the result."""
        self.result = outcome.Value(value)

    def fail(self, error: BaseException) -> None:
        """Note the failure."""
        self.result = outcome.Error(error if isinstance(error, Exception) else _ordinary(error))

    def abandon(self, error: BaseException) -> None:
        """Note that a batch failed before the job had a result; what it came to is void."""
        if self.result is None:
            self.effects = []
            self.fail(_ordinary(error))

    def wake(self) -> None:
        """Let the waiting task go on; called on the trio thread."""
        if self._task is not None and self.result is not None:
            trio.lowlevel.reschedule(self._task, self.result)


class WorkerThread:
    """Runs batches of jobs one after the other, on one thread, or inline for virtual time.

    ``work`` gives every job of a batch its result. ``finished`` runs on the trio thread before
    the waiting tasks go on.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Job]], None],
        finished: Callable[[list[Job]], None],
        *,
        inline: bool = False,
    ) -> None:
        self._work = work
        self._finished = finished
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = None if inline else threading.Thread(target=self._run, name=name)
        self._token: trio.lowlevel.TrioToken | None = None
        self._closed = False
        self.batches = Histogram()
        """How many jobs each batch had."""
        self.most_waiting = 0

    def start(self) -> None:
        """Start the thread; call it inside trio."""
        self._token = trio.lowlevel.current_trio_token()
        if self._thread is not None:
            self._thread.start()

    async def submit(self, fn: Callable[..., T]) -> T:
        """Run a job and return its result. Once it is queued, it is waited for, come what may.

        A cancelled caller either never queued its job or learns its outcome: committed or not,
        never in between. Raises Unavailable once the thread is closed: nobody would answer.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise Unavailable(
                "fleetd is shutting down.", hint="Try again after it has started.", retry=True
            )
        if self._thread is None:
            job = Job(fn, None)
            self._run_batch([job])
            self._finish([job])
            await trio.lowlevel.cancel_shielded_checkpoint()
            if job.result is None:
                raise AssertionError("a job ended without a result")
            return cast("T", job.result.unwrap())
        self._queue.put(Job(fn, trio.lowlevel.current_task()))
        failed = trio.lowlevel.Abort.FAILED
        return cast("T", await trio.lowlevel.wait_task_rescheduled(lambda _: failed))

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for the batch that is at work."""
        return self._queue.qsize()

    def _run_batch(self, batch: list[Job]) -> None:
        """Give every job a result, whatever happens: somebody waits for each."""
        try:
            self.batches.note(len(batch))
            self.most_waiting = max(self.most_waiting, len(batch) + self.waiting)
            self._work(batch)
            failure: BaseException = AssertionError("a job ended without a result")
        except BaseException as error:  # the thread has to live on
            log.exception("A batch of %d jobs failed", len(batch))
            failure = error
        for job in batch:
            job.abandon(failure)

    def _finish(self, batch: list[Job]) -> None:
        """Do what follows a batch; its jobs are done, whether that works or not."""
        try:
            self._finished(batch)
        except Exception:
            log.exception("A step after a batch of %d jobs failed", len(batch))

    async def aclose(self) -> None:
        """Finish what is queued, take nothing more and end the thread."""
        self._closed = True
        if self._thread is not None and self._thread.is_alive():
            self._queue.put(None)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            if batch:
                self._run_batch(batch)
                self._report(batch)

    def _next_batch(self) -> tuple[list[Job], bool]:
        first = self._queue.get()
        if first is None:
            return [], True
        batch = [first]
        while len(batch) < BATCH_MAX and not self._queue.empty():
            job = self._queue.get()
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _report(self, batch: list[Job]) -> None:
        def deliver() -> None:
            self._finish(batch)
            for job in batch:
                job.wake()

        if self._token is None:
            raise AssertionError("a worker thread must be started inside trio")
        self._token.run_sync_soon(deliver)


def pass_on_effects(on_commit: Callable[[list[Any]], None], jobs: list[Job]) -> None:
    """Hand over the effects of jobs that were committed, each on behalf of its request."""
    for job in jobs:
        if job.effects:
            with trace.on_behalf_of(job.origin):
                on_commit(job.effects)


def _ordinary(error: BaseException) -> JobFailed:
    """Return an error of its own for one job: others may be given the same cause."""
    failed = JobFailed(f"the batch of a job failed: {error!r}")
    failed.__cause__ = error
    return failed
