"""Debian's Chromium, driven by Playwright; must not know the page.

``python -m tests.web.browser`` installs what is missing where it may; tests skip with the reason
where the browser cannot be had.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserType

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
INSTALL_S = 600


class NotHere(Exception):
    """There is no browser; the text says why."""


def program() -> str:
    """Return the path of the browser; raises NotHere."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    raise NotHere("a browser is needed: apt-get install chromium")


@contextmanager
def launched() -> Iterator["Browser"]:
    """Run a browser without a window, with a new profile; raises NotHere."""
    path = program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NotHere(f"playwright is needed: {error}") from error
    with sync_playwright() as playwright, _launched(playwright.chromium, path) as browser:
        yield browser


@contextmanager
def another(browser: "Browser", *arguments: str) -> Iterator["Browser"]:
    """Run one more browser beside one that runs."""
    with _launched(browser.browser_type, program(), *arguments) as running:
        yield running


@contextmanager
def _launched(kind: "BrowserType", path: str, *arguments: str) -> Iterator["Browser"]:
    # The times in pictures and tests do not depend on the machine.
    env: dict[str, str | float | bool] = {**os.environ, "TZ": "UTC"}
    browser = kind.launch(executable_path=path, args=[*ARGUMENTS, *arguments], env=env)
    try:
        yield browser
    finally:
        browser.close()


def install() -> str:
    """Install Chromium with apt where that may be; return what to say about it."""
    try:
        return f"the browser is {program()}"
    except NotHere as reason:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return f"tests in a browser are skipped: {reason}"
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run(
            ["apt-get", "--quiet", *words],
            env=env,
            timeout=INSTALL_S,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip() or "no reason given").splitlines()[-1]
            return f"tests in a browser are skipped: apt-get {words[0]} failed: {last}"
    return f"installed {program()}"


if __name__ == "__main__":
    print(install(), file=sys.stderr)
