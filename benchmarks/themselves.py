"""The references as rows: the time of one fsync and one start of Python on this machine."""

from collections.abc import Iterator

from .bench import NOTHING_TO_DO, Bench
from .measure import Samples, timed
from .references import overwriting, starting
from .rows import Row, row


def references(bench: Bench) -> Iterator[Row]:
    """Measure the references themselves."""
    with overwriting(bench.directory) as in_place:
        for name, operation in (
            ("fsync: write+fdatasync of 4 KB", bench.fsync),
            ("fsync in place: the same block over and over", in_place),
        ):
            yield bench.beside_fsync(name, operation, runs=300)
    start = starting(bench.python, *NOTHING_TO_DO)
    starts = Samples([timed(start) for _ in range(bench.often(20))])
    yield row("python -c pass", starts, starts, reference="python -c pass")
