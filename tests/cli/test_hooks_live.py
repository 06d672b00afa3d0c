"""``fleetctl hooks doctor --live``: what agent CLIs told lately, and whether fleetd went deaf."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetctl.integrations import hook_command
from fleetctl.integrations.status import DaemonHookStatus
from fleetd.protocol.requests.hook import HarnessStatus, HookDeliver
from tests.support.processes import Daemon, Result

from .test_hooks_status import findings

Send = Callable[..., None]


@pytest.fixture
def send(daemon: Daemon) -> Send:
    """Return a function that delivers a payload of Claude Code."""
    number = 0

    def deliver(event: str, *, session: str = "s-1", harness: str = "claude", **more: Any) -> None:
        nonlocal number
        number += 1
        payload = {"hook_event_name": event, "session_id": session, "cwd": os.getcwd()} | more
        with Fleet(daemon.socket) as client:
            reply = client.call(
                HookDeliver(
                    delivery_id=f"delivery-{number:08}",
                    harness=harness,
                    payload=json.dumps(payload),
                )
            )
        assert (reply.stdout, reply.exit_code) == ("", 0)

    return deliver


def live(run: Callable[..., Result], *words: str) -> tuple[int, dict[str, str], list[Any]]:
    """Return the status, the findings of Claude Code, and what was heard."""
    result = run("hooks", "doctor", "--live", *words, "--json")
    return result.status, findings(result), result.json["live"]


def test_hooks_that_are_heard_and_current_are_in_order(
    settings: Path,
    send: Send,
    run: Callable[..., Result],
) -> None:
    send("SessionStart", source="startup")
    send("UserPromptSubmit", prompt="Add login")
    status, found, [told] = live(run)
    assert status == 0, found
    assert found["settings"] == "up to date"
    assert found["version"] == "2.1.200; its events have no version"
    assert found["sessions"].startswith("last activity at 2")
    assert found["unknown"] == "no unknown events or fields in the last week"
    assert [each["event"] for each in told["events"]] == ["UserPromptSubmit", "SessionStart"]
    assert (told["harness"], told["version"], told["unknown"]) == ("claude", "2.1.200", [])
    shown = run("hooks", "doctor", "--live")
    assert shown.status == 0
    lines = shown.out.strip().splitlines()
    assert lines[0] == "claude 2.1.200"
    assert lines[1].split() == ["EVENT", "LAST", "COUNT"]
    assert lines[2].split()[0] == "UserPromptSubmit"
    assert lines[-1] == "Everything is in order."


def test_a_renamed_event_and_a_renamed_field_are_wrong_and_named(
    settings: Path,
    send: Send,
    run: Callable[..., Result],
) -> None:
    send("SessionStart", source="startup")
    for number in range(3):
        send("UserPromptSent", prompt=f"Add login {number}")
    send("PreToolUse", toolName="Read")
    status, found, [told] = live(run)
    assert status == 1
    assert found["unknown"].startswith("WRONG: fleetd does not know these fields: toolName (1). ")
    assert [(each["kind"], each["name"]) for each in told["unknown"]] == [
        ("event", "UserPromptSent"),
        ("field", "toolName"),
    ]
    shown = run("hooks", "doctor", "--live")
    assert shown.status == 1
    words = " ".join(shown.out.split())
    assert "fleetd does not know these events: UserPromptSent (3). Update fleetd; " in words
    assert shown.out.endswith("\n2 problems: unknown (claude).\n")
    # The lines are columns.
    checked = [line for line in shown.out.splitlines() if line[:6].strip() in ("ok", "WRONG")]
    assert len({line.index("claude") for line in checked if "  claude  " in line}) == 1
    assert run("hooks", "doctor").status == 0


def test_sessions_that_began_and_fell_silent_are_wrong(
    settings: Path,
    send: Send,
    run: Callable[..., Result],
) -> None:
    send("SessionStart", source="startup", session="one")
    status, found, _ = live(run)
    assert status == 0
    assert found["sessions"].startswith(
        "1 session started and then sent no event, the first of them at 2"
    )
    for session in ("two", "three"):
        send("SessionStart", source="startup", session=session)
        send("UserPromptSent", prompt="Hello", session=session)
    status, found, [told] = live(run)
    assert status == 1
    assert found["sessions"].startswith(
        "WRONG: 3 sessions started and then sent no event, the first"
    )
    assert told["silent_sessions"] == 3


def test_settings_of_an_earlier_version_are_wrong(
    settings: Path,
    daemon: Daemon,
    run: Callable[..., Result],
    done: Callable[..., Result],
) -> None:
    written = json.loads(settings.read_text())
    del written["hooks"]["PermissionRequest"]
    settings.write_text(json.dumps(written, indent=2) + "\n")
    status, found, _ = live(run)
    assert status == 1
    assert found["settings"] == (
        f"WRONG: {settings} is not what this version would write, without PermissionRequest;"
        " run: fleetctl hooks install claude"
    )
    done("hooks", "install", "claude", "--yes")
    status, found, _ = live(run)
    assert (status, found["settings"]) == (0, "up to date")
    settings.write_text(settings.read_text().replace("2>/dev/null || ", "2>/dev/null; "))
    status, found, _ = live(run)
    assert status == 1
    assert found["settings"].startswith(f"WRONG: {settings} is not what this version would write;")


@pytest.mark.parametrize(
    ("script", "before", "told"),
    [
        ("echo 2.1.331", "2.1.330", "2.1.331 now, 2.1.330 in its last events"),
        ("echo 2.1.331", "2.1.331", "2.1.331, as in its last events"),
        ("exit 3", "2.1.330", "claude prints no version; its last events came from 2.1.330"),
        ("echo nothing", None, "claude prints no version"),
    ],
)
def test_the_version_now_stands_beside_the_one_that_was_heard(
    machine: Path,
    settings: Path,
    home: Path,
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    before: str | None,
    told: str,
) -> None:
    (home / "bin" / "claude").write_text(f"#!/bin/sh\n{script}\n")
    heard = HarnessStatus(
        harness="claude", deliveries=3, sessions=1, last_event="Stop", from_spool=0, unfit=0,
        last_event_at="2026-11-22T10:00:00.000Z", p50_ms=12.3, p95_ms=15.0, version=before,
    )  # fmt: skip
    monkeypatch.setattr("fleetctl.integrations.status.ask", lambda: DaemonHookStatus([heard]))
    assert live(run)[1]["version"] == told


def test_names_that_are_not_fit_for_a_terminal_never_reach_it_and_long_lists_are_cut(
    settings: Path,
    send: Send,
    run: Callable[..., Result],
) -> None:
    send("Evil\x1b]0;title\x07Name")
    for number in range(80):
        send(f"Event{number:02}")
    shown = run("hooks", "doctor", "--live")
    assert shown.status == 1
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out
    words = " ".join(shown.out.split())
    assert "(others) (17), Event00 (1)" in words
    assert " and 55 more. " in words
    _, _, [told] = live(run)
    assert len(told["unknown"]) == 65


def test_a_cli_that_was_heard_without_hooks_of_its_own_is_told_of(
    settings: Path,
    send: Send,
    run: Callable[..., Result],
) -> None:
    send("SessionStart", source="startup", harness="newcomer")
    send("Whatever", harness="newcomer")
    status, _, told = live(run)
    assert status == 1
    assert [each["harness"] for each in told] == ["claude", "newcomer"]
    # It is no CLI that fleetd could ask for its version.
    shown = run("hooks", "doctor", "--live").out
    assert "PATH" not in shown
    status, _, told = live(run, "claude")
    assert (status, [each["harness"] for each in told]) == (0, ["claude"])


def test_without_a_daemon_nothing_can_be_said_and_that_is_wrong(
    settings: Path,
    run: Callable[..., Result],
) -> None:
    status, found, _ = live(run)
    assert status == 1
    assert found["daemon"].startswith("WRONG: fleetd is not running")
    assert run("hooks", "doctor").status == 0


def test_hooks_that_work_with_the_slower_client_are_only_a_note(
    machine: Path,
    daemon: Daemon,
    client_in_c: Path,
    run: Callable[..., Result],
    done: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(hook_command, "runs", lambda _program: False)
        done("hooks", "install", "claude", "--yes")
    status, found, _ = live(run)
    assert status == 0, found
    assert found["settings"].startswith("they work, but this version would ")
    assert found["settings"].endswith("; run: fleetctl hooks install claude")
