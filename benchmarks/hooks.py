"""The time that an agent waits at every step: a hook, in the daemon and from exec to exit."""

import itertools
import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fleetctl
from fleetctl.integrations.hook_command import this_installation
from fleetctl.integrations.registry import CLAUDE

from .bench import NOTHING_TO_DO, Bench
from .fleet import Fleet
from .references import starting
from .rows import Promise, Row

HARNESS = CLAUDE.name
CLIENT = Path(fleetctl.__file__).with_name("hook.py")
AT_ONCE = 8
EDIT_BYTES = 500_000
# As hooks are installed: without the environment and without site-packages.
ALONE = ("-I", "-S")


class HookProgram(NamedTuple):
    """A hook client: its name in the table, its command, and its promise."""

    label: str
    command: list[str]
    promise: Promise


def in_python(python: str) -> HookProgram:
    """Return the client that is in every installation."""
    command = [python, *ALONE, str(CLIENT), HARNESS]
    return HookProgram("in Python", command, Promise(ratio=1.1))


def compiled() -> HookProgram | None:
    """Return the compiled client, without its launcher; None where there is none."""
    program = this_installation().compiled
    return HookProgram("compiled, by itself", [program, HARNESS], Promise()) if program else None


def as_installed(bench: Bench) -> HookProgram:
    """Return the client in the settings: the launcher, where there is a compiled client."""
    installation = this_installation()
    if not installation.compiled:
        return in_python(bench.python)
    launcher = bench.directory / "fleet-hook"
    launcher.write_text(installation.launcher_text)
    launcher.chmod(0o700)
    return HookProgram("compiled", [str(launcher), HARNESS], Promise(ratio=0.45))


class Session:
    """A session of an agent CLI; all its calls differ, as in real use."""

    def __init__(self, fleet: Fleet, program: HookProgram) -> None:
        self._fleet = fleet
        self._command = program.command
        self._id = f"{secrets.token_hex(4)}-bench"
        self._number = itertools.count(1)
        self._calls = 0
        self._taken_before = self._taken()

    def deliver(self) -> None:
        """Report an edit to the daemon as a client does, in this process."""
        self._fleet.call(
            "hook.deliver",
            delivery_id=secrets.token_hex(16),
            harness=HARNESS,
            payload=self._payload(0).decode(),
        )

    def call(self, size: int = 0) -> None:
        """Run one hook after an edit of so many bytes."""
        subprocess.run(
            self._command,
            input=self._payload(size),
            stdout=subprocess.DEVNULL,
            env=self._fleet.env,
            check=True,
        )

    def call_at_once(self) -> None:
        """Run eight hooks concurrently."""
        processes = [
            subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=self._fleet.env,
            )
            for _ in range(AT_ONCE)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(self._payload(0))
            process.stdin.close()
        for process in processes:
            process.wait()

    def check(self) -> None:
        """Raise an error for hooks that the daemon did not take: the spool would be faster."""
        taken = self._taken() - self._taken_before
        if taken != self._calls:
            raise RuntimeError(f"{self._calls} hooks were called, the daemon took {taken} of them")

    def _taken(self) -> int:
        status = self._fleet.call("hook.status")
        if status["spool"]["files"]:
            raise RuntimeError(f"{status['spool']['files']} hooks left their payload in the spool")
        return sum(each["deliveries"] - each["from_spool"] for each in status["harnesses"])

    def _payload(self, size: int) -> bytes:
        self._calls += 1
        file = str(self._fleet.directory / "edited.py")
        content = '    return True, "and a quoted line"\n' * (size // 38)
        payload = {
            "session_id": self._id,
            "transcript_path": f"/c/projects/p/{self._id}.jsonl",
            "cwd": str(self._fleet.directory),
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": file, "content": content},
            "tool_response": {"filePath": file, "success": True},
            "tool_use_id": f"toolu_{self._id}_{next(self._number)}",
        }
        return json.dumps(payload).encode()


def delivered(bench: Bench) -> Iterator[Row]:
    """Measure the daemon's time for a hook after an edit, over one connection."""
    session = Session(bench.fleet, as_installed(bench))
    session.deliver()
    yield bench.beside_fsync(
        "hook.deliver, one client", session.deliver, runs=200, promise=Promise(ratio=4)
    )
    session.check()


def whole_processes(bench: Bench) -> Iterator[Row]:
    """Measure hooks alone and concurrently, beside an interpreter that does nothing."""
    installed, plain = as_installed(bench), in_python(bench.python)
    others = [each for each in (compiled(), plain) if each is not None and each != installed]
    for program in (installed, *others):
        yield from _alone(bench, program)
    session = Session(bench.fleet, installed)
    session.call()
    yield bench.beside(
        "hook, beside an interpreter with its flags",
        session.call,
        starting(bench.python, *ALONE, *NOTHING_TO_DO),
        runs=100,
        reference="python -I -S -c pass",
    )
    yield bench.beside_python(
        "hook, a payload of 500 KB", lambda: session.call(EDIT_BYTES), runs=100
    )
    yield bench.beside(
        f"hook, {AT_ONCE} at once",
        session.call_at_once,
        lambda: _at_once(bench.python),
        runs=50,
        promise=installed.promise,
        reference=f"{AT_ONCE} at once",
    )
    session.check()


def _alone(bench: Bench, program: HookProgram) -> Iterator[Row]:
    session = Session(bench.fleet, program)
    session.call()
    name = f"hook, whole process, {program.label}"
    yield bench.beside_python(name, session.call, runs=200, promise=program.promise)
    session.check()


def _at_once(python: str) -> None:
    bare = [python, *NOTHING_TO_DO]
    processes = [subprocess.Popen(bare, stdin=subprocess.DEVNULL) for _ in range(AT_ONCE)]
    for process in processes:
        process.wait()
