"""The daemon that answers now: who it is, who made its socket, and its end by a signal."""

import os
import select
import signal
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from fleetd.host import paths
from fleetd.protocol.credentials import credentials
from fleetd.protocol.errors import FleetError, InvalidState, LimitExceeded, Unavailable

from ..client import Fleet, TooSlow
from ..client.models import Hello, SystemHello
from ..client.transport import dial
from ..integrations import config_file

LOOK_S = 5.0
# The daemon promises to be gone within ten seconds.
END_S = 12.0
PAUSE_S = 0.05
STOP_UNITS = "systemctl --user stop fleetd.socket fleetd"


class Running(NamedTuple):
    """A daemon that answered; ``listener`` is the process that made its socket, if that is known.

    Under systemd that is systemd itself.
    """

    hello: Hello
    listener: int | None

    @property
    def pid(self) -> int:
        """Return the daemon's process."""
        return self.hello.pid

    @property
    def activated(self) -> bool:
        """Return whether it was given its socket by somebody else."""
        return self.listener not in (None, self.pid)


class Silent(LimitExceeded):
    """Somebody listens and does not answer; ``pid`` is the daemon's, if that is known."""

    def __init__(self, pid: int | None) -> None:
        who = "fleetd" if pid is None else f"fleetd (pid {pid})"
        end = "fleetctl daemon restart" if pid is None else f"kill -KILL {pid}"
        super().__init__(
            f"{who} does not answer.",
            hint="It may have much to do, or hang: fleetctl daemon logs. If it hangs, end it with "
            f"{end}; nothing that was acknowledged is lost.",
        )


def look(path: Path) -> Running | None:
    """Return the daemon that serves a socket; None when nobody does.

    A service manager that listens starts the daemon by this. Raises Denied for a foreign one,
    Silent for one that does not answer.
    """
    try:
        with Fleet(path, connect_s=LOOK_S) as client:
            return _introduced(client, path)
    except Unavailable:
        return None


def _introduced(client: Fleet, path: Path) -> Running:
    """Return who answers; raises Silent when nobody does."""
    try:
        hello = client.call(SystemHello(), reply_s=LOOK_S)
    except TooSlow as error:
        raise Silent(_silent_pid(path)) from error
    return Running(hello, _listener(path))


def _silent_pid(path: Path) -> int | None:
    """Return the daemon's pid where it made the socket itself: another's must not be killed."""
    listener = _listener(path)
    with suppress(FleetError):
        written = config_file.read(paths.lock_of_socket(path)).data or b""
        return listener if written.strip() == str(listener).encode() else None
    return None


def _listener(path: Path) -> int | None:
    """Return the process that made the socket, where the kernel says."""
    with closing(dial(path, time.monotonic() + LOOK_S)) as sock:
        return credentials(sock)[1]


def end(path: Path) -> Running | None:
    """Have the daemon end in order and wait for it; return what it was, None when there was none.

    The signal goes to the process that the daemon itself names, and only if that made the socket.
    Raises InvalidState where it did not, LimitExceeded when it does not end in time, Silent when
    it does not answer.
    """
    try:
        # While this connection stands, the pid is the daemon's and nobody else's.
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
    _wait(found.pid, handle)
    return found


def _handle(pid: int) -> int | None:
    """Return a descriptor that tells of a process's end, where there is such a thing."""
    opener = getattr(os, "pidfd_open", None)
    if opener is not None:
        with suppress(OSError):
            handle: int = opener(pid)
            return handle
    return None


def _wait(pid: int, handle: int | None) -> None:
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
