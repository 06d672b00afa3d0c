"""The process of fleetd: find it, end it with a signal, and start it in the background."""

import os
import select
import signal
import stat
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState, LimitExceeded, Storage, Unavailable
from fleetd.protocol.framing import credentials

from ..client import Fleet, TooSlow
from ..client.models import Hello, SystemHello
from ..client.transport import dial
from ..integrations import config_file
from .spec import command, places

if TYPE_CHECKING:
    import subprocess

LOOK_S = 5.0
# The daemon promises to be gone within ten seconds.
END_S = 12.0
PAUSE_S = 0.05
STOP_UNITS = "systemctl --user stop fleetd.socket fleetd"


class Running(NamedTuple):
    """A daemon that answered; ``listener`` is the process that created its socket, if known.

    Under systemd, the listener is systemd itself.
    """

    hello: Hello
    listener: int | None

    @property
    def pid(self) -> int:
        """Return the daemon's process ID."""
        return self.hello.pid

    @property
    def activated(self) -> bool:
        """Return whether another process created its socket."""
        return self.listener not in (None, self.pid)


class Silent(LimitExceeded):
    """A process listens and does not answer; ``pid`` is the daemon's, if that is known."""

    def __init__(self, pid: int | None) -> None:
        daemon = "fleetd" if pid is None else f"fleetd (pid {pid})"
        end = "fleetctl daemon restart" if pid is None else f"kill -KILL {pid}"
        super().__init__(
            f"{daemon} does not answer.",
            hint="It may be busy, or hang: fleetctl daemon logs. If it hangs, end it with "
            f"{end}; nothing that was acknowledged is lost.",
        )


def look(path: Path) -> Running | None:
    """Return the daemon that serves a socket; None when none does.

    If a service manager listens, this starts the daemon. Raises Denied for a foreign one, Silent
    for one that does not answer.
    """
    try:
        with Fleet(path, connect_s=LOOK_S) as client:
            return _introduced(client, path)
    except Unavailable:
        return None


def _introduced(client: Fleet, path: Path) -> Running:
    """Return the daemon that answers; raises Silent when it does not."""
    try:
        hello = client.call(SystemHello(), reply_s=LOOK_S)
    except TooSlow as error:
        raise Silent(_silent_pid(path)) from error
    return Running(hello, _listener(path))


def _silent_pid(path: Path) -> int | None:
    """Return the daemon's pid if it created the socket: no other process may be killed."""
    listener = _listener(path)
    with suppress(FleetError):
        written = config_file.read(paths.lock_of_socket(path)).data or b""
        return listener if written.strip() == str(listener).encode() else None
    return None


def _listener(path: Path) -> int | None:
    """Return the process that created the socket, if the kernel reports it."""
    with closing(dial(path, time.monotonic() + LOOK_S)) as sock:
        return credentials(sock)[1]


def end(path: Path) -> Running | None:
    """End the daemon in an orderly way, wait for it and return it; None when there was none.

    The signal goes to the process that the daemon itself names, and only if it created the socket.
    Raises InvalidState if it did not, LimitExceeded when it does not end in time, Silent when it
    does not answer.
    """
    try:
        # While this connection is open, no other process can get the daemon's pid.
        with Fleet(path, connect_s=LOOK_S) as client:
            found = _introduced(client, path)
            if found.activated:
                raise InvalidState(
                    f"The socket of fleetd (pid {found.pid}) was made by process {found.listener},"
                    " which would start it again.",
                    hint=f"Under systemd, stop both: {STOP_UNITS}",
                )
            handle = _handle(found.pid)
            os.kill(found.pid, signal.SIGTERM)
    except (Unavailable, ProcessLookupError):
        return None
    _wait_for_end(found.pid, handle)
    return found


def _handle(pid: int) -> int | None:
    """Return a descriptor that signals a process's end, where the platform has one."""
    opener = getattr(os, "pidfd_open", None)
    if opener is not None:
        with suppress(OSError):
            handle: int = opener(pid)
            return handle
    return None


def _wait_for_end(pid: int, handle: int | None) -> None:
    if handle is not None:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        over = bool(poll.poll(END_S * 1_000))
        os.close(handle)
    else:
        over = _gone(pid)
    if not over:
        raise LimitExceeded(
            f"fleetd (pid {pid}) has not ended after {END_S:.0f} s.",
            hint="Its log says what it waits for: fleetctl daemon logs",
        )


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(PAUSE_S)
    return False


READY_S = 20.0
START_PAUSE_S = 0.02
LOG_BYTES = 4_000_000
LAST_LINES = 5
_LINE_BYTES = 2_000
# Variables that are meant for the process that received them, and not for its children.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS")


def log_file() -> Path:
    """Return the log file of a daemon without a service manager."""
    return paths.state_path() / "fleetd.log"


def start(path: Path) -> Running:
    """Start fleetd, detached from this terminal, and wait until it answers.

    Raises InvalidState when it ends first (``log`` contains its last lines), LimitExceeded when it
    takes too long, Storage when its log cannot be written.
    """
    # Imported here: most users of this module never need it.
    import subprocess

    env = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    log = _open_log()
    before = os.fstat(log).st_size
    try:
        process = subprocess.Popen(
            command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path.home(),
            env=env | places(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    return _wait_until_ready(process, path, before)


def _wait_until_ready(process: "subprocess.Popen[bytes]", path: Path, logged: int) -> Running:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        status = process.poll()
        with suppress(Silent):  # it listens and does not answer yet
            # Another process may have started a daemon just before: that one will do.
            if found := look(path):
                return found
        if status is not None:
            raise InvalidState(
                f"fleetd ended with status {status} before it answered.",
                hint=f"Its log is {log_file()}; fleetctl doctor checks whether fleetd can start.",
                log=last_lines(LAST_LINES, since=logged),
            )
        time.sleep(START_PAUSE_S)
    raise LimitExceeded(
        f"fleetd (pid {process.pid}) does not answer after {READY_S:.0f} s; it goes on starting.",
        hint=f"A start can take long. Its log shows the progress: {log_file()}",
    )


def _open_log() -> int:
    file = log_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if file.stat().st_size > LOG_BYTES:
                file.replace(file.with_name(file.name + ".1"))
        # Do not block on a pipe: opened like this, one without a reader is an error.
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
    """Return the last lines of the log after ``since`` bytes; none without a log.

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
    """Open the log for reading without blocking, even if a pipe is in its place."""
    return open(log_file(), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))
