"""One conversation with a real daemon in which every method is called once, for the reference.

What differs from run to run (ids, times, sizes, places) is replaced, so that two runs say the same.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

READY_S = 20.0
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ID = re.compile(r"\b(msn|srt|chk|lck|msg|rcv|sub)-([0-9a-f]{8})\b")
SNAPSHOT = re.compile(r"\bcp_\d{8}T\d{9}Z_(\d+)\b")
RUN = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"
# name of what is kept of a reply -> where it stands there
Keep = dict[str, Callable[[dict[str, Any]], Any]]
Step = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], Keep]
NOW, LATER, DIGEST = "2026-01-05T12:00:00.000Z", "2026-01-05T12:10:00.000Z", "9860dff9" * 8
# What a machine makes of itself, by the end of its name.
MEASURED = {
    "_ms": 4,
    "_bytes": 4096,
    "bytes": 4096,
    "pid": 4711,
    "queue_max": 1,
    "batches": 12,
    "batch_mean": 1.0,
    "batch_p95": 1,
    "batch_max": 1,
    "count": 4,
}
SAID = {"timeout_ms", "threshold_ms", "sortie_count", "lock_count", "message_count"}
# Long lists are shown by their beginning.
SHORT = {
    "settings": 3,
    "checks": 2,
    "findings": 2,
    "latencies": 1,
    "methods": 0,
    "schemas": 0,
    "events": 2,
}


def _id(answer: dict[str, Any]) -> Any:
    return answer["id"]


STEPS: tuple[Step, ...] = (
    ("system.hello", {"client": "a tool of mine", "protocol": 1}),
    (
        "mission.create",
        {
            "title": "Add login",
            "project_dir": "{project}",
            "sorties": [{"title": "Write the form", "files": ["src/form.py"]}],
        },
        {"mission": _id},
    ),
    ("mission.start", {"mission_id": "{mission}"}),
    ("mission.update", {"mission_id": "{mission}", "priority": "high"}),
    (
        "sortie.create",
        {"mission_id": "{mission}", "title": "Write tests", "assigned_to": "bob"},
        {"tests": _id},
    ),
    ("sortie.list", {"mission_id": "{mission}"}, {"form": lambda a: a["sorties"][0]["id"]}),
    (
        "agent.register",
        {"agent_id": "alice", "role": "specialist", "mission_id": "{mission}", "cwd": "{project}"},
    ),
    ("agent.heartbeat", {"agent_id": "alice"}),
    ("agent.current", {"agent_id": "alice"}),
    (
        "agent.note",
        {
            "agent_id": "alice",
            "last_action": "Drew the form",
            "next_steps": ["Validate the form"],
        },
    ),
    ("agent.get", {"agent_id": "alice"}),
    ("agent.list", {"mission_id": "{mission}"}),
    ("sortie.assign", {"sortie_id": "{form}", "agent_id": "alice"}),
    (
        "sortie.start",
        {"sortie_id": "{form}", "agent_id": "alice", "idempotency_key": "start-form-1"},
    ),
    ("sortie.progress", {"sortie_id": "{form}", "percent": 40, "notes": "Fields are there"}),
    ("sortie.block", {"sortie_id": "{form}", "reason": "The design is not decided"}),
    ("sortie.unblock", {"sortie_id": "{form}"}),
    ("sortie.get", {"sortie_id": "{form}"}),
    (
        "lock.acquire",
        {"file": "src/form.py", "agent_id": "alice", "cwd": "{project}", "wait_ms": 5000},
        {"lock": _id, "token": lambda a: a["fencing_token"]},
    ),
    ("lock.renew", {"lock_id": "{lock}", "agent_id": "alice"}),
    ("lock.check", {"file": "{project}/src/form.py", "fencing_token": 1}),
    ("lock.list", {"held_by": "alice"}),
    ("agent.register", {"agent_id": "bob", "role": "specialist", "mission_id": "{mission}"}),
    ("lock.acquire", {"file": "src/form.py", "agent_id": "bob", "cwd": "{project}"}),
    (
        "message.send",
        {"from": "bob", "to": ["alice"], "subject": "Which fields?", "mission_id": "{mission}"},
        {"letter": _id},
    ),
    ("message.list", {"pending": True}),
    ("message.inbox", {"agent_id": "alice"}),
    ("message.ack", {"message_id": "{letter}", "agent_id": "alice"}),
    (
        "message.send",
        {"from": "alice", "to": ["bob"], "subject": "Name and e-mail"},
        {"second": _id},
    ),
    ("message.inbox", {"agent_id": "bob"}),
    ("message.requeue", {"message_id": "{second}"}),
    (
        "event.append",
        {
            "type": "file_modified",
            "mission_id": "{mission}",
            "agent_id": "alice",
            "data": {"file": "src/form.py"},
        },
    ),
    ("event.list", {"mission_id": "{mission}", "limit": 2}),
    (
        "event.subscribe",
        {"since": 17, "types": ["sortie_completed"]},
        {"subscription": lambda a: a["subscription_id"]},
    ),
    ("event.unsubscribe", {"subscription_id": "{subscription}"}),
    ("cursor.advance", {"consumer": "my-tool", "stream": "fleet", "position": 12}),
    ("cursor.get", {"consumer": "my-tool", "stream": "fleet"}),
    (
        "checkpoint.create",
        {"mission_id": "{mission}", "trigger_details": "Before the refactoring"},
        {"checkpoint": _id},
    ),
    ("checkpoint.get", {"checkpoint_id": "{checkpoint}"}),
    ("checkpoint.latest", {"mission_id": "{mission}"}),
    ("sortie.complete", {"sortie_id": "{form}", "result": "The form is there"}),
    ("checkpoint.compare", {"before": "{checkpoint}"}),
    ("checkpoint.list", {"mission_id": "{mission}", "limit": 1}),
    ("checkpoint.verify", {"checkpoint_id": "{checkpoint}"}),
    (
        "error.report",
        {"agent_id": "bob", "kind": "tool_failure", "name": "pytest", "message": "2 failed"},
        {"wrong": lambda a: a["checkpoint_id"]},
    ),
    # Waits for its file, and so for that of the one before: events come in one order only.
    ("checkpoint.create", {"mission_id": "{mission}"}),
    ("checkpoint.delete", {"checkpoint_id": "{wrong}"}),
    ("checkpoint.prune", {"keep_per_mission": 1, "older_than_days": 0, "dry_run": True}),
    (
        "snapshot.record",
        {
            "run_id": RUN,
            "step_state": {"plan_path": "PLAN.md", "step_ordinal": 2, "step_status": "in_progress"},
            "command_outcomes": [{"kind": "shell", "name": "make test", "result": "PASS"}],
        },
        {"snapshot": lambda a: a["snapshot_id"]},
    ),
    ("snapshot.latest", {"run_id": RUN}),
    ("snapshot.get", {"snapshot_id": "{snapshot}"}),
    ("snapshot.list", {"run_id": RUN}),
    ("snapshot.verify", {"run_id": RUN}),
    ("snapshot.prune", {"dry_run": True}),
    ("recovery.detect", {"threshold_ms": 0}),
    ("recovery.restore", {"mission_id": "{mission}", "agent_id": "alice"}),
    ("recovery.context", {"agent_id": "alice", "max_chars": 600}),
    ("recovery.list", {"mission_id": "{mission}"}),
    ("lock.list", {}, {"held": lambda a: a["locks"][0]["id"]}),
    (
        "lock.force_release",
        {"lock_id": "{held}", "agent_id": "bob", "reason": "alice is away"},
    ),
    (
        "lock.acquire",
        {"file": "src/form.py", "agent_id": "alice", "cwd": "{project}"},
        {"third": _id},
    ),
    ("lock.release", {"lock_id": "{third}", "agent_id": "alice"}),
    ("sortie.fail", {"sortie_id": "{tests}", "reason": "Nobody has the time"}),
    (
        "sortie.create",
        {"mission_id": "{mission}", "title": "Write the docs"},
        {"docs": _id},
    ),
    ("sortie.remove", {"sortie_id": "{docs}"}),
    (
        "hook.deliver",
        {
            "delivery_id": "0f8c2f1e5b7d4a63",
            "harness": "claude",
            "payload": '{{"hook_event_name": "SessionStart", "session_id": "5e1f"}}',
        },
    ),
    ("hook.status", {}),
    ("agent.deregister", {"agent_id": "bob", "reason": "Done for today"}),
    ("mission.get", {"mission_id": "{mission}"}),
    ("mission.list", {"status": "in_progress"}),
    ("mission.current", {"cwd": "{project}"}),
    ("mission.complete", {"mission_id": "{mission}"}),
    ("mission.create", {"title": "Try another colour"}, {"other": _id}),
    ("mission.cancel", {"mission_id": "{other}", "reason": "Blue it is"}),
    ("mission.delete", {"mission_id": "{other}"}),
    ("mission.create", {"title": "Port it to paper"}, {"third_mission": _id}),
    ("mission.start", {"mission_id": "{third_mission}"}),
    ("mission.fail", {"mission_id": "{third_mission}", "reason": "Paper does not run"}),
    ("system.status", {}),
    ("system.health", {}),
    ("system.config", {}),
    ("system.doctor", {}),
    ("system.backup", {"path": "{home}/backup.db"}),
    ("system.forget", {"project_dir": "{project}", "dry_run": True}),
    ("system.metrics", {}),
    ("rpc.discover", {}),
)


def exchanges() -> dict[str, tuple[str, Any]]:
    """Return the first request line of each method, and the reply to it; errors beside them.

    What was refused stands under the kind of its error.
    """
    found: dict[str, tuple[str, Any]] = {}
    with _daemon() as (home, wire):
        known: dict[str, Any] = {"home": str(home), "project": str(home / "project")}
        plain = _Plain(home)
        for number, (method, params, *keep) in enumerate(STEPS, 1):
            request = {"jsonrpc": "2.0", "id": number, "method": method}
            if params:
                request["params"] = _filled(params, known)
            wire.write(json.dumps(request) + "\n")
            wire.flush()
            reply = _answer(wire, number)
            _settle(wire)
            for name, where in (keep[0] if keep else {}).items():
                known[name] = where(reply["result"])
            key = reply["error"]["data"]["kind"] if "error" in reply else method
            line = plain.line(json.dumps(request, ensure_ascii=False))
            found.setdefault(key, (line, plain.of(reply)))
    return found


def _settle(wire: Any) -> None:
    """Wait until files are written: that is an event, whose number is seen in later replies."""
    asked = {"jsonrpc": "2.0", "id": "settled", "method": "system.status"}
    while True:
        wire.write(json.dumps(asked) + "\n")
        wire.flush()
        if _answer(wire, "settled").get("result", {}).get("backup_backlog", 0) == 0:
            return
        time.sleep(0.01)


def _answer(wire: Any, number: int | str) -> dict[str, Any]:
    while True:
        reply: dict[str, Any] = json.loads(wire.readline())
        if reply.get("id") == number:  # what comes besides are notifications
            return reply


def _filled(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return value.format(**known)
    if isinstance(value, list):
        return [_filled(each, known) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, known) for name, each in value.items()}
    return value


@contextmanager
def _daemon() -> Iterator[tuple[Path, Any]]:
    """Run a daemon in a directory of its own; yield that and a connection's lines."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        home = Path(directory).resolve()
        (home / "project" / "src").mkdir(parents=True)
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("FLEET", "XDG_", "FLIGHT"))
        }
        env = kept | {"HOME": str(home), "FLEET_SOCKET": str(home / "fleetd.sock")}
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetd"], env=env, stderr=subprocess.DEVNULL
        )
        try:
            yield home, _connected(home / "fleetd.sock")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(READY_S)


def _connected(path: Path) -> Any:
    deadline = time.monotonic() + READY_S
    while True:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(path))
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
                continue
            return sock.makefile("rw", encoding="utf-8")


class _Plain:
    """Replaces what differs from run to run; ids by the order in which they came."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._ids: dict[str, str] = {}

    def line(self, request: str) -> str:
        """Return a request as the reference shows it."""
        return self._text(request, "")

    def of(self, value: Any, name: str = "") -> Any:
        """Return a value of a reply as the reference shows it; ``name`` is that of its field."""
        if isinstance(value, dict):
            members = list(value.items())[: SHORT.get(name)]
            return {key: self.of(each, key) for key, each in members}
        if isinstance(value, list):
            return [self.of(each) for each in value][: SHORT.get(name, 10)]
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, bool) or value is None or name in SAID:
            return value
        return next((like for end, like in MEASURED.items() if name.endswith(end)), value)

    def _text(self, text: str, name: str) -> str:
        text = text.replace(self._home, "/home/alice")
        text = TIME.sub(LATER if name == "expires_at" else NOW, text)
        text = ID.sub(self._known, text)
        text = SNAPSHOT.sub(r"cp_20260105T120000000Z_\1", text)
        if re.fullmatch(r"[0-9a-f]{64}", text):
            return DIGEST
        if name == "epoch":
            return "5f0c2a9be1d74836"
        if name == "text":
            return "\n".join([*text.splitlines()[:3], "..."])
        text = re.sub(r"\bElapsed: \d+s\b", "Elapsed: 0s", text)
        return re.sub(r"\b\d+(\.\d+)? (MB|kB|files|ms|s)\b", r"42 \2", text)

    def _known(self, found: re.Match[str]) -> str:
        number = len(self._ids) + 1
        made = sha256(str(number).encode()).hexdigest()[:8]
        return self._ids.setdefault(found[0], f"{found[1]}-{made}")
