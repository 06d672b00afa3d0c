"""The hook client as agent CLIs run it: a process of its own."""

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleetctl
from fleetctl.client import Fleet
from fleetd.host import paths

HOOK = Path(fleetctl.__file__).with_name("hook.py")
COMMAND = (sys.executable, "-I", "-S", str(HOOK))
# The client gives the daemon 0.9 s; the rest is for a machine that is busy with other things.
AT_MOST_S = 3.0


@dataclass
class HookRun:
    """What one call of the client left behind; ``seconds`` from its start to its end."""

    status: int
    out: bytes
    err: bytes
    seconds: float

    @property
    def silent(self) -> bool:
        return (self.status, self.out, self.err) == (0, b"", b"")


def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start the client with pipes at all ends."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *(words or ("claude",))], **{**pipes, **options})


def hook(payload: bytes | str, *words: str, **options: Any) -> HookRun:
    """Run the client to its end."""
    said = payload.encode() if isinstance(payload, str) else payload
    begun = time.monotonic()
    done = subprocess.run(
        [*COMMAND, *(words or ("claude",))],
        input=said,
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )
    return HookRun(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)


def spooled(directory: Path | None = None) -> list[Path]:
    """Return what lies in the spool, in the order in which it is taken."""
    directory = directory or paths.spool_path()
    return sorted(directory.iterdir()) if directory.is_dir() else []


def take_in_spool(client: Fleet) -> None:
    """Have what waits in the spool taken in, which comes before any hook that is understood."""
    payload = {"session_id": "other", "cwd": "/", "hook_event_name": "Unknown"}
    said = {"harness": "gemini", "payload": json.dumps(payload)}
    client.call_raw("hook.deliver", {"delivery_id": uuid.uuid4().hex, **said})


def without(*names: str) -> dict[str, str]:
    """Return this environment without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}
