"""Text that was stored, or that came with a command line, steers no terminal and forges no log."""

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl import cli
from fleetctl.client import Fleet
from tests.support.hook_client import hook
from tests.support.processes import Daemon, Result, fleetctl

# Colour, title, clipboard, links, C1 twins of both, bell, backspace, a line of its own, an order of
# reading of its own; and our own colours, which are not ours when somebody stored them.
EVIL = (
    "evil\x1b[35mred\x1b]0;title\x07\x1b]52;c;Y2xpcA==\x1b\\\x1b]8;;http://x\x1b\\\x9b31m"
    "\x9d0;t\x9c\x90q\x08\x08\r[INFO] forged\x0b\x0c\x7f\x85\u2028\u2029\u202eflip\u2066\u2069end"
)
FILE = f"/p/{EVIL}.py"
OURS = re.compile("\x1b\\[(0|1|2|31|32|33|36)m")
ORDERS = {*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029))}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def obeyed(text: str) -> set[str]:
    """Return the characters of a text that a terminal, or who reads it, would be misled by."""
    codes = {c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160}
    return codes | (ORDERS & set(text))


@pytest.fixture
def run(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command in this process, at a terminal or not."""

    def command(*argv: str, terminal: bool = False) -> Result:
        if argv[0] == "restore":  # runs a program of its own
            return fleetctl(*argv)
        out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.delenv("NO_COLOR", raising=False)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(sys, "stdin", Terminal("y\n") if terminal else io.StringIO())
            status = cli.main(argv)
        return Result(status, out.getvalue(), err.getvalue())

    return command


@pytest.fixture
def codex(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an agent CLI on the PATH that ends at once."""
    programs = home / "programs"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n")
    (programs / "codex").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.fixture
def stored(daemon: Daemon, home: Path, codex: None) -> dict[str, str]:
    """Store hostile text wherever there is room for text; return the ids of what holds it."""
    with Fleet(daemon.socket) as client:

        def call(method: str, **given: Any) -> Any:
            return client.call_raw(method, given)

        here = str(Path.cwd())
        mission = call(
            "mission.create",
            title=EVIL,
            description=EVIL,
            project_dir=here,
            metadata={EVIL: EVIL},
            sorties=[{"title": EVIL, "files": [FILE]}, {"title": EVIL, "description": EVIL}],
        )["id"]
        call("mission.start", mission_id=mission)
        call("agent.register", agent_id="a", role="specialist", mission_id=mission, cwd=here)
        call("agent.register", agent_id="b", role="dispatch", mission_id=mission, cwd=f"/{EVIL}")
        first, second = (s["id"] for s in call("sortie.list", mission_id=mission)["sorties"])
        call("sortie.start", sortie_id=first, agent_id="a")
        call("sortie.progress", sortie_id=first, percent=50, notes=EVIL)
        call("sortie.start", sortie_id=second, agent_id="b")
        call("sortie.block", sortie_id=second, reason=EVIL)
        call("agent.note", agent_id="a", last_action=EVIL, next_steps=[EVIL], blockers=[EVIL])
        kept = {"text": EVIL, "because": EVIL, "path": FILE, "mission_id": mission}
        note = call("note.add", kind="decision", **kept)
        call("note.add", kind="finding", **kept, agent_id="a")
        lock = call("lock.acquire", file=FILE, agent_id="a", mission_id=mission)
        message = call(
            "message.send", **{"from": "b"}, to=["a"], subject=EVIL, body=EVIL, mission_id=mission
        )
        call(
            "event.append",
            type="note_made",
            agent_id="a",
            mission_id=mission,
            data={"text": EVIL, "file": FILE, EVIL: [EVIL]},
        )
        for agent in ("a", "b"):
            edit = {"type": "file_modified", "agent_id": agent, "data": {"file": FILE}}
            call("event.append", **edit)
        checkpoint = call("checkpoint.create", mission_id=mission, trigger_details=EVIL)
        snapshot = call(
            "snapshot.record",
            run_id="build-42",
            step_state={
                "plan_path": FILE,
                "step_id": "evil\x1b[35m\x9b",
                "resume_hints": {"next_actions": [EVIL]},
                "todo_compliance": {"result": "FAIL", "violations": [EVIL]},
            },
        )
    for event in ("SessionStart", "UserPromptSubmit"):
        told = {"session_id": EVIL, "hook_event_name": event, "cwd": f"/{EVIL}", "prompt": EVIL}
        hook(json.dumps(told))
        hook(json.dumps({**told, "session_id": f"s{event}", "cwd": here}))
    hook(json.dumps({"session_id": EVIL, "event": EVIL, "hook_event_name": EVIL}), EVIL)
    hook(json.dumps({"session_id": "odd", "hook_event_name": "SessionStart", EVIL: EVIL}))
    asks = {"hook_event_name": "Notification", "notification_type": "permission_prompt"}
    hook(json.dumps({**asks, "session_id": EVIL, "cwd": f"/{EVIL}", "message": EVIL}))
    task = {"id": EVIL, "type": "shell", "status": "running", "command": EVIL}
    ends = {"hook_event_name": "Stop", "background_tasks": [task]}
    hook(json.dumps({**ends, "session_id": "sUserPromptSubmit", "cwd": here}))
    return {
        "mission": mission,
        "first": first,
        "second": second,
        "note": note["id"],
        "lock": lock["id"],
        "message": message["id"],
        "checkpoint": checkpoint["id"],
        "snapshot": snapshot["snapshot_id"],
    }


# What prints, by words in which {names} stand for ids.
SHOWN = """
status
attention
conflicts --agent a
machines list
conflicts
stats recovery
stats recovery --each
mission show
mission list
mission timeline
mission timeline --full
mission current
mission update {mission} --title EVIL
sortie list
sortie show {first}
sortie show {second}
sortie unblock {second}
sortie progress {first} --percent 60 --notes EVIL
agent list
agent show a
agent show b
agent show claude-sUserPro
handoff a --to codex --print
handoff a --to codex --yes
agent note a --last-action EVIL --next-step EVIL --blocker EVIL
agent start a
note decision EVIL --because EVIL --path FILE
note list --withdrawn
note pin {note}
note withdraw {note} --reason EVIL
note guess EVIL
lock list
lock check FILE 99
lock acquire FILE --agent b
lock release {lock} --agent b
mail list
mail inbox a
mail send EVIL --from a --to b --body EVIL
mail ack {message} --agent a
mail requeue {message}
events
checkpoint --note EVIL
checkpoints list
checkpoints show {checkpoint}
checkpoints diff
checkpoints diff {checkpoint}
checkpoints verify
checkpoints prune --dry-run --older-than 0
snapshot list
snapshot show build-42
snapshot verify build-42
snapshot prune --dry-run
snapshot record --run build-42 --next EVIL
context
context --agent a
resume --dry-run
resume --agent a --dry-run
search evil
search EVIL
search --path evil
search --raw EVIL
reopen --all
reopen --lost --print
reopen EVIL
hooks status
hooks doctor claude
hooks doctor --live
hooks install claude --dry-run
doctor
report {mission}
report a
report {mission} --html
report EVIL
export {mission}
export {mission} --with-prompts
export {mission} --endpoint http://EVIL
export EVIL
usage
web status
web --host EVIL
guard status
guard status --repo EVIL
guard check --repo EVIL
usage --by mission
usage --mission {mission}
usage --mission {mission} --budget 5usd
usage --mission EVIL
usage --timezone EVIL
usage --budget EVIL
notify status
notify run --for EVIL
notify install --dry-run --command EVIL
notify install --dry-run --webhook https://EVIL
config
call event.list
call EVIL
call mission.create {{"title":"EVIL"}}
backup FILE
restore FILE --yes
forget mission {mission} --dry-run
forget session EVIL --dry-run
forget project --dry-run
forget project FILE --dry-run
mission show EVIL
mission list --status EVIL
mission create EVIL --sortie EVIL
sortie fail {first} --reason EVIL
mission fail {mission} --reason EVIL
resume --mission EVIL
EVIL
status EVIL
checkpoint --EVIL
"""


def commands(stored: dict[str, str]) -> list[list[str]]:
    said = [line.format(**stored).split() for line in SHOWN.strip().splitlines()]
    return [[w.replace("EVIL", EVIL) if w != "FILE" else FILE for w in words] for words in said]


@pytest.mark.parametrize("how", ["plain", "terminal", "json"])
def test_no_command_prints_what_a_terminal_obeys(
    run: Callable[..., Result], stored: dict[str, str], how: str
) -> None:
    shown = 0
    for words in commands(stored):
        json_last = ["--json"] if how == "json" and words[0] != EVIL else []
        said = run(*words, *json_last, terminal=how == "terminal")
        for text in (said.out, said.err):
            assert "Traceback" not in text
            plain = OURS.sub("", text) if how == "terminal" else text
            assert obeyed(plain) == set(), words
            shown += "evil" in text
        if json_last and said.status == 0 and words[0] != "events":
            json.loads(said.out)
        shows = words[0] not in ("attention", "conflicts") or "evil" in said.out
        assert shows, words
    assert shown > 30


def test_every_command_that_prints_is_tried() -> None:
    tried = {line.split()[0] for line in SHOWN.strip().splitlines()}
    # daemon, metrics and migrate print nothing that was stored; hook and mcp print for a program,
    # and what watch draws is looked at in tests/tui.
    others = {"hook", "mcp", "demo", "daemon", "metrics", "migrate", "completions", "watch"}
    # Nor does what tells of the program itself.
    others |= {"help", "version", "uninstall"}
    assert set(cli.COMMANDS) - tried <= others


def test_json_says_the_same_as_was_stored(
    run: Callable[..., Result], stored: dict[str, str]
) -> None:
    assert run("mission", "show", "--json").json["title"] == EVIL


def test_the_log_has_no_line_that_somebody_else_wrote(
    start: Callable[..., Daemon], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = home / "x\x1b[35m\x9b\n[2026-01-05T12:00:00.000Z] [INFO] forged\r\u2028"
    monkeypatch.setenv("FLIGHTLINE_DIR", str(odd))
    daemon = start()
    with Fleet(daemon.socket) as client:
        mission = client.call_raw("mission.create", {"title": EVIL})["id"]
        client.call_raw("mission.start", {"mission_id": mission})
        (odd / "checkpoints" / mission / "latest.json").mkdir(parents=True)
        client.call_raw("checkpoint.create", {"mission_id": mission, "trigger_details": EVIL})
    for text in (EVIL, '"' + EVIL):
        hook(json.dumps({"session_id": EVIL, "event": text, "hook_event_name": text}), text)
    daemon.stop()
    log = daemon.log.read_bytes().decode()
    assert "was moved to latest.json.aside" in log
    assert "forged" in log
    assert obeyed(log) == set()
    assert not re.search(r"^.{27}INFO. forged", log, re.MULTILINE)
    assert all(re.match(r"\[\d{4}-[^]]+Z\] \[[A-Z]+\] ", line) for line in log.splitlines())


def test_a_place_with_a_hostile_name_is_told_without_it(
    run: Callable[..., Result], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = home / "x\x1b[35m\x9by\u202e"
    for name in ("FLEET_SOCKET", "FLEET_DB_PATH", "FLIGHTLINE_DIR", "FLEET_CONFIG"):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(odd))
            for words in (("status",), ("config",), ("doctor",), ("restore", "nothing", "--yes")):
                said = run(*words)
                assert obeyed(said.out + said.err) == set(), (name, words)
    odd.mkdir()
    monkeypatch.chdir(odd)
    for words in (("mission", "create", "t"), ("mission", "current"), ("status",), ("context",)):
        said = run(*words)
        assert obeyed(said.out + said.err) == set(), words
    assert os.fspath(odd) in str(Path.cwd())
