"""Draws the pictures of ``fleetctl web`` that the docs show: ``make screenshots``.

It uses a real browser, a real daemon, and a fleet whose last two hours are replayed in seconds: a
file tells the daemon by how much its clocks are behind.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from fleetctl.client import Fleet
from tests.support.processes import Daemon, environment
from tests.web import browser as browsers
from tests.web.site import Site, served
from tools.watch_screens import BEHIND
from tools.web_fleet import WebStory

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The pictures show this path, so it has a plain name; it is created, and removed at the end.
PROJECT = Path(tempfile.gettempdir()).resolve() / "shop"
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


class Picture(NamedTuple):
    """One view in one window."""

    name: str
    view: str
    width: int
    height: int
    scheme: Literal["light", "dark"]


PICTURES = (
    Picture("now", "#/now", 1440, 900, "light"),
    Picture("timeline", "#/timeline?span=7200000", 1440, 860, "dark"),
    Picture("mission", "#/mission/{mission}", 1440, 860, "light"),
    Picture(
        "checkpoints", "#/mission/{mission}?part=checkpoints&before={checkpoint}", 1440, 900, "dark"
    ),
    Picture("search", "#/search?q=passkey*", 1440, 760, "light"),
    Picture("replay", "#/now?at={moment}", 1440, 760, "dark"),
    Picture("now-360", "#/now", 360, 780, "dark"),
    Picture("timeline-360", "#/timeline?span=7200000", 360, 780, "light"),
)


def draw(browser: "Browser", site: Site, socket: Path) -> None:
    """Draw every picture."""
    # Import it only with the browser: without a browser nothing is drawn.
    from tests.web.views import show

    IMAGES.mkdir(exist_ok=True)
    names = _names(socket)
    for picture in PICTURES:
        context = browser.new_context(
            viewport={"width": picture.width, "height": picture.height},
            color_scheme=picture.scheme,
            locale="en-GB",
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.goto(site.link())
        page.wait_for_selector("main .view")
        show(page, picture.view.format(**names))
        page.screenshot(path=IMAGES / f"web-{picture.name}.png")
        context.close()


def _names(socket: Path) -> dict[str, str]:
    """Return the names in the addresses of the views."""
    with Fleet(socket) as fleet:
        missions = fleet.call_raw("mission.list", {"status": "in_progress"})["missions"]
        [mission] = [each["id"] for each in missions if "passkeys" in each["title"]]
        checkpoints = fleet.call_raw("checkpoint.list", {"mission_id": mission})["checkpoints"]
        [checkpoint] = [each for each in checkpoints if each["trigger"] == "manual"]
        # A window that was compacted while two sessions were at work.
        compactions = fleet.call_raw("event.list", {"type": "window_compacted"})["events"]
    return {
        "mission": mission,
        "checkpoint": checkpoint["id"],
        "moment": compactions[-1]["timestamp"],
    }


def main() -> None:
    """Create a home, run a daemon and a server in it, and draw."""
    try:
        PROJECT.mkdir()
    except FileExistsError:
        sys.exit(f"no pictures were drawn: {PROJECT} is there already, and may be somebody's")
    home = Path(tempfile.mkdtemp(prefix="fleet-")).resolve()
    behind = home / "behind"
    os.environ.update(environment(home) | {"CLOCK_BEHIND": str(behind), "TZ": "UTC"})
    behind.write_text("0")
    command = (sys.executable, "-c", BEHIND)
    running = Daemon(home / "run" / "d.sock", home / "daemon.log", command=command)
    try:
        with browsers.launched() as browser:
            running.start()
            WebStory(running, behind, PROJECT).play()
            with served() as site:
                draw(browser, site, running.socket)
    except browsers.NotHere as reason:
        sys.exit(f"no pictures were drawn: {reason}")
    finally:
        running.clean_up()
        shutil.rmtree(home)
        shutil.rmtree(PROJECT)


if __name__ == "__main__":
    main()
