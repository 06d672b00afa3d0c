"""Settings files that others may write or own: not without a word, and ``hooks doctor`` names them.

What stands in such a file runs as the person whose settings they are.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.completion import shells
from fleetd.host import permissions
from tests.integration.access.conftest import STRANGER
from tests.support.processes import Result

Run = Callable[..., Result]
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
WHY = "Whoever does so has commands run as you."


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's settings of Claude Code, which nobody else may write."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(permissions, "_is_private", lambda gid: False)
    file = home / "home" / ".claude" / "settings.json"
    file.parent.mkdir(mode=0o755)
    file.write_text("{}\n")
    file.chmod(0o644)
    return file


def opened_to_all(file: Path) -> str:
    file.chmod(0o666)
    return f"{file} has mode 0666, so others may write to it"


def opened_to_a_group(file: Path) -> str:
    file.chmod(0o664)
    return f"{file} has mode 0664, so others may write to it"


def in_an_open_directory(file: Path) -> str:
    file.parent.chmod(0o777)
    return f"{file} is reached by {file.parent}, which has mode 0777, so others may write to it"


def below_an_open_directory(file: Path) -> str:
    file.parents[1].chmod(0o775)
    return f"{file} is reached by {file.parents[1]}, which has mode 0775, so others may write to it"


def behind_a_link_in_an_open_directory(file: Path) -> str:
    place = file.parents[1] / "open"
    place.mkdir()
    place.chmod(0o777)
    file.rename(place / "s.json")
    file.symlink_to(place / "s.json")
    return f"{file} is reached by {place}, which has mode 0777, so others may write to it"


def not_there_in_an_open_directory(file: Path) -> str:
    file.unlink()
    return in_an_open_directory(file)


def given_away(file: Path) -> str:
    os.chown(file, STRANGER, -1)
    return f"{file} belongs to uid {STRANGER}"


def directory_given_away(file: Path) -> str:
    os.chown(file.parent, STRANGER, -1)
    return f"{file} is reached by {file.parent}, which belongs to uid {STRANGER}"


EXPOSED = [
    opened_to_all,
    opened_to_a_group,
    in_an_open_directory,
    below_an_open_directory,
    behind_a_link_in_an_open_directory,
    pytest.param(given_away, marks=ROOT_ONLY),
    pytest.param(directory_given_away, marks=ROOT_ONLY),
]


@pytest.mark.parametrize("expose", [*EXPOSED, not_there_in_an_open_directory])
def test_hooks_are_not_written_where_others_may_write_without_saying_so(
    settings: Path, run: Run, answer: Callable[[str], None], expose: Callable[[Path], str]
) -> None:
    told = f"{expose(settings)}. {WHY}"
    answer("n")
    asked = run("hooks", "install", "claude")
    assert (asked.status, f"{told} Write this? [y/N]" in asked.err) == (3, True), asked.err
    assert told in run("hooks", "install", "claude", "--dry-run").out
    written = run("hooks", "install", "claude", "--yes", "--json").json[0]
    assert (written["changed"], told in written["notes"]) == (True, True)


@pytest.mark.parametrize("expose", EXPOSED)
def test_hooks_doctor_names_a_settings_file_that_others_may_write_or_own(
    settings: Path, run: Run, done: Run, expose: Callable[[Path], str]
) -> None:
    done("hooks", "install", "claude", "--yes")
    safe = run("hooks", "doctor", "claude", "--json").json["findings"]
    assert "permissions" not in {each["check"] for each in safe}
    told = expose(settings)
    seen = run("hooks", "doctor", "claude", "--json")
    assert seen.status == 1
    found = {each["check"]: each for each in seen.json["findings"]}
    assert found["permissions"]["ok"] is False
    assert found["permissions"]["detail"].startswith(f"{told}. {WHY}")
    assert told in run("hooks", "doctor").out


def test_hooks_in_a_project_that_others_may_write_are_named(
    settings: Path, home: Path, run: Run
) -> None:
    (home / "project").chmod(0o777)
    told = run("hooks", "install", "claude", "--project", "--yes").out
    assert f"is reached by {home}/project, which has mode 0777" in told
    seen = run("hooks", "doctor", "claude", "--project").out
    assert f"is reached by {home}/project, which has mode 0777" in seen


def test_a_server_and_completions_are_not_written_there_without_saying_so_either(
    settings: Path, home: Path, run: Run
) -> None:
    user = home / "home"
    user.chmod(0o777)
    told = f"is reached by {user}, which has mode 0777, so others may write to it. {WHY}"
    assert told in run("mcp", "install", "claude", "--dry-run").out
    shells.directory("bash").mkdir(parents=True)
    shells.directory("bash").chmod(0o777)
    assert f"which has mode 0777, so others may write to it. {WHY}" in (
        run("completions", "bash", "--install", "--dry-run").out
    )


def test_nothing_is_said_of_settings_that_only_their_owner_and_root_may_write(
    settings: Path, run: Run, answer: Callable[[str], None]
) -> None:
    answer("n")
    assert WHY not in run("hooks", "install", "claude").err


@pytest.mark.parametrize("whose", ["project", "exposed"])
def test_hooks_doctor_runs_no_command_that_somebody_else_may_have_written(
    settings: Path, home: Path, run: Run, whose: str
) -> None:
    """It has the shape of ours, and comes with a repository, or from whoever may write there."""
    client = home / "fleetctl" / "hook.py"
    client.parent.mkdir()
    client.touch()
    command = f"/bin/sh -c 'touch {home}/pwned' {client} claude 2>/dev/null || true"
    entry = {"hooks": [{"type": "command", "command": command}]}
    text = json.dumps({"hooks": {"SessionStart": [entry]}})
    project = ["--project"] if whose == "project" else []
    place = home / "project/.claude/settings.local.json" if project else settings
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    if not project:
        place.chmod(0o666)
    seen = run("hooks", "doctor", "claude", "--json", *project)
    assert not (home / "pwned").exists()
    found = {each["check"]: each for each in seen.json["findings"]}
    assert found["run"]["ok"] is False
    assert found["run"]["detail"].startswith("not run: another user may have written the command")
    # What this installation would write is its own word, and what only the person writes.
    assert run("hooks", "install", "claude", "--yes", *project).status == 0
    seen = run("hooks", "doctor", "claude", "--json", *project)
    assert {each["check"]: each for each in seen.json["findings"]}["run"]["ok"]
    if not project:
        place.write_text(text)
        place.chmod(0o600)
        run("hooks", "doctor", "claude")
        assert (home / "pwned").exists()
