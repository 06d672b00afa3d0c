"""Starting: one daemon per socket, nobody else's socket, and refusals that say what to do."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetd import __version__


def leave_stale_socket(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))


def test_a_second_daemon_names_the_first_and_leaves_it_alone(fleet: Any, daemon: Any) -> None:
    status, log = fleet.refuse()
    assert status == 1
    assert f"fleetd is already running (pid {daemon.pid})" in log
    assert "Traceback" not in log
    assert daemon.client().call("system.hello")["pid"] == daemon.pid


def test_of_many_that_start_at_once_on_a_stale_socket_one_serves(fleet: Any) -> None:
    leave_stale_socket(fleet.socket)
    rivals = [fleet.spawn() for _ in range(6)]
    first_lines = [rival.process.stderr.readline() for rival in rivals]
    serving = [r for r, line in zip(rivals, first_lines, strict=True) if "listens on" in line]
    assert len(serving) == 1, first_lines
    for rival, line in zip(rivals, first_lines, strict=True):
        if rival is not serving[0]:
            assert "fleetd is already running" in line
            assert rival.wait() == 1
    assert serving[0].client().call("system.hello")["pid"] == serving[0].pid


def test_it_starts_again_after_kill_and_has_what_it_acknowledged(fleet: Any, daemon: Any) -> None:
    mission = daemon.client().call("mission.create", {"title": "survivor"})
    daemon.signal(signal.SIGKILL)
    assert daemon.wait() == -signal.SIGKILL
    assert fleet.socket.is_socket()
    again = fleet.start()
    assert again.client().call("mission.get", {"mission_id": mission["id"]}) == mission


def test_a_socket_that_somebody_listens_on_is_left_alone(fleet: Any) -> None:
    fleet.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(fleet.socket))
        other.listen()
        status, log = fleet.refuse()
        assert status == 1
        assert "Another program listens" in log
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(fleet.socket))


def test_a_file_in_the_place_of_the_socket_is_refused_by_name(fleet: Any) -> None:
    fleet.directory.mkdir(mode=0o700)
    fleet.socket.write_text("mine")
    status, log = fleet.refuse()
    assert status == 78
    assert str(fleet.socket) in log
    assert "not a socket" in log
    assert fleet.socket.read_text() == "mine"


def test_a_socket_of_another_type_is_left_alone(fleet: Any) -> None:
    fleet.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(fleet.socket))
        status, log = fleet.refuse()
    assert status == 78
    assert "cannot be reached" in log
    assert fleet.socket.is_socket()


def test_a_path_too_long_for_a_socket_is_refused_with_its_length(fleet: Any) -> None:
    path = fleet.home / ("x" * 120)
    status, log = fleet.refuse(env={"FLEET_SOCKET": str(path)})
    assert status == 78
    assert f"{len(str(path))} bytes long" in log


def test_a_wrong_setting_is_refused_by_name_and_value(fleet: Any) -> None:
    file = fleet.home / "wrong.toml"
    file.write_text("[limits]\nbatch = -3\n")
    status, log = fleet.refuse(env={"FLEET_CONFIG": str(file)})
    assert status == 78
    assert "limits.batch" in log
    assert "-3" in log
    assert "Traceback" not in log
    assert not fleet.directory.exists()


def test_a_database_of_a_newer_fleetd_is_refused_before_it_is_ready(
    fleet: Any, daemon: Any
) -> None:
    assert daemon.stop() == 0
    import apsw

    (database,) = (fleet.home / "data").rglob("squawk.db")
    connection = apsw.Connection(str(database))
    connection.pragma("user_version", 9_999)
    connection.close()
    status, log = fleet.refuse()
    assert status == 78
    assert "newer" in log
    assert not fleet.socket.exists()


def test_a_database_that_is_a_directory_is_refused(fleet: Any) -> None:
    place = fleet.home / "not-a-file"
    place.mkdir()
    status, log = fleet.refuse(env={"FLEET_DB_PATH": str(place)})
    assert status == 78
    assert str(place) in log
    assert "Traceback" not in log


def test_the_settings_in_force_are_those_of_file_and_environment(fleet: Any) -> None:
    file = fleet.home / "c.toml"
    file.write_text("[limits]\nbatch = 2\n")
    env = {"FLEET_CONFIG": str(file), "FLEET_LOG_LEVEL": "ERROR"}
    daemon = fleet.start("--log-level", "debug", env=env)
    client = daemon.client()
    settings = {s["key"]: s for s in client.call("system.config")["settings"]}
    assert settings["limits.batch"]["value"] == 2
    assert settings["limits.batch"]["origin"] == f"file {file}"
    assert settings["log_level"] == {
        "key": "log_level",
        "value": "DEBUG",
        "origin": "option --log-level",
    }
    client.sock.sendall(b"[1,2,3]\n")
    assert client.line()["error"]["data"]["limit"] == "batch"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_makes_room_for_as_many_descriptors_as_connections_need(fleet: Any) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = (
        "import resource, sys, fleetd.__main__ as program\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "sys.exit(program.main([]))"
    )
    daemon = fleet.spawn(command=[sys.executable, "-c", script])
    assert daemon.client_when_ready().call("system.hello")["pid"] == daemon.pid
    soft, _ = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 4_096)


@pytest.mark.parametrize(
    ("option", "status", "text"),
    [
        ("--version", 0, f"fleetd {__version__}"),
        ("--help", 0, "--log-level"),
        ("--colour", 2, "--colour"),
        ("--log-level=LOUD", 2, "LOUD"),
    ],
)
def test_options(fleet: Any, option: str, status: int, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetd", option],
        env=fleet.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status
    assert text in done.stdout + done.stderr
    assert not fleet.directory.exists()


def test_the_log_has_the_format_of_the_specification(daemon: Any) -> None:
    import re

    assert daemon.stop() == 0
    lines = daemon.log.splitlines()
    assert len(lines) >= 3
    for line in lines:
        assert re.match(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[[A-Z]+\] \S", line), line


def test_a_pipe_of_lines_is_answered_though_the_sender_closed_its_end(daemon: Any) -> None:
    client = daemon.client()
    client.send("mission.create", {"title": "piped"}, identity="a")
    client.send("system.hello", identity="b")
    client.sock.shutdown(socket.SHUT_WR)
    replies = {}
    while (reply := client.line()) is not None:
        replies[reply["id"]] = reply
    assert replies["a"]["result"]["title"] == "piped"
    assert replies["b"]["result"]["name"] == "fleetd"
    assert json.dumps(replies)


def test_a_database_that_cannot_be_used_ends_the_start_without_a_traceback(fleet: Any) -> None:
    daemon = fleet.start()
    database = Path(daemon.client().call("system.hello")["paths"]["database"])
    daemon.stop()
    Path(f"{database}-shm").mkdir()
    status, log = fleet.refuse()
    assert status in (1, 78)
    assert "database" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("stopping", [False, True])
def test_a_database_that_is_removed_under_it_ends_it_and_comes_back_from_its_rescue(
    fleet: Any, daemon: Any, stopping: bool
) -> None:
    client = daemon.client()
    kept = client.call("mission.create", {"title": "kept"})
    database = Path(client.call("system.hello")["paths"]["database"])
    database.unlink()
    if stopping:
        daemon.signal(signal.SIGTERM)
    else:
        client.send("mission.create", {"title": "refused"})
        assert client.line()["error"]["data"]["kind"] == "storage"
    assert daemon.wait() == 1
    assert f"Storage failed: {database} was removed or replaced while it was in use" in daemon.log
    assert "Traceback" not in daemon.log
    (rescued,) = database.parent.glob(f"{database.name}.rescued-*")
    subprocess.run(
        [sys.executable, "-m", "fleetctl", "restore", str(rescued), "--yes"],
        env=fleet.env,
        check=True,
    )
    assert fleet.start().client().call("mission.list")["missions"] == [kept]
