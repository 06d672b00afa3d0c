"""The import of an older store: all of it at start-up, in this process."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import trio

from fleetd.config import Config, Loaded, PathSettings
from fleetd.engine.jobs.legacy_import import import_legacy
from fleetd.engine.lifecycle import open_engine

from .bench import Bench
from .rows import Promise, Row

MAILBOXES = 20
EVENTS = 10_000


def importing(bench: Bench) -> Iterator[Row]:
    """Measure reading, checking, storing and archiving a squawk.json of 10,000 events."""
    yield trio.run(_measure, bench)


async def _measure(bench: Bench) -> Row:
    root = bench.directory / "past"
    places = PathSettings(database=str(root / "squawk.db"), checkpoints=str(root / "checkpoints"))
    loaded = Loaded(msgspec.structs.replace(Config(), paths=places), {}, root / "config.toml")
    async with open_engine(loaded) as engine:
        lay = partial(_lay, root / "squawk.json", count())
        lay()
        return await trio.to_thread.run_sync(
            lambda: bench.beside_fsync(
                "import of 10,000 legacy events",
                lambda: trio.from_thread.run(import_legacy, engine),
                runs=15,
                promise=Promise(p50_ms=100, spec_p95_ms=1_000),
                settle=lay,
            )
        )


def _lay(file: Path, numbers: Iterator[int]) -> None:
    """Write a file that was never imported before."""
    number = next(numbers)
    events = {
        f"specialist-{mailbox}": [
            _event(mailbox, each, number) for each in range(EVENTS // MAILBOXES)
        ]
        for mailbox in range(MAILBOXES)
    }
    cursors = {name: {"stream_id": name, "position": 100} for name in events}
    boxes = {name: {"id": name} for name in events}
    file.write_text(json.dumps({"mailboxes": boxes, "events": events, "cursors": cursors}))


def _event(mailbox: int, each: int, number: int) -> dict[str, Any]:
    return {
        "id": f"evt_{number}_{mailbox}_{each}",
        "type": "task_progress",
        "data": {"task": f"task-{each}", "percent": each % 100, "note": "Porting the parser"},
        "occurred_at": f"2025-01-05T{each // 60:02}:{each % 60:02}:{mailbox:02}.000Z",
    }
