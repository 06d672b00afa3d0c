"""The results as Markdown tables and as a drawing; must not measure anything."""

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..marks import marks, put
from .asking import Cost
from .listening import SubscriberCost
from .plot import Line, Panel, svg
from .sorties import Mission
from .stores import Store

NAME = "measured"
BEGIN, END = marks(NAME)
DRAWN = ("event.append", "checkpoint.create, 4 sorties", "recovery.restore, 4 sorties")
ASKED = ("mission.list, 10", "system.status", "hook.deliver")


class Growth(msgspec.Struct, frozen=True):
    """All results of one run."""

    stores: list[Store]
    missions: list[Mission]
    subscribers: list[SubscriberCost]
    fsync_ms: float
    seconds: float
    date: str


def write(directory: Path, growth: Growth) -> None:
    """Put the tables between the marks of ``growth.md`` and the drawing beside it."""
    put(directory / "growth.md", NAME, text(growth))
    (directory / "growth.svg").write_text(drawing(growth), "utf-8")


def text(growth: Growth) -> str:
    """Return the tables."""
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    intro = (
        f"{growth.date}, {machine}; `python -m benchmarks.growth --write docs`, "
        f"{growth.seconds:.0f} s. An fsync took {growth.fsync_ms:.2f} ms (median)."
    )
    return "\n\n".join(
        [
            intro,
            "### A store of so many missions and events",
            _stores(growth.stores),
            _asked(growth.stores),
            "### A mission of so many sorties",
            _missions(growth.missions),
            "### Subscribers",
            _subscribers(growth.subscribers),
        ]
    )


def _stores(stores: Sequence[Store]) -> str:
    head = ["", *(f"{each.missions:,} missions, {each.events:,} events" for each in stores)]
    rows = [
        ["database, MB", *(f"{each.database_mb:.1f}" for each in stores)],
        ["start until it answers, ms", *(f"{each.start_ms:.0f}" for each in stores)],
        [
            "processor time until it rests, ms",
            *(f"{each.start_cpu_ms:.0f}" for each in stores),
        ],
        ["memory after the start, MB", *(f"{each.start_mb:.1f}" for each in stores)],
        ["memory after use, MB", *(f"{each.used_mb:.1f}" for each in stores)],
        [
            "memory after 5 subscribers read the whole log, MB",
            *(f"{each.read_mb:.1f}" for each in stores),
        ],
    ]
    return _table(head, rows)


def _asked(stores: Sequence[Store]) -> str:
    head = ["p50 ms (p95), x fsync", *(f"{s.missions:,} / {s.events:,}" for s in stores), "CPU x"]
    rows = [
        [name, *(_cell(store.costs[name]) for store in stores), _factor(stores, name)]
        for name in stores[0].costs
    ]
    return _table(head, rows)


def _factor(stores: Sequence[Store], name: str) -> str:
    asked = [store.costs[name] for store in stores]
    first, *others = [each.cpu_us / each.hello_us for each in asked]
    return f"{max(others) / first:.1f}"


def _cell(cost: Cost) -> str:
    return f"{cost.p50_ms:.2f} ({cost.p95_ms:.2f}), {cost.p50_ms / cost.fsync_ms:.1f}"


def _worked(cost: Cost) -> str:
    return f"{cost.p50_ms:.2f} ({cost.p95_ms:.2f}), {cost.cpu_us / 1_000:.2f}"


def _missions(missions: Sequence[Mission]) -> str:
    head = ["p50 ms (p95), CPU ms", *(f"{each.sorties:,} sorties" for each in missions)]
    rows = [[name, *(_worked(each.costs[name]) for each in missions)] for name in missions[0].costs]
    rows.append(["characters of the prompt", *(f"{each.prompt_chars:,}" for each in missions)])
    return _table(head, rows)


def _subscribers(subscribers: Sequence[SubscriberCost]) -> str:
    head = ["", *(f"{each.subscribers:,}" for each in subscribers)]
    rows = [
        [
            "until all have an event, ms",
            *(f"{h.all_ms:.2f} ({h.all_p95_ms:.2f})" for h in subscribers),
        ],
        [
            "whoever appends it waits, ms",
            *(f"{h.append_ms:.2f} ({h.append_p95_ms:.2f})" for h in subscribers),
        ],
        ["processor time of a delivery, us", *(f"{h.delivery_us:.0f}" for h in subscribers)],
        ["memory of a subscriber, KB", *(f"{h.each_kb:.0f}" for h in subscribers)],
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def drawing(growth: Growth) -> str:
    """Return the drawing of the most important results."""
    by_missions = sorted(growth.stores, key=lambda store: store.missions)
    by_events = sorted(growth.stores, key=lambda store: store.events)
    return svg(
        [
            Panel(
                "The store grows: time of a call",
                "missions",
                "ms",
                [_of(by_missions, name) for name in (*DRAWN, *ASKED)],
            ),
            Panel(
                "The store grows: memory of the daemon",
                "events",
                "MB",
                [
                    Line("after the start", [(s.events, s.start_mb) for s in by_events]),
                    Line("after use", [(s.events, s.used_mb) for s in by_events]),
                    Line("after reading the log", [(s.events, s.read_mb) for s in by_events]),
                ],
            ),
            Panel(
                "A mission grows: time of a call",
                "sorties",
                "ms",
                [
                    Line(name, [(m.sorties, m.costs[name].p50_ms) for m in growth.missions])
                    for name in ("sortie.progress", "checkpoint.create", "recovery.restore")
                ],
            ),
            Panel(
                "An event for many",
                "subscribers",
                "ms",
                [
                    Line(
                        "until all have it", [(h.subscribers, h.all_ms) for h in growth.subscribers]
                    ),
                    Line(
                        "event.append", [(h.subscribers, h.append_ms) for h in growth.subscribers]
                    ),
                ],
            ),
        ]
    )


def _of(stores: Sequence[Store], name: str) -> Line:
    return Line(name, [(store.missions, store.costs[name].p50_ms) for store in stores])
