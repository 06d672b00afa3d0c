"""A browser, a daemon with a server of its page, and pages that must not misbehave."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from fleetctl.client import Fleet
from tests.support.processes import Daemon
from tests.web import browser as browsers
from tests.web.site import Site, served
from tests.web.views import show

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

WAIT_MS = 10_000
Open = Callable[..., "Page"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line why tests were skipped, rather than once for each."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason in sorted({report.longrepr[2] for report in skipped}):
        terminalreporter.write_line(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Run one browser for all tests; each test has a profile of its own."""
    try:
        with browsers.launched() as running:
            yield running
    except browsers.NotHere as reason:
        pytest.skip(str(reason))


@pytest.fixture
def site(browser: "Browser", daemon: Daemon) -> Iterator[Site]:
    """Serve the page of a daemon."""
    with served() as running:
        yield running


@pytest.fixture
def fleet(daemon: Daemon) -> Iterator[Fleet]:
    """Return a client of the daemon."""
    with Fleet(daemon.socket) as client:
        yield client


@pytest.fixture
def project(home: Path) -> Path:
    """Return the directory of a project."""
    return home / "project"


class Watched:
    """What pages asked for, and what went wrong in them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.errors: list[str] = []

    def watch(self, context: "BrowserContext", page: "Page") -> None:
        """Watch a page."""
        context.on("request", lambda request: self.requests.append(request))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console",
            # A refused request is told as an error too; the page shows it.
            lambda message: (
                self.errors.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))


@pytest.fixture
def watched() -> Watched:
    """Return what the pages of this test asked for."""
    return Watched()


@pytest.fixture
def open_page(browser: "Browser", site: Site, watched: Watched) -> Iterator[Open]:
    """Return a function that opens a link in a new profile.

    At the end no page may have met an error, and none asked for more than GET on this server.
    """
    contexts: list[BrowserContext] = []

    def open_(view: str = "#/now", *, link: str | None = None, **options: object) -> "Page":
        given = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **options}
        context = browser.new_context(**given)  # type: ignore[arg-type]
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        watched.watch(context, page)
        page.goto(link or site.link())
        page.wait_for_selector("main .view")
        if view != "#/now":
            show(page, view)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert watched.errors == []
    server = urlsplit(site.origin).netloc
    for request in watched.requests:
        assert request.method == "GET"
        assert urlsplit(request.url).netloc == server, request.url
