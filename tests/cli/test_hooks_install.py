"""``fleetctl hooks install`` and ``uninstall``, on whatever settings files people have."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.integrations import config_file, hook_command, launcher, settings_backups
from fleetctl.integrations.registry import HARNESSES
from fleetd.protocol.errors import InvalidState
from tests.support.processes import Result

VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME")
# A compiled client would be preferred.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "_hook_client")
SETTINGS = '{\n  "model": "opus", // the good one\n  "hooks": {\n    "Stop": []\n  }\n}\n'


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user with no agent CLI; its name has a space and quotes."""
    user = home / """a "user's" home"""
    (user / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", str(user / "bin"))
    monkeypatch.delenv("FLEET_SOCKET")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return user


@pytest.fixture
def executable(machine: Path) -> Callable[..., None]:
    """Return a function that puts an agent CLI on the PATH."""

    def put(name: str, version: str = "2.1.200 (Claude Code)") -> None:
        file = machine / "bin" / name
        file.write_text(f"#!/bin/sh\necho '{version}'\n")
        file.chmod(0o755)

    return put


@pytest.fixture
def settings(machine: Path, executable: Callable[..., None]) -> Path:
    """Return the settings file of a Claude Code that is on the machine."""
    executable("claude")
    file = machine / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(SETTINGS)
    return file


def commands(file: Path, event: str) -> list[str]:
    entries = json.loads(file.read_text())["hooks"][event]
    return [h.get("command") or h["bash"] for e in entries for h in e.get("hooks", [e])]


def test_the_change_is_shown_asked_for_made_and_can_be_taken_back(
    settings: Path, run: Callable[..., Result], answer: Callable[[str], None]
) -> None:
    answer("n")
    refused = run("hooks", "install", "claude", "--diff")
    assert refused.status == 3
    assert refused.out.endswith("Nothing was changed.\n")
    assert f"--- {settings}\n" in refused.out
    assert settings.read_text() == SETTINGS
    answer("y")
    done = run("hooks", "install", "claude")
    assert done.status == 0
    copy = settings_backups.place(config_file.read(settings))
    assert done.out.splitlines()[-2] == f"claude: installed in {settings}; as it was: {copy}"
    assert copy.read_text() == SETTINGS
    shown = [line for line in refused.out.splitlines() if line.startswith("+ ")]
    assert all(line[1:] in settings.read_text() for line in shown)
    answer("y")
    assert run("hooks", "uninstall", "claude").status == 0
    assert settings.read_text() == SETTINGS
    assert os.listdir(settings.parent) == ["settings.json"]


def test_a_second_time_there_is_nothing_to_do(settings: Path, done: Callable[..., Result]) -> None:
    done("hooks", "install", "claude", "--yes")
    before = settings.stat()
    again = done("hooks", "install", "claude")  # without a question
    assert again.out == f"claude: already installed ({settings})\n"
    assert settings.stat().st_mtime_ns == before.st_mtime_ns
    assert settings.stat().st_ino == before.st_ino
    done("hooks", "uninstall", "claude", "--yes")
    assert done("hooks", "uninstall", "claude").out == f"claude: not installed ({settings})\n"


def test_without_a_terminal_it_wants_yes_and_dry_run_writes_nothing(
    settings: Path, run: Callable[..., Result], done: Callable[..., Result]
) -> None:
    refused = run("hooks", "install", "--all")
    assert (refused.status, "Use --yes" in refused.err) == (2, True)
    dry = done("hooks", "install", "--all", "--dry-run")
    assert "+++ " in dry.out
    assert dry.out.endswith("[DRY RUN] Nothing was written.\n")
    assert settings.read_text() == SETTINGS
    assert os.listdir(settings.parent) == ["settings.json"]


def test_every_harness_on_the_machine_gets_its_file(
    machine: Path, executable: Callable[..., None], done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("claude", "gemini", "cursor-agent"):
        executable(name)
    (machine / ".codex").mkdir()
    (machine / ".copilot").mkdir()
    monkeypatch.setattr(hook_command, "shipped_plugin", lambda: b"// fleetd\n")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    (machine / ".config" / "opencode").mkdir(parents=True)
    done("hooks", "install", "--all", "--yes")
    found = {str(f.relative_to(machine)) for f in machine.rglob("*") if f.is_file()}
    assert found - {"bin/claude", "bin/gemini", "bin/cursor-agent"} == {
        ".claude/settings.json",
        ".codex/hooks.json",
        ".gemini/settings.json",
        ".config/opencode/plugins/fleet.js",
        ".cursor/hooks.json",
        ".copilot/hooks/fleet.json",
    }
    assert json.loads((machine / ".codex/hooks.json").read_text()).keys() == {"hooks"}
    gemini = json.loads((machine / ".gemini/settings.json").read_text())["hooks"]
    assert gemini["PreCompress"][0]["hooks"][0]["timeout"] == 10_000
    assert commands(machine / ".gemini/settings.json", "AfterTool")[0].endswith("null; exit 0")
    cursor = json.loads((machine / ".cursor/hooks.json").read_text())
    assert cursor["version"] == 1
    copilot = machine / ".copilot/hooks/fleet.json"
    assert "preToolUse" not in json.loads(copilot.read_text())["hooks"]
    assert " copilot preCompact 2>/dev/null || true" in commands(copilot, "preCompact")[0]
    done("hooks", "uninstall", "--all", "--yes")
    left = {str(f.relative_to(machine)) for f in machine.rglob("*") if f.is_file()}
    assert left == {"bin/claude", "bin/gemini", "bin/cursor-agent"}


def test_the_vendors_own_variables_name_other_places(
    machine: Path, executable: Callable[..., None], done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    executable("claude")
    for name in VARIABLES:
        monkeypatch.setenv(name, str(machine / name))
    seen = done("hooks", "install", "claude", "codex", "gemini", "copilot", "--yes", "--json").json
    assert [each["file"].removeprefix(str(machine)) for each in seen] == [
        "/CLAUDE_CONFIG_DIR/settings.json",
        "/CODEX_HOME/hooks.json",
        "/GEMINI_CLI_HOME/.gemini/settings.json",
        "/COPILOT_HOME/hooks/fleet.json",
    ]
    assert all(each["changed"] and Path(each["file"]).is_file() for each in seen)


def test_nothing_to_install_for_is_said(machine: Path, run: Callable[..., Result]) -> None:
    assert "None of these was found" in run("hooks", "install", "--all", "--yes").err
    for argv in ((), ("vim",), ("claude", "--all")):
        assert run("hooks", "install", *argv).status == 2
    absent = run("hooks", "install", "codex", "--yes")
    assert absent.status == 0
    assert "Codex CLI was not found on this machine; the hooks wait for it." in absent.out


@pytest.mark.parametrize("version", ["2.0.14 (Claude Code)", "no version at all", None])
def test_an_old_claude_gets_no_event_that_could_make_it_ignore_its_settings(
    machine: Path, executable: Callable[..., None], done: Callable[..., Result], version: str | None
) -> None:
    if version:
        executable("claude", version)
    seen = done("hooks", "install", "claude", "--yes", "--json").json[0]
    assert "StopFailure" not in seen["events"]
    assert {"SessionStart", "PreCompact", "SessionEnd"} <= set(seen["events"])
    assert any("they were left out: PostToolUseFailure, PostCompact" in n for n in seen["notes"])
    executable("claude")
    seen = done("hooks", "install", "claude", "--yes", "--json").json[0]
    assert "StopFailure" in seen["events"]
    executable("claude", "2.0.14")
    assert not done("hooks", "install", "claude", "--yes", "--json").json[0]["changed"]


def test_the_command_runs_this_hook_with_this_interpreter(
    settings: Path, home: Path, run: Callable[..., Result], tmp_path: Path
) -> None:
    """The shell takes it apart as meant, from a path with blanks and quotes too."""
    place = tmp_path / """it's a "place" $HOME"""
    for package in ("fleetctl", "fleetd"):
        source = Path(sys.modules[package].__file__ or "").parent
        shutil.copytree(source, place / package, ignore=LEFT_OUT)
    hook = place / "fleetctl" / "hook.py"
    hook.write_text("import sys\nprint(sys.argv[1:], sys.flags.isolated, sys.flags.no_site)\n")
    settings.write_text("{}")
    subprocess.run(
        [sys.executable, "-m", "fleetctl", "hooks", "install", "claude", "--yes"],
        env=os.environ | {"PYTHONPATH": str(place)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    command = commands(settings, "Stop")[0]
    assert command.endswith(" claude 2>/dev/null || true")
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("['claude'] 1 1\n", "")
    hook.unlink()
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_socket_elsewhere_is_told_to_the_hook(
    settings: Path, home: Path, done: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text("{}")
    done("hooks", "install", "claude", "--yes")
    before = settings.read_text()
    assert "FLEET_SOCKET" not in launcher.path().read_text()
    config = home / "config" / "fleet" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'[paths]\nsocket = "{home}/my run/s"\n')
    done("hooks", "install", "claude", "--yes")
    assert f"  FLEET_SOCKET='{home}/my run/s' '/" in launcher.path().read_text()
    assert settings.read_text() == before
    config.write_text("[paths]\nsocket = 5\n")
    assert "socket" in run_fails(done, "hooks", "install", "claude")


@pytest.mark.parametrize("harness", ["claude", "codex", "gemini", "cursor", "copilot"])
def test_a_compiled_client_takes_the_place_of_the_one_in_python_and_back(
    machine: Path, client_in_c: Path, done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch, harness: str,
) -> None:  # fmt: skip
    works = hook_command.runs
    monkeypatch.setattr(hook_command, "runs", lambda _program: False)
    done("hooks", "install", harness, "--yes")
    file = HARNESSES[harness].settings_file(None)
    settings, in_python = file.read_text(), launcher.path().read_text()
    assert f"{launcher.path()}' {harness}" in settings
    assert launcher.path().stat().st_mode & 0o777 == 0o700
    assert "/fleetctl/hook.py' " in in_python
    assert "_hook_client" not in in_python

    monkeypatch.setattr(hook_command, "runs", works)
    done("hooks", "install", harness, "--yes")
    assert f"    '{client_in_c}' " in launcher.path().read_text()
    assert "already installed" in done("hooks", "install", harness, "--yes").out

    monkeypatch.setattr(hook_command, "runs", lambda _program: False)
    done("hooks", "install", harness, "--yes")
    assert (file.read_text(), launcher.path().read_text()) == (settings, in_python)
    done("hooks", "uninstall", "--all", "--yes")
    assert not file.exists()
    assert not launcher.path().exists()


def test_a_new_claude_starts_the_launcher_without_a_shell(
    settings: Path, executable: Callable[..., None], done: Callable[..., Result]
) -> None:
    settings.write_text("{}")
    done("hooks", "install", "claude", "--yes", "--enforce-locks")
    executable("claude", "2.1.330 (Claude Code)")
    done("hooks", "install", "claude", "--yes")
    hooks = json.loads(settings.read_text())["hooks"]
    for event, [group] in hooks.items():
        [hook] = group["hooks"]
        words = ["claude", "enforce-locks"] if event == "PreToolUse" else ["claude"]
        assert (hook["command"], hook["args"]) == (str(launcher.path()), words)
    (seen,) = done("hooks", "status", "claude", "--json").json["harnesses"]
    told = [seen["hooks"][name] for name in ("installed", "current", "enforce_locks", "client")]
    assert told == ["yes", True, True, "python"]
    assert "the test run " in done("hooks", "doctor", "claude").out
    # Where nobody can say which version it is, they stay as they are.
    (settings.parents[1] / "bin" / "claude").unlink()
    assert "already installed" in done("hooks", "install", "claude", "--yes").out
    executable("claude", "2.1.200 (Claude Code)")
    done("hooks", "install", "claude", "--yes")
    assert commands(settings, "Stop") == [f"'{launcher.path()}' claude 2>/dev/null || true"]
    executable("claude", "2.1.330 (Claude Code)")
    done("hooks", "install", "claude", "--yes")
    done("hooks", "uninstall", "claude", "--yes")
    assert settings.read_text() == "{}"


LONG = {
    "python": "'/opt/python3' -I -S '/opt/fleetctl/hook.py' claude",
    "compiled": "FLEET_SOCKET='/s' '/opt/lib/fleetctl/_hook_client' claude",
    "an older launcher": "'/elsewhere/fleet/fleet-hook' claude",
}


@pytest.mark.parametrize("ours", LONG.values(), ids=LONG)
def test_commands_of_earlier_versions_are_ours_and_become_the_launcher(
    settings: Path, done: Callable[..., Result], ours: str
) -> None:
    settings.write_text("{}")
    done("hooks", "install", "claude", "--yes")
    program = f"'{launcher.path()}' claude"
    installed = settings.read_text()
    settings.write_text(installed.replace(program, ours, 3))
    assert len(commands(settings, "Stop")) == 1
    done("hooks", "install", "claude", "--yes", "--enforce-locks")
    assert commands(settings, "Stop") == [f"{program} 2>/dev/null || true"]
    assert commands(settings, "PreToolUse") == [f"{program} enforce-locks 2>/dev/null || true"]
    settings.write_text(settings.read_text().replace(program, ours, 3))
    done("hooks", "uninstall", "claude", "--yes")
    assert settings.read_text() == "{}"


def through(launched: Path, *words: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [launched, *words], input="{}", capture_output=True, text=True,
        env=os.environ | env, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_launcher_runs_the_compiled_client_else_the_other_and_never_fails(
    home: Path, tmp_path: Path
) -> None:
    place = tmp_path / """it's a "place" $HOME"""
    place.mkdir()
    compiled, in_python = place / "_hook_client", place / "hook.py"
    compiled.write_text("#!/bin/sh\ncat\necho compiled $FLEET_SOCKET $@ >&2\necho $@\nexit 3\n")
    compiled.chmod(0o700)
    in_python.write_text("import sys\nprint('python', sys.stdin.read(), *sys.argv[1:])\nx\n")
    this = hook_command.Installation(
        sys.executable, str(in_python), "FLEET_SOCKET='/a b' ", str(compiled), "-"
    )
    launcher.write(this.launcher_text)
    assert through(launcher.path(), "claude", "a b") == (0, "{}claude a b\n", "")
    compiled.write_bytes(b"\x7fELF" + bytes(100))
    assert through(launcher.path(), "claude") == (0, "python {} claude\n", "")
    compiled.unlink()
    assert through(launcher.path(), "claude", "a b") == (0, "python {} claude a b\n", "")
    in_python.unlink()
    assert through(launcher.path(), "claude") == (0, "", "")
    # Antigravity takes no answer for a failure.
    assert through(launcher.path(), "antigravity", "Stop") == (0, "{}\n", "")
    in_python.write_text("import sys\nprint('said')\n")
    assert through(launcher.path(), "antigravity", "Stop") == (0, "said\n", "")


@pytest.mark.parametrize("kind", ["of another machine", "without permission", "silent", "hangs"])
def test_a_compiled_client_that_does_not_work_here_is_not_installed(
    settings: Path, client_in_c: Path, done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch, kind: str,
) -> None:  # fmt: skip
    settings.write_text("{}")
    if kind == "of another machine":
        client_in_c.write_bytes(b"\x7fELF" + bytes(100))
    elif kind == "without permission":
        client_in_c.chmod(0o644)
    else:
        monkeypatch.setattr(hook_command, "TRY_S", 0.2)
        client_in_c.write_text("#!/bin/sh\n" + ("exec sleep 60\n" if kind == "hangs" else ""))
    done("hooks", "install", "claude", "--yes")
    assert "_hook_client" not in launcher.path().read_text()


def run_fails(done: Callable[..., Result], *argv: str) -> str:
    with pytest.raises(AssertionError) as failed:
        done(*argv)
    return str(failed.value)


def test_lock_enforcement_is_switched_on_kept_and_switched_off(
    settings: Path, done: Callable[..., Result]
) -> None:
    settings.write_text("{}")

    def install(*options: str) -> list[str]:
        done("hooks", "install", "claude", "--yes", *options)
        assert not any("enforce" in c for c in commands(settings, "PostToolUse"))
        found = commands(settings, "PreToolUse")
        return [command.rpartition("fleet-hook' ")[2] for command in found]

    assert install() == ["claude 2>/dev/null || true"]
    assert install("--enforce-locks") == ["claude enforce-locks 2>/dev/null || true"]
    assert install() == ["claude enforce-locks 2>/dev/null || true"]
    assert install("--no-enforce-locks") == ["claude 2>/dev/null || true"]
    done("hooks", "uninstall", "claude", "--yes")
    assert settings.read_text() == "{}"


def test_who_cannot_deny_an_edit_is_named(machine: Path, done: Callable[..., Result]) -> None:
    said = done("hooks", "install", "cursor", "gemini", "--enforce-locks", "--yes").out
    assert "Cursor denies no edits for fleetd" in said
    assert "Gemini CLI denies" not in said
    assert " enforce-locks " in commands(machine / ".gemini/settings.json", "BeforeTool")[0]


def test_comments_that_claude_would_not_read_are_kept_and_named(
    settings: Path, done: Callable[..., Result]
) -> None:
    said = done("hooks", "install", "claude", "--yes").out
    assert "Claude Code reads neither comments nor trailing commas" in said
    assert '"model": "opus", // the good one\n' in settings.read_text()


def test_a_link_stays_a_link_and_its_target_keeps_its_mode(
    settings: Path, machine: Path, done: Callable[..., Result]
) -> None:
    target = machine / "dotfiles" / "claude.json"
    target.parent.mkdir()
    settings.rename(target)
    target.chmod(0o640)
    settings.symlink_to("../dotfiles/claude.json")
    done("hooks", "install", "claude", "--yes")
    assert settings.is_symlink()
    assert "/fleet-hook' claude" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    copy = settings_backups.place(config_file.read(settings))
    assert copy.stat().st_mode & 0o777 == 0o600
    assert os.listdir(settings.parent) == ["settings.json"]
    assert os.listdir(target.parent) == ["claude.json"]
    done("hooks", "uninstall", "claude", "--yes")
    assert settings.is_symlink()
    assert target.read_text() == SETTINGS
    assert os.listdir(settings.parent) == ["settings.json"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"a": 1,\n  b}', "line 2, column 3: expected a name in double quotes"),
        (b'{"hooks": 5}', 'its "hooks" is no object but 5'),
        (b'{"hooks": {}, "hooks": {}}', 'more than one "hooks"'),
        (b'{"a": 1,\n "\xff": 2}', "is not UTF-8: see line 2"),
    ],
)
def test_a_file_that_cannot_be_understood_is_left_alone(
    settings: Path, machine: Path, run: Callable[..., Result], content: bytes, told: str
) -> None:
    settings.write_bytes(content)
    (machine / ".codex").mkdir()
    refused = run("hooks", "install", "--all", "--yes")
    assert refused.status == 1
    assert told in refused.err
    assert str(settings) in refused.err
    assert "Hint:" in refused.err
    assert settings.read_bytes() == content
    # One broken file keeps no other harness waiting.
    assert "codex: installed" in refused.out
    document = run("hooks", "install", "claude", "--yes", "--json").json[0]
    assert told in document["error"]["message"]


def test_a_read_only_file_is_left_alone_and_a_way_out_is_named(
    settings: Path, run: Callable[..., Result]
) -> None:
    settings.chmod(0o444)
    refused = run("hooks", "install", "claude", "--yes")
    assert refused.status == 1
    assert "is read-only" in refused.err
    assert f"chmod u+w {settings}" in refused.err
    assert settings.read_text() == SETTINGS


def test_what_is_no_file_is_refused(settings: Path, run: Callable[..., Result]) -> None:
    settings.unlink()
    settings.mkdir()
    assert "cannot be read: Is a directory" in run("hooks", "install", "claude", "--yes").err
    settings.rmdir()
    settings.symlink_to(settings)
    assert "cannot be read" in run("hooks", "install", "claude", "--yes").err
    settings.unlink()
    settings.parent.rmdir()
    settings.parent.write_text("in the way")
    assert "is no directory that you can write" in run("hooks", "install", "claude", "--yes").err


def test_pipes_and_devices_are_neither_waited_for_nor_replaced(
    settings: Path, run: Callable[..., Result]
) -> None:
    with pytest.raises(InvalidState, match="no regular file"):
        config_file.read(Path(os.devnull))
    settings.unlink()
    os.mkfifo(settings)
    for verb in ("install", "uninstall"):
        refused = run("hooks", verb, "claude", "--yes")
        assert refused.status == 1
        assert "is no regular file" in refused.err
    assert settings.is_fifo()


def test_a_change_that_somebody_makes_meanwhile_is_not_lost(
    settings: Path, run: Callable[..., Result], answer: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def slow_answer(_question: str) -> bool:
        settings.write_text('{"model": "sonnet"}')
        return True

    monkeypatch.setattr("fleetctl.integrations.apply.confirm", slow_answer)
    refused = run("hooks", "install", "claude")
    assert refused.status == 1
    assert "was changed by somebody else just now; nothing was written" in refused.err
    assert settings.read_text() == '{"model": "sonnet"}'


def test_a_write_that_fails_leaves_the_file_and_no_leftovers(
    settings: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config_file.os, "fsync", full)
    refused = run("hooks", "install", "claude", "--yes")
    assert refused.status == 1
    assert "No space left on device" in refused.err
    assert settings.read_text() == SETTINGS
    assert os.listdir(settings.parent) == ["settings.json"]


def test_a_step_left_to_the_person_is_not_told_when_the_write_failed(
    machine: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (machine / ".codex").mkdir()
    monkeypatch.setattr(config_file.os, "fsync", full)
    refused = run("hooks", "install", "codex", "--yes")
    assert refused.status == 1
    assert "No space left on device" in refused.err
    assert "You still have to do this" not in refused.out


def test_edits_between_install_and_uninstall_stay(
    settings: Path, done: Callable[..., Result]
) -> None:
    done("hooks", "install", "claude", "--yes")
    settings.write_text(settings.read_text().replace('"opus"', '"sonnet"'))
    done("hooks", "uninstall", "claude", "--yes")
    assert settings.read_text() == SETTINGS.replace('"opus"', '"sonnet"')


def test_a_project_has_files_of_its_own(
    machine: Path, home: Path, done: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "project"
    (project / ".git").mkdir()
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    monkeypatch.setattr(hook_command, "shipped_plugin", lambda: b"// fleetd\n")
    said = done("hooks", "install", *HARNESSES, "--project", "--yes").out
    for harness in HARNESSES.values():
        assert (project / harness.project_file).is_file()
        assert not harness.user_file().exists()
    assert ".codex/hooks.json names paths of this machine: keep it out of commits." in said
    assert ".claude/settings.local.json names" not in said
    done("hooks", "uninstall", "--all", "--project", "--yes")
    assert [f for f in project.rglob("*") if f.is_file()] == []


def test_a_plugin_of_somebody_else_is_left_alone_and_ours_is_renewed(
    machine: Path, run: Callable[..., Result], done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("XDG_CONFIG_HOME")
    file = machine / ".config/opencode/plugins/fleet.js"
    file.parent.mkdir(parents=True)
    file.write_text("export const Mine = 1\n")
    monkeypatch.setattr(
        hook_command, "shipped_plugin", lambda: b"// of fleetd, new\nconst ARGS = []\n"
    )
    refused = run("hooks", "install", "opencode", "--yes")
    assert (refused.status, "is not fleetd's" in refused.err) == (1, True)
    assert run("hooks", "uninstall", "opencode", "--yes").out.startswith("opencode: not installed")
    file.write_text("// of fleetd, old\n")
    done("hooks", "install", "opencode", "--yes")
    assert file.read_text() == "// of fleetd, new\nconst ARGS = []\n"
    done("hooks", "install", "opencode", "--yes", "--enforce-locks")
    assert 'const ARGS = ["enforce-locks"]\n' in file.read_text()
    assert "already installed" in done("hooks", "install", "opencode").out
    done("hooks", "uninstall", "opencode", "--yes")
    assert not file.exists()


def test_a_plugin_is_shown_as_one_line(machine: Path, done: Callable[..., Result]) -> None:
    dry = done("hooks", "install", "opencode", "--dry-run").out.splitlines()
    count = len(hook_command.shipped_plugin().splitlines())
    line = f"the plugin, {count} lines, as in {hook_command.plugin_path()}"
    at = dry.index("--- /dev/null")
    assert dry[at + 2] == f"+ {line}"
    assert len(dry) < 12
    done("hooks", "install", "opencode", "--yes")
    assert f"- {line}" in done("hooks", "uninstall", "opencode", "--yes", "--diff").out


def test_what_the_person_has_to_do_comes_last_and_the_diff_only_on_request(
    machine: Path, done: Callable[..., Result]
) -> None:
    (machine / ".codex").mkdir()
    shown = done("hooks", "install", "codex", "--yes").out.splitlines()
    file = machine / ".codex" / "hooks.json"
    assert shown[0] == "Hooks to install:"
    assert shown[1].split(maxsplit=3) == ["codex", "12", "events", str(file)]
    assert not [line for line in shown if line.startswith(("+", "-"))]
    at = shown.index("You still have to do this")
    assert "".join(shown[at + 1 :]).startswith("  codex: Codex runs no hook that you have not")
    assert "/hooks" in "".join(shown[at + 1 :])
    assert "You still have to" not in done("hooks", "install", "codex", "--yes").out


def test_json_goes_without_a_word_of_text(settings: Path, done: Callable[..., Result]) -> None:
    seen: list[dict[str, Any]] = done("hooks", "install", "claude", "--yes", "--json").json
    assert seen[0]["copy"].endswith(f"/settings-backups{settings}.before-fleet")
    assert seen[0]["diff"].startswith(f"--- {settings}\n+++ {settings}\n@@")
    assert not done("hooks", "uninstall", "claude", "--dry-run", "--json").json[0]["changed"]
    assert done("hooks", "uninstall", "claude", "--yes", "--json").json[0]["changed"]
