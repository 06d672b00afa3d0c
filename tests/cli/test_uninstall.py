"""``fleetctl uninstall``: everything goes that was put anywhere, and what stays is named."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.service import process
from tests.support.processes import Daemon, Result

from .managers import JOURNALCTL, LOGINCTL, SYSTEMCTL, Managers

Done = Callable[..., Result]
Run = Callable[..., subprocess.CompletedProcess[str]]
BEFORE = '{\n  "model": "mine"\n}\n'


@pytest.fixture
def alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no service manager be found."""
    for manager in ("systemd", "launchd"):
        monkeypatch.setattr(f"fleetctl.service.{manager}.is_here", lambda: False)


@pytest.fixture
def managers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """Stand-ins of systemd's programs; nothing that they started outlives the test."""
    found = Managers(home)
    for name, body in (
        ("systemctl", SYSTEMCTL),
        ("loginctl", LOGINCTL),
        ("journalctl", JOURNALCTL),
    ):
        found.have(name, body)
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.setattr("fleetctl.service.systemd._LINGER", home / "nobody-lingers")
    yield found
    _kill(home)


@pytest.fixture
def background(alone: None, home: Path, subprocess_run: Run) -> Iterator[process.Running]:
    """A daemon in the background, which does not outlive the test."""
    started = subprocess_run("daemon", "start")
    assert started.returncode == 0, started.stderr
    found = process.look(home / "run" / "d.sock")
    assert found is not None
    yield found
    _kill(home)


def _kill(home: Path) -> None:
    if found := process.look(home / "run" / "d.sock"):
        os.kill(found.pid, signal.SIGKILL)


@pytest.fixture
def settings(home: Path, done: Done) -> list[Path]:
    """Hooks, MCP entries and completions are installed; the files that they are in."""
    user = home / "home"
    hooks = [user / ".claude/settings.json", user / ".gemini/settings.json"]
    for file in hooks:
        file.parent.mkdir()
        file.write_text(BEFORE)
    done("hooks", "install", "claude", "gemini", "--yes")
    done("mcp", "install", "claude", "gemini", "--yes")
    done("completions", "bash", "--install", "--yes")
    done("completions", "zsh", "--install", "--yes")
    return hooks


def files(home: Path) -> set[Path]:
    places = (home / "home", home / "data", home / "config")
    return {path for place in places for path in place.rglob("*") if path.is_file()}


def test_uninstall_removes_all_that_was_put_anywhere_and_keeps_the_data(
    home: Path, settings: list[Path], background: process.Running, done: Done
) -> None:
    mission = done("mission", "create", "Test", "--sortie", "One").id("msn")
    before = files(home)
    shown = done("uninstall", "--dry-run")
    assert files(home) == before
    assert "[DRY RUN] Nothing was changed." in shown.out

    gone = done("uninstall", "--yes")

    for file in settings:
        assert file.read_text() == BEFORE
        assert f"out of {file}" in gone.out
    assert f"Stopped the fleetd that ran in the background (pid {background.pid})." in gone.out
    assert process.look(home / "run" / "d.sock") is None
    left = {str(path.relative_to(home)) for path in files(home)}
    assert left == {
        "home/.claude/settings.json",
        "home/.gemini/settings.json",
        *(f"data/squawk.db{ending}" for ending in ("", "-lock", "-mark", ".ballast")),
    }
    for what in (
        f"- database: {home}/data/squawk.db (fleetctl uninstall --delete-data)",
        f"- checkpoints: {home}/flightline/checkpoints",
        "- program: fleetd in",
        "uninstall fleetd)",
    ):
        assert what in gone.out
    assert "fleetd is not installed here." in done("uninstall", "--yes").out
    again = done("uninstall", "--yes", "--json").json
    assert (again["changed"], again["removed"], again["errors"]) == (False, [], [])
    assert [each["what"] for each in again["left"]][:2] == ["database", "checkpoints"]
    assert mission


def test_uninstall_takes_the_service_out(
    home: Path, managers: Managers, done: Done, run: Done
) -> None:
    done("daemon", "install", "--yes")
    unit = home / "config/systemd/user/fleetd.service"
    (home / "config/systemd/user/fleetd.service.d").mkdir()
    (home / "config/systemd/user/fleetd.service.d/mine.conf").touch()
    managers.note("linger")
    gone = done("uninstall", "--yes", "--json").json
    assert gone["changed"]
    assert [each["what"] for each in gone["removed"]] == ["systemd user service"]
    assert not unit.exists()
    assert process.look(home / "run" / "d.sock") is None
    left = {each["what"]: each for each in gone["left"]}
    assert left["drop-ins"]["where"] == f"{unit}.d"
    assert "disable-linger" in left["lingering"]["how"]
    assert run("daemon", "status").status == 1


def test_data_is_asked_about_and_kept_by_default(
    home: Path, alone: None, daemon: Daemon, run: Done, answer: Callable[[str], None]
) -> None:
    assert daemon.process is not None
    answer("n")
    assert run("uninstall").status == 3
    assert daemon.process.poll() is None
    answer("y\n")
    asked = run("uninstall")
    assert asked.status == 0
    assert "Delete what fleetd remembers as well? It cannot be brought back. [y/N]" in asked.err
    assert daemon.process.wait(20) == 0
    daemon.process = None
    assert (home / "data" / "squawk.db").exists()

    answer("y")
    assert run("uninstall").status == 0
    assert not (home / "data").exists()
    assert not (home / "flightline").exists()


def test_only_delete_data_deletes_data_and_only_that_of_fleetd(
    home: Path, background: process.Running, done: Done
) -> None:
    mine = [home / "data" / "squawk.db.copy", home / "flightline" / "notes.txt"]
    for path in mine:
        path.write_text("mine")
    shown = done("uninstall", "--delete-data", "--dry-run", "--json").json
    assert {each["what"] for each in shown["removed"]} >= {"database", "checkpoints", "log"}
    assert "database" not in {each["what"] for each in shown["left"]}
    assert (home / "data" / "squawk.db").exists()

    done("uninstall", "--yes", "--delete-data")

    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert list((home / "data").iterdir()) == mine[:1]
    assert list((home / "flightline").iterdir()) == mine[1:]
    assert not (home / "state" / "fleet").exists()


def test_data_that_another_fleetd_uses_is_not_deleted(
    home: Path, alone: None, daemon: Daemon, run: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_SOCKET", str(home / "another" / "d.sock"))
    refused = run("uninstall", "--yes", "--delete-data")
    assert refused.status == 1
    assert f"A running fleetd uses the database {home}/data/squawk.db; it was" in refused.err
    assert (home / "data" / "squawk.db").exists()
    assert (home / "flightline" / "checkpoints").exists()


def test_a_half_finished_uninstall_can_be_run_again(
    home: Path, alone: None, settings: list[Path], run: Done, done: Done
) -> None:
    claude, gemini = settings
    whole = claude.read_text()
    claude.write_text(whole[:-10])
    half = run("uninstall", "--yes", "--json")
    assert half.status == 1
    (error,) = half.json["errors"]
    assert error["what"] == "hooks of claude"
    assert f"{claude} cannot be understood" in error["message"]
    assert gemini.read_text() == BEFORE
    as_text = run("uninstall", "--yes")
    assert (as_text.status, "run fleetctl uninstall again" in as_text.err) == (1, True)

    claude.write_text(whole)
    assert done("uninstall", "--yes", "--json").json["errors"] == []
    assert json.loads(claude.read_text()) == {"model": "mine"}


def test_completions_of_somebody_else_are_put_back(home: Path, alone: None, done: Done) -> None:
    file = home / "data/bash-completion/completions/fleet"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    done("completions", "bash", "--install", "--yes")
    (home / "home" / ".bashrc").write_text('eval "$(fleetctl completions bash)"\n')
    gone = done("uninstall", "--yes")
    assert f"Put {file} back as it was" in gone.out
    assert [path.name for path in file.parent.iterdir()] == ["fleet"]
    assert file.read_text() == "mine"
    assert "~/.bashrc (remove the line with fleetctl completions)" in gone.out


def test_daemon_uninstall_without_units_ends_the_background_daemon_and_says_so(
    home: Path, background: process.Running, run: Done, done: Done, answer: Callable[[str], None]
) -> None:
    answer("n")
    assert run("daemon", "uninstall").status == 3
    shown = done("daemon", "uninstall", "--dry-run")
    assert f"pid {background.pid}" in shown.out
    assert process.look(home / "run" / "d.sock") == background
    gone = done("daemon", "uninstall", "--yes")
    assert f"Stopped the fleetd that ran in the background (pid {background.pid})." in gone.out
    assert process.look(home / "run" / "d.sock") is None
    assert "fleetd does not run" in done("daemon", "uninstall").out


def test_daemon_uninstall_without_units_beside_systemd_ends_the_background_daemon(
    home: Path, managers: Managers, subprocess_run: Run, done: Done
) -> None:
    managers.note("away")
    assert subprocess_run("daemon", "start").returncode == 0
    gone = done("daemon", "uninstall", "--yes", "--json").json
    assert (gone["kind"], gone["files"], gone["changed"]) == ("systemd", [], True)
    assert process.look(home / "run" / "d.sock") is None
