"""Runs a command and kills it before its n-th call that changes a file or sends an answer.

``python tracer.py REPORT start|later COMMAND...`` counts immediately, or from SIGUSR1 on, over all
threads in the order of their calls; strace would count for each thread separately. REPORT contains
the number of the call before which the process is killed. That call does not happen, but the one
before it has taken effect, so a kill before every call is a kill after every call, too. REPORT gets
a line when the counting begins, and one with the number of calls and the name of the last.
SIGUSR2 kills the process in any state. Linux on x86-64 only.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import FrameType

SEIZE, INTERRUPT, GO_ON, TO_NEXT_CALL = 0x4206, 0x4207, 7, 24
EVENT_MESSAGE, CALL_INFO = 0x4201, 0x420E
# Mark stops at calls, follow threads, and kill the process when the tracer ends.
OPTIONS = 0x1 | 0x8 | 0x100000
CLONED, STOPPED = 3, 128
AT_CALL = signal.SIGTRAP | 0x80
ENTERS = 1
CALLS = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    44: "sendto",
    46: "sendmsg",
    74: "fsync",
    75: "fdatasync",
    76: "truncate",
    77: "ftruncate",
    82: "rename",
    83: "mkdir",
    84: "rmdir",
    86: "link",
    87: "unlink",
    88: "symlink",
    90: "chmod",
    91: "fchmod",
    257: "openat",
    258: "mkdirat",
    263: "unlinkat",
    264: "renameat",
    265: "linkat",
    266: "symlinkat",
    285: "fallocate",
    296: "pwritev",
    316: "renameat2",
}
DENIED = 77

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class CallInfo(ctypes.Structure):
    """The kernel's ``struct ptrace_syscall_info``, as far as a call's entry needs it."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
        ("more", ctypes.c_uint64),
    )


class Tracer:
    """One process and its threads."""

    def __init__(self, report: Path, pid: int) -> None:
        self._report, self._pid = report, pid
        self._counting, self._kill_before = False, 0
        self._threads = {pid}
        self._to_stop: set[int] = set()
        self._seen, self._last = 0, "nothing"

    def begin(self, number: int, frame: FrameType | None) -> None:
        """Start to count: every thread stops, to continue from call to call."""
        self._counting, self._kill_before = True, int(self._report.read_text())
        self._to_stop = set(self._threads)
        for thread in self._threads:
            libc.ptrace(INTERRUPT, thread, None, None)

    def run(self) -> int:
        """Follow the process until it has ended; return its exit status."""
        while True:
            thread, status = os.waitpid(-1, 0x40000000)
            if os.WIFSTOPPED(status):
                self._go_on(thread, self._stopped(thread, status))
                continue
            self._threads.discard(thread)
            self._told_to_stop(thread)
            if thread == self._pid:
                self._say(f"ended {self._seen} {self._last}")
                return 0 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _stopped(self, thread: int, status: int) -> int:
        """Handle a stop; return the signal for the thread."""
        event, number = status >> 16, os.WSTOPSIG(status)
        self._threads.add(thread)
        if event == STOPPED:
            self._told_to_stop(thread)
        elif number == AT_CALL:
            self._at_call(thread)
        elif not event and number != signal.SIGTRAP:
            return number
        return 0

    def _told_to_stop(self, thread: int) -> None:
        if thread in self._to_stop:
            self._to_stop.discard(thread)
            if not self._to_stop:
                self._say("counting")

    def _at_call(self, thread: int) -> None:
        info = CallInfo()
        size = ctypes.sizeof(info)
        libc.ptrace(CALL_INFO, thread, size, ctypes.addressof(info))
        if info.op == ENTERS and self._counting and _matters(info):
            self._seen += 1
            self._last = CALLS[info.number]
            if self._seen == self._kill_before:
                os.kill(self._pid, signal.SIGKILL)

    def _go_on(self, thread: int, number: int) -> None:
        libc.ptrace(TO_NEXT_CALL if self._counting else GO_ON, thread, None, number)

    def _say(self, text: str) -> None:
        with self._report.open("a") as report:
            report.write(f"\n{text}")


def _matters(info: CallInfo) -> bool:
    name = CALLS.get(info.number)
    if name == "openat":
        return bool(info.args[2] & (os.O_CREAT | os.O_TRUNC))
    if name in ("write", "writev"):
        return bool(info.args[0] > 2)  # the log does not count
    if name == "sendto":
        return bool(info.args[2] > 1)  # one byte wakes a thread
    return name is not None


def main(report: Path, begin: str, command: list[str]) -> int:
    """Start the command, follow it, and end it."""
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)
        os.read(ready, 1)
        os.execvp(command[0], command)
    if libc.ptrace(SEIZE, pid, None, OPTIONS) != 0:
        os.kill(pid, signal.SIGKILL)
        return DENIED
    tracer = Tracer(report, pid)
    signal.signal(signal.SIGUSR1, tracer.begin)
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(pid, signal.SIGKILL))
    if begin == "start":
        tracer.begin(0, None)
    os.close(go)
    return tracer.run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
