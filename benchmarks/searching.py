"""The cost of a search in a log of a million events with text."""

from collections.abc import Callable, Iterator
from typing import Any

from .bench import Bench
from .fleet import Fleet, running
from .rows import Promise, Row
from .stored import fill_searchable, path, word

EVENTS, OVER, SEED = 1_000_000, 1_000, 25
MOST_MS = 100


def searching(bench: Bench) -> Iterator[Row]:
    """Measure searches for common and rare words, for a part of a path, and for one agent."""
    events = EVENTS // 100 if bench.quick else EVENTS
    directory = bench.directory / "searched"
    fill_searchable(directory, OVER, events, SEED)
    asked: dict[str, dict[str, Any]] = {
        "a common word": {"query": word(1)},
        "a rare word": {"query": word(19_000)},
        "two common words and a rare one": {"query": f"{word(1)} {word(2)} {word(900)}"},
        "the beginning of a word": {"query": f"{word(7)[:3]}*"},
        "a word, of one agent": {"query": word(3), "agent_id": "specialist-7"},
        "a word, beside a path": {"query": word(1), "path": "module_2999"},
        "a part of a path": {"path": path(1_234)[-18:]},
    }
    with running(directory) as fleet:
        for what, params in asked.items():
            yield bench.beside_fsync(
                f"search.query of {events:,} events: {what}",
                _asking(fleet, params),
                runs=50,
                promise=Promise(p95_ms=MOST_MS),
            )


def _asking(fleet: Fleet, params: dict[str, Any]) -> Callable[[], object]:
    return lambda: fleet.call("search.query", **params)
