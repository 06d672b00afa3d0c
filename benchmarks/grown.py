"""The cost of an old and large store: memory, and the list of many checkpoints."""

from collections.abc import Iterator

import msgspec

from . import compared
from .bench import Bench
from .fleet import Fleet, running
from .rows import Promise, Row
from .stored import fill_checkpoints, fill_events

EVENTS = 1_000_000
OVER = 1_000
PAGES = 50
# A mission keeps at most its newest 100 checkpoints.
MISSIONS, EACH, SORTIES = 10, 100, 1_000
LIMIT_BYTES = 80_000_000


def memory(bench: Bench) -> Iterator[Row]:
    """Let a daemon with a million events work, and measure its memory afterwards."""
    events = EVENTS // 100 if bench.quick else EVENTS
    directory = bench.directory / "events"
    fill_events(directory, OVER, events)
    with running(directory) as fleet:
        mission = fleet.mission(100)
        _use(fleet, mission)
        yield bench.beside_fsync(
            f"event.append after {events:,} events, and the daemon's memory",
            lambda: fleet.call("event.append", type="file_read", mission_id=mission, data={"n": 1}),
            runs=200,
            promise=Promise(size_bytes=LIMIT_BYTES),
            size=lambda: fleet.memory_bytes,
        )


def _use(fleet: Fleet, mission_id: str) -> None:
    """Do what users and agents do: list records, read the log, create checkpoints, recover."""
    position = 0
    for _ in range(PAGES):
        position = fleet.call("event.list", since=position)["position"]
    for _ in range(5):
        fleet.checkpoint(mission_id, wait=True)
    fleet.call("recovery.restore", mission_id=mission_id)
    fleet.call("checkpoint.list")
    fleet.call("system.status")
    fleet.settle()


def listing(bench: Bench) -> Iterator[Row]:
    """Measure a list of the newest of 1,000 checkpoints of 1,000 sorties each, and the newest."""
    each, sorties = (5, 50) if bench.quick else (EACH, SORTIES)
    directory = bench.directory / "listed"
    like = bench.fleet.taken(sorties)
    fill_checkpoints(directory, like, MISSIONS, each)
    with running(directory) as fleet:
        name = f"checkpoint.list, 10 of {MISSIONS * each:,} with {sorties:,} sorties each"

        def ask() -> object:
            return fleet.call("checkpoint.list", limit=10)

        yield bench.beside_fsync(name, ask, runs=300, promise=Promise(p50_ms=1, spec_p95_ms=50))
        state = msgspec.to_builtins(like)
        yield from compared.listing(bench, name, ask, state, missions=MISSIONS, each=each)
        yield from _latest(bench, fleet)


def _latest(bench: Bench, fleet: Fleet) -> Iterator[Row]:
    mission = fleet.mission(100)
    fleet.checkpoint(mission, wait=True)
    name = "checkpoint.latest, 100 sorties"

    def ask() -> object:
        return fleet.call("checkpoint.latest", mission_id=mission)

    yield bench.beside_fsync(name, ask, runs=200, promise=Promise(spec_p95_ms=50))
    yield from compared.latest(bench, name, ask, ask())
