"""How a path becomes a row: how often, for how long, beside which reference; knows no path."""

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from .fleet import Fleet, running
from .measure import Operation, alternate
from .references import bare_python
from .rows import Promise, Row, row

NOTHING = Promise()


class Bench:
    """Measures paths on one disk, thoroughly or as a quick try of the script itself."""

    def __init__(
        self, directory: Path, fsync: Operation, started: ExitStack, *, quick: bool
    ) -> None:
        self.directory = directory
        self.fsync = fsync
        self.quick = quick
        self.budget_s = 0.5 if quick else 8.0
        self._started = started

    @cached_property
    def fleet(self) -> Fleet:
        """Return the daemon of this run, started when the first path needs it."""
        return self._started.enter_context(running(self.directory))

    def often(self, count: int) -> int:
        """Return how many runs to make of a path that deserves ``count``."""
        return max(3, count // 50) if self.quick else count

    def beside_fsync(
        self,
        name: str,
        operation: Operation,
        *,
        runs: int,
        promise: Promise = NOTHING,
        settle: Operation | None = None,
        size_bytes: int | None = None,
    ) -> Row:
        """Measure a path in turn with an fsync."""
        samples, beside = alternate(
            operation, self.fsync, count=self.often(runs), budget_s=self.budget_s, settle=settle
        )
        return row(name, samples, beside, reference="fsync", promise=promise, size_bytes=size_bytes)

    def beside_python(
        self,
        name: str,
        operation: Operation,
        *,
        runs: int,
        promise: Promise = NOTHING,
        python: Operation = bare_python,
        reference: str = "python -c pass",
    ) -> Row:
        """Measure a whole process in turn with one that does nothing."""
        samples, beside = alternate(
            operation, python, count=self.often(runs), budget_s=self.budget_s
        )
        return row(name, samples, beside, reference=reference, promise=promise)
