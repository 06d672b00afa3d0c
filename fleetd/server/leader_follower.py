"""Leader/followers: tasks that take turns at waiting for work.

A task that is made for every request, and begins a round of the scheduler after it was read, costs
more than most requests. Here whoever has received a piece of work lets the next one wait for more,
and does it himself, at once.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class LeaderFollowers(Generic[T]):
    """Calls ``receive`` in one task at a time, and ``work`` in the task that received.

    There are as many tasks as pieces of work under way, and one that waits for more. Work begins
    in the order in which it was received.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        receive: Callable[[], Awaitable[T | None]],
        work: Callable[[T], Awaitable[None]],
    ) -> None:
        self._nursery = nursery
        self._receive = receive
        self._work = work
        self._next: trio.lowlevel.Task | None = None
        self._over = False

    async def run(self) -> None:
        """Take turns until ``receive`` has returned None; the nursery holds who still works."""
        while not self._over:
            piece = await self._receive()
            self._over = piece is None
            self._hand_over()
            if piece is None:
                return
            await self._work(piece)
            del piece  # while a turn is waited for, it is no burden
            if self._over or self._next is not None:
                return
            await self._wait()

    def _hand_over(self) -> None:
        """Give the turn to whoever waits for it; he begins when this task has to wait."""
        if self._next is not None:
            trio.lowlevel.reschedule(self._next)
            self._next = None
        elif not self._over:
            self._nursery.start_soon(self.run)

    async def _wait(self) -> None:
        self._next = trio.lowlevel.current_task()

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._next = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)
