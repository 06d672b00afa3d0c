"""``fleetctl daemon`` on a machine where nobody runs services: a process in the background."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetctl.service import logs, process
from fleetd.protocol.errors import LimitExceeded
from tests.support.processes import Daemon, Result

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no service manager be found."""
    for manager in ("systemd", "launchd"):
        monkeypatch.setattr(f"fleetctl.service.{manager}.is_here", lambda: False)


@pytest.fixture
def background_run(home: Path, subprocess_run: Run) -> Iterator[Run]:
    """Return a function that runs a command; no daemon that it started outlives the test."""
    yield subprocess_run
    if found := process.look(home / "run" / "d.sock"):
        os.kill(found.pid, signal.SIGKILL)


def test_it_is_started_seen_restarted_and_stopped(
    alone: None, home: Path, background_run: Run, run: Callable[..., Result]
) -> None:
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir(mode=0o700)
    log.write_text("x" * (process.LOG_BYTES + 1))
    started = background_run("daemon", "start")
    assert started.returncode == 0, started.stderr
    assert "started in the background" in started.stdout
    # The log that had become too long was put aside.
    assert log.with_name("fleetd.log.1").stat().st_size > process.LOG_BYTES
    assert log.stat().st_mode & 0o777 == 0o600
    found = process.look(home / "run" / "d.sock")
    assert found is not None
    assert os.getsid(found.pid) == found.pid
    assert not found.activated
    assert f"already running (pid {found.pid})" in run("daemon", "start").out
    assert "listens on" in run("daemon", "logs", "-n", "5").out
    anew = background_run("daemon", "restart")
    assert "started anew" in anew.stdout
    assert f"pid {found.pid})" not in anew.stdout
    status = run("daemon", "status")
    assert (status.status, "runs in the background" in status.out) == (0, True)
    assert "stopped (pid" in run("daemon", "stop").out
    assert run("daemon", "stop").out == "fleetd: not running\n"
    assert run("daemon", "status").status == 1
    assert "fleetd has stopped" in log.read_text()


def test_a_start_that_fails_says_why(
    home: Path, background_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_LOG_LEVEL", "loud")
    failed = background_run("daemon", "start")
    assert failed.returncode == 1
    assert "ended with status 78" in failed.stderr
    assert "'LOUD'" in failed.stderr
    as_json = background_run("daemon", "start", "--json")
    assert "LOUD" in as_json.stderr
    assert as_json.stdout == ""


def test_only_what_the_failed_start_itself_logged_is_shown(
    home: Path, background_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir(mode=0o700)
    log.write_text("yesterday's\n")
    monkeypatch.setenv("FLEET_LOG_LEVEL", "loud")
    assert "yesterday" not in background_run("daemon", "start").stderr
    assert "yesterday" in log.read_text()


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_link(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("put", [put_pipe, put_link, Path.mkdir])
def test_what_is_no_file_in_the_place_of_the_log_is_refused_at_once(
    alone: None, home: Path, run: Callable[..., Result], put: Callable[[Path], None]
) -> None:
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir(mode=0o700)
    put(log)
    refused = run("daemon", "start")
    assert refused.status == 1
    assert f"The log {log} cannot be written: " in refused.err
    if put is not put_link:
        unread = run("daemon", "logs")
        assert (unread.status, f"The log {log} cannot be read: " in unread.err) == (1, True)


def test_a_pipe_that_somebody_reads_is_no_log(
    alone: None, home: Path, run: Callable[..., Result]
) -> None:
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir(mode=0o700)
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "it is no regular file" in run("daemon", "start").err
    finally:
        os.close(reader)


def test_one_that_hangs_is_told_from_one_that_is_not_there(
    alone: None,
    daemon: Daemon,
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "LOOK_S", 0.05)
    monkeypatch.setattr("fleetctl.client.retry.READ_S", 0.05)
    assert daemon.process is not None
    pid = daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        seen = run("daemon", "status")
        assert seen.status == 1
        assert seen.out.startswith("fleetd does not answer\n")
        assert f"kill -KILL {pid}" in seen.err
        assert run("daemon", "status", "--json").json["silent"]
        for command in ("start", "stop", "restart"):
            refused = run("daemon", command)
            assert refused.status == 1
            assert f"fleetd (pid {pid}) does not answer" in refused.err
            assert f"kill -KILL {pid}" in refused.err
        examined = run("doctor")
        assert examined.status == 1
        assert "WRONG daemon fleetd did not answer in time" in " ".join(examined.out.split())
        assert "a daemon that ended left it" not in examined.out
    finally:
        os.kill(pid, signal.SIGCONT)


def test_of_a_socket_that_somebody_else_made_no_pid_is_named(home: Path) -> None:
    """Under systemd that is systemd itself."""
    path = home / "run" / "d.sock"
    (home / "run" / "fleetd.lock").write_text("1\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert process._silent_pid(path) is None
        (home / "run" / "fleetd.lock").write_text(f"{os.getpid()}\n")
        assert process._silent_pid(path) == os.getpid()
        (home / "run" / "fleetd.lock").unlink()
        os.mkfifo(home / "run" / "fleetd.lock")
        assert process._silent_pid(path) is None


def test_a_socket_path_that_is_too_long_is_told_by_status(
    alone: None, home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_SOCKET", f"{home}/{'x' * 100}/d.sock")
    assert "are allowed" in run("daemon", "status").err


def test_a_daemon_of_another_version_is_named(
    alone: None, daemon: Daemon, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.service.status.__version__", "99.0")
    assert "fleetctl daemon restart" in run("daemon", "status").err


def test_without_a_log_there_is_nothing_to_show(alone: None, run: Callable[..., Result]) -> None:
    seen = run("daemon", "logs")
    assert (seen.status, "There is no log" in seen.err) == (4, True)
    assert run("daemon", "logs", "--follow", "--json").status == 2


def test_a_log_is_followed_past_a_long_line_and_into_the_file_that_takes_its_place(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home / "state" / "fleet" / "fleetd.log"
    log.parent.mkdir()
    log.write_text("one\n")

    def more(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    steps: list[Callable[[], Any]] = [
        lambda: more("two\nthr"),
        lambda: more("ee\n"),
        lambda: (log.rename(home / "old"), log.write_text("four\n")),
        lambda: more("long " * 40_000),
        lambda: more("end\nfive\n"),
        lambda: log.unlink(),
    ]

    def next_step(_seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr("fleetctl.service.logs.time.sleep", next_step)
    with pytest.raises(KeyboardInterrupt):
        logs.show(None, 10, follow=True)
    told = "one\ntwo\nthree\nfour\n" + "long " * 40_000 + "end\nfive\n"
    assert capsys.readouterr().out == told


# Does what systemd does: descriptor 3, LISTEN_FDS, and LISTEN_PID of the process that execs.
PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "fleetd"])
"""


def test_one_that_would_be_started_again_at_once_is_not_ended_by_a_signal(
    alone: None, home: Path, run: Callable[..., Result]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ours:
        ours.bind(str(home / "run" / "d.sock"))
        ours.listen()
        daemon = subprocess.Popen(
            [sys.executable, "-c", PASS_SOCKET, str(ours.fileno())], pass_fds=[ours.fileno()]
        )
        try:
            # It answers once it has started, which a busy machine makes it take its time for.
            with Fleet(home / "run" / "d.sock", connect_s=60) as client:
                client.call_raw("system.hello", {})
            refused = run("daemon", "stop")
            assert refused.status == 1
            assert f"was made by process {os.getpid()}" in refused.err
            assert "systemctl --user stop fleetd.socket fleetd" in refused.err
            assert daemon.poll() is None
        finally:
            daemon.terminate()
            assert daemon.wait(20) == 0


def test_an_end_is_waited_for_where_the_kernel_has_no_descriptors_of_processes(
    mortal: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = mortal()
    monkeypatch.setattr(process, "END_S", 0.1)
    for handle in (None, process._handle(mine.pid)):
        with pytest.raises(LimitExceeded, match="has not ended"):
            process._wait_for_end(mine.pid, handle)
    mine.kill()
    mine.wait()
    process._wait_for_end(mine.pid, None)
