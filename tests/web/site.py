"""``fleetctl web`` as a process of its own, and links of it; must not know the page."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

READY_S = 60
_COMMAND = (sys.executable, "-m", "fleetctl", "web", "--json")


class Site:
    """A server of the page that runs."""

    def __init__(self, process: "subprocess.Popen[str]", document: dict[str, Any]) -> None:
        self.process = process
        self._links = [str(document["url"])]
        parts = urlsplit(self._links[0])
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.port = parts.port

    def link(self) -> str:
        """Return a link that nobody has opened."""
        if self._links:
            return self._links.pop()
        done = subprocess.run(_COMMAND, capture_output=True, text=True, check=True, timeout=READY_S)
        return str(json.loads(done.stdout)["url"])

    def stop(self) -> None:
        """End it; it must end in good order."""
        self.process.terminate()
        try:
            assert self.process.wait(READY_S) == 0
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextmanager
def served(port: int = 0) -> Iterator[Site]:
    """Serve the page of this environment's daemon until the end."""
    process = subprocess.Popen(
        [*_COMMAND, "--port", str(port)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    lines: list[str] = []
    # One that never tells its link is ended, and with it the reading.
    late = threading.Timer(READY_S, process.kill)
    late.start()
    for line in process.stdout:
        lines.append(line)
        if line.rstrip().endswith("}"):
            break
    late.cancel()
    site = Site(process, json.loads("".join(lines)))
    try:
        yield site
    finally:
        if process.poll() is None:
            site.stop()
