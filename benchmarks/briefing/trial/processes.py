"""Programs that leave no processes behind: all end with the program, or at a limit."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

import msgspec

LEAVING_S = 5.0
_HIDDEN = "[key]"
# Every process of a program has this in its environment, even outside its group.
_MARK = "FLEETD_TRIAL_PROGRAM"
# Every process of a trial also has this.
TRIAL = {"FLEETD_TRIAL": token_hex(8)}
# On Linux only; elsewhere only the group of a program can be ended.
_PROCESSES_ARE_LISTED = Path("/proc/self/environ").exists()


class TimedOut(Exception):
    """A program did not end before its deadline."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a program; ``secrets`` never get into a log."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    deadline: float
    """A time of the monotonic clock."""
    secrets: Sequence[str] = ()


class ProgramResult(msgspec.Struct, frozen=True):
    """The results of a program."""

    status: int
    lines: list[str]
    errors: str


LineHandler = Callable[[str], Sequence[str] | None]


def run(program: Program) -> ProgramResult:
    """Run a program that reads nothing, until it ends; raises TimedOut."""
    return talk(program, [], lambda _line: None)


def talk(program: Program, first: Sequence[str], on_line: LineHandler) -> ProgramResult:
    """Run a program, type the first lines, and then the answer to each line of its output.

    An answer of None ends its input. Raises TimedOut.
    """
    with _started(program) as (process, log):
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        listening = bool(first)
        if not first:
            process.stdin.close()
        _type(process.stdin, first)
        for line in process.stdout:
            lines.append(line)
            log.write(clean(line, program.secrets))
            if listening:
                typed = on_line(line)
                if typed is None:
                    listening = False
                    with suppress(BrokenPipeError):
                        process.stdin.close()
                else:
                    _type(process.stdin, typed)
        status = process.wait()
    if time.monotonic() >= program.deadline:
        raise TimedOut
    return ProgramResult(status, lines, _errors(program).read_text("utf-8", "replace"))


def _type(stdin: IO[str], lines: Sequence[str]) -> None:
    if lines:
        with suppress(BrokenPipeError):
            stdin.writelines(f"{line}\n" for line in lines)
            stdin.flush()


@contextmanager
def _started(program: Program) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    mark = token_hex(8)
    errors = _errors(program)
    with program.log.open("a", encoding="utf-8") as log, errors.open("w") as stderr:
        process = subprocess.Popen(
            program.argv,
            cwd=program.cwd,
            env={**program.env, **TRIAL, _MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        left = max(0.0, program.deadline - time.monotonic())
        watchdog = threading.Timer(left, _kill, (process, mark))
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process, log
            _wait_for(mark)
        finally:
            watchdog.cancel()
            _kill(process, mark)
            with suppress(BrokenPipeError), process:
                pass  # closes its pipes and waits for it
            errors.write_text(clean(errors.read_text("utf-8", "replace"), program.secrets), "utf-8")


def _errors(program: Program) -> Path:
    return program.log.with_suffix(".err")


def clean(text: str, secrets: Sequence[str]) -> str:
    """Return a text with its secrets replaced."""
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _wait_for(mark: str) -> None:
    """Wait briefly for hooks that still run in the background."""
    deadline = time.monotonic() + LEAVING_S
    while _marked(_MARK, mark) and time.monotonic() < deadline:
        time.sleep(0.05)


def _kill(process: subprocess.Popen[str], mark: str) -> None:
    """End a program, including its processes that left the group."""
    if process.returncode is None or not _PROCESSES_ARE_LISTED:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    _end(_MARK, mark)


def end_all() -> None:
    """End every remaining process of this trial."""
    for name, mark in TRIAL.items():
        _end(name, mark)


def _end(name: str, mark: str) -> None:
    # More than once: a process may start another one meanwhile.
    deadline = time.monotonic() + LEAVING_S
    while (left := _marked(name, mark)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(name: str, mark: str) -> list[int]:
    """Return the processes with a mark, where processes are listed."""
    wanted = f"{name}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found
