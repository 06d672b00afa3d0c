"""``fleetctl hooks status`` and ``doctor``: what is installed, and whether it works."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetctl.integrations import hook_command, launcher
from fleetctl.integrations.registry import CODEX, HARNESSES
from fleetctl.integrations.status import DaemonHookStatus
from fleetd.protocol.requests.hook import HarnessStatus, HookDeliver
from tests.support.processes import Daemon, Result

PAYLOAD = {"session_id": "s-1", "hook_event_name": "SessionStart", "source": "startup"}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, home: Path) -> Callable[[str], None]:
    """Return a function that puts another program in the place of the hook."""
    file = home / "fleetctl" / "hook.py"
    file.parent.mkdir()
    monkeypatch.setattr("fleetctl.integrations.hook_command.client", lambda: file)

    def put(source: str) -> None:
        file.write_text(source)

    return put


def findings(result: Result) -> dict[str, str]:
    """Return the details of the findings of a check, with what is wrong marked."""
    found = result.json["findings"]
    return {f["check"]: ("" if f["ok"] else "WRONG: ") + f["detail"] for f in found}


def test_status_without_a_daemon_says_what_is_installed(
    settings: Path, done: Callable[..., Result]
) -> None:
    seen = done("hooks", "status")
    rows = {line.split()[0]: line.split() for line in seen.out.splitlines()[1:7]}
    assert rows["claude"][:3] == ["claude", "yes", "yes"]
    assert rows["codex"][:3] == ["codex", "no", "no"]
    assert f"File: {settings}\n" in seen.out
    assert "fleetd is not running" in seen.err
    document = done("hooks", "status", "claude", "--json").json
    assert document["daemon"] is False
    hooks = document["harnesses"][0]["hooks"]
    assert (hooks["installed"], hooks["current"], hooks["missing"]) == ("yes", True, [])
    assert hooks["commands"][0].endswith(" claude 2>/dev/null || true")


@pytest.mark.parametrize("harness", ["claude", "codex"])
def test_hooks_of_before_permission_requests_are_whole_and_an_install_updates_them(
    machine: Path, done: Callable[..., Result], run: Callable[..., Result], harness: str,
) -> None:  # fmt: skip
    done("hooks", "install", harness, "--yes")
    file = machine / (".claude/settings.json" if harness == "claude" else ".codex/hooks.json")
    installed = json.loads(file.read_text())
    (group,) = installed["hooks"]["PermissionRequest"]
    assert group["hooks"][0]["command"].endswith(f" {harness} 2>/dev/null || true")
    before = {**installed, "hooks": {**installed["hooks"]}}
    del before["hooks"]["PermissionRequest"]
    file.write_text(json.dumps(before, indent=2) + "\n")

    (seen,) = done("hooks", "status", harness, "--json").json["harnesses"]
    told = {name: seen["hooks"][name] for name in ("installed", "missing", "updates")}
    assert told == {"installed": "yes", "missing": [], "updates": ["PermissionRequest"]}
    assert "yes, old" in done("hooks", "status", harness).out
    told = findings(run("hooks", "doctor", harness, "--json"))["installed"]
    assert told == (
        f"{file}; of an earlier version, without PermissionRequest;"
        f" run: fleetctl hooks install {harness}"
    )
    shown = done("hooks", "install", harness, "--yes").out
    assert [line for line in shown.splitlines() if line.startswith("-") and line[1:2] != "-"] in (
        [],
        ["-    ]"],  # the comma behind the last of before
    )
    assert json.loads(file.read_text()) == installed
    assert findings(run("hooks", "doctor", harness, "--json"))["installed"] == str(file)


def test_payloads_that_nobody_understands_are_told(
    daemon: Daemon, settings: Path, run: Callable[..., Result]
) -> None:
    with Fleet(daemon.socket) as client:
        client.call(HookDeliver(delivery_id="a" * 16, harness="claude", payload="{}"))
        told = findings(run("hooks", "doctor", "--json"))["heard"]
        assert told.startswith("WRONG: no event that fleetd knows, the last at 2")
        assert told.endswith("; 1 of 1 events were unreadable: fleetd's log has one of each")
        payload = json.dumps(PAYLOAD | {"cwd": os.getcwd()})
        client.call(HookDeliver(delivery_id="b" * 16, harness="claude", payload=payload))
    told = findings(run("hooks", "doctor", "--json"))["heard"]
    assert told.startswith("SessionStart at 2")
    assert told.endswith("; 1 of 2 events were unreadable: fleetd's log has one of each")


def test_a_daemon_that_hangs_keeps_nobody_from_seeing_the_rest(
    daemon: Daemon, settings: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.client.retry.READ_S", 0.1)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        seen, checked = run("hooks", "status"), run("hooks", "doctor", "--json")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert seen.status == 0
    assert f"File: {settings}\n" in seen.out
    assert "fleetd did not answer in time." in seen.err
    told = findings(checked)
    assert told["daemon"].startswith("WRONG: fleetd did not answer in time.")
    assert told["run"].startswith("the test run wrote its event into the spool in ")


def test_status_tells_what_the_daemon_heard(
    daemon: Daemon, settings: Path, done: Callable[..., Result]
) -> None:
    with Fleet(daemon.socket) as client:
        payload = json.dumps(PAYLOAD | {"cwd": os.getcwd()})
        client.call(HookDeliver(delivery_id="a" * 16, harness="claude", payload=payload))
    document = done("hooks", "status", "--json").json
    assert document["daemon"] is True
    assert document["spool"]["files"] == 0
    heard = {each["hooks"]["harness"]: each["heard"] for each in document["harnesses"]}
    assert heard.keys() == HARNESSES.keys()
    assert (heard["claude"]["last_event"], heard["claude"]["deliveries"]) == ("SessionStart", 1)
    assert "SessionStart" in done("hooks", "status").out


def test_status_says_what_is_missing_old_or_unreadable(
    settings: Path, done: Callable[..., Result]
) -> None:
    written = json.loads(settings.read_text())
    del written["hooks"]["Stop"]
    settings.write_text(json.dumps(written).replace("'/", "'/old/"))
    seen = done("hooks", "status", "claude", "--json").json["harnesses"][0]["hooks"]
    assert (seen["installed"], seen["missing"], seen["current"]) == ("partly", ["Stop"], False)
    assert "partly, old" in done("hooks", "status").out
    settings.write_text("{")
    shown = done("hooks", "status").out
    assert f"Problem: {settings} cannot be understood: line 1, column 2" in shown


def test_doctor_finds_nothing_wrong_where_nothing_is(
    daemon: Daemon, settings: Path, hook: Callable[[str], None], done: Callable[..., Result]
) -> None:
    """The very command is run, with one word that keeps it out of the records."""
    hook("import sys; sys.stdin.read(); assert 'doctor' in sys.argv; print('fleetd')")
    done("hooks", "install", "claude", "--yes")
    seen = findings(done("hooks", "doctor", "claude", "--json"))
    assert seen["run"].startswith("the test run reached fleetd in ")
    assert seen["installed"] == str(settings)
    assert seen["command"] == "of this installation: the client in Python"
    assert seen["heard"].startswith("nothing yet")
    assert done("hooks", "doctor").out.endswith("Everything is in order.\n")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise SystemExit(0)", "it printed nothing, and did not reach fleetd"),
        ("raise ImportError", "it printed nothing, and did not reach fleetd"),
        ("print('{}')", "it printed '{}"),
    ],
)
def test_doctor_tells_what_the_command_does_wrong(
    daemon: Daemon, machine: Path, hook: Callable[[str], None], done: Callable[..., Result],
    run: Callable[..., Result], source: str, told: str,
) -> None:  # fmt: skip
    hook(source)
    done("hooks", "install", "claude", "--yes")
    seen = run("hooks", "doctor", "claude", "--json")
    assert seen.status == 1
    assert findings(seen)["run"].startswith(f"WRONG: {told}")


def test_doctor_without_a_daemon_wants_the_payload_kept_and_leaves_none(
    home: Path, machine: Path, hook: Callable[[str], None], done: Callable[..., Result],
    run: Callable[..., Result],
) -> None:  # fmt: skip
    def ran(source: str) -> str:
        hook(source)
        return findings(run("hooks", "doctor", "claude", "--json"))["run"]

    hook("")
    done("hooks", "install", "claude", "--yes")
    assert "it wrote no event into the spool" in ran("")
    spool = "import os; d = os.environ['XDG_STATE_HOME'] + '/fleet/spool'; os.makedirs(d);"
    assert "wrote its event into the spool" in ran(spool + "open(d + '/1-a.json', 'w').close()")
    assert list((home / "state").rglob("*.json")) == []


def test_doctor_notes_that_no_daemon_runs_where_hooks_keep_their_payloads(
    machine: Path, done: Callable[..., Result]
) -> None:
    done("hooks", "install", "claude", "--yes")

    told = done("hooks", "doctor")
    assert " ".join(told.out.split()).startswith("note daemon fleetd is not running")
    assert "hooks keep their payloads in the spool until it starts" in told.out
    assert told.out.endswith("Everything is in order.\n")


def test_doctor_tells_a_status_and_an_output_that_an_agent_would_feel(
    machine: Path, done: Callable[..., Result], run: Callable[..., Result]
) -> None:
    done("hooks", "install", "claude", "--yes")
    file = machine / ".claude" / "settings.json"
    for ending, told in ((" 2>/dev/null", "status 2"), (" || true", "wrote to stderr: oh")):
        file.write_text(file.read_text().replace(" 2>/dev/null || true", ending))
        launcher.path().write_text("#!/bin/sh\nprintf oh >&2\nexit 2\n")
        seen = findings(run("hooks", "doctor", "claude", "--json"))
        assert seen["command"].startswith("WRONG: it differs from what this fleetd writes")
        assert told in seen["run"]
        done("hooks", "install", "claude", "--yes")


def test_doctor_names_programs_that_are_not_there(
    settings: Path, run: Callable[..., Result]
) -> None:
    text, place = settings.read_text(), f"'{launcher.path()}'"
    for program, told in (
        ("'/gone/fleet/fleet-hook'", "/gone/fleet/fleet-hook cannot be executed"),
        ("'/gone/fleetctl/_hook_client'", "/gone/fleetctl/_hook_client cannot be executed"),
        (f"'{sys.executable}' -I -S '/gone/fleetctl/hook.py'", "/hook.py cannot be read"),
    ):
        settings.write_text(text.replace(place, program))
        seen = findings(run("hooks", "doctor", "claude", "--json"))
        assert seen["command"].startswith("WRONG: /gone/")
        assert f"{told}; run: fleetctl hooks install claude" in seen["command"]
        assert "run" not in seen


def test_doctor_says_which_client_is_used(
    daemon: Daemon, machine: Path, client_in_c: Path, run: Callable[..., Result],
    done: Callable[..., Result], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def doctor(harness: str = "claude") -> dict[str, str]:
        return findings(run("hooks", "doctor", harness, "--json"))

    def client() -> str:
        document = done("hooks", "status", "claude", "--json").json
        return document["harnesses"][0]["hooks"]["client"]

    done("hooks", "install", "claude", "--yes")
    seen = doctor()
    assert seen["command"] == "of this installation: the compiled client"
    assert seen["run"].startswith("the test run reached fleetd in ")
    assert client() == "compiled"

    works = hook_command.runs
    monkeypatch.setattr(hook_command, "runs", lambda _program: False)
    assert doctor()["command"].startswith("WRONG: it differs from what this fleetd writes")
    done("hooks", "install", "claude", "--yes")
    assert client() == "python"
    monkeypatch.setattr(hook_command, "runs", works)
    assert doctor()["command"] == (
        "it runs the client in Python; for the compiled one, which is faster,"
        " run: fleetctl hooks install claude"
    )
    assert doctor()["run"].startswith("the test run reached fleetd")
    assert done("hooks", "doctor").out.endswith("Everything is in order.\n")

    done("hooks", "install", "claude", "--yes")
    client_in_c.unlink()
    seen = doctor()
    assert seen["command"].startswith("WRONG: it differs from what this fleetd writes")
    assert seen["run"].startswith("the test run reached fleetd"), (
        "the launcher runs the client in Python"
    )


def test_doctor_wants_something_installed(machine: Path, run: Callable[..., Result]) -> None:
    seen = run("hooks", "doctor", "--json")
    assert seen.status == 1
    assert findings(seen)["installed"].endswith("run: fleetctl hooks install --all")
    assert "no hooks in" in findings(run("hooks", "doctor", "codex", "--json"))["installed"]
    assert findings(seen)["daemon"].startswith("WRONG: fleetd is not running")


@pytest.mark.parametrize(
    ("harness", "member", "told"),
    [
        ("claude", '"disableAllHooks": true', '"disableAllHooks" is true'),
        ("claude", "// hello", "comments or trailing commas"),
        ("gemini", '"hooksConfig": {"enabled": false}', '"hooksConfig.enabled" is false'),
        ("gemini", '"hooksConfig": {"disabled": ["fleetd"]}', "/hooks enable fleetd"),
    ],
)
def test_doctor_names_a_setting_that_keeps_hooks_from_running(
    machine: Path, done: Callable[..., Result], run: Callable[..., Result], harness: str,
    member: str, told: str,
) -> None:  # fmt: skip
    file = machine / f".{harness}" / "settings.json"
    file.parent.mkdir()
    file.write_text(f"{{\n{member}\n}}")
    done("hooks", "install", harness, "--yes")
    seen = findings(run("hooks", "doctor", harness, "--json"))
    assert seen["trust"].startswith("WRONG: ")
    assert told in seen["trust"]


def test_doctor_says_how_to_trust_codex_hooks_until_they_are(
    machine: Path, done: Callable[..., Result], run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    done("hooks", "install", "codex", "--yes")
    config = machine / ".codex" / "config.toml"

    def trust() -> str:
        return findings(run("hooks", "doctor", "codex", "--json"))["trust"]

    count = len(CODEX.events)
    assert trust().startswith(f"WRONG: {count} of {count} hooks are not trusted. Codex runs no")
    assert "/hooks" in trust()
    assert not config.exists()
    events = [
        "".join(f"_{c.lower()}" if c.isupper() else c for c in event.name).lstrip("_")
        for event in CODEX.events
    ]
    assert events[:3] == ["session_start", "user_prompt_submit", "pre_tool_use"]
    file = machine / ".codex" / "hooks.json"
    config.write_text(
        "".join(
            f'[hooks.state."{file}:{event}:0:0"]\ntrusted_hash = "sha256:00"\n' for event in events
        )
    )
    assert trust() == "every hook was trusted once in Codex's /hooks"
    config.write_text("not = = toml")
    assert trust().startswith("WRONG: ")
    heard = HarnessStatus(
        harness="codex", deliveries=3, sessions=1, last_event="Stop",
        last_event_at="2026-11-22T10:00:00.000Z", from_spool=0, unfit=0, p50_ms=12.3, p95_ms=951.0,
    )  # fmt: skip
    monkeypatch.setattr("fleetctl.integrations.status.ask", lambda: DaemonHookStatus([heard]))
    assert trust().endswith("but events arrive")
    seen = findings(run("hooks", "doctor", "codex", "--json"))
    assert seen["heard"] == "Stop at 2026-11-22T10:00:00.000Z"
    assert seen["timing"].startswith("WRONG: p50 12 ms, p95 951 ms: hooks give up")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("", "Codex makes no plans by itself"),
        ("[tools]\nupdate_plan = 1\n", "Codex makes no plans by itself"),
        ("[tools.update_plan]\nenabled = true\n", "its plans are followed"),
    ],
)
def test_doctor_says_how_codex_comes_to_make_plans(
    machine: Path, done: Callable[..., Result], run: Callable[..., Result], config: str, told: str
) -> None:
    done("hooks", "install", "codex", "--yes")
    (machine / ".codex" / "config.toml").write_text(config)
    assert findings(run("hooks", "doctor", "codex", "--json"))["plan"].startswith(told)
