"""``fleetctl doctor`` with and without a daemon."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Daemon, Result


def verdicts(result: Result) -> dict[str, set[str]]:
    """Return the checks of each verdict, as they are printed."""
    found: dict[str, set[str]] = {}
    for line in result.out.splitlines()[:-1]:
        verdict, check, *_ = line.split()
        found.setdefault(verdict, set()).add(check)
    return found


def test_a_healthy_fleet_is_in_order(mission: str, done: Callable[..., Result]) -> None:
    done("checkpoint")
    seen = done("doctor")
    assert verdicts(seen).keys() == {"ok"}
    assert verdicts(seen)["ok"] >= {"daemon", "database", "schema", "permissions", "disk"}
    assert seen.out.endswith("Everything is in order.\n")


def test_what_is_wrong_is_named_and_mended_on_request(
    mission: str, home: Path, run: Callable[..., Result], done: Callable[..., Result]
) -> None:
    file = home / "flightline" / "checkpoints" / mission
    file /= f"{done('checkpoint').id('chk')}.json"
    file.chmod(0o644)
    found = run("doctor")
    assert found.status == 1
    assert verdicts(found)["WRONG"] == {"permissions"}
    assert f"{file}  mode 0644, open to others" in found.out
    assert found.out.endswith(f"1 problem: permissions ({file}).\n")
    mended = done("doctor", "--fix")
    assert verdicts(mended)["fixed"] == {"permissions"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert done("doctor", "--json").json["ok"]


def test_without_a_daemon_it_examines_what_a_start_would_meet(
    home: Path, run: Callable[..., Result]
) -> None:
    seen = run("doctor")
    assert seen.status == 1
    assert verdicts(seen) == {"WRONG": {"daemon"}, "ok": {"settings", "socket", "permissions"}}
    assert "fleetd is not running" in seen.out
    assert f"{home / 'flightline' / 'checkpoints'}  does not exist yet" in seen.out


def wrong(result: Result) -> dict[str, str]:
    assert result.status == 1
    return {f["check"]: f["detail"] for f in result.json["findings"] if not f["ok"]}


def test_without_a_daemon_it_says_what_would_stop_a_start(
    home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "data").chmod(0o755)
    (home / "run" / "d.sock").write_text("in the way")
    found = wrong(run("doctor", "--json"))
    assert found.keys() == {"daemon", "permissions", "socket"}
    assert found["permissions"] == f"mode 0755, open to others; run: chmod go= {home / 'data'}"
    assert "no socket" in found["socket"]
    monkeypatch.setenv("FLEET_LOG_LEVEL", "loud")
    assert "'LOUD'" in wrong(run("doctor", "--json"))["settings"]


def test_what_fleetd_could_not_make_is_wrong(
    home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.commands.doctor.os.access", lambda *_: False)
    found = wrong(run("doctor", "--json"))
    assert f"{home} is no directory that you can write to" in found["permissions"]


def test_a_socket_that_cannot_be_ours_is_a_finding_and_no_end(
    home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "run" / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        stranger = os.getuid() + 1
        monkeypatch.setattr("fleetctl.client.transport.credentials", lambda _sock: (stranger, None))
        found = wrong(run("doctor", "--json"))
        assert "belongs to another user" in found["daemon"]
    uid = os.getuid()
    monkeypatch.setattr("fleetctl.commands.doctor.os.getuid", lambda: uid + 1)
    assert f"belongs to uid {uid}, not to you" in wrong(run("doctor", "--json"))["socket"]


def test_a_socket_path_that_is_too_long_is_a_finding(
    home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_SOCKET", f"{home}/{'x' * 100}/d.sock")
    found = wrong(run("doctor", "--json"))
    assert "107 are allowed" in found["socket"] or "103 are allowed" in found["socket"]


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (Path.mkdir, "no regular file"),
        (os.mkfifo, "no regular file"),
        (lambda path: path.write_text("garbage"), "not a SQLite database"),
    ],
)
def test_without_a_daemon_it_says_what_stands_in_the_place_of_the_database(
    home: Path, run: Callable[..., Result], put: Callable[[Path], object], told: str
) -> None:
    put(home / "data" / "squawk.db")
    assert told in wrong(run("doctor", "--json"))["database"]


def test_it_leaves_everything_as_it_is_unless_told_to_mend(
    daemon: Daemon, home: Path, run: Callable[..., Result]
) -> None:
    (home / "data").chmod(0o755)
    assert wrong(run("doctor", "--json")) == {"permissions": "mode 0755, open to others"}
    assert (home / "data").stat().st_mode & 0o777 == 0o755
    assert run("doctor", "--fix").status == 0
    assert (home / "data").stat().st_mode & 0o777 == 0o700


def test_a_daemon_of_another_version_is_named(
    daemon: Daemon, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.commands.doctor.__version__", "99.0")
    assert "restart fleetd after an upgrade" in wrong(run("doctor", "--json"))["daemon"]


def test_a_copy_needs_a_name(daemon: Daemon, run: Callable[..., Any]) -> None:
    for command in ("backup", "restore"):
        refused = run(command, "")
        assert (refused.status, "FILE is empty" in refused.err) == (2, True)
    assert os.listdir() == []
