"""Has an old fleetd fill a home with records of every kind, and keeps it with what it told.

``python -m tests.integration.upgrades.make COMMIT`` runs the daemon of a revision, talks to it over
its own socket only, and writes ``schema-N.tar.xz`` beside this file: the database, the files of
checkpoints and snapshots, and ``recorded.json``, which is what the old daemon's API said of them.
What a method or a field of later days would say is left out by whoever does not know it.
"""

import io
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import recorded

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SESSION = "5f0c2c1e-0000-4000-8000-000000000001"


class Old:
    """A connection to the old daemon that knows nothing but JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        deadline = time.monotonic() + 30
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(str(path))
                break
            except OSError:
                assert time.monotonic() < deadline, "it does not start"
                time.sleep(0.1)
        self.lines = self.socket.makefile("rb")
        self.numbers = itertools.count()

    def call(self, method: str, **params: Any) -> Any:
        """Return a result; None of a method or a parameter of later days."""
        request = {"jsonrpc": "2.0", "id": next(self.numbers), "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(self.lines.readline())
        if "error" in reply:
            print(f"  {method}: {reply['error']['message']}")
            return None
        return reply["result"]


def by_nobody(work: Callable[[], None]) -> None:
    """Do work in a process without a parent, so that its session has no agent's process.

    Otherwise the daemon of later days would find that process gone, and the session lost.
    """
    done, working = os.pipe()
    parent = os.fork()
    if parent == 0:
        between = os.getpid()
        try:
            if os.fork() == 0:
                os.close(done)
                while os.getppid() == between:
                    time.sleep(0.01)
                work()
                os.write(working, b"done")
        finally:
            os._exit(0)
    os.waitpid(parent, 0)
    os.close(working)
    assert os.read(done, 4) == b"done"
    os.close(done)


def fill(old: Old, project: Path) -> None:
    """Make records of every kind there is a method for."""
    work = {
        "title": "Add login \u2013 caf\u00e9",
        "description": "The form, then tests",
        "priority": "high",
    }
    sorties = [
        {"title": title, "files": [f"src/{number}.py"], "description": f"Part {number}"}
        for number, title in enumerate(("Form", "Checks", "Tests", "Words", "Later"))
    ]
    place = {"project_dir": str(project), "metadata": {"ticket": "A-1", "deep": {"list": [1, 2]}}}
    mission = old.call("mission.create", **work, **place, sorties=sorties)["id"]
    old.call("mission.start", mission_id=mission)
    old.call("mission.update", mission_id=mission, briefing="off")
    for agent, role in (("dispatch-1", "dispatch"), ("alice", "specialist"), ("bob", "specialist")):
        named = {"agent_id": agent, "role": role, "mission_id": mission, "cwd": str(project)}
        old.call("agent.register", **named, harness="claude")
    listed = old.call("sortie.list", mission_id=mission)["sorties"]
    first, second, third, fourth, _ = (each["id"] for each in listed)
    old.call("sortie.update", sortie_id=fourth, depends_on=[third])
    old.call("usage.budget", mission_id=mission, tokens=2_000_000)
    for sortie, agent in ((first, "alice"), (second, "alice"), (third, "bob"), (fourth, "bob")):
        old.call("sortie.assign", sortie_id=sortie, agent_id=agent)
    for sortie, agent in ((first, "alice"), (second, "alice"), (third, "bob")):
        old.call("sortie.start", sortie_id=sortie, agent_id=agent)
    old.call(
        "lock.acquire",
        file="src/1.py",
        agent_id="alice",
        mission_id=mission,
        timeout_ms=604_800_000,
    )
    kept = {"agent_id": "alice", "mission_id": mission, "timeout_ms": 604_800_000}
    old.call("lock.acquire", pattern="docs/**/*.md", mode="shared", **kept)
    given = old.call("lock.acquire", file="src/2.py", agent_id="bob", mission_id=mission)
    old.call("lock.release", lock_id=given["id"], agent_id="bob")
    taken = old.call("lock.acquire", file="src/3.py", agent_id="bob", mission_id=mission)
    old.call("lock.force_release", lock_id=taken["id"], agent_id="dispatch-1", reason="needed")
    note = {"last_action": "Drew the form", "next_steps": ["Check it"], "blockers": ["No API key"]}
    old.call("agent.note", agent_id="alice", **note)
    for kind, text in (("decision", "Use argon2"), ("ruled-out", "bcrypt")):
        kept = {"because": "It cuts", "path": str(project / "src/1.py"), "mission_id": mission}
        old.call("note.add", kind=kind, text=text, agent_id="alice", **kept)
    mine = old.call("note.add", kind="constraint", text="Never push", mission_id=mission)
    if mine is not None:
        old.call("note.pin", note_id=mine["id"])
        gone = old.call("note.add", kind="finding", text="It is slow", mission_id=mission)
        old.call("note.withdraw", note_id=gone["id"], reason="It is not")
    mail = {"mission_id": mission, "thread_id": "login", "priority": "high"}
    letter = {
        "from": "dispatch-1",
        "to": ["alice", "bob"],
        "subject": "Plan",
        "body": "First the form",
    }
    sent = old.call("message.send", **letter, **mail)["id"]
    old.call("message.inbox", agent_id="alice")
    old.call("message.ack", message_id=sent, agent_id="alice")
    old.call("message.send", **{**letter, "to": ["bob"], "subject": "Queued"}, **mail)
    old.call("event.append", type="my_event", mission_id=mission, agent_id="alice", data={"n": 1})
    old.call("cursor.advance", consumer="reader", stream=f"mission:{mission}", position=3)
    old.call("checkpoint.create", mission_id=mission, created_by="alice", trigger_details="Before")
    old.call("sortie.complete", sortie_id=first, result="It is drawn")
    old.call("sortie.complete", sortie_id=second, result="Checked")
    old.call("sortie.block", sortie_id=third, reason="No data")
    reported = {"kind": "exception", "name": "ValueError", "message": "no"}
    old.call("error.report", agent_id="bob", mission_id=mission, **reported)
    old.call(
        "recovery.restore", mission_id=mission, requested_by="cli", agent_id="bob", scope="agent"
    )
    old.call("handoff.ask", agent_id="bob", to="codex")
    _end_others(old, project)
    by_nobody(lambda: _hooks(Old(old.path), project / "hooked"))
    recorded_run = {"run_id": "run-1", "source": "manual", "status": "in_progress"}
    old.call("snapshot.record", **recorded_run, agent_id="alice", note="Half way")
    old.call("snapshot.record", run_id="run-1", source="manual", status="failed")


def _end_others(old: Old, project: Path) -> None:
    for title, ending in (("Done", "complete"), ("Lost", "fail"), ("Off", "cancel")):
        ended = old.call("mission.create", title=title, project_dir=str(project / title))["id"]
        old.call("mission.start", mission_id=ended)
        why = {} if ending == "complete" else {"reason": "so it is"}
        old.call(f"mission.{ending}", mission_id=ended, **why)
    old.call(
        "mission.create", title="Waiting", project_dir=str(project), sorties=[{"title": "One"}]
    )
    old.call("agent.deregister", agent_id="dispatch-1", reason="done")


def _hooks(old: Old, directory: Path) -> None:
    other = directory.with_name("other")
    for tree in (directory, other):
        (tree / ".git").mkdir(parents=True)
    plan = [
        {"content": "Read", "status": "completed", "activeForm": "Reading"},
        {"content": "Write", "status": "in_progress", "activeForm": "Writing"},
        {"content": "Test", "status": "pending", "activeForm": "Testing"},
    ]
    todo = {"tool_name": "TodoWrite", "tool_input": {"todos": plan}, "tool_use_id": "t1"}
    edit = {
        "tool_name": "Write",
        "tool_input": {"file_path": str(directory / "a.py"), "content": "x"},
    }
    outside = {
        "tool_name": "Write",
        "tool_input": {"file_path": str(other / "b.py"), "content": "x"},
    }
    shell = {"id": "b1", "type": "shell", "status": "running", "command": "make watch"}
    said: list[dict[str, Any]] = [
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Please write it"},
        {"hook_event_name": "PreToolUse", **todo},
        {"hook_event_name": "PostToolUse", **todo, "tool_response": {}},
        {"hook_event_name": "PreToolUse", **edit, "tool_use_id": "t2"},
        {"hook_event_name": "PostToolUse", **edit, "tool_use_id": "t2", "tool_response": {}},
        {"hook_event_name": "PostToolUse", **outside, "tool_use_id": "t3", "tool_response": {}},
        {"hook_event_name": "PreCompact", "trigger": "auto"},
        {"hook_event_name": "SessionStart", "source": "compact"},
        {"hook_event_name": "Stop", "stop_hook_active": False, "background_tasks": [shell]},
    ]
    common = {"session_id": SESSION, "cwd": str(directory), "transcript_path": ""}
    for number, each in enumerate(said):
        payload = {**common, **each}
        old.call(
            "hook.deliver",
            delivery_id=f"delivery-{number}",
            harness="claude",
            payload=json.dumps(payload),
        )


def main(commit: str) -> None:
    """Run the daemon of a revision and keep what it leaves."""
    with tempfile.TemporaryDirectory(prefix="fleet-old-") as name:
        home = Path(name)
        source = home / "source"
        source.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
            packed.extractall(source, filter="data")
        assert (source / "fleetd").is_dir(), "today's fleetd would run in its place"
        told = _run(home, source)
        version = (
            sqlite3.connect(home / "data/squawk.db").execute("PRAGMA user_version").fetchone()[0]
        )
        described = subprocess.run(
            ["git", "log", "-1", "--format=%h, %cs, %s", commit],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        told["made_by"] = described.stdout.strip()
        (home / "recorded.json").write_text(json.dumps(told, indent=1, ensure_ascii=False))
        file = HERE / f"schema-{version}.tar.xz"
        with tarfile.open(file, "w:xz", preset=9) as packed:
            for part in ("recorded.json", "data/squawk.db", "flightline"):
                packed.add(home / part, part, filter=_anonymous)
        print(file.name, file.stat().st_size, told["made_by"])


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return None if info.name.endswith(".fleetd.lock") else info


def _run(home: Path, source: Path) -> dict[str, Any]:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(source),
        "XDG_STATE_HOME": str(home / "state"),
        "FLEET_SOCKET": str(home / "run/d.sock"),
        "FLEET_DB_PATH": str(home / "data/squawk.db"),
        "FLIGHTLINE_DIR": str(home / "flightline"),
        "FLEET_CONFIG": str(home / "config.toml"),
    }
    for directory in ("run", "data", "project"):
        (home / directory).mkdir(mode=0o700)
    daemon = subprocess.Popen([sys.executable, "-m", "fleetd"], env=env, cwd=home)
    try:
        old = Old(home / "run/d.sock")
        fill(old, home / "project")
        time.sleep(1)  # the files of checkpoints are written meanwhile
        told = recorded.of(lambda method, **params: old.call(method, **params) or {})
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)
    return told


if __name__ == "__main__":
    main(sys.argv[1])
