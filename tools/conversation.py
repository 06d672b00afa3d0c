"""One conversation with a real daemon in which every method is called once, for the reference.

Values that differ from run to run (ids, times, sizes, paths) are replaced, so that the output is
the same.
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
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from .steps import STEPS

READY_S = 20.0
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ID = re.compile(r"\b(msn|srt|chk|lck|msg|rcv|nte|hnd|sub)-([0-9a-f]{8})\b")
SNAPSHOT = re.compile(r"\bcp_\d{8}T\d{9}Z_(\d+)\b")
NOW, LATER, DIGEST = "2026-01-05T12:00:00.000Z", "2026-01-05T12:10:00.000Z", "9860dff9" * 8
# Values that depend on the machine, by the end of their names.
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
UNCHANGED_FIELDS = {"timeout_ms", "threshold_ms", "sortie_count", "lock_count", "message_count"}
# Long lists are shortened.
SHORT = {
    "settings": 3,
    "checks": 2,
    "findings": 2,
    "latencies": 1,
    "methods": 0,
    "schemas": 0,
    "events": 2,
}


def exchanges() -> dict[str, tuple[str, Any]]:
    """Return the first request line of each method, and the reply to it; errors beside them.

    An error is stored under its kind, and under its method if no other request of that method
    succeeded: some methods need a store that several machines share.
    """
    found: dict[str, tuple[str, Any]] = {}
    refused: dict[str, tuple[str, Any]] = {}
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
            if "error" in reply:
                refused.setdefault(method, (line, plain.of(reply)))
    return refused | found


def _settle(wire: Any) -> None:
    """Wait until files are written: that is an event, whose number is in later replies."""
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
        if reply.get("id") == number:  # other lines are notifications
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
    """Run a daemon in a directory of its own; yield the directory and a connection's lines."""
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
    """Replaces values that differ from run to run; numbers ids in order of appearance."""

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
        if isinstance(value, bool) or value is None or name in UNCHANGED_FIELDS:
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
        if name == "text" and len(text.splitlines()) > 3:
            return "\n".join([*text.splitlines()[:3], "..."])
        text = re.sub(r"\bElapsed: \d+s\b", "Elapsed: 0s", text)
        return re.sub(r"\b\d+(\.\d+)? (MB|kB|files|ms|s)\b", r"42 \2", text)

    def _known(self, found: re.Match[str]) -> str:
        number = len(self._ids) + 1
        made = sha256(str(number).encode()).hexdigest()[:8]
        return self._ids.setdefault(found[0], f"{found[1]}-{made}")
