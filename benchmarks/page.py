"""``python -m benchmarks.page``: how fast the page of ``fleetctl web`` draws, in a real browser.

200 agents have 10,000 events each in a week. A daemon serves them, Chromium draws them, and each
figure is the median of ten. A store that was filled before is used again with ``--store``.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetd.protocol.timestamps import iso
from fleetd.store.sqlite.connect import open_database
from tests.support.processes import Daemon, environment
from tests.web import browser as browsers
from tests.web.site import Site, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AGENTS, EVENTS, MISSIONS, SORTIES = 200, 10_000, 20, 50
WEEK_MS = 7 * 86_400_000
RUNS = 10
PAGE_BYTES = 250_000
# One event in twenty has a mark.
MARKED = 0.05
MARKS = (
    ("compaction", "window_compacted"),
    ("briefing", "window_briefed"),
    ("mail", "message_sent"),
    ("needs", "agent_needs"),
    ("error", "error_reported"),
)
PLAIN = ("command_started", "command_finished", "tool_started", "tool_finished", "file_modified")


def fill(database: Path, now_ms: int, agents: int, events: int) -> None:
    """Write a week of missions, agents, sorties and events into a store that a daemon created."""
    connection = open_database(database, None)
    connection.execute("PRAGMA synchronous=OFF")
    begin = now_ms - WEEK_MS
    with connection:
        connection.executemany(
            "INSERT INTO missions (id, title, status, created_at, updated_at, started_at,"
            " total_sorties) VALUES (?, ?, 'in_progress', ?, ?, ?, ?)",
            [
                (_mission(n), f"Mission {n}", *(iso(begin),) * 3, agents // MISSIONS * SORTIES)
                for n in range(MISSIONS)
            ],
        )
        connection.executemany(
            "INSERT INTO agents (id, role, status, registered_at, last_seen_at, mission_id,"
            " harness, session_id) VALUES (?, 'specialist', 'active', ?, ?, ?, 'claude', ?)",
            [
                (_agent(n), iso(begin), iso(now_ms), _mission(n % MISSIONS), f"session-{n}")
                for n in range(agents)
            ],
        )
        connection.executemany(
            "INSERT INTO sorties (id, mission_id, position, title, status, priority, assigned_to,"
            " created_at, updated_at, started_at, completed_at)"
            " VALUES (?, ?, ?, ?, 'completed', 'medium', ?, ?, ?, ?, ?)",
            _sorties(begin, agents),
        )
        connection.executemany(
            "INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity,"
            " data_json, mark, marked_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            _events(begin, agents, agents * events),
        )
        # Each need changed its agent.
        columns = "role, harness, session_id, mission_id, status, registered_at, last_seen_at"
        connection.execute(
            f"INSERT INTO agent_history (agent_id, seq, changed_at, {columns}, machine)"
            f" SELECT id, 0, registered_at, {columns}, machine FROM agents"
        )
        connection.execute(
            "INSERT INTO agent_history (agent_id, seq, changed_at, role, harness, session_id,"
            " mission_id, status, registered_at, last_seen_at, machine, needs, needs_since)"
            " SELECT a.id, e.seq, e.timestamp, a.role, a.harness, a.session_id, a.mission_id,"
            " 'waiting', a.registered_at, e.timestamp, '', 'permission', e.timestamp"
            " FROM events e JOIN agents a ON a.id = e.agent_id WHERE e.type = 'agent_needs'"
        )
        # The tallies count the earlier content.
        connection.execute("DELETE FROM tallies")
    connection.close()


def _sorties(begin: int, agents: int) -> Iterator[tuple[Any, ...]]:
    each = WEEK_MS // SORTIES
    for agent in range(agents):
        for number in range(SORTIES):
            start = begin + number * each
            yield (
                f"srt-{agent:04}{number:04}",
                _mission(agent % MISSIONS),
                agent // MISSIONS * SORTIES + number,
                f"Sortie {number}",
                _agent(agent),
                *(iso(begin),) * 2,
                iso(start),
                iso(start + each - 60_000),
            )


def _events(begin: int, agents: int, events: int) -> Iterator[tuple[Any, ...]]:
    dice = random.Random(1)
    for number in range(events):
        agent, ms = dice.randrange(agents), begin + number * WEEK_MS // events
        mission = _mission(agent % MISSIONS)
        common = (f"mission:{mission}", iso(ms), mission, _agent(agent))
        if dice.random() < MARKED:
            mark, kind = dice.choice(MARKS)
            yield (kind, *common, 0, '{"needs":"permission","text":"make test"}', mark, ms)
        else:
            yield (dice.choice(PLAIN), *common, 1, '{"command":"make test"}', None, None)


def _mission(number: int) -> str:
    return f"msn-{number:08x}"


def _agent(number: int) -> str:
    return f"claude-{number:03}"


def measure(browser: "Browser", site: Site, now_ms: int) -> None:
    """Print the times of the page."""
    # Use one key: each token starts a command.
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(site.link())
    page.wait_for_selector("main .view")
    size = page.evaluate(
        "performance.getEntriesByType('resource').filter(each => each.name.includes('/static/'))"
        ".reduce((sum, each) => sum + each.decodedBodySize, 0)"
    )
    print(f"the whole page: {size:,} of {PAGE_BYTES:,} bytes")
    print(f"load of the machine: {os.getloadavg()[0]:.2f}")
    _report("first paint", [_first_paint(page) for _ in range(RUNS)])
    _report("Now is drawn, with its requests", [_view(page, "#/now") for _ in range(RUNS)])
    for name, back in (("an hour", 3_600_000), ("six days", WEEK_MS * 6 // 7)):
        view = f"#/now?at={iso(now_ms - back)}"
        _report(f"Now as at {name} ago, with its request", [_view(page, view) for _ in range(RUNS)])
    for name, length in (("a week", WEEK_MS), ("a day", WEEK_MS // 7), ("an hour", 3_600_000)):
        view = f"#/timeline?from={iso(now_ms - length)}&to={iso(now_ms)}"
        _drawn(page)
        _report(
            f"the timeline of {name}, with its request", [_view(page, view) for _ in range(RUNS)]
        )
        _report("  of which drawing", _drawn(page))
    view = f"#/timeline?from={iso(now_ms - WEEK_MS)}&to={iso(now_ms)}"
    _report("a week, once somebody scrolls", [_all_rows(page, view) for _ in range(RUNS)])
    context.close()


def _report(name: str, times: list[float]) -> None:
    print(
        f"{name}: median {statistics.median(times):.0f} ms, at most {max(times):.0f} ms", flush=True
    )


def _first_paint(page: "Page") -> float:
    page.reload()
    page.wait_for_selector("main .view")
    return float(
        page.evaluate(
            "performance.getEntriesByType('paint')"
            ".find(each => each.name === 'first-contentful-paint').startTime"
        )
    )


def _view(page: "Page", view: str) -> float:
    """Return the time from another view until this one is painted."""
    return float(
        page.evaluate(
            """async (view) => {
                const frame = () => new Promise(requestAnimationFrame);
                const go = async (hash) => {
                    const name = "view drawn";
                    const before = performance.getEntriesByName(name).length;
                    const began = performance.now();
                    location.hash = hash;
                    while (performance.getEntriesByName(name).length === before) await frame();
                    await frame();
                    return performance.now() - began;
                };
                await go("#/search");
                return go(view);
            }""",
            view,
        )
    )


def _all_rows(page: "Page", view: str) -> float:
    """Return the time from the end of the first visible rows until all rows are there."""
    _view(page, view)
    page.wait_for_selector(".tl-scroll")
    return float(
        page.evaluate(
            """async () => {
                const frame = () => new Promise(requestAnimationFrame);
                const before = performance.getEntriesByName("view drawn").length;
                const began = performance.now();
                const rows = document.querySelector(".tl-scroll");
                rows.scrollTop = rows.scrollHeight;
                while (performance.getEntriesByName("view drawn").length === before) await frame();
                await frame();
                return performance.now() - began;
            }"""
        )
    )


def _drawn(page: "Page") -> list[float]:
    found: list[float] = page.evaluate(
        """() => {
            const all = performance.getEntriesByName("timeline drawn").map(each => each.duration);
            performance.clearMeasures("timeline drawn");
            return all;
        }"""
    )
    return found


def main() -> None:
    """Fill a store if none is given, serve it, and measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.page", description=__doc__)
    parser.add_argument("--agents", type=int, default=AGENTS, help="agents (default: %(default)s)")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of each")
    parser.add_argument("--store", type=Path, help="a directory that an earlier run filled")
    options = parser.parse_args()
    home = (options.store or Path(tempfile.mkdtemp(prefix="fleet-"))).resolve()
    home.mkdir(exist_ok=True)
    os.environ.update(environment(home))
    running = Daemon(home / "run" / "d.sock", home / "daemon.log")
    marker = home / "filled"
    try:
        with browsers.launched() as browser:
            running.start()
            if not marker.exists():
                running.stop()
                now_ms = round(time.time() * 1000)
                fill(home / "data" / "squawk.db", now_ms, options.agents, options.events)
                marker.write_text(str(now_ms))
                running.start()
            with served() as site:
                measure(browser, site, int(marker.read_text()))
    except browsers.NotHere as reason:
        sys.exit(f"nothing was measured: {reason}")
    finally:
        running.clean_up()
        print(f"the store is in {home}", file=sys.stderr)


if __name__ == "__main__":
    main()
