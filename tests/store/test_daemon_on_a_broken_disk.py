"""A real daemon whose disk breaks under it says so and ends; nothing acknowledged is lost."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from tests.support.processes import EXIT_S, READY_S, Daemon

# More syncs than the start needs; the injection lasts from there on.
HEALTHY_SYNCS = 60


@pytest.fixture
def doomed(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon whose every fdatasync fails after the first ones."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    inject = f"inject=fdatasync:error=EIO:when={HEALTHY_SYNCS}+"
    command = [strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject]
    with (home / "doomed.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "fleetd"], stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + READY_S
        while not _answers(home / "run" / "d.sock"):
            text = (home / "doomed.log").read_text()
            if process.poll() is not None and "ptrace" in text:
                pytest.skip("tracing is not allowed here")
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(socket: Path) -> bool:
    try:
        with Fleet(socket) as client:
            client.call_raw("system.hello")
    except Unavailable:
        return False
    return True


def _create_until_refused(socket: Path) -> tuple[list[str], FleetError]:
    created: list[str] = []
    with Fleet(socket) as client:
        while len(created) < 10 * HEALTHY_SYNCS:
            try:
                made = client.call_raw("mission.create", {"title": f"m{len(created)}"})
            except FleetError as error:
                return created, error
            created.append(made["id"])
    raise AssertionError("the injected error never came")


def test_an_io_error_ends_the_daemon_with_status_1_and_a_clear_line(
    doomed: subprocess.Popen[bytes], home: Path
) -> None:
    created, error = _create_until_refused(home / "run" / "d.sock")
    assert doomed.wait(EXIT_S) == 1
    assert created
    # The connection may end before the reply is out; then the client learns that instead.
    assert error.kind in ("storage", "unavailable")
    log = (home / "doomed.log").read_text()
    assert re.search(r"^\[\S+Z\] \[ERROR\] Storage failed: .*I/O error.* fleetd stops", log, re.M)
    assert "Traceback" not in log
    assert "bug" not in log

    after = Daemon(socket=home / "run" / "d.sock", log=home / "after.log")
    after.start()
    try:
        with Fleet(after.socket) as client:
            found = client.call_raw("mission.list", {"limit": 1000})["missions"]
    finally:
        after.stop()
    assert set(created) <= {mission["id"] for mission in found}
    assert len(found) <= len(created) + 1
