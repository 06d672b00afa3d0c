"""The hook clients as agent CLIs run them: separate processes, in Python or compiled."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fleetctl
from fleetctl.client import Fleet
from fleetd.host import paths

HOOK = Path(fleetctl.__file__).with_name("hook.py")
IN_PYTHON = (sys.executable, "-I", "-S", str(HOOK))
# The command of ``hook`` and ``start``; tests that run for all clients replace it with each.
COMMAND: tuple[str, ...] = IN_PYTHON
# The client gives the daemon 0.9 s; the rest is a margin for a busy machine.
AT_MOST_S = 3.0


SOURCE = Path(fleetctl.__file__).parents[1] / "native" / "hook_client.c"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The compiler is looked up in the original PATH, before a test replaces it.
WHERE = dict(os.environ)
CLIENTS = ("python", "compiled", "sanitized")


def command_of(client: str) -> tuple[str, ...]:
    """Return the command of one of CLIENTS; skip the test where it cannot be compiled."""
    if client == "python":
        return IN_PYTHON
    return (str(compiled(*(SANITIZERS if client == "sanitized" else ()))),)


@functools.cache
def compiled(*flags: str, source: str = f'#include "{SOURCE}"') -> Path:
    """Compile the client in C, or a larger source, once for all tests of this process."""
    if not compiles():
        pytest.skip("there is no C compiler (cc)")
    if flags and not compiles(*flags):
        pytest.skip(f"the C compiler does not know {' '.join(flags)}")
    # The name of the directory contains a blank, as a user's may.
    program = Path(tempfile.mkdtemp(prefix="of ", dir=_directory())) / "_hook_client"
    command = ["cc", *FLAGS, *flags, "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=source.encode(), env=WHERE, check=True)
    return program


@functools.cache
def compiles(*flags: str) -> bool:
    """Return whether a C compiler accepts these flags and its output runs."""
    if shutil.which("cc", path=WHERE.get("PATH")) is None:
        return False
    program = _directory() / f"probe{len(flags)}"
    command = ["cc", *flags, "-x", "c", "-", "-o", str(program)]
    text = b"int main(void) { return 0; }"
    made = subprocess.run(command, input=text, env=WHERE, capture_output=True, check=False)
    return made.returncode == 0 and subprocess.run([program], check=False).returncode == 0


@functools.cache
def _directory() -> Path:
    place = tempfile.mkdtemp(prefix="fleet-cc-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)


@dataclass
class HookRun:
    """The results of one call of the client; ``seconds`` is how long it ran."""

    status: int
    out: bytes
    err: bytes
    seconds: float

    @property
    def silent(self) -> bool:
        return (self.status, self.out, self.err) == (0, b"", b"")


def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start the client with pipes for all standard streams."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *(words or ("claude",))], **{**pipes, **options})


def hook(payload: bytes | str, *words: str, **options: Any) -> HookRun:
    """Run the client until it ends."""
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
    """Return the files in the spool, in the order in which the daemon reads them."""
    directory = directory or paths.spool_path()
    return sorted(directory.iterdir()) if directory.is_dir() else []


def take_in_spool(client: Fleet) -> None:
    """Make the daemon read the spool, which it does before it handles any hook."""
    payload = {"session_id": "other", "cwd": "/", "hook_event_name": "Unknown"}
    said = {"harness": "gemini", "payload": json.dumps(payload)}
    client.call_raw("hook.deliver", {"delivery_id": uuid.uuid4().hex, **said})


def without(*names: str) -> dict[str, str]:
    """Return this environment without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}
