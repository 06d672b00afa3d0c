"""Worker thread: runs the jobs of trio tasks in batches, and a lone short one on the event loop.

A hop to a thread of trio's pool costs as much as an fsync. A thread of our own with a queue is
cheaper, and it sees all waiting jobs together, which makes group commit possible. When no other
job is at work, a hop gains nothing: the job runs on the event loop.
"""

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import outcome
import trio

from ..host import trace
from ..host.histogram import Histogram
from ..protocol.errors import Unavailable
from .api import Optimistic, WithoutTurn

log = logging.getLogger("fleetd")
T = TypeVar("T")
BATCH_MAX = 256
# This many jobs in a row must find no other job under way before the next one may run on the
# event loop. Otherwise many concurrent clients would run there: each is first for a moment.
CALM = 4
# Longer jobs go to the thread, because they would block the event loop.
SHORT_US = 2_000
# A kind of job that was slow once returns to the loop after it has been short for a while.
_FORGETS = 0.9


class JobFailed(Exception):
    """A job raised what no caller can handle, or its batch failed: a bug; nothing is kept."""


class Job:
    """A function to run, the task that waits for it, and how it ended.

    Jobs of one ``kind`` need about the same time and number of statements; None if unknown.
    In a store that has turns, an ``optimistic`` job may run before its turn, and one
    ``without_turn`` needs none.
    """

    __slots__ = (
        "_task",
        "effects",
        "fn",
        "kind",
        "optimistic",
        "origin",
        "result",
        "took_us",
        "without_turn",
    )

    def __init__(
        self, fn: Callable[..., Any], task: trio.lowlevel.Task | None, kind: Hashable = None
    ) -> None:
        self.fn = fn
        self.kind = kind
        self.optimistic = isinstance(fn, Optimistic)
        self.without_turn = isinstance(fn, WithoutTurn)
        self.took_us = 0
        self.result: outcome.Value[Any] | outcome.Error | None = None
        self.effects: list[Any] = []
        self.origin = trace.current()
        self._task = task

    def run(self, argument: Any) -> Any:
        """Call the function on behalf of the request that waits for it.

        Raises nothing but an Exception: SystemExit would end the thread, and then the daemon.
        """
        token, begun = trace.enter(self.origin), time.perf_counter_ns()
        try:
            return self.fn(argument)
        except Exception:
            raise
        except BaseException as error:
            raise JobFailed(f"a job raised {error!r}") from error
        finally:
            self.took_us = (time.perf_counter_ns() - begun) // 1_000
            trace.leave(token)

    def succeed(self, value: object) -> None:
        """Note the result."""
        self.result = outcome.Value(value)

    def fail(self, error: BaseException) -> None:
        """Note the failure."""
        self.result = outcome.Error(error if isinstance(error, Exception) else _ordinary(error))

    def abandon(self, error: BaseException) -> None:
        """Note that the batch failed before the job had a result; drop the job's effects."""
        if self.result is None:
            self.effects = []
            self.fail(_ordinary(error))

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self.result is None:
            raise AssertionError("a job ended without a result")
        return self.result.unwrap()

    def wake(self) -> None:
        """Resume the waiting task; called on the trio thread."""
        if self._task is not None and self.result is not None:
            trio.lowlevel.reschedule(self._task, self.result)


class WorkerThread:
    """Runs batches of jobs one after the other, on one thread, or inline for virtual time.

    ``work`` gives every job of a batch its result. ``finished`` runs on the trio thread for each
    batch, in order, usually after the waiting tasks have resumed: a reply need not wait for it,
    and it runs even if the client is gone. ``run_here`` gives one job its result on the event
    loop, or does nothing and returns False when it cannot now. Without it every job goes to the
    thread.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Job]], None],
        finished: Callable[[list[Job]], None],
        *,
        run_here: Callable[[Job], bool] | None = None,
        inline: bool = False,
    ) -> None:
        self._work = work
        self._finished = finished
        self._run_here = run_here
        self._at_work = threading.Lock()
        """Held while jobs run: the object they work on moves from thread to thread."""
        self._under_way = 0
        """How many jobs are queued or running, or ran on the loop in its current round."""
        self._were_here = 0
        """How many of these ran on the loop."""
        self._done: deque[list[Job]] = deque()
        """The batches for which ``finished`` has to run."""
        self._just_woken = False
        self._calm = 0
        """How many jobs in a row found no other job under way."""
        self._took_us: dict[Hashable, float] = {}
        """Recent duration of each kind of job, closer to the maximum than to the mean."""
        self._follower: trio.lowlevel.Task | None = None
        self._following = trio.CancelScope()
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
            trio.lowlevel.spawn_system_task(self._follow)

    async def submit(self, fn: Callable[..., T], kind: Hashable = None) -> T:
        """Run a job and return its result; a queued job is always awaited.

        A cancelled caller either never queued its job or learns its outcome: committed or not,
        never in between. Raises Unavailable once the thread is closed: no thread would answer.

        A job that ran on the event loop is no trio checkpoint: its caller continues immediately.
        The next job in the same round of the loop goes to the thread.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise Unavailable(
                "fleetd is shutting down.", hint="Try again after it has started.", retry=True
            )
        if self._thread is None:
            job = Job(fn, None, kind)
            self._run_batch([job])
            self._done.append([job])
            self.settle()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return cast("T", job.outcome())
        job = Job(fn, trio.lowlevel.current_task(), kind)
        if self._may_run_here(job) and self._try_here(job):
            return cast("T", job.outcome())
        self._under_way += 1
        self._queue.put(job)
        failed = trio.lowlevel.Abort.FAILED
        return cast("T", await trio.lowlevel.wait_task_rescheduled(lambda _: failed))

    def _may_run_here(self, job: Job) -> bool:
        """Return whether a job is short and no other job has been at work for a while."""
        self._calm = 0 if self._under_way else self._calm + 1
        return (
            self._calm > CALM
            and self._follower is not None
            # Nobody waits for the daemon's own jobs: they go to the thread.
            and job.origin is not None
            and self._took_us.get(job.kind, math.inf) < SHORT_US
        )

    def _try_here(self, job: Job) -> bool:
        """Run a job on the event loop; False when it has to go to the thread."""
        if self._run_here is None or not self._at_work.acquire(blocking=False):
            return False
        try:
            if not self._run_here(job):
                return False
        except BaseException as error:
            log.exception("A job on the event loop failed")
            job.abandon(error)
        finally:
            self._at_work.release()
        self._count([job])
        self._time([job])
        self._under_way += 1
        self._were_here += 1
        self._finish_soon([job])
        return True

    def _finish_soon(self, batch: list[Job]) -> None:
        """Schedule the step after a batch for the next round of the event loop."""
        self._done.append(batch)
        if self._follower is not None:
            trio.lowlevel.reschedule(self._follower)
            self._follower = None

    async def _follow(self) -> None:
        """Run the step after each batch, once the tasks that waited for it have resumed."""
        with self._following:
            while True:
                self._follower = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._give_up)
                self._under_way -= self._were_here
                self._were_here = 0
                if self._just_woken:  # they resume in this round, before or after this task
                    self._just_woken = False
                    await trio.lowlevel.checkpoint()
                self.settle()

    def settle(self) -> None:
        """Run the step after every finished batch now; call it on the trio thread.

        Callers need it when they wait for what that step begins, such as writing a file.
        """
        while self._done:
            batch = self._done.popleft()
            try:
                self._finished(batch)
            except Exception:
                log.exception("A step after a batch of %d jobs failed", len(batch))

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._follower = None
        return trio.lowlevel.Abort.SUCCEEDED

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for the batch that is at work."""
        return self._queue.qsize()

    def _run_batch(self, batch: list[Job]) -> None:
        """Give every job a result, whatever happens: a task waits for each."""
        try:
            self._count(batch)
            with self._at_work:
                self._work(batch)
            failure: BaseException = AssertionError("a job ended without a result")
        except BaseException as error:  # the thread must survive
            log.exception("A batch of %d jobs failed", len(batch))
            failure = error
        for job in batch:
            job.abandon(failure)
        self._time(batch)

    def _count(self, batch: list[Job]) -> None:
        self.batches.note(len(batch))
        self.most_waiting = max(self.most_waiting, len(batch) + self.waiting)

    def _time(self, batch: list[Job]) -> None:
        """Note how long each job took."""
        for job in batch:
            if job.kind is not None and job.origin is not None:
                before = self._took_us.get(job.kind, 0.0)
                self._took_us[job.kind] = max(job.took_us, before * _FORGETS)

    async def aclose(self) -> None:
        """Finish the queued jobs, accept no more and end the thread."""
        self._closed = True
        if self._thread is not None and self._thread.is_alive():
            self._queue.put(None)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._thread.join)
        self._following.cancel()
        self.settle()

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
            self._under_way -= len(batch)
            for job in batch:
                job.wake()
            self._just_woken = True
            self._finish_soon(batch)

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
    """Return a separate error for one job: other jobs may get the same cause."""
    failed = JobFailed(f"the batch of a job failed: {error!r}")
    failed.__cause__ = error
    return failed
