"""Kill -9 at random moments: nothing acknowledged is lost, no record is incomplete.

A round is a separate home, in which several users work and the daemon is killed again and again:
at work, right after a request was sent or answered, while it starts, while it stops. Each time a
witness checks what came back.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fleetctl.client import Fleet
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.checker import CrewChecker
from tests.chaos.view import check
from tests.chaos.work import Crew
from tests.support.processes import Daemon

USERS = 4
READY_MS = 2_000
# How many lives a home has; a defect is detected in the first or soon after.
FEW, SOON, MANY = 2, 6, 8
# Slightly more than a day: then snapshots are compressed, and nothing is old enough to prune.
LATER = (
    "import fleetd.host.clock as it, fleetd.engine.lifecycle as engine, fleetd.__main__ as main\n"
    "late = lambda: now() + {ms}\nnow = it.wall_clock\n"
    "engine.open_engine.__wrapped__.__kwdefaults__['clock'] = late\nmain.main([])"
)
A_DAY_MS = 25 * 3_600_000


def campaign(run: Run) -> None:
    """Kill the daemon, in one home after the other."""
    for _ in run.rounds():
        with run.home() as (home, env):
            daemon = Daemon(home / "run" / "d.sock", home / "daemon.log", env=env)
            if run.planted is not None:
                code = f"from tests.chaos.injected_bugs import serve; serve({run.planted!r})"
                daemon.command = (sys.executable, "-c", code)
            try:
                lives = SOON if run.planted else MANY if run.judged else FEW
                _Home(run, daemon, home).live(lives)
            finally:
                daemon.clean_up()
    if run.judged and run.planted is None:
        slowest = run.figures.get("ms, slowest start", 0)
        check(slowest <= READY_MS, f"a start after a kill took {slowest:.0f} ms")


class _Home:
    """One home, its users and its daemon."""

    def __init__(self, run: Run, daemon: Daemon, home: Path) -> None:
        self._run, self._daemon = run, daemon
        self._crew = Crew(daemon.socket, home, f"{run.seed}/{run.round}", USERS)
        patience_s = 1.0 if run.planted else 20.0
        self._witness = CrewChecker(self._crew, home, patience_s=patience_s)
        self._chance: random.Random = run.chance

    def live(self, lives: int) -> None:
        """Let the users work, and kill the daemon so many times."""
        try:
            self._live(lives)
        finally:
            self._crew.close()

    def _live(self, lives: int) -> None:
        self._daemon.start()
        for life in range(lives):
            self._work()
            ways = (self._at_work, self._just_sent, self._just_answered, self._stopping)
            (self._just_answered if life == 0 else self._chance.choice(ways))()
            self._crew.finish()
            self._run.add("kills")
            if self._chance.random() < 0.3:
                self._kill_starting()
            if life == lives - 2 and life > 1:
                # Keys are kept for a day: retry requests in flight before the clock is shifted.
                self._come_back()
                self._daemon.kill()
                self._a_day_later()
            self._come_back()
        self._daemon.stop()
        self._run.add("acknowledged", self._crew.answered())

    def _work(self) -> None:
        self._crew.start()
        busy = 80 if self._run.judged else 30
        self._crew.wait_for(self._chance.randrange(busy // 2, busy))

    def _at_work(self) -> None:
        time.sleep(self._chance.random() * 0.05)
        self._daemon.kill()

    def _just_sent(self) -> None:
        self._crew.wait_for_next(self._crew.sent)
        time.sleep(self._chance.choice((0.0, 0.0005, 0.002, 0.005)))
        self._daemon.kill()

    def _just_answered(self) -> None:
        self._crew.wait_for_next(self._crew.answered)
        self._daemon.kill()

    def _stopping(self) -> None:
        process = self._daemon.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        time.sleep(self._chance.random() * 0.1)
        self._daemon.kill()

    def _kill_starting(self) -> None:
        """Kill it during its start: it reads settings, opens the store, reconciles, cleans up."""
        process = self._daemon.spawn()
        try:
            process.wait(self._chance.random() * 0.6)
        except subprocess.TimeoutExpired:
            self._run.add("kills")
            self._daemon.kill()
        else:
            raise Red(f"it ended while it started:\n{self._daemon.log.read_text()[-2_000:]}")

    def _a_day_later(self) -> None:
        """Kill it while it compresses snapshots that are a day old; then reset the clock."""
        code = LATER.format(ms=A_DAY_MS)
        late = Daemon(
            self._daemon.socket,
            self._daemon.log,
            env=self._daemon.env,
            command=(sys.executable, "-c", code),
        )
        try:
            late.start()
            time.sleep(self._chance.random() * 0.1)
        finally:
            late.clean_up()
        self._run.add("kills")

    def _come_back(self) -> None:
        begun = time.monotonic()
        self._daemon.start()
        self._run.worst("ms, slowest start", (time.monotonic() - begun) * 1_000)
        with Fleet(self._daemon.socket) as client:
            self._witness.look(client)
            self._run.add("sent again", self._witness.settle(client))


CAMPAIGN = Campaign(
    name="kill",
    what="kills the daemon with SIGKILL at random moments while four users work",
    unit="homes",
    run=campaign,
    short=1,
    long=150,
    planted={
        "reply-before-commit": 1,
        "key-in-another-transaction": 1,
    },
)
