"""Unchanged code, measured as if it were a path: its figures are the noise of a run."""

import hashlib
from collections.abc import Iterator

from .bench import Bench
from .measure import Operation
from .rows import Row

# With the fsync it takes about as long as a durable event.
ROUNDS = 300
TEXT = b"what a request computes, more or less" * 10


def unchanged(bench: Bench) -> Iterator[Row]:
    """Measure a computation and an fsync beside an fsync, and beside themselves."""
    name = "control: a computation and an fsync"
    work = _work(bench.fsync)
    yield bench.beside_fsync(name, work, runs=300)
    yield bench.beside(name, work, work, runs=300, reference="itself")


def _work(fsync: Operation) -> Operation:
    def work() -> None:
        for number in range(ROUNDS):
            hashlib.sha256(TEXT + number.to_bytes(4, "big")).hexdigest()
        fsync()

    return work
