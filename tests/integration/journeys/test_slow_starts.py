"""A start that has much to do says how far it is: to systemd, in the log, and to who waits."""

import io
import os
import socket
import sys
from pathlib import Path

import pytest
import trio

from fleetctl.client import Fleet
from fleetd.host import progress
from fleetd.host.systemd import Notifier
from fleetd.protocol.requests.mission import MissionCreate
from fleetd.server.progress import report_start
from tests.support.processes import Daemon
from tests.support.service_socket import heard, service_socket
from tests.support.terminal import terminal

# Each mission takes its time to be compared with its files.
SLOW = """
import time
from fleetd.__main__ import main
import fleetd.daemon
from fleetd.engine.files import reconcile
mend = reconcile.repair_latest
async def slow(*given, **named):
    import trio
    await trio.sleep(0.4)
    return await mend(*given, **named)
reconcile.repair_latest = slow
main()
"""
MISSIONS = 8


@pytest.fixture
def notified(tmp_path: Path):
    with service_socket(tmp_path / "n") as sock:
        yield sock


def told_by(sock: socket.socket) -> list[str]:
    return [each.decode() for each in heard(sock)]


async def test_what_gets_on_is_given_more_time_and_what_hangs_is_not(
    notified: socket.socket, tmp_path: Path, autojump_clock, out: io.StringIO
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
    told = []
    async with trio.open_nursery() as nursery:
        with report_start(notifier, nursery):
            progress.at("missions", total=3_000)
            for _ in range(3_000):
                progress.advance()
                await trio.sleep(0.004)
                told += told_by(notified)
            await trio.sleep(60)
        progress.at("missions", 0, 5)
        await trio.sleep(60)

    told += told_by(notified)
    assert 11 <= len(told) <= 13
    assert all(each.endswith("EXTEND_TIMEOUT_USEC=60000000") for each in told)
    assert told[-1].startswith(
        "STATUS=Starting: comparing checkpoints with their files, 3,000 of 3,000 missions\n"
    )
    logged = out.getvalue().splitlines()
    assert len(logged) == 3
    assert "Starting: comparing checkpoints with their files, " in logged[0]


async def test_a_quick_start_says_nothing(
    notified: socket.socket, tmp_path: Path, autojump_clock, out: io.StringIO
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
    async with trio.open_nursery() as nursery:
        with report_start(notifier, nursery):
            progress.at("missions", total=0)
            await trio.sleep(5)
            progress.at("missions", 1, 1)
            await trio.sleep(0.9)
    assert len(told_by(notified)) <= 1
    assert out.getvalue().count("\n") <= 1


def test_a_real_start_tells_systemd_and_the_log(
    daemon: Daemon, notified: socket.socket, tmp_path: Path
) -> None:
    with Fleet(daemon.socket) as fleet:
        for n in range(MISSIONS):
            mission = fleet.call(MissionCreate(title=str(n))).id
            fleet.call_raw("mission.start", {"mission_id": mission})
            fleet.call_raw("checkpoint.create", {"mission_id": mission})
    daemon.stop()
    daemon.command = (sys.executable, "-c", SLOW)
    daemon.env = dict(os.environ) | {"NOTIFY_SOCKET": str(tmp_path / "n")}
    daemon.start()

    told = told_by(notified)
    assert any(f"of {MISSIONS} missions\nEXTEND" in each for each in told[:-1])
    assert told[-1].startswith("READY=1")
    assert f"of {MISSIONS} missions" in daemon.log.read_text()


def test_who_waits_for_a_start_sees_what_it_is_at(home: Path) -> None:
    """The log of a daemon in the background is read; what it says leaves no trace."""
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir(mode=0o700)
    waits = (
        "import time; from fleetctl.service import control as begin; from fleetctl import cli\n"
        "def start():\n"
        "    time.sleep(2.5)\n"
        "    raise begin.InvalidState('It took too long.')\n"
        "begin.start = start\n"
        "raise SystemExit(cli.main(['daemon', 'start']))"
    )
    log.write_text("[INFO] Starting: comparing checkpoints with their files, 3 of 9 missions\n")
    env = {name: value for name, value in os.environ.items() if name != "TERM"}
    with terminal((sys.executable, "-c", waits), env=env, cwd=home, columns=60) as shown:
        seen = shown.until("fleetd is starting: comparing checkpoints with their files")
        assert shown.rest() == 1
    assert len(seen.strip()) == 59
    assert shown.text().strip() == "Error: It took too long."
