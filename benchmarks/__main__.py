"""``python -m benchmarks``: every path with its promise, in one table, in a few minutes."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from . import report
from .bench import Bench
from .groups import GROUPS, explained, named
from .measure import Operation, Samples, timed
from .references import appending, bare_python, overwriting
from .rows import Promise, Row, row


def main() -> int:
    """Measure and print; exit status 1 when a limit of the specification is passed."""
    options = _options()
    begun = time.monotonic()
    with ExitStack() as started:
        name = tempfile.TemporaryDirectory(prefix="fleetd-bench-", dir=options.directory)
        directory = Path(started.enter_context(name))
        fsync = started.enter_context(appending(directory))
        in_place = started.enter_context(overwriting(directory))
        bench = Bench(directory, fsync, started, quick=options.quick, peers=not options.no_peers)
        rows = [*_references(bench, in_place), *_rows(bench, options.only)]
    seconds = time.monotonic() - begun
    if options.json:
        print(json.dumps(report.document(rows, seconds, bench.peers.absent), indent=2))
    else:
        print(
            "\n".join([report.table(rows), "", *report.remarks(rows, seconds, bench.peers.absent)])
        )
    return 0 if all(row.within_spec for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"groups:\n{explained()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--only",
        type=_groups,
        metavar="GROUP[,GROUP]",
        default=list(GROUPS),
        help="measure these groups only",
    )
    parser.add_argument("--no-peers", action="store_true", help="measure fleetd alone")
    parser.add_argument(
        "--quick", action="store_true", help="a few runs of each path, to try the script"
    )
    parser.add_argument(
        "--directory", type=Path, help="a directory on the disk to measure (default: temporary)"
    )
    return parser.parse_args()


def _groups(text: str) -> list[str]:
    try:
        return list(named(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _references(bench: Bench, in_place: Operation) -> Iterator[Row]:
    """Measure the references themselves."""
    for name, operation, runs in (
        ("fsync: write+fdatasync of 4 KB", bench.fsync, 300),
        ("fsync in place: the same block over and over", in_place, 300),
    ):
        yield bench.beside_fsync(name, operation, runs=runs)
    starts = Samples([timed(bare_python) for _ in range(bench.often(20))])
    yield row("python -c pass", starts, starts, reference="python -c pass", promise=Promise())


def _rows(bench: Bench, groups: list[str]) -> Iterator[Row]:
    for name in groups:
        yield from GROUPS[name].measure(bench)
        bench.peers.close()


if __name__ == "__main__":
    sys.exit(main())
