"""A fleetd of a machine whose clock is wrong, perhaps with a defect; nothing else imports this.

``python -m tests.chaos.injected_shared_bugs FILE [DEFECT]``: the wall clock of this daemon is off
by the number of ns in the first eight bytes of a file, which may change at any moment.
"""

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

from fleetd import __main__
from fleetd.store.postgres import (
    batch,
    commit_signal,
    connection,
    group_commit,
    server_clock,
    speculation,
    statements,
)
from tests.chaos.plant import plant

MOMENT_S = 0.02


def shift_the_clock(file: Path) -> None:
    """Shift the wall clock of this process by the offset in a file."""
    with file.open("rb") as opened:
        shown = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    seconds, nanoseconds = time.time, time.time_ns

    def off_ns() -> int:
        return int(struct.unpack("q", shown[:8])[0])

    time.time_ns = lambda: nanoseconds() + off_ns()
    time.time = lambda: seconds() + off_ns() / 1e9


def no_lock() -> None:
    """Let batches of two daemons run concurrently; a check of locks takes a moment."""
    plant(batch, "_TAKE_QUEUE_AND_TURN", "SELECT %d AS queue, true AS locked, false AS unheard")

    def slowly(self: connection.PostgresExecutor, sql: str, params: Any) -> Any:
        rows = run(self, sql, params)
        if sql.startswith("SELECT") and "FROM locks" in sql:
            time.sleep(MOMENT_S)
        return rows

    run = plant(connection.PostgresExecutor, "__call__", slowly)


def no_compare() -> None:
    """Commit decisions from before the turn, whatever others have changed meanwhile."""

    def call(self: speculation.Speculation, step: speculation.Step) -> statements.Call:
        time.sleep(MOMENT_S / 4)
        return self.statements.call(step.sql, step.params)

    plant(speculation.Speculation, "_call", call)


def no_notify() -> None:
    """Commit without a notification to other machines, and never read their changes."""
    plant(commit_signal, "_NOTIFY", b"SELECT 1")
    plant(commit_signal, "LOOK_S", 1_000)
    plant(commit_signal, "HEARTBEAT_S", 1_000)


def run_twice() -> None:
    """Treat a batch as not committed when the connection was lost during its commit."""
    _in_doubt(False)


def believed() -> None:
    """Treat a batch as committed when the connection was lost during its commit."""
    _in_doubt(True)


def _in_doubt(says: bool) -> None:
    def answer(self: group_commit.PostgresCommitter, number: int, error: Any) -> bool:
        was_committed(self, number, error)
        counted = batch.counted(self._slot.get(), self._machine)
        self._lost_commits.note(counted, 0)
        return says

    was_committed = plant(group_commit.PostgresCommitter, "_was_committed", answer)


def own_clock() -> None:
    """Use this machine's wall clock, whatever the server's says."""
    plant(server_clock.ServerClock, "now_ms", lambda self: time.time_ns() // 1_000_000)


DEFECTS = {
    "no-lock": no_lock,
    "no-compare": no_compare,
    "no-notify": no_notify,
    "run-twice": run_twice,
    "own-clock": own_clock,
    "believed": believed,
}


if __name__ == "__main__":
    import fleetd.store.postgres.store  # noqa: F401 - what is exchanged must be there

    shift_the_clock(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        DEFECTS[sys.argv[2]]()
    sys.exit(__main__.main([]))
