"""``python -m benchmarks.stamped``: a daemon that records when each request reaches each stage.

At its end it writes its records into the file that ``BENCHMARK_STAMPS`` names: a list of stages
with times in ns for each request. Only one request may be in flight at a time.
"""

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fleetd.__main__ import main
from fleetd.engine.engine import Engine
from fleetd.server.connection import ClientConnection
from fleetd.store.sqlite.group_commit import SqliteCommitter
from fleetd.store.sqlite.store import SqliteStore

FILE = "BENCHMARK_STAMPS"
TO_DAEMON, PARSE, PREPARE, QUEUE, READ = "to daemon", "parse", "prepare", "queue", "read"
RULE, COMMIT, REPLY, TO_CLIENT = "rule", "COMMIT", "reply", "to client"
STAGES = (TO_DAEMON, PARSE, PREPARE, READ, QUEUE, RULE, COMMIT, REPLY, TO_CLIENT)
Stamp = tuple[str, int]


class Stamps:
    """The records of the request in flight, and those of all before it."""

    def __init__(self) -> None:
        self._requests: list[list[Stamp]] = []
        self._now: list[Stamp] | None = None

    def begin(self, stage: str) -> None:
        """Record the first stage of a request."""
        self._now = []
        self._requests.append(self._now)
        self.note(stage)

    def note(self, stage: str) -> None:
        """Record the begin of a stage; work after a reply belongs to no request."""
        if self._now is not None:
            self._now.append((stage, time.perf_counter_ns()))
        if stage == TO_CLIENT:
            self._now = None

    def before(self, owner: type, name: str, stage: str, *, first: bool = False) -> None:
        """Make a method of a class record a stage before it runs."""
        wrapped = getattr(owner, name)
        note = self.begin if first else self.note

        def noting(*given: Any, **more: Any) -> Any:
            note(stage)
            return wrapped(*given, **more)

        setattr(owner, name, noting)

    def around(self, owner: type, name: str, stage: str, then: str) -> None:
        """Make an async method record a stage before it runs, and another one after that."""
        wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def noting(*given: Any, **more: Any) -> Any:
            self.note(stage)
            try:
                return await wrapped(*given, **more)
            finally:
                self.note(then)

        setattr(owner, name, noting)

    def write(self, path: Path) -> None:
        """Write all records."""
        path.write_text(json.dumps(self._requests))


def stamped() -> Stamps:
    """Make this process record the stages of its requests."""
    stamps = Stamps()
    stamps.before(ClientConnection, "_parse", PARSE, first=True)
    stamps.before(Engine, "handle", PREPARE)
    stamps.around(SqliteStore, "read", READ, PREPARE)
    stamps.around(SqliteStore, "write", QUEUE, REPLY)
    stamps.before(SqliteCommitter, "_carry_out", RULE)
    stamps.before(SqliteCommitter, "_commit", COMMIT)
    stamps.before(ClientConnection, "send", TO_CLIENT)
    return stamps


def run() -> int:
    """Serve until the daemon is stopped; return its exit status."""
    stamps = stamped()
    try:
        return main()
    finally:
        stamps.write(Path(os.environ[FILE]))


if __name__ == "__main__":
    sys.exit(run())
