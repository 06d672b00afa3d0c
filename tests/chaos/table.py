"""The table of docs/reliability.md: the campaign or test for each promise, and its last result.

The table is written from ``results.json``, which only a run with recording writes.
"""

import importlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Campaign

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = HERE / "results.json"
BEGIN = '<!-- Written by: make campaign ARGS="NAME --record" -->'
END = "<!-- End of the promises -->"


@dataclass(frozen=True)
class PromiseRow:
    """A fault, the expected behaviour, and its evidence: campaigns, or tests by their path."""

    fault: str
    expected: str
    campaigns: tuple[str, ...] = ()
    tests: str = ""


ROWS = (
    PromiseRow(
        "`kill -9` at any moment, and before and after every system call of a checkpoint",
        "nothing acknowledged lost, no half transaction, rows and files agree again, ready in 2 s",
        ("kill", "system_calls"),
    ),
    PromiseRow(
        "power cut: what was not synced is dropped or torn, in the database and in the files",
        "nothing acknowledged lost, no corrupt database; with `synchronous=NORMAL` it turns red",
        ("power", "power_files"),
    ),
    PromiseRow(
        "EIO or ENOSPC at the n-th write or sync, for every n",
        "a typed error, then fleetd leaves and comes back; a retry with the same key applies once",
        ("io_errors",),
    ),
    PromiseRow(
        "disk full",
        "`storage`, nothing half done, fleetd stays up, reading and pruning work",
        ("full_disk",),
    ),
    PromiseRow(
        "a flipped bit or a cut anywhere in database, WAL, checkpoint, snapshot or `latest.json`",
        "never served as good; healed from the other copy, or the one before, with a warning",
        ("damage",),
    ),
    PromiseRow(
        "one copy or both missing; `latest.json` dangling, cyclic, a directory, a FIFO",
        "the other copy serves and heals; both missing is an error",
        tests="tests/rules/artifacts/test_copies_matrix.py"
        " tests/rules/snapshots/test_snapshot_copies.py",
    ),
    PromiseRow(
        "recovery twice, at once, killed half way",
        "the same end state; one `fleet_recovered` for each recovery",
        ("recoveries",),
    ),
    PromiseRow(
        "16 daemons at once on a stale socket, or on one database",
        "exactly one serves, the others say so and exit 1",
        ("starts",),
    ),
    PromiseRow(
        "holders of locks stopped beyond their lease, killed, continued",
        "histories are linearizable; a token that was overtaken is refused",
        ("locks",),
    ),
    PromiseRow(
        "hostile frames: junk batches, depth 100,000, 100 MB lines, NaN, UTF-16, half lines",
        "a typed error or a close, at most 50 ms of CPU and 20 MB each (beside ten times its "
        "reply); others' p99 below 10 ms",
        ("frames",),
    ),
    PromiseRow(
        "1,000 slow writers, 50 readers that never read, clients that vanish, descriptors used up",
        "deadlines hold, nobody else notices",
        ("clients",),
    ),
    PromiseRow(
        "client gone, or SIGTERM, at every await",
        "committed or not, never half; drained in 10 s",
        ("awaits", "stops"),
    ),
    PromiseRow(
        "wall clock stepped by an hour, suspend, restart",
        "one `context_compacted` per silence, none invented",
        ("clocks",),
    ),
    PromiseRow(
        "three daemons on one PostgreSQL: kills, a server that restarts or stands still, "
        "connections cut in the middle of a COMMIT, clocks off by an hour",
        "locks are linearizable, subscribers hear of each event once and in order, nothing "
        "acknowledged is lost or done twice",
        ("fleet",),
    ),
    PromiseRow(
        "writer thread stuck",
        "the watchdog is no longer fed, and systemd restarts fleetd",
        tests="tests/integration/daemon/test_watchdog.py",
    ),
    PromiseRow(
        "newer schema, SQLite too old, read-only directory, a setting that is wrong",
        "refuses before it is ready, names the reason, exits 78",
        tests="tests/store/test_opening.py tests/integration/daemon/test_starting.py",
    ),
    PromiseRow(
        "somebody else's uid, hostile paths, names, umasks, texts",
        "nobody gets in, nothing gets out",
        tests="tests/integration/access",
    ),
    PromiseRow(
        "an hour of mixed load of 64 agents",
        "memory, descriptors and files stay flat",
        ("endurance",),
    ),
)
NAMES = tuple(name for row in ROWS for name in row.campaigns)


def campaign(name: str) -> Campaign:
    """Return a campaign by its name."""
    found: Campaign = importlib.import_module(f"tests.chaos.{name}").CAMPAIGN
    return found


def available() -> list[Campaign]:
    """Return every campaign of the table."""
    known = (name for name in NAMES if importlib.util.find_spec(f"tests.chaos.{name}"))
    return [campaign(name) for name in known]


def results() -> dict[str, dict[str, Any]]:
    """Return the results of the last recorded runs, by campaign or by the tests of a row."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def record(name: str, result: dict[str, Any]) -> None:
    """Record a result and write the page's table."""
    known = results() | {name: result}
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{rendered(known)}{tail}")


def rendered(known: dict[str, dict[str, Any]]) -> str:
    """Return the table as the page contains it, with its marks."""
    lines = [BEGIN, "", "| when | then | shown by | last seen |", "|---|---|---|---|"]
    for row in ROWS:
        shown = [f'`make campaign ARGS="{name}"`' for name in row.campaigns]
        shown += [f'`make test ARGS="{row.tests}"`'] if row.tests else []
        seen = [_seen(known.get(name)) for name in (*row.campaigns, row.tests) if name]
        lines.append(f"| {row.fault} | {row.expected} | {', '.join(shown)} | {'; '.join(seen)} |")
    return "\n".join([*lines, "", END])


def _seen(result: dict[str, Any] | None) -> str:
    if result is None:
        return "not run yet"
    figures = "".join(f", {number:,g} {name}" for name, number in result["figures"].items())
    red = f", **red**: {result['red']}" if "red" in result else ""
    return f"{result['date']}: {result['rounds']:,} {result['unit']}{figures}{red}"
