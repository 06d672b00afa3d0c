"""Stores of growing numbers of missions and events: start, requests, reading everything."""

import tempfile
import time
from pathlib import Path

import msgspec

from ..fleet import running
from ..measure import Operation
from .asking import Cost, cost, questions
from .filling import fill
from .listening import Audience
from .process import Process

READERS = 5


class Store(msgspec.Struct, frozen=True):
    """The costs of a daemon on a store of a given size.

    ``start_ms`` is the time until it answers, ``start_cpu_ms`` its CPU time until it is idle,
    ``read_mb`` its memory after ``READERS`` subscribers have read the log from its beginning.
    """

    missions: int
    events: int
    database_mb: float
    start_ms: float
    start_cpu_ms: float
    start_mb: float
    used_mb: float
    read_mb: float
    costs: dict[str, Cost]


def store(directory: Path, missions: int, events: int, fsync: Operation) -> Store:
    """Fill a store, run a daemon on it, and measure; reading everything comes last."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        place = Path(name)
        fill(place, missions, events)
        size = (place / "squawk.db").stat().st_size
        begun = time.perf_counter()
        with running(place) as fleet:
            start_ms = (time.perf_counter() - begun) * 1_000
            process = Process(fleet.call("system.hello")["pid"])
            process.rest()
            start_cpu_ms, start_mb = process.cpu_ms(), process.rss_mb()
            asked = questions(fleet, events)
            costs = {name: cost(fleet, process, ask, fsync) for name, ask in asked}
            used_mb = process.rss_mb()
            with Audience(fleet.socket, READERS, since=0) as audience:
                audience.wait_for_lines(events)
            return Store(
                missions=missions,
                events=events,
                database_mb=size / 1e6,
                start_ms=start_ms,
                start_cpu_ms=start_cpu_ms,
                start_mb=start_mb,
                used_mb=used_mb,
                read_mb=process.rss_mb(),
                costs=costs,
            )
