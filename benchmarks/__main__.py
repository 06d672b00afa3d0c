"""``python -m benchmarks``: every path with its promise, in one table, in a few minutes."""

import argparse
import json
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from . import options, performance, report
from .bench import Bench
from .groups import measured
from .machine import now, revision, this_machine
from .references import appending
from .rows import Run


def main() -> int:
    """Measure and print; return exit status 1 when a limit of the specification is exceeded."""
    chosen = _options()
    run = _saved(chosen.saved) if chosen.saved else _measure(chosen)
    if chosen.json:
        print(json.dumps(report.document(run), indent=2))
    else:
        print("\n".join([report.table(run.rows), "", *report.remarks(run)]))
    if chosen.write:
        performance.write(chosen.write, run)
    return 0 if all(row.within_spec for row in run.rows) else 1


def _options() -> argparse.Namespace:
    parser = options.parser("python -m benchmarks", __doc__ or "")
    parser.add_argument("--no-peers", action="store_true", help="measure fleetd alone")
    parser.add_argument(
        "--share",
        type=options.share,
        default=1,
        help="of the runs that each path deserves make this share (default: 1)",
    )
    parser.add_argument(
        "--saved", type=Path, metavar="FILE", help="measure nothing: read what --json printed"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the tables between the marks of a page"
    )
    return parser.parse_args()


def _measure(chosen: argparse.Namespace) -> Run:
    begun = time.monotonic()
    with ExitStack() as started:
        name = tempfile.TemporaryDirectory(prefix="fleetd-bench-", dir=chosen.directory)
        directory = Path(started.enter_context(name))
        machine, date, of = this_machine(directory), now(), revision()
        fsync = started.enter_context(appending(directory))
        bench = Bench(
            directory,
            fsync,
            started,
            seed=chosen.seed,
            share=chosen.share,
            quick=chosen.quick,
            peers=not chosen.no_peers,
        )
        rows = [row for group in chosen.only for row in measured(group, bench)]
    return Run(
        machine=machine,
        date=date,
        revision=of,
        command=shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        seconds=round(time.monotonic() - begun, 1),
        seed=chosen.seed,
        absent=bench.peers.absent,
        rows=rows,
    )


def _saved(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


if __name__ == "__main__":
    sys.exit(main())
