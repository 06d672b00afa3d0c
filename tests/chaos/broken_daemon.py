"""A real daemon with a failing system call, by strace; it must exit and lose nothing."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, NotFound, Unavailable
from tests.chaos.campaign import Red, Run
from tests.support.processes import EXIT_S, READY_S, Daemon

WRITES = ("fdatasync", "fsync", "pwrite64")
MISSIONS = 40
MOST = {"fdatasync": 60, "fsync": 40, "pwrite64": 200}


def break_a_daemon(run: Run, home: Path, env: dict[str, str]) -> None:
    """Let one call, or all calls from one on, fail in a daemon, and check the next daemon."""
    strace = shutil.which("strace")
    if strace is None:
        return
    call = run.chance.choice(WRITES)
    error = run.chance.choice(("EIO", "ENOSPC"))
    nth = f"{run.chance.randrange(MOST[call]) + 1}{run.chance.choice(('', '+'))}"
    inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={nth}")
    daemon = Daemon(
        socket=Path(env["FLEET_SOCKET"]),
        log=home / "broken.log",
        env=env,
        command=(strace, "-f", "-qq", "-o", "/dev/null", *inject, sys.executable, "-m", "fleetd"),
    )
    told: dict[str, str] = {}
    what = f"{call} number {nth} gives {error}"
    process = daemon.spawn()
    try:
        ended = _until_ready(daemon) and _work(daemon, told, what)
        run.add("daemons broken")
        if not ended:
            _terminate(process.pid)
        status = process.wait(EXIT_S)
        log = daemon.log.read_text()
        if "Traceback" in log:
            raise Red(f"{what}: {log[-2_000:]}")
        if ended and status == 0:
            raise Red(f"{what}: it said that the disk failed and left with status 0")
    finally:
        # Without its tracer it would continue to run.
        for child in _children(process.pid):
            os.kill(child, signal.SIGKILL)
        daemon.clean_up()
    _look_at_the_next(Path(env["FLEET_SOCKET"]), home, env, told, what)


def _children(pid: int) -> list[int]:
    """Return the daemon that a tracer runs, if it still exists."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _terminate(tracer: int) -> None:
    for child in _children(tracer):
        os.kill(child, signal.SIGTERM)


def _until_ready(daemon: Daemon) -> bool:
    """Wait until it answers or has exited; a daemon that refuses to start logs why."""
    process, deadline = daemon.process, time.monotonic() + READY_S
    assert process is not None
    while process.poll() is None:
        try:
            with Fleet(daemon.socket) as client:
                client.call_raw("system.hello")
        except Unavailable:
            if time.monotonic() > deadline:
                raise Red(f"it neither serves nor leaves: {daemon.log.read_text()}") from None
            time.sleep(0.02)
        else:
            return True
    if not daemon.log.read_text().strip():
        raise Red("it left without a word")
    return False


def _work(daemon: Daemon, told: dict[str, str], what: str) -> bool:
    """Create missions, note each answer, '' for none; return whether the daemon said it ends."""
    with Fleet(daemon.socket) as client:
        for number in range(MISSIONS):
            key = f"key {number}"
            told[key] = ""
            request = {"title": key, "description": "x" * 20_000, "idempotency_key": key}
            try:
                told[key] = client.call_raw("mission.create", request)["id"]
                client.call_raw("checkpoint.create", {"mission_id": told[key]})
            except FleetError as error:
                if error.kind not in ("storage", "unavailable"):
                    raise Red(f"{what}: answered {error.kind}, {error}") from error
                if error.values.get("retry") or isinstance(error, Unavailable):
                    return True
    return False


def _look_at_the_next(
    socket: Path, home: Path, env: dict[str, str], told: dict[str, str], what: str
) -> None:
    """Send all requests again: earlier answers must be the same, and each mission exists once."""
    daemon = Daemon(socket=socket, log=home / "after.log", env=env)
    daemon.start()
    try:
        with Fleet(socket) as client:
            for key, known in told.items():
                request = {"title": key, "description": "x" * 20_000, "idempotency_key": key}
                again = client.call_raw("mission.create", request)["id"]
                if known and again != known:
                    raise Red(f"{what}: {known} was acknowledged, and is {again} now")
                _get(client, again, what)
            total = client.call_raw("mission.list", {"limit": 1})["total"]
            if total != len(told):
                raise Red(f"{what}: {total} missions of {len(told)}")
            found = client.call_raw("system.doctor")["findings"]
            bad = [f for f in found if not f["ok"] and f["check"] not in ("disk", "room")]
            if bad:
                raise Red(f"{what}: {bad}")
        daemon.stop()
    finally:
        daemon.clean_up()


def _get(client: Fleet, mission_id: str, what: str) -> None:
    try:
        client.call_raw("mission.get", {"mission_id": mission_id})
    except NotFound as gone:
        raise Red(f"{what}: {mission_id} was answered and is gone") from gone
