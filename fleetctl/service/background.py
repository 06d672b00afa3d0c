"""fleetd as a plain process in the background, for machines where no manager runs services."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState, LimitExceeded, Storage

from . import running
from .setup import command, places, this_interpreter

if TYPE_CHECKING:
    import subprocess

READY_S = 20.0
PAUSE_S = 0.02
LOG_BYTES = 4_000_000
LAST_LINES = 5
_LINE_BYTES = 2_000
# What speaks to the process that got it, and to no child.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS")


def log_file() -> Path:
    """Return where a plain daemon logs to."""
    return paths.state_path() / "fleetd.log"


def start(path: Path) -> running.Running:
    """Start fleetd, detached from this terminal, and wait until it answers.

    Raises InvalidState when it ends before (``log`` holds its last lines), LimitExceeded when it
    takes longer, Storage when its log cannot be written.
    """
    # Imported here: most that load this module need it never.
    import subprocess

    log = _open_log()
    before = os.fstat(log).st_size
    try:
        process = subprocess.Popen(
            command(this_interpreter()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path.home(),
            env=_environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    return _wait(process, path, before)


def _wait(process: "subprocess.Popen[bytes]", path: Path, logged: int) -> running.Running:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        status = process.poll()
        with suppress(running.Silent):  # it listens and does not answer yet
            # Somebody else may have started one just before: that is as good.
            if found := running.look(path):
                return found
        if status is not None:
            raise InvalidState(
                f"fleetd ended with status {status} before it answered.",
                hint=f"Its log is {log_file()}; fleetctl doctor says what a start would meet.",
                log=last_lines(LAST_LINES, since=logged),
            )
        time.sleep(PAUSE_S)
    raise LimitExceeded(
        f"fleetd (pid {process.pid}) does not answer after {READY_S:.0f} s; it goes on starting.",
        hint=f"A start may find much to do. Its log says what: {log_file()}",
    )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return kept | places()


def _open_log() -> int:
    file = log_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if file.stat().st_size > LOG_BYTES:
                file.replace(file.with_name(file.name + ".1"))
        # A pipe is not waited for: opened like this, it is refused without a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(file, flags | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _unwritable(file, error.strerror) from error
    if not stat.S_ISREG(os.fstat(log).st_mode):
        os.close(log)
        raise _unwritable(file, "it is no regular file")
    return log


def _unwritable(file: Path, why: str | None) -> Storage:
    return Storage(f"The log {file} cannot be written: {why}.", hint=f"Look there: ls -l {file}")


def last_lines(count: int, since: int = 0) -> list[str]:
    """Return the last lines of the log, of those after ``since`` bytes; none without a log.

    Raises InvalidState when it cannot be read.
    """
    try:
        with open_log() as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _LINE_BYTES * count))
            return file.read().decode(errors="replace").splitlines()[-count:] if count else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidState(
            f"The log {log_file()} cannot be read: {error.strerror}.",
            hint=f"Look there: ls -l {log_file()}",
        ) from error


def open_log() -> BinaryIO:
    """Open the log for reading without waiting, as a pipe in its place would have one do."""
    return open(log_file(), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))
