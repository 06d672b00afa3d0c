"""What systemd sees: sockets it made, readiness, the watchdog."""

import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ACTIVATE = shutil.which("systemd-socket-activate")

# Does what systemd does: descriptor 3, LISTEN_FDS, and LISTEN_PID of the process that execs.
PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": sys.argv[2] or str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "fleetd"])
"""


def spawn_with(fleet: Any, sock: socket.socket, pid: str = "") -> Any:
    command = [sys.executable, "-c", PASS_SOCKET, str(sock.fileno()), pid]
    return fleet.spawn(command=command, pass_fds=[sock.fileno()])


@pytest.fixture
def made_by_systemd(fleet: Any) -> Any:
    fleet.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(fleet.socket))
        sock.listen()
        yield sock


def test_an_inherited_socket_is_served_and_never_removed(
    fleet: Any, made_by_systemd: socket.socket
) -> None:
    daemon = spawn_with(fleet, made_by_systemd)
    daemon.wait_for_log("listens on")
    assert daemon.client().call("system.hello")["pid"] == daemon.pid
    assert daemon.stop() == 0
    assert fleet.socket.is_socket()
    again = spawn_with(fleet, made_by_systemd)
    again.wait_for_log("listens on")
    assert again.client().call("system.hello")["pid"] == again.pid


def test_a_client_that_came_before_the_daemon_is_served(
    fleet: Any, made_by_systemd: socket.socket
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as early:
        early.settimeout(30)
        early.connect(str(fleet.socket))
        early.sendall(b'{"jsonrpc":"2.0","id":1,"method":"system.hello"}\n')
        spawn_with(fleet, made_by_systemd).wait_for_log("listens on")
        assert b'"fleetd"' in early.recv(65_536)


def test_sockets_for_another_process_are_not_taken(
    fleet: Any, made_by_systemd: socket.socket
) -> None:
    daemon = spawn_with(fleet, made_by_systemd, pid="1")
    assert daemon.wait() == 1
    assert "Another program listens" in daemon.log
    assert fleet.socket.is_socket()


def test_what_is_no_listening_unix_socket_is_refused(fleet: Any) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        daemon = spawn_with(fleet, sock)
        assert daemon.wait() == 78
    assert "not a listening Unix stream socket" in daemon.log
    with (fleet.home / "file").open("w") as file:
        daemon = fleet.spawn(
            command=[sys.executable, "-c", PASS_SOCKET, str(file.fileno()), ""],
            pass_fds=[file.fileno()],
        )
        assert daemon.wait() == 78
    assert "which is not a socket" in daemon.log


@pytest.mark.skipif(ACTIVATE is None, reason="systemd-socket-activate is not installed")
def test_the_real_activation_works(fleet: Any) -> None:
    fleet.directory.mkdir(mode=0o700)
    keep = [f"--setenv={name}={value}" for name, value in fleet.env.items()]
    command = [str(ACTIVATE), f"--listen={fleet.socket}", *keep, sys.executable, "-m", "fleetd"]
    daemon = fleet.spawn(command=command)
    daemon.wait_for_log("Listening on")
    client = daemon.client()
    assert client.call("system.hello")["pid"] == daemon.pid
    daemon.wait_for_log("listens on")
    assert daemon.stop() == 0
    assert fleet.socket.is_socket()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_of_readiness_and_of_the_end(
    fleet: Any, tmp_path: Path, abstract: bool
) -> None:
    name = f"@fleetd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    if abstract and not sys.platform.startswith("linux"):
        pytest.skip("abstract sockets are of Linux only")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(30)
        sock.bind("\0" + name[1:] if abstract else name)
        daemon = fleet.spawn(env={"NOTIFY_SOCKET": name})
        ready = sock.recv(4_096).decode().splitlines()
        assert ready == ["READY=1", f"STATUS=Listening on {fleet.socket}"]
        assert daemon.client().call("system.hello")["pid"] == daemon.pid
        daemon.signal(signal.SIGTERM)
        assert sock.recv(4_096).decode().splitlines()[0] == "STOPPING=1"
        assert daemon.wait() == 0


def test_a_refusal_is_never_announced_as_ready(
    fleet: Any, notify_socket: Callable[[], str], tmp_path: Path
) -> None:
    fleet.directory.symlink_to(tmp_path)
    status, _ = fleet.refuse(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert status == 78
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"the end", str(tmp_path / "notify"))
    assert notify_socket() == "the end"


def test_the_watchdog_is_fed_at_twice_its_rate(
    fleet: Any, notify_socket: Callable[[], str], tmp_path: Path
) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    fleet.spawn(env=env)
    heard = [notify_socket() for _ in range(4)]
    assert heard.count("WATCHDOG=1") == 3


def test_the_watchdog_of_another_process_is_not_fed(
    fleet: Any, notify_socket: Callable[[], str], tmp_path: Path
) -> None:
    env = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "1000",
        "WATCHDOG_PID": "1",
    }
    daemon = fleet.spawn(env=env)
    assert notify_socket().startswith("READY=1")
    daemon.client().call("system.hello")
    daemon.signal(signal.SIGTERM)
    assert notify_socket().startswith("STOPPING=1")
    assert daemon.wait() == 0


def test_a_notification_socket_that_is_gone_does_no_harm(fleet: Any, tmp_path: Path) -> None:
    daemon = fleet.spawn(env={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    daemon.wait_for_log("listens on")
    assert daemon.client().call("system.hello")["pid"] == daemon.pid
    assert daemon.stop() == 0
