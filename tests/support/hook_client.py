"""The hook clients as agent CLIs run them: a process of its own, in Python or compiled."""

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
# What ``hook`` and ``start`` run; a table of cases that is for all clients puts each in its place.
COMMAND: tuple[str, ...] = IN_PYTHON
# The client gives the daemon 0.9 s; the rest is for a machine that is busy with other things.
AT_MOST_S = 3.0


SOURCE = Path(fleetctl.__file__).parents[1] / "native" / "hook_client.c"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The compiler is looked for where it was before a test has a PATH of its own.
WHERE = dict(os.environ)
CLIENTS = ("python", "compiled", "sanitized")


def command_of(client: str) -> tuple[str, ...]:
    """Return the command of one of CLIENTS; skips the test where it cannot be compiled."""
    if client == "python":
        return IN_PYTHON
    return (str(compiled(*(SANITIZERS if client == "sanitized" else ()))),)


@functools.cache
def compiled(*flags: str, source: str = f'#include "{SOURCE}"') -> Path:
    """Compile the client in C, or more than it, once for all tests of this process."""
    if not compiles():
        pytest.skip("there is no C compiler (cc)")
    if flags and not compiles(*flags):
        pytest.skip(f"the C compiler does not know {' '.join(flags)}")
    # Its directory has a blank in its name, as a person's may.
    program = Path(tempfile.mkdtemp(prefix="of ", dir=_directory())) / "_hook_client"
    command = ["cc", *FLAGS, *flags, "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=source.encode(), env=WHERE, check=True)
    return program


@functools.cache
def compiles(*flags: str) -> bool:
    """Return whether there is a C compiler that takes these flags, and what it makes runs."""
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
