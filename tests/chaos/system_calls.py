"""Kill -9 before, and so also after, every call by which an operation changes a file or answers.

Each round is one operation and one of its calls. Each round continues with the daemon that the
previous round restarted, so that damage accumulates.
"""

import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from fleetctl.client import Fleet
from fleetd.protocol.errors import Unavailable
from tests.chaos import kill, tracer
from tests.chaos.campaign import Campaign, CannotRun, Red, Run
from tests.chaos.checker import CrewChecker
from tests.chaos.view import check, wait_until
from tests.chaos.work import Crew
from tests.chaos.worker import Gone
from tests.support.processes import Daemon

# The operations to kill; the errands are those of a user, beside the start and the cleanup.
OPERATIONS = (
    *("checkpoint", "snapshot", "complete", "start", "delete_checkpoint", "prune", "restore"),
    *("hook", "delete_mission", "forget_mission", "a_day_later"),
)
STARTS = {
    "start": (sys.executable, "-m", "fleetd"),
    "a_day_later": (sys.executable, "-c", kill.LATER.format(ms=kill.A_DAY_MS)),
}
# The operation that reveals each defect, and where in it: a first round counts its calls.
SHOWN_BY = {"key-in-another-transaction": "tell", "no-catching-up": "checkpoint"}
PARTS = (1.0, 0.8, 1.3, 0.65, 1.6, 0.5)
TRACED = (sys.executable, str(Path(tracer.__file__)))
# The number of an operation's calls is known after its first complete run.
GUESS, NEVER = 40, 1_000_000
BETWEEN = 12
PATIENCE_S = 20.0


def campaign(run: Run) -> None:
    """Kill the daemon before one call after the other."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotRun("calls are counted on Linux on x86-64 only")
    with run.home() as (home, env):
        place = _Place(run, home, env)
        try:
            for number in run.rounds():
                place.round(number)
        finally:
            place.close()
    for operation, calls in place.calls.items():
        run.worst(f"calls of {operation}", calls)


class _Place:
    """A home with one user, whose daemon is traced."""

    def __init__(self, run: Run, home: Path, env: dict[str, str]) -> None:
        self._run, self._report = run, home / "calls"
        self._daemon = Daemon(home / "run" / "d.sock", home / "daemon.log", env=env)
        self._crew = Crew(self._daemon.socket, home, f"{run.seed}/{run.only or 0}", 1)
        (self._user,) = self._crew.workers
        patience_s = 1.0 if run.planted else PATIENCE_S
        self._witness = CrewChecker(self._crew, home, patience_s=patience_s)
        self.calls: dict[str, int] = {}
        self._tried: dict[str, int] = {}

    def close(self) -> None:
        """Stop all processes."""
        self._crew.close()
        self._daemon.clean_up()

    def round(self, number: int) -> None:
        """Kill it before one call of one operation, restart it, and check."""
        operation = OPERATIONS[number % len(OPERATIONS)]
        if self._run.planted is not None:
            operation = SHOWN_BY[self._run.planted]
        before = self._call_of(operation)
        if self._daemon.process is None:
            self._start()
        if operation in STARTS:
            self._while_starting(operation, before)
        else:
            self._at_work(operation, before)
        self._end()
        self._count(operation, before)
        self._start()
        with Fleet(self._daemon.socket) as client:
            self._witness.look(client)
            self._witness.settle(client)

    def _call_of(self, operation: str) -> int:
        """Return the call before which it is killed: in the long form one after the other."""
        tried = self._tried[operation] = self._tried.get(operation, 0) + 1
        calls = self.calls.get(operation)
        if self._run.planted is not None:
            return round(calls * PARTS[tried % len(PARTS)]) if calls else NEVER
        if not self._run.judged:
            return self._run.chance.randint(1, calls or GUESS)
        return (tried - 1) % calls + 1 if calls else tried

    def _count(self, operation: str, before: int) -> None:
        """Note how many calls there were, as far as it ran."""
        seen = int(self._told().rpartition("ended ")[2].split()[0])
        if seen >= before:
            self._run.add("kills")
        else:  # it was done before that
            self.calls[operation] = max(seen, 1)

    def _told(self) -> str:
        return self._report.read_text()

    def _at_work(self, operation: str, before: int) -> None:
        """Let the user do some errands, then the operation."""
        for _ in range(BETWEEN):
            self._user.errand()
        self._report.write_text(str(before))
        self._user.moment = self._begin_counting
        with suppress(Gone):
            self._until_sent(operation)
        self._user.moment = lambda: None

    def _until_sent(self, operation: str) -> None:
        """Run the operation as soon as possible."""
        said = len(self._user.said)
        for _ in range(1_000):
            while self._user.stale:
                self._user.look_again(next(iter(self._user.stale)))
            getattr(self._user, operation)()
            if len(self._user.said) > said:
                return
            self._user.moment, moment = lambda: None, self._user.moment
            self._user.errand()
            self._user.moment, said = moment, len(self._user.said)
        raise Red(f"there was never anything to do for {operation}")

    def _begin_counting(self) -> None:
        process = self._daemon.process
        assert process is not None
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "counting" in self._told(), "nobody counts", PATIENCE_S)

    def _while_starting(self, operation: str, before: int) -> None:
        """Leave work for the start, then kill the daemon during its start."""
        self._user.checkpoint()
        self._user.snapshot()
        self._end()
        self._report.write_text(str(before))
        self._daemon.command = (*TRACED, str(self._report), "start", *STARTS[operation])
        process = self._daemon.spawn()
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and not self._serves():
            check(time.monotonic() < deadline, "it does not start")
            time.sleep(0.01)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.3)  # its background work once it serves

    def _end(self) -> None:
        """Kill it in any state, unless it was killed already."""
        process = self._daemon.process
        assert process is not None
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGUSR2)
        process.wait(PATIENCE_S)
        self._daemon.clean_up()
        self._crew.close()

    def _serves(self) -> bool:
        with suppress(Unavailable), Fleet(self._daemon.socket, connect_s=0.1):
            return True
        return False

    def _start(self) -> None:
        self._report.write_text("0")
        self._daemon.command = (*TRACED, str(self._report), "later", *self._product())
        try:
            self._daemon.start()
        except AssertionError as error:
            process = self._daemon.process
            if process is not None and process.poll() == tracer.DENIED:
                raise CannotRun("nothing may be traced here") from error
            raise

    def _product(self) -> tuple[str, ...]:
        if self._run.planted is None:
            return (sys.executable, "-m", "fleetd")
        code = f"from tests.chaos.injected_bugs import serve; serve({self._run.planted!r})"
        return (sys.executable, "-c", code)


CAMPAIGN = Campaign(
    name="system_calls",
    what="kills the daemon before each call by which an operation changes a file or answers",
    unit="calls",
    run=campaign,
    short=3,
    long=1_500,
    planted=dict.fromkeys(SHOWN_BY, 8),
)
