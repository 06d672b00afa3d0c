"""The results for shared stores, as Markdown tables; must not measure anything."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..machine import Machine
from ..marks import marks, put
from ..measure import Samples
from .asking import Asked
from .crowd import Crowd
from .spread import HookCost, Spread
from .subscriber_latency import SubscriberLatency

NAME = "shared"
BEGIN, END = marks(NAME)
OWN, SHARED = "SQLite", "PostgreSQL"


class Distance(msgspec.Struct, frozen=True):
    """Calls of a daemon with a network delay to its server, each way, and their round trips."""

    delay_ms: float
    samples: dict[str, Samples]
    trips: dict[str, float]


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one run."""

    machine: Machine
    server: str
    date: str
    revision: str
    fsync_ms: float
    select_ms: float
    asked: list[Asked]
    crowds: list[Crowd]
    latencies: list[SubscriberLatency]
    distances: list[Distance]
    spreads: list[Spread]
    costs: list[HookCost]
    seconds: float


def write(page: Path, shared: Shared) -> None:
    """Put the tables between the marks of a page; raises ValueError when it has no marks."""
    put(page, NAME, text(shared))


def text(shared: Shared) -> str:
    """Return the tables."""
    of = shared.machine
    intro = (
        f"`python -m benchmarks.shared`, {shared.seconds:.0f} s. {shared.date}, revision "
        f"{shared.revision}: {of.cores} x {of.cpu}, {of.kernel}, {of.file_system}, Python "
        f"{of.python}, {shared.server}, SQLite {of.sqlite}, load {of.load:g} before. An fsync of "
        f"4 KB took {shared.fsync_ms:.2f} ms (median), a `SELECT 1` {shared.select_ms:.3f} ms of "
        "the server's CPU."
    )
    return "\n\n".join(
        [
            intro,
            "#### One client, on a store of its own and on a server",
            _asked(shared.asked),
            "#### Many clients, and 1 to 8 daemons",
            _crowds(shared.crowds),
            "#### From sending an event until somebody has it",
            _latencies(shared.latencies),
            "#### A server at a distance",
            _distances(shared.distances),
            "#### Hooks of many agents, and a server at a distance",
            _spreads(shared.spreads),
            "#### Hooks of each kind, of the same agents beside the server",
            _costs(shared.costs),
        ]
    )


def _times(samples: Samples) -> str:
    return f"{samples.p50:.2f} / {samples.p95:.2f} / {samples.p99:.2f}"


def _asked(asked: Sequence[Asked]) -> str:
    head = [
        "p50 / p95 / p99, ms",
        OWN,
        SHARED,
        f"{SHARED} / {OWN}",
        f"{OWN} / fsync",
        f"{SHARED} / fsync",
    ]
    rows = [
        [
            each.name,
            _times(each.samples[OWN]),
            _times(each.samples[SHARED]),
            f"{each.ratio(SHARED, OWN):.1f}",
            f"{each.ratio(OWN, 'fsync'):.1f}",
            f"{each.ratio(SHARED, 'fsync'):.1f}",
        ]
        for each in asked
    ]
    return table(head, rows)


def _crowds(crowds: Sequence[Crowd]) -> str:
    head = [
        "store",
        "what",
        "clients",
        "daemons",
        "per second",
        "p50 / p95 / p99, ms",
        "requests in a commit",
        "bytes of WAL for each",
    ]
    ordered = sorted(crowds, key=lambda each: (each.what, each.clients))
    rows = []
    own = {(each.what, each.clients) for each in crowds}
    for each in ordered:
        # A private store has one daemon, and it was measured first.
        first = (each.what, each.clients) in own
        own.discard((each.what, each.clients))
        rows.append(
            [
                OWN if first else SHARED,
                each.what,
                str(each.clients),
                str(each.daemons),
                f"{each.per_s:,.0f}",
                f"{each.p50_ms:.1f} / {each.p95_ms:.1f} / {each.p99_ms:.1f}",
                f"{each.batch:.1f}" if each.batch else "",
                f"{each.wal_bytes:,.0f}" if each.wal_bytes else "",
            ]
        )
    return table(head, rows, words=2)


def _latencies(latencies: Sequence[SubscriberLatency]) -> str:
    head = ["p50 / p95 / p99, ms", "until the subscriber has it", "until its sender is answered"]
    rows = [[each.where, _times(each.heard), _times(each.answered)] for each in latencies]
    return table(head, rows)


def _distances(distances: Sequence[Distance]) -> str:
    head = [
        "p50 (p95), ms",
        "round trips",
        *(f"{each.delay_ms:g} ms each way" for each in distances),
    ]
    rows = [
        [
            name,
            f"{distances[0].trips[name]:.1f}",
            *(f"{each.samples[name].p50:.1f} ({each.samples[name].p95:.1f})" for each in distances),
        ]
        for name in distances[0].samples
    ]
    return table(head, rows)


def _spreads(spreads: Sequence[Spread]) -> str:
    used = list(spreads[0].cpu)
    head = [
        "ms each way",
        "daemons",
        "agents",
        "hooks per second",
        "p50 / p95 / p99, ms",
        "hooks in a commit",
        "one alone, p50 (p95)",
        *(f"CPU of {name}, ms each" for name in used),
    ]
    rows = [
        [
            f"{each.delay_ms:g}",
            str(each.crowd.daemons),
            str(each.crowd.clients),
            f"{each.crowd.per_s:,.0f}",
            f"{each.crowd.p50_ms:.1f} / {each.crowd.p95_ms:.1f} / {each.crowd.p99_ms:.1f}",
            f"{each.crowd.batch:.1f}",
            f"{each.alone.p50:.1f} ({each.alone.p95:.1f})",
            *(f"{each.cpu[name]:.2f}" for name in used),
        ]
        for each in spreads
    ]
    return table(head, rows, words=0)


def _costs(costs: Sequence[HookCost]) -> str:
    used = list(costs[0].cpu)
    head = [
        "hooks",
        "per second",
        "hooks in a commit",
        *(f"CPU of {name}, ms each" for name in used),
        "bytes of WAL for each",
    ]
    rows = [
        [
            each.about,
            f"{each.crowd.per_s:,.0f}",
            f"{each.crowd.batch:.1f}",
            *(f"{each.cpu[name]:.2f}" for name in used),
            f"{each.crowd.wal_bytes:,.0f}",
        ]
        for each in costs
    ]
    return table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table whose first columns are text, and the others numbers."""
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))
