"""``python -m benchmarks.shared``: one store for several machines, beside one of one's own.

Daemons, server and clients share this computer and its disk; the server is as it comes (fsync,
synchronous_commit and full_page_writes are on). It takes about seven minutes.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.support.network import Network
from tests.support.postgres_server import LocalPostgres

from ..fleet import Fleet
from ..machine import now, revision, this_machine
from ..measure import Operation, Samples, timed
from ..references import appending
from .asking import in_turn, questions
from .crowd import Crowd, crowd
from .daemons import alone, far, sharing
from .page import Distance, Shared, text, write
from .spread import ALONE, HookCost, Spread, hook_costs, select_ms, spread
from .subscriber_latency import SubscriberLatency, measure_latency

RUNS, SECONDS, EVENTS = 60, 1.2, 80
SPREAD_S = 4.0
WHAT = ("event.append", "hook.deliver", "mission.get")
DAEMONS, CLIENTS = (1, 2, 4, 8), (8, 64)
# The delays of a network, in ms each way: the same building, the same region.
DELAYS_MS = (0.0, 0.5, 2.0)
FAR = ("event.append", "sortie.progress", "lock.acquire, lock.release", "hook.deliver")
READ_FAR = ("mission.get",)
COUNTED = 20


def main() -> int:
    """Measure and print, or write into a page."""
    options = _options()
    shared = _saved(options.saved) if options.saved else _measure(options)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(shared))
    if options.write:
        write(options.write, shared)
    print(text(shared))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each, to try the script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured")
    parser.add_argument(
        "--saved", type=Path, metavar="FILE", help="measure nothing: read what --json kept"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the tables between the page's marks"
    )
    return parser.parse_args()


def _saved(path: Path) -> Shared:
    return msgspec.json.decode(path.read_bytes(), type=Shared)


def _measure(options: argparse.Namespace) -> Shared:
    begun, quick = time.monotonic(), options.quick
    # The server's cluster is below /tmp, so fsync is measured there too.
    with tempfile.TemporaryDirectory(prefix="fleetd-shared-", dir="/tmp") as name:
        place = Path(name)
        machine = this_machine(place)
        with appending(place) as fsync, LocalPostgres(durable=True) as server:
            version = server.sql("SHOW server_version")[0]["server_version"].split()[0]
            with alone(place) as own, sharing(place, server, 1) as [one]:
                runs = 5 if quick else RUNS
                asked = in_turn({"SQLite": own, "PostgreSQL": one}, fsync, runs)
                crowds = _crowds(place, server, own, quick=quick)
                latencies = _latencies(place, server, own, quick=quick)
            distances = _distances(place, server, fsync, quick=quick)
            spreads = _spreads(place, server, quick=quick)
            costs = _costs(place, server, quick=quick)
            select = select_ms(server)
            beside = Samples([timed(fsync) for _ in range(200)])
    return Shared(
        machine=machine,
        server=f"PostgreSQL {version}",
        date=now(),
        revision=revision(),
        fsync_ms=beside.p50,
        select_ms=select,
        asked=asked,
        crowds=crowds,
        latencies=latencies,
        distances=distances,
        spreads=spreads,
        costs=costs,
        seconds=round(time.monotonic() - begun, 1),
    )


def _crowds(place: Path, server: LocalPostgres, own: Fleet, *, quick: bool) -> list[Crowd]:
    seconds = 0.3 if quick else SECONDS
    clients = (2,) if quick else CLIENTS

    def ask(fleets: list[Fleet], server: LocalPostgres | None) -> Iterator[Crowd]:
        for what, number in itertools.product(WHAT, clients):
            yield crowd(what, fleets, number, seconds, server=server)

    found = list(ask([own], None))
    for number in (1, 2) if quick else DAEMONS:
        with sharing(place, server, number) as fleets:
            found.extend(ask(fleets, server))
    return found


def _latencies(
    place: Path, server: LocalPostgres, own: Fleet, *, quick: bool
) -> list[SubscriberLatency]:
    events = 5 if quick else EVENTS
    found = [measure_latency("SQLite, the same machine", own, own, events)]
    with sharing(place, server, 2) as [here, there]:
        found.append(measure_latency("PostgreSQL, the same machine", here, here, events))
        found.append(measure_latency("PostgreSQL, another machine", here, there, events))
    return found


def _distances(
    place: Path, server: LocalPostgres, fsync: Operation, *, quick: bool
) -> list[Distance]:
    found = []
    names = (*FAR, *READ_FAR)
    for delay in DELAYS_MS[:2] if quick else DELAYS_MS:
        with far(place, server, delay) as ([fleet], network):
            asked = in_turn({"PostgreSQL": fleet}, fsync, 5 if quick else COUNTED, names)
            trips = {}
            if not delay:
                trips = _trips(fleet, network, names)
            samples = {each.name: each.samples["PostgreSQL"] for each in asked}
            found.append(Distance(delay, samples, trips))
    return found


def _spreads(place: Path, server: LocalPostgres, *, quick: bool) -> list[Spread]:
    found = []
    number, clients, seconds, runs = (2, 4, 0.3, 3) if quick else (8, 64, SPREAD_S, ALONE)
    for delay in DELAYS_MS[:2] if quick else DELAYS_MS:
        with far(place, server, delay, number) as (fleets, network):
            found.append(
                spread(fleets, server, network, delay, clients=clients, seconds=seconds, runs=runs)
            )
    return found


def _costs(place: Path, server: LocalPostgres, *, quick: bool) -> list[HookCost]:
    number, clients, seconds = (2, 4, 0.3) if quick else (8, 64, SPREAD_S)
    with sharing(place, server, number) as fleets:
        return hook_costs(fleets, server, clients=clients, seconds=seconds)


def _trips(fleet: Fleet, network: Network, names: tuple[str, ...]) -> dict[str, float]:
    """Count the messages from the daemon to the server for each call."""
    found = {}
    for name, question in questions(fleet).items():
        if name in names:
            question()
            before = network.asked()
            for _ in range(COUNTED):
                question()
            found[name] = (network.asked() - before) / COUNTED
    return found


if __name__ == "__main__":
    sys.exit(main())
