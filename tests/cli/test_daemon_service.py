"""``fleetctl daemon`` where a service manager is there: systemd's, and what is like launchd's."""

import os
import plistlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.processes import Daemon, Result

from .managers import JOURNALCTL, LAUNCHCTL, LOGINCTL, SYSTEMCTL, Managers


@pytest.fixture
def managers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """Return stand-ins of systemd's programs; nothing that they started outlives the test."""
    found = Managers(home)
    found.have("systemctl", SYSTEMCTL)
    found.have("loginctl", LOGINCTL)
    found.have("journalctl", JOURNALCTL)
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.setattr("fleetctl.service.systemd._LINGER", home / "nobody-lingers")
    yield found
    with suppress(OSError, ValueError):
        os.kill(int((found.place / "pid").read_text()), signal.SIGKILL)


def units(home: Path) -> tuple[Path, Path]:
    directory = home / "config" / "systemd" / "user"
    return directory / "fleetd.service", directory / "fleetd.socket"


def interpreter() -> str:
    return str(Path(sys.executable).with_name("python3"))


def test_a_service_is_installed_used_and_taken_out(
    daemon: Daemon,
    home: Path,
    managers: Managers,
    done: Callable[..., Result],
    run: Callable[..., Result],
) -> None:
    by_hand = daemon.process
    assert by_hand is not None
    installed = done("daemon", "install", "--yes")
    service, socket = units(home)
    assert f"Stopped the fleetd that ran in the background (pid {by_hand.pid})" in installed.out
    assert by_hand.wait(20) == 0
    daemon.process = None
    assert managers.calls("systemctl") == [
        "--user stop fleetd.socket fleetd.service",
        "--user daemon-reload",
        "--user enable fleetd.socket",
        "--user reset-failed fleetd.socket fleetd.service",
        "--user start fleetd.socket",
    ]
    text = service.read_text()
    assert f"ExecStart={interpreter()} -P -m fleetd\n" in text
    # What moves files goes along; the service would serve other ones else.
    for line in (
        f"Environment=FLEET_DB_PATH={home}/data/squawk.db",
        f"Environment=FLIGHTLINE_DIR={home}/flightline",
        f"Environment=FLEET_SOCKET={home}/run/d.sock",
        f"ReadWritePaths=-{home}/data",
        f"ReadWritePaths=-{home}/flightline/checkpoints",
        f"ReadWritePaths=-{home}/state/fleet",
    ):
        assert f"{line}\n" in text
    assert f"ListenStream={home}/run/d.sock\n" in socket.read_text()
    assert f"every shell and hook needs FLEET_SOCKET={home}/run/d.sock" in installed.out
    for directory in ("data", "flightline", "flightline/checkpoints", "state/fleet"):
        assert (home / directory).stat().st_mode & 0o777 == 0o700

    seen = done("daemon", "status", "--json").json
    assert seen["running"]
    assert (seen["run_by"], seen["service"]["enabled"]) == ("systemd", True)
    assert "journalctl" in seen["log"]
    assert any("ends when you log out" in warning for warning in seen["warnings"])
    assert f"pid {seen['pid']}" in installed.out
    assert "listens on" in "".join(done("daemon", "logs", "--json").json["lines"])
    assert "already running" in done("daemon", "start").out
    assert "started anew by systemd" in done("daemon", "restart").out
    assert "stopped by systemd; it starts again at the next login" in done("daemon", "stop").out
    assert run("daemon", "status").status == 1
    managers.note("broken")
    failed = run("daemon", "start")
    assert failed.status == 1
    assert "fleetd has stopped" in failed.err  # the end of the journal
    assert "Job for fleetd.socket failed" in failed.err
    (managers.place / "broken").unlink()
    assert "started by systemd" in done("daemon", "start").out
    assert done("daemon", "logs", "-n", "3").status == 0
    managers.calls("systemctl")

    (managers.place / "linger").unlink(missing_ok=True)
    examined = run("doctor")
    assert "Warning: Lingering is off" in examined.err
    assert "lingering" in examined.out

    before = (text, socket.read_text())
    assert "is installed already" in done("daemon", "install", "--yes").out
    assert (service.read_text(), socket.read_text()) == before
    assert "--user stop fleetd.socket fleetd.service" not in managers.calls("systemctl")

    drop_in = service.with_name("fleetd.service.d") / "mine.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nNice=5\n")
    taken_out = done("daemon", "uninstall", "--yes")
    assert "Removed" in taken_out.out
    assert "--user disable --now fleetd.socket fleetd.service" in managers.calls("systemctl")
    assert sorted(path for path in service.parent.rglob("*") if path.is_file()) == [drop_in]
    assert (home / "data" / "squawk.db").exists()
    assert "is not installed" in done("daemon", "uninstall", "--yes").out


def test_nothing_is_written_without_consent(
    home: Path,
    managers: Managers,
    run: Callable[..., Result],
    done: Callable[..., Result],
    answer: Callable[[str], None],
) -> None:
    shown = done("daemon", "install", "--dry-run")
    assert "+ExecStart=" in shown.out
    assert "Nothing was written" in shown.out
    refused = run("daemon", "install")
    assert (refused.status, "--yes" in refused.err) == (2, True)
    answer("n")
    cancelled = run("daemon", "install")
    assert (cancelled.status, "Nothing was changed." in cancelled.out) == (3, True)
    assert not units(home)[0].parent.exists()
    assert managers.calls("systemctl") == []
    assert not (home / "state" / "fleet").exists()


def test_an_edited_unit_is_kept_and_named(
    home: Path, managers: Managers, done: Callable[..., Result], run: Callable[..., Result]
) -> None:
    managers.note("away")
    service, _ = units(home)
    service.parent.mkdir(parents=True)
    service.write_text("[Service]\nExecStart=/bin/true\n")
    found = run("doctor", "--json").json["findings"]
    told = {each["check"]: each["detail"] for each in found if not each["ok"]}
    assert "edited; to renew: fleetctl daemon install" in told["service"]
    shown = done("daemon", "install", "--yes", "--dry-run")
    assert "-ExecStart=/bin/true" in shown.out
    assert service.read_text() == "[Service]\nExecStart=/bin/true\n"


@pytest.fixture
def installed(home: Path, daemon: Daemon, managers: Managers, done: Callable[..., Result]) -> Path:
    """Return the service's unit, of an installation that nobody manages yet."""
    managers.note("away")
    managers.note("linger")
    done("daemon", "install", "--yes")
    return units(home)[0]


def service_finding(result: Result) -> tuple[bool, str]:
    (found,) = (each for each in result.json["findings"] if each["check"] == "service")
    return found["ok"], found["detail"]


def test_doctor_says_when_the_service_is_not_what_it_would_be(
    installed: Path, home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service_finding(run("doctor", "--json")) == (True, "its files are those of this version")
    # Another shell finds git elsewhere: no reason to complain.
    (home / "tools").mkdir()
    (home / "tools" / "git").symlink_to("/bin/true")
    with monkeypatch.context() as other_shell:
        other_shell.setenv("PATH", f"{home}/tools:{os.environ['PATH']}")
        assert service_finding(run("doctor", "--json"))[0]
        other_shell.setenv("FLEET_CONFIG", f"{home}/other.toml")
        ok, told = service_finding(run("doctor", "--json"))
        assert (ok, "of another version or shell" in told) == (False, True)
    installed.write_text(installed.read_text().replace(interpreter(), "/nowhere/python3"))
    ok, told = service_finding(run("doctor", "--json"))
    assert (ok, "/nowhere/python3, which it starts, is not there" in told) == (False, True)
    (installed.parent / "sockets.target.wants" / "fleetd.socket").unlink()
    found = run("doctor", "--json").json["findings"]
    assert {each["check"] for each in found if not each["ok"]} == {"service", "autostart"}


def test_an_edited_unit_outlives_its_removal_as_a_copy(
    installed: Path, done: Callable[..., Result]
) -> None:
    with installed.open("a") as unit:
        unit.write("# mine\n")
    assert "It had been edited" in done("daemon", "uninstall", "--yes").out
    assert not installed.exists()
    assert installed.with_name("fleetd.service.edited").read_text().endswith("# mine\n")


def test_without_a_manager_the_links_are_made_and_fleetd_runs_in_the_background_meanwhile(
    home: Path,
    managers: Managers,
    subprocess_run: Callable[..., Any],
    done: Callable[..., Result],
) -> None:
    managers.note("away")
    service, socket = units(home)
    service.parent.mkdir(parents=True)
    service.write_text("mine\n")
    try:
        installed = subprocess_run("daemon", "install", "--yes")
        assert installed.returncode == 0, installed.stderr
        assert "takes effect at" in installed.stdout
        assert "runs in the background" in installed.stdout
        assert f"as it was: {service}.edited" in installed.stdout
        assert service.with_name("fleetd.service.edited").read_text() == "mine\n"
        link = service.parent / "sockets.target.wants" / "fleetd.socket"
        assert link.readlink() == socket
        again = done("daemon", "install", "--yes")
        assert "installed already" in again.out
        assert "the running fleetd continues" in again.out
        status = done("daemon", "status")
        assert "runs in the background" in status.out
        assert "systemd of this user does not run now" in status.out
        removed = done("daemon", "uninstall", "--yes").out
        assert "Removed" in removed
        assert not link.is_symlink()
    finally:
        stopped = done("daemon", "stop")
    # It said that it stops fleetd, and does.
    assert "Stopped the fleetd that ran in the background (pid " in removed
    assert "not running" in stopped.out


def test_a_pipe_in_the_place_of_a_unit_is_not_waited_for(
    daemon: Daemon, home: Path, managers: Managers, run: Callable[..., Result]
) -> None:
    managers.note("away")
    service, _socket = units(home)
    service.parent.mkdir(parents=True)
    os.mkfifo(service)
    assert "is no regular file" in run("daemon", "status").err
    refused = run("daemon", "install", "--yes")
    assert "is no regular file" in refused.err
    assert refused.err.count(str(service)) == 2  # the second time in the hint, once


def test_lingering_and_what_a_service_does_not_see_are_told(
    home: Path,
    managers: Managers,
    done: Callable[..., Result],
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    managers.note("away")
    managers.note("forbidden")
    monkeypatch.setenv("FLEET_LOG_LEVEL", "DEBUG")
    refused = done("daemon", "install", "--yes", "--linger")
    assert "Lingering could not be switched on" in refused.out
    assert "Access denied" in refused.out
    assert "does not see FLEET_LOG_LEVEL of this shell" in refused.out
    assert "FLEET_LOG_LEVEL" not in units(home)[0].read_text()
    (managers.place / "forbidden").unlink()
    assert "Lingering is on" in done("daemon", "install", "--yes", "--linger").out
    assert "Lingering: on" in done("daemon", "status").out
    assert "ingering" not in done("daemon", "install", "--yes").out


def test_a_service_uses_the_network_only_where_its_store_is_there(
    home: Path, managers: Managers, done: Callable[..., Result], daemon: Daemon
) -> None:
    managers.note("away")
    drop_in = units(home)[0].parent / "fleetd.service.d" / "fleetd-synced.conf"
    settings = home / "config" / "fleet" / "config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('store = "postgresql://me:secret@db.example.org/fleet"\n')
    shown = done("daemon", "install", "--dry-run").out
    assert "+RestrictAddressFamilies=AF_INET AF_INET6" in shown
    done("daemon", "install", "--yes")
    assert "RestrictAddressFamilies=AF_INET AF_INET6\n" in drop_in.read_text()
    assert "secret" not in shown + "".join(each.read_text() for each in units(home))
    settings.write_text('store = "postgresql:///fleet?host=/run/postgresql"\n')
    done("daemon", "install", "--yes")
    assert not drop_in.exists()
    settings.write_text('store = "postgresql://db.example.org/fleet"\n')
    done("daemon", "install", "--yes")
    assert drop_in.exists()
    done("daemon", "uninstall", "--yes")
    assert not drop_in.parent.exists()


def test_a_service_is_not_installed_for_another_store_than_this_shell_means(
    home: Path,
    managers: Managers,
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEET_DATABASE_URL", "postgresql://me:secret@db.example.org/fleet")
    refused = run("daemon", "install", "--yes")
    assert refused.status == 1
    assert "named by FLEET_DATABASE_URL of this shell" in refused.err
    assert str(home / "config" / "fleet" / "config.toml") in refused.err
    assert "secret" not in refused.err + refused.out
    assert not units(home)[0].exists()


def test_a_unit_that_is_a_link_is_not_touched(
    home: Path, managers: Managers, run: Callable[..., Result]
) -> None:
    service, _ = units(home)
    service.parent.mkdir(parents=True)
    service.symlink_to("/dev/null")  # what systemctl mask makes
    refused = run("daemon", "install", "--yes")
    assert (refused.status, "is a link" in refused.err) == (1, True)
    assert service.is_symlink()


@pytest.fixture
def mac(home: Path, managers: Managers, monkeypatch: pytest.MonkeyPatch) -> Managers:
    """Return the stand-in of launchctl, on a machine that says that it is a Mac."""
    managers.have("launchctl", LAUNCHCTL)
    monkeypatch.setattr("fleetctl.service.sys", SimpleNamespace(platform="darwin"))
    return managers


def test_an_agent_of_launchd_is_installed_and_taken_out(
    home: Path, mac: Managers, done: Callable[..., Result], daemon: Daemon
) -> None:
    mac.note("away")  # over ssh there is no session of launchd
    installed = done("daemon", "install", "--yes")
    file = home / "home" / "Library" / "LaunchAgents" / "local.fleetd.plist"
    agent = plistlib.loads(file.read_bytes())
    assert agent["ProgramArguments"] == [interpreter(), "-P", "-m", "fleetd"]
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert (agent["RunAtLoad"], agent["Umask"], agent["Label"]) == (True, 0o077, "local.fleetd")
    assert agent["EnvironmentVariables"]["FLIGHTLINE_DIR"] == f"{home}/flightline"
    assert agent["StandardErrorPath"] == f"{home}/state/fleet/fleetd.log"
    assert "takes effect at your next login" in installed.out
    (mac.place / "away").unlink()
    taken_over = done("daemon", "install", "--yes").out
    assert "is installed already" in taken_over
    assert daemon.process is not None
    assert f"Stopped the fleetd that ran in the background (pid {daemon.process.pid})" in taken_over
    assert daemon.process.wait(20) == 0
    daemon.process = None
    user = f"gui/{os.getuid()}"
    calls = [f"enable {user}/local.fleetd", f"bootstrap {user} {file}"]
    assert mac.calls("launchctl") == calls
    assert done("daemon", "status", "--json").json["service"]["condition"] == "running"
    done("daemon", "restart")
    assert mac.calls("launchctl") == [f"bootout {user}/local.fleetd", f"bootstrap {user} {file}"]
    assert "Removed" in done("daemon", "uninstall", "--yes").out
    assert mac.calls("launchctl") == [f"bootout {user}/local.fleetd"]
    assert not file.exists()


def test_a_machine_without_a_manager_says_what_there_is_instead(
    home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    refused = run("daemon", "install", "--yes")
    assert refused.status == 1
    assert "neither systemd nor launchd" in refused.err
    assert "fleetctl daemon start" in refused.err
    assert run("daemon", "status", "--json").json["service"] is None
