"""``fleetctl notify``: what it refuses, and the unit that it installs."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.notify import options
from fleetctl.notify.due import DEFAULT_REASONS, REASONS
from tests.support.processes import Result

from .managers import Managers

URL = "https://hooks.example.com/services/SECRET"
ANALYZE = shutil.which("systemd-analyze")
# As for the unit of fleetd itself.
EXPOSURE = 65
SYSTEMCTL = """
[ -e away ] && exit 1
case "$*" in
"--user show fleet-notify.service"*)
    if [ -e runs ]; then echo ActiveState=active; echo SubState=running
    else echo ActiveState=inactive; echo SubState=dead; fi ;;
"--user restart fleet-notify.service") touch runs ;;
"--user disable --now fleet-notify.service") rm -f runs ;;
esac
exit 0
"""

Run = Callable[..., Result]


@pytest.fixture
def managers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Managers:
    found = Managers(home)
    found.have("systemctl", SYSTEMCTL)
    monkeypatch.setenv("PATH", found.path)
    return found


@pytest.fixture
def unit(home: Path) -> Path:
    return home / "config" / "systemd" / "user" / "fleet-notify.service"


@pytest.fixture
def file(home: Path) -> Path:
    return home / "config" / "fleet" / "notify.toml"


# Bad input


@pytest.mark.parametrize("given", ["nobody", "permission,nobody", "permission;question", "", ","])
@pytest.mark.parametrize("action", ["run", "install"])
def test_an_unknown_reason_is_refused_with_the_list(run: Run, action: str, given: str) -> None:
    result = run("notify", action, "--for", given)
    assert result.status == 2
    for reason in REASONS:
        assert reason in result.err


def test_a_reason_with_control_characters_is_shown_without_them(run: Run) -> None:
    result = run("notify", "run", "--for", "\x1b[2J")
    assert result.status == 2
    assert "\x1b" not in result.err


@pytest.mark.parametrize("url", ["http://example.com/SECRET", "SECRET", "https://"])
@pytest.mark.parametrize("action", ["run", "install"])
def test_a_url_that_is_no_webhook_is_refused(run: Run, action: str, url: str) -> None:
    result = run("notify", action, "--webhook", url)
    assert result.status == 2
    assert "https" in result.err
    assert "SECRET" not in result.out + result.err


@pytest.mark.parametrize("words", [["run", "more"], ["run", "--webhook"], ["walk"], []])
def test_a_wrong_command_line_is_a_usage_error(run: Run, words: list[str]) -> None:
    assert run("notify", *words).status == 2


def test_help_names_each_reason_and_channel(done: Run) -> None:
    shown = " ".join(done("notify", "run", "--help").out.split())
    for each in (
        *REASONS,
        "--desktop",
        "--command",
        "--webhook",
        "--apprise",
        "failed, limit, lost, finished",
    ):
        assert each in shown
    assert ", ".join(REASONS) in shown
    assert "macOS" in done("notify", "install", "--help").out


def test_a_session_without_a_desktop_is_told_at_the_start(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jeepney")
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "nothing"))
    result = run("notify", "run")
    assert result.status == 1
    assert "Error: No desktop notifications here: this session has no D-Bus." in result.err
    for option in ("--command", "--webhook", "--apprise"):
        assert option in result.err


def test_each_channel_can_be_tried(run: Run, done: Run, home: Path) -> None:
    told = done("notify", "test", "--command", f"cat >> {home}/told")
    assert told.out == "command: sent\n"
    text = (home / "told").read_text()
    assert text.endswith("}\n")
    assert json.loads(text)["title"] == "test: needs permission"
    failed = run("notify", "test", "--command", "true", "--command", "exit 3", "--json")
    assert failed.status == 1
    assert failed.json == {
        "channels": [
            {"channel": "command", "error": None},
            {"channel": "command 2", "error": "exit status 3"},
        ]
    }


# The file of options


def test_what_is_written_is_read_again(home: Path, file: Path) -> None:
    given = options.NotifyOptions(
        reasons=["finished"], command=['say "é\\" \x7f\n'], webhook=[URL], apprise=["ntfy://x"]
    )
    file.parent.mkdir()
    file.write_text("for = []")
    file.chmod(0o644)
    options.write(given)
    assert file.stat().st_mode & 0o777 == 0o600
    assert options.from_file() == given


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("for = ['nobody']", "permission, question"),
        ("for = 'permission'", "array"),
        ("hook = []", "hook"),
        ("=", "line 1"),
    ],
)
def test_a_file_that_is_wrong_is_refused(run: Run, file: Path, text: str, why: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    result = run("notify", "run")
    assert result.status == 1
    assert f"{file} is wrong" in result.err
    assert why in result.err


def test_the_file_that_the_page_shows_can_be_read(file: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notify.md").read_text()
    file.parent.mkdir()
    file.write_text(page.partition("```text\n")[2].partition("```")[0])
    file.chmod(0o600)
    found = options.from_file()
    assert found is not None
    assert found.described() == ["desktop", "command", "webhook https://hooks.example.com/…"]


def test_a_file_that_others_may_read_is_refused(run: Run, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("desktop = true\n")
    file.chmod(0o640)
    result = run("notify", "run")
    assert result.status == 1
    assert f"chmod 600 {file}" in result.err


def test_a_webhook_in_the_file_that_is_none_is_refused(run: Run, file: Path) -> None:
    file.parent.mkdir()
    file.write_text('webhook = ["http://example.com/SECRET"]\n')
    file.chmod(0o600)
    result = run("notify", "run")
    assert result.status == 2
    assert "SECRET" not in result.err


# The service


def test_the_service_is_installed_shown_and_removed(
    home: Path, managers: Managers, unit: Path, file: Path, done: Run, run: Run
) -> None:
    words = ("--webhook", URL, "--for", "permission,limit", "--command", "say SECRET")
    shown = done("notify", "install", "--dry-run", *words).out
    assert "[DRY RUN]" in shown
    assert not unit.exists()
    assert not file.exists()
    assert run("notify", "install", *words).status == 2  # nobody can be asked
    installed = done("notify", "install", "--yes", *words)
    assert file.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(file.read_text()) == {
        "for": ["permission", "limit"],
        "command": ["say SECRET"],
        "webhook": [URL],
    }
    assert managers.calls("systemctl")[-4:] == [
        "--user daemon-reload",
        "--user enable fleet-notify.service",
        "--user reset-failed fleet-notify.service",
        "--user restart fleet-notify.service",
    ]
    text = unit.read_text()
    assert "-P -m fleetctl notify run\n" in text
    assert f"Environment=FLEET_SOCKET={home}/run/d.sock\n" in text
    status = done("notify", "status")
    told = done("notify", "status", "--json").json
    assert told["running"] is True
    assert told["channels"] == ["command", "webhook https://hooks.example.com/…"]
    every = [shown, installed.out, installed.err, text, status.out, json.dumps(told)]
    assert "SECRET" not in "".join(every)

    # Without options it keeps those of the file.
    before = file.read_text()
    done("notify", "install", "--yes")
    assert file.read_text() == before
    assert done("notify", "uninstall", "--dry-run").out.endswith("Nothing was removed.\n")
    done("notify", "uninstall", "--yes")
    assert not unit.exists()
    assert not file.exists()
    assert "--user disable --now fleet-notify.service" in managers.calls("systemctl")
    assert run("notify", "status").status == 1
    assert "not installed" in done("notify", "uninstall").out


def test_without_a_manager_that_runs_it_begins_at_the_next_login(
    home: Path, managers: Managers, unit: Path, done: Run
) -> None:
    pytest.importorskip("jeepney")
    (managers.place / "away").touch()
    installed = done("notify", "install", "--yes")
    link = unit.parent / "default.target.wants" / unit.name
    assert link.is_symlink()
    assert "systemd does not run here, so the service does not start." in installed.out
    assert "Until then, run: fleetctl notify run" in installed.out
    done("notify", "uninstall", "--yes")
    assert not link.parent.exists()


def test_uninstall_of_everything_takes_the_notifications_out(
    home: Path, managers: Managers, unit: Path, file: Path, done: Run
) -> None:
    done("notify", "install", "--yes", "--webhook", URL)
    ledger = home / "state" / "fleet" / "notify" / "0123.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("[]")
    assert "notifications" in done("uninstall", "--dry-run").out
    done("uninstall", "--yes")
    assert not unit.exists()
    assert not file.exists()
    assert not ledger.parent.exists()


def test_a_unit_that_somebody_edited_is_kept_aside(
    managers: Managers, unit: Path, done: Run
) -> None:
    done("notify", "install", "--yes", "--webhook", URL)
    unit.write_text(unit.read_text() + "# mine\n")
    assert "as it was" in done("notify", "install", "--yes").out
    assert unit.with_name(unit.name + ".edited").read_text().endswith("# mine\n")


def test_a_machine_without_systemd_is_told_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.service.systemd.is_here", lambda: False)
    result = run("notify", "install", "--yes", "--webhook", URL)
    assert result.status == 1
    assert "fleetctl notify run" in result.err


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("which", ["source", "rendered"])
def test_systemd_finds_nothing_wrong_with_the_unit(home: Path, which: str) -> None:
    from fleetctl.service.notify_unit import UNIT, rendered
    from fleetctl.service.spec import this_spec

    path = Path(__file__).parents[2] / "systemd" / UNIT.name
    if which == "rendered":
        path = home / UNIT.name
        path.write_text(rendered(this_spec()))
    verify = [str(ANALYZE), "verify", "--user", str(path)]
    security = [str(ANALYZE), "security", "--user", "--offline=yes", "--no-pager"]
    for words in (verify, [*security, f"--threshold={EXPOSURE}", str(path)]):
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert verify


def test_by_default_all_is_told_but_what_is_finished() -> None:
    assert options.NotifyOptions().reasons == [*DEFAULT_REASONS]
