"""``python -m benchmarks``: every path with its promise, in one table, in a few minutes."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import crowd, hooks, inside, past, paths, pruning, report, silence
from .bench import Bench
from .fleet import running
from .measure import Operation, Samples, timed
from .references import appending, bare_python, overwriting
from .rows import Promise, Row, row


def main() -> int:
    """Measure and print; exit status 1 when a limit of the specification is passed."""
    options = _options()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleetd-bench-", dir=options.directory) as name:
        directory = Path(name)
        with appending(directory) as fsync, overwriting(directory) as in_place:
            bench = Bench(directory, fsync, quick=options.quick)
            rows = [*_references(bench, in_place), *_rows(bench)]
    seconds = time.monotonic() - begun
    if options.json:
        print(json.dumps(report.document(rows, seconds), indent=2))
    else:
        print("\n".join([report.table(rows), "", *report.remarks(rows, seconds)]))
    return 0 if all(row.within_spec for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--quick", action="store_true", help="a few runs of each path, to try the script"
    )
    parser.add_argument(
        "--directory", type=Path, help="a directory on the disk to measure (default: temporary)"
    )
    return parser.parse_args()


def _references(bench: Bench, in_place: Operation) -> Iterator[Row]:
    """Measure the references themselves."""
    for name, operation, runs in (
        ("fsync: write+fdatasync of 4 KB", bench.fsync, 300),
        ("fsync in place: the same block over and over", in_place, 300),
    ):
        yield bench.beside_fsync(name, operation, runs=runs)
    starts = Samples([timed(bare_python) for _ in range(bench.often(20))])
    yield row("python -c pass", starts, starts, reference="python -c pass", promise=Promise())


def _rows(bench: Bench) -> Iterator[Row]:
    yield from crowd.in_the_store(bench)
    yield from inside.progress(bench)
    yield from past.importing(bench)
    yield from silence.scanning(bench)
    with running(bench.directory) as fleet:
        for row in paths.small_requests(bench, fleet):
            yield row
            if row.name.startswith("event.append"):
                yield crowd.over_the_socket(bench, fleet, row)
        yield from paths.checkpoints(bench, fleet)
        yield from paths.snapshots(bench, fleet)
        yield from paths.recovery(bench, fleet)
        if shutil.which("git"):
            yield from paths.recovery_with_git(bench, fleet)
        yield from paths.listing(bench, fleet)
        yield from inside.backup_files(bench, fleet)
        yield from paths.command_line(bench, fleet)
        yield from hooks.whole_processes(bench, fleet)
        yield from pruning.pruning(bench, fleet)


if __name__ == "__main__":
    sys.exit(main())
