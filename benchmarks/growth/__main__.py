"""``python -m benchmarks.growth``: what gets slower or larger when there is more, and what not."""

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from ..fleet import running
from ..measure import Operation, Samples, timed
from ..references import appending
from .listening import SubscriberCost, listening
from .page import Growth, text, write
from .process import Process
from .sorties import Mission, mission
from .stores import store

# Missions and events; the longest log is not in the store with the most missions, to separate both.
STORES = ((10, 1_000), (1_000, 1_000_000), (100_000, 100_000))
QUICK_STORES = ((20, 1_000), (200, 4_000))
SORTIES, QUICK_SORTIES = (10, 1_000, 10_000), (10, 100)
SUBSCRIBERS, QUICK_SUBSCRIBERS = (1, 50, 500), (1, 20)
# The defaults allow neither 500 subscribers nor missions of 10,000 sorties in one line.
LIMITS = "[limits]\nconnections = 600\nline_bytes = 16777216\n"


def main() -> int:
    """Measure and print, or write into the documents."""
    options = _options()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleetd-growth-", dir=options.directory) as name:
        directory = Path(name)
        with appending(directory) as fsync:
            stores = [
                store(directory, *size, fsync)
                for size in (QUICK_STORES if options.quick else STORES)
            ]
            missions, subscribers = _one_daemon(directory, fsync, quick=options.quick)
            beside = Samples([timed(fsync) for _ in range(200)])
    growth = Growth(
        stores=stores,
        missions=missions,
        subscribers=subscribers,
        fsync_ms=beside.p50,
        seconds=time.monotonic() - begun,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    if options.write:
        write(options.write, growth)
    print(text(growth))
    return 0


def _one_daemon(
    directory: Path, fsync: Operation, *, quick: bool
) -> tuple[list[Mission], list[SubscriberCost]]:
    """Measure growing numbers of missions and subscribers with one daemon for both."""
    place = directory / "one"
    place.mkdir()
    (place / "config.toml").write_text(LIMITS)
    with running(place) as fleet:
        process = Process(fleet.call("system.hello")["pid"])
        subscribers = [
            listening(fleet, process, number)
            for number in (QUICK_SUBSCRIBERS if quick else SUBSCRIBERS)
        ]
        missions = [
            mission(fleet, process, number, fsync)
            for number in (QUICK_SORTIES if quick else SORTIES)
        ]
    return missions, subscribers


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small stores and few of each, to try the script"
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIRECTORY", help="put tables and drawing into growth.md"
    )
    parser.add_argument(
        "--directory", type=Path, help="a directory on the disk to measure (default: temporary)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
