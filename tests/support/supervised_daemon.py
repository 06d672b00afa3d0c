"""A daemon that is restarted when it fails, as by systemd, and whose disk fails on demand.

A program injects the faults from outside: it patches the daemon before it runs it.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import EXIT_S, Daemon

# Each fault is a file in the directory of faults; a daemon that finds one fails once.
BEFORE_COMMIT, AFTER_COMMIT, FILES_HANG, KILLED = "before", "after", "hang", "killed"
FAILING = f"""
import os, signal, sys, time
from pathlib import Path
import apsw
from fleetd.store.files import record_files
from fleetd.store.sqlite import group_commit

faults = Path(os.environ["FAULTS"])

def due(name):
    try:
        (faults / name).unlink()
    except FileNotFoundError:
        return False
    return True

class Failing(group_commit.SqliteCommitter):
    def _together(self, jobs):
        if not any(job.origin for job in jobs):  # what the daemon does by itself is not meant
            return super()._together(jobs)
        if due({BEFORE_COMMIT!r}):
            return self._broken(jobs, apsw.IOError("a write failed"))
        before = self._connection.total_changes()
        settled = super()._together(jobs)
        wrote = settled and self._connection.total_changes() > before
        if wrote and due({AFTER_COMMIT!r}):
            self.failure = apsw.IOError("a sync failed")
            return self._refuse(jobs, self.failure)
        if wrote and due({KILLED!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        return settled

def hanging(self, *args, write=record_files.RecordFiles.write, **named):
    if due({FILES_HANG!r}):
        time.sleep(300)
    return write(self, *args, **named)

from fleetd.store.sqlite import store
store.SqliteCommitter = Failing
record_files.RecordFiles.write = hanging
from fleetd.__main__ import main
sys.exit(main([]))
"""


class Supervised:
    """Restarts a daemon whenever it fails; ``statuses`` are the exit statuses of failed ones."""

    def __init__(self, socket: Path, log: Path, command: Sequence[str], env: Mapping[str, str]):
        self.daemon = Daemon(socket=socket, log=log, command=command, env=env)
        self.statuses: list[int] = []
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch)

    def start(self) -> None:
        """Start the first daemon and wait until it answers."""
        self.daemon.start()
        self._thread.start()

    def _watch(self) -> None:
        while True:
            status = self._process().wait()
            with self._changed:
                if self._stopping:
                    return
                self.statuses.append(status)
                self.daemon.spawn()
                self._changed.notify_all()

    def _process(self) -> subprocess.Popen[bytes]:
        assert self.daemon.process is not None
        return self.daemon.process

    def wait_for_restart(self, number: int = 1) -> None:
        """Wait until so many daemons have failed and the next one answers."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.statuses) >= number, EXIT_S)
        self.daemon.wait_until_ready()

    def stop(self) -> None:
        """Stop the last daemon; it must shut down cleanly."""
        with self._changed:
            self._stopping = True
            process = self._process()
        try:
            process.terminate()
            assert process.wait(EXIT_S) == 0, self.daemon.log.read_text()
        finally:
            process.kill()
            self._thread.join()


@contextmanager
def failing(home: Path, env: Mapping[str, str] = os.environ) -> Iterator[Supervised]:
    """Run such a daemon; a file in ``home / "faults"`` requests a fault."""
    (home / "faults").mkdir()
    surroundings = {**env, "FAULTS": str(home / "faults")}
    command = (sys.executable, "-c", FAILING)
    running = Supervised(home / "run" / "d.sock", home / "daemon.log", command, surroundings)
    running.start()
    try:
        yield running
    finally:
        running.stop()
