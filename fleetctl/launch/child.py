"""Child process: run an agent CLI that uses the terminal, and wait for its end.

The child stays in this process group, so both are one job of the shell, and both have the terminal.
The child handles signals from the keyboard; signals to this process alone are forwarded to it.
"""

import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from .commands import Launch
from .run import CannotRun, check_directory

# The keyboard sends these to the whole foreground group: the child decides what they mean.
_OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
# These are often sent to one process only; a second hangup does no harm.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
# A shell adds this to the number of the signal that ended a process.
BY_SIGNAL = 128


def run(launch: Launch) -> int:
    """Start a CLI, wait for its end, and return its exit status as a shell reports it.

    Raises ProgramMissing and DirectoryGone, and CannotRun where the system refuses.
    """
    executable = launch.executable()
    check_directory(launch)
    sys.stdout.flush()
    sys.stderr.flush()
    modes = _Modes()
    with _signals() as sent:
        try:
            child = subprocess.Popen(  # noqa: S603 - it is what the person asked for
                launch.argv,
                executable=executable,
                cwd=launch.directory,
                env=launch.environment,
            )
        except OSError as error:
            raise CannotRun(f"{launch.title} cannot be started: {error.strerror}.") from error
        sent.to(child)
        status = _wait(child)
        if status < 0:  # it had no time to restore the terminal
            modes.restore()
    return status if status >= 0 else BY_SIGNAL - status


def _wait(child: "subprocess.Popen[Any]") -> int:
    """Wait for the end of a child, and stop whenever the child stops."""
    while True:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode
        if _has_job_control():
            os.kill(os.getpid(), signal.SIGSTOP)
        # Either the shell has resumed this job, or no shell could resume the child.
        _send(child, signal.SIGCONT)


def _has_job_control() -> bool:
    """Return whether this process is a job of a shell, which can resume a stopped one."""
    parent = os.getppid()
    with suppress(ProcessLookupError):
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    return False


class _Sent:
    """The signals that this process received for the child."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[Any] | None = None
        self._waiting: list[int] = []

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Forward a signal, now or once there is a child."""
        if self._child is None:
            self._waiting.append(number)
        else:
            _send(self._child, number)

    def to(self, child: "subprocess.Popen[Any]") -> None:
        """Forward earlier and later signals to a child."""
        self._child = child
        for number in self._waiting:
            _send(child, number)


def _send(child: "subprocess.Popen[Any]", number: int) -> None:
    """Send a signal to an unreaped child: Popen would reap it first, and hide its status."""
    if child.returncode is None:
        os.kill(child.pid, number)


@contextmanager
def _signals() -> Iterator[_Sent]:
    """Send signals to the child while it runs.

    They are handled, not ignored: the child would inherit ignored signals.
    """
    sent = _Sent()
    before = {each: signal.signal(each, lambda *_: None) for each in _OF_THE_KEYBOARD}
    before |= {each: signal.signal(each, sent.take) for each in _FORWARDED}
    try:
        yield sent
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Modes:
    """The modes of the terminal."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        with suppress(termios.error, ValueError, OSError):
            self._modes = termios.tcgetattr(sys.stdin)

    def restore(self) -> None:
        """Restore the modes of the terminal."""
        if self._modes is not None:
            with suppress(termios.error, ValueError, OSError):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
