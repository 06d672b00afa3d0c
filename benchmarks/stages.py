"""``python -m benchmarks.stages``: the time of a request by stage, from its client and back.

The measured daemon, ``python -m benchmarks.stamped``, records when it reaches each stage. It has
the same clock as this process. The records cost it a few microseconds for each request.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from .fleet import Fleet, running
from .report import aligned
from .stamped import FILE, STAGES, Stamp
from .statements import Asked, Request, requests

WARM, RUNS = 10, 200
# Each recovery creates a checkpoint, and a mission keeps only some: the first ones are needed.
RECOVERIES = 30
HEAD = ("request, microseconds", *STAGES, "all", "fsync")
RIGHT = frozenset(range(1, len(HEAD)))
# These leave background work after the reply, which would run during the next request.
_LEAVES_WORK = ("checkpoint.create", "recovery.restore")


class Stages(msgspec.Struct, frozen=True):
    """The median of each stage of a request, of its total, and of an fsync in between, in us."""

    name: str
    stages_us: dict[str, float]
    whole_us: float
    fsync_us: float


class OverSocket(Asked):
    """A daemon for the benchmark."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.directory = fleet.directory

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result as plain data."""
        return self._fleet.call(method, **params)


class _Timed(msgspec.Struct):
    """The runs of a request: the begin and end of each, and the time of an fsync before it."""

    name: str
    runs: list[tuple[int, int]]
    fsyncs: list[int]


async def _time(fleet: Fleet, only: Sequence[str], runs: int) -> list[_Timed]:
    wanted = [
        request
        for request in await requests(OverSocket(fleet))
        if not only or request.name.startswith(tuple(only))
    ]
    file = os.open(fleet.directory / "fsync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        return [await _timed(fleet, request, runs, file) for request in wanted]
    finally:
        os.close(file)


async def _timed(fleet: Fleet, request: Request, runs: int, file: int) -> _Timed:
    found = _Timed(request.name, [], [])
    runs = min(runs, RECOVERIES) if request.name.startswith("recovery.") else runs
    for number in range(WARM + runs):
        await request.prepare()
        if request.name.startswith(_LEAVES_WORK):
            fleet.settle()
        begun = time.perf_counter_ns()
        os.write(file, bytes(4_096))
        os.fdatasync(file)
        synced = time.perf_counter_ns()
        await request.ask()
        if number >= WARM:
            found.runs.append((synced, time.perf_counter_ns()))
            found.fsyncs.append(synced - begun)
    return found


def measure(directory: Path, only: Sequence[str] = (), runs: int = RUNS) -> list[Stages]:
    """Measure the requests whose names begin with one of ``only``, or all."""
    stamps = directory / "stamps.json"
    with running(directory, module="benchmarks.stamped", **{FILE: str(stamps)}) as fleet:
        found = trio.run(_time, fleet, only, runs)
    notes = iter(msgspec.json.decode(stamps.read_bytes(), type=list[list[Stamp]]))
    return [_stages(timed, notes) for timed in found]


def _stages(timed: _Timed, notes: Iterator[list[Stamp]]) -> Stages:
    each: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for begun, ended in timed.runs:
        note = next(note for note in notes if begun < note[0][1] < ended)
        stamps: list[Stamp] = [(STAGES[0], begun), *note]
        times = dict.fromkeys(STAGES, 0)
        for (stage, since), (_, until) in itertools.pairwise([*stamps, ("", ended)]):
            times[stage] += until - since
        for stage, taken in times.items():
            each[stage].append(taken / 1_000)
    return Stages(
        timed.name,
        {stage: statistics.median(times) for stage, times in each.items()},
        statistics.median((ended - begun) / 1_000 for begun, ended in timed.runs),
        statistics.median(timed.fsyncs) / 1_000,
    )


def table(found: Sequence[Stages]) -> str:
    """Return the medians in aligned columns. Their sum may differ from the median of the total."""
    lines: list[tuple[str, ...]] = [HEAD]
    for each in found:
        times = (*each.stages_us.values(), each.whole_us, each.fsync_us)
        lines.append((each.name, *(f"{time:.0f}" for time in times)))
    return aligned(lines, RIGHT)


def main() -> int:
    """Measure and print; return exit status 1 when no request has such a name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stages", description="Time the stages of requests."
    )
    parser.add_argument("only", nargs="*", metavar="REQUEST", help="how its name begins")
    parser.add_argument("--runs", type=int, default=RUNS, help="how often (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetd-stages-") as name:
        found = measure(Path(name), chosen.only, chosen.runs)
    print(json.dumps(msgspec.to_builtins(found), indent=2) if chosen.json else table(found))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
