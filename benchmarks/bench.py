"""Turns a path into a row: how often, how long, beside which reference; must not know any path."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from .fleet import Fleet, running
from .measure import AT_LEAST, Clock, Operation, alternate
from .peers.beside import Peers
from .references import bare_interpreter, starting
from .rows import NOTHING, Beside, Promise, Row, row

QUICKLY = 0.02
BUDGET_S = 8.0
NOTHING_TO_DO = ("-c", "pass")


class Bench:
    """Measures paths on one disk, thoroughly or as a quick test of the script itself.

    ``share`` is the fraction of a path's full number of runs that are made, up to 1. ``seed``
    decides the order in each turn.
    """

    def __init__(
        self,
        directory: Path,
        fsync: Operation,
        started: ExitStack,
        *,
        seed: int,
        share: float = 1,
        quick: bool = False,
        peers: bool = True,
    ) -> None:
        self.directory = directory
        self.fsync = fsync
        self.order = random.Random(seed)
        self.quick = quick
        self.share = QUICKLY if quick else share
        self.budget_s = max(0.5, BUDGET_S * self.share)
        self._started = started
        self.peers = Peers(directory, self.order, wanted=peers)
        started.callback(self.peers.close)

    @cached_property
    def fleet(self) -> Fleet:
        """Return the daemon of this run; the first path that needs it starts it."""
        return self._started.enter_context(running(self.directory))

    @cached_property
    def python(self) -> str:
        """Return an interpreter that starts like an installed one, without extra modules."""
        return bare_interpreter(self.directory / "bare")

    def often(self, count: int) -> int:
        """Return how many runs to make of a path whose full number is ``count``."""
        return max(AT_LEAST, round(count * self.share))

    def beside(
        self,
        name: str,
        operation: Operation,
        other: Operation,
        *,
        runs: int,
        reference: str,
        promise: Promise = NOTHING,
        settle: Operation | None = None,
        settle_other: Operation | None = None,
        size: Callable[[], int] | None = None,
        clock: Clock = time.perf_counter,
        peer: Beside | None = None,
    ) -> Row:
        """Measure a path in turn with another operation; call ``size`` at the end, in bytes."""
        samples, beside = alternate(
            operation,
            other,
            order=self.order,
            count=self.often(runs),
            budget_s=self.budget_s,
            settle=settle,
            settle_reference=settle_other,
            clock=clock,
        )
        return row(
            name,
            samples,
            beside,
            reference=reference,
            promise=promise,
            size_bytes=size() if size else None,
            peer=peer,
        )

    def beside_fsync(
        self,
        name: str,
        operation: Operation,
        *,
        runs: int,
        promise: Promise = NOTHING,
        settle: Operation | None = None,
        size: Callable[[], int] | None = None,
    ) -> Row:
        """Measure a path in turn with an fsync."""
        return self.beside(
            name,
            operation,
            self.fsync,
            runs=runs,
            reference="fsync",
            promise=promise,
            settle=settle,
            size=size,
        )

    def beside_python(
        self, name: str, operation: Operation, *, runs: int, promise: Promise = NOTHING
    ) -> Row:
        """Measure a whole process in turn with one that only starts Python."""
        return self.beside(
            name,
            operation,
            starting(self.python, *NOTHING_TO_DO),
            runs=runs,
            reference="python -c pass",
            promise=promise,
        )
