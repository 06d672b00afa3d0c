"""Counts the steps that tasks of a trio program take, and does something right after one of them.

A task's step ends where it waits. So every place at which a task can be cancelled or others can run
is the end of a step.
"""

from collections.abc import Callable

import trio


class StepCounter(trio.abc.Instrument):
    """Counts steps while it is armed; the task that armed it is outside and not counted."""

    def __init__(self) -> None:
        self.taken = 0
        self._at: int | None = None
        self._then: Callable[[], object] | None = None
        self._outside: trio.lowlevel.Task | None = None

    def arm(self, at: int | None, then: Callable[[], object] | None) -> None:
        """Start to count, and call ``then`` after step ``at``."""
        self.taken, self._at, self._then = 0, at, then
        self._outside = trio.lowlevel.current_task()

    def disarm(self) -> int:
        """Stop counting and return how many steps there were."""
        self._outside = None
        return self.taken

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        if self._outside is None or task is self._outside:
            return
        self.taken += 1
        if self.taken == self._at and self._then is not None:
            self._then()


def tasks_of(nursery: trio.Nursery) -> int:
    """Return how many tasks run in a nursery, with those inside them."""
    return sum(
        1 + sum(tasks_of(inner) for inner in task.child_nurseries) for task in nursery.child_tasks
    )
