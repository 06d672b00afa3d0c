"""Draws the screens of ``fleetctl watch`` that the docs show: ``python -m tools.watch_screens``.

It uses a real daemon, a real terminal, and a fleet whose last two hours are replayed in seconds: a
file tells the daemon by how much its clocks are behind.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Daemon, environment
from tests.support.terminal import Terminal, terminal
from tools.watch_fleet import Story

SCREENS = Path(__file__).resolve().parent.parent / "docs" / "watch"
WATCH = (sys.executable, "-m", "fleetctl", "watch")
BEHIND = """
import os
from pathlib import Path
from fleetd.host import clock

def behind():
    return int(Path(os.environ["CLOCK_BEHIND"]).read_text())

wall, awake = clock.wall_clock, clock.uptime
clock.wall_clock = lambda: wall() - behind()
clock.uptime = lambda: clock.Uptime(awake().awake_ms - behind(), awake().boot_id)
from fleetd.__main__ import main
main()
"""


def draw(home: Path) -> None:
    """Tell the story and draw every screen."""
    SCREENS.mkdir(exist_ok=True)
    with watching(home, 80, 24) as shown:
        choose(shown)
        save(shown, "at-80x24", "fleetctl watch")
        shown.press("r")
        shown.until("newest checkpoint")
        save(shown, "waiting", "fleetctl watch: what waits for recovery")
        back(shown, "Agents")
        shown.press("c")
        shown.until("Before the session store moves")
        shown.press("down", "down", "m", "home")
        shown.until("◆")
        shown.press("enter")
        shown.until("Active Locks")
        save(shown, "checkpoint", "fleetctl watch: a checkpoint")
        back(shown, "mark")
        shown.press("d")
        shown.until("In between")
        save(shown, "difference", "fleetctl watch: what was done between two checkpoints")
        back(shown, "mark")
        shown.press("p")
        shown.until("You are resuming")
        save(shown, "prompt", "fleetctl watch: the prompt of a recovery")
    for columns, rows, needed in ((200, 50, "Reached 50% milestone"), (60, 20, "Events")):
        with watching(home, columns, rows) as shown:
            choose(shown)
            shown.until(needed)
            save(shown, f"at-{columns}x{rows}", "fleetctl watch")


def choose(shown: Terminal) -> None:
    """Put the cursor on the mission with the most details."""
    shown.until("silent 12 min")
    shown.press("down", "down")
    shown.until("Settings page")


def back(shown: Terminal, seen: str) -> None:
    """Leave a page; wait, because an immediate next key would turn Escape into another key."""
    shown.press("escape")
    shown.until(seen)


def save(shown: Terminal, name: str, title: str) -> None:
    """Write the content of the terminal to a file."""
    (SCREENS / f"{name}.svg").write_text(shown.drawing(title), "utf-8")


@contextmanager
def watching(home: Path, columns: int, rows: int) -> Iterator[Terminal]:
    """Watch the fleet in a terminal of this size."""
    sized = {name: value for name, value in os.environ.items() if name not in ("TERM", "NO_COLOR")}
    with terminal(WATCH, env=sized, cwd=home / "project", columns=columns, rows=rows) as shown:
        yield shown


def main() -> None:
    """Create a home, run a daemon in it and draw."""
    home = Path(tempfile.mkdtemp(prefix="fleet-")).resolve()
    behind = home / "behind"
    os.environ.update(environment(home) | {"CLOCK_BEHIND": str(behind)})
    behind.write_text("0")
    command = (sys.executable, "-c", BEHIND)
    running = Daemon(home / "run" / "d.sock", home / "daemon.log", command=command)
    try:
        running.start()
        Story(running, behind, home / "project").play()
        draw(home)
    finally:
        running.clean_up()
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
