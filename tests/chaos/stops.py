"""SIGTERM at random moments, under load: the daemon shuts down cleanly and loses nothing."""

import signal
import sys
import time

from fleetctl.client import Fleet
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.checker import CrewChecker
from tests.chaos.work import Crew
from tests.support.processes import Daemon

USERS = 4
PATIENCE_S, DRAINED_MS = 60, 10_000
FEW, MANY = 1, 10
# Replies before the commit, and does not finish requests in flight.
HASTY = """
import os
from fleetd import daemon
from tests.chaos.injected_bugs import serve
from tests.chaos.plant import plant
async def leave(signals, stop):
    async for _ in signals:
        os._exit(0)
plant(daemon, "_watch_signals", leave)
serve("reply-before-commit")
"""


def campaign(run: Run) -> None:
    """Stop the daemon again and again, in one home after the other."""
    for _ in run.rounds():
        with run.home() as (home, env):
            if run.planted is not None:  # coverage would write its file first and delay the exit
                env = {name: text for name, text in env.items() if not name.startswith("COVERAGE_")}
            daemon = Daemon(home / "run" / "d.sock", home / "daemon.log", env=env)
            if run.planted is not None:
                daemon.command = (sys.executable, "-c", HASTY)
            crew = Crew(daemon.socket, home, f"{run.seed}/{run.round}", USERS)
            witness = CrewChecker(crew, home, patience_s=1.0 if run.planted else 20.0)
            try:
                daemon.start()
                for _life in range(MANY if run.judged or run.planted else FEW):
                    _live(run, daemon, crew, witness)
                daemon.stop()
            finally:
                crew.close()
                daemon.clean_up()
            _check_log(daemon)
            run.add("acknowledged", crew.answered())
    slowest = run.figures.get("ms, slowest end", 0)
    if run.judged and run.planted is None and slowest > DRAINED_MS:
        raise Red(f"it took {slowest:.0f} ms to end after SIGTERM")


def _live(run: Run, daemon: Daemon, crew: Crew, witness: CrewChecker) -> None:
    """Let the users work, stop the daemon under them, and check what comes back."""
    crew.start()
    crew.wait_for(run.chance.randrange(5, 60))
    if run.planted or run.chance.random() < 0.5:
        crew.wait_for_next(crew.answered)
    process, begun = daemon.process, time.monotonic()
    assert process is not None
    process.send_signal(signal.SIGTERM)
    status = process.wait(PATIENCE_S)
    run.worst("ms, slowest end", (time.monotonic() - begun) * 1_000)
    if status != 0:
        raise Red(f"it ended with {status} after SIGTERM:\n{daemon.log.read_text()[-2_000:]}")
    crew.finish()
    run.add("stops")
    daemon.start()
    with Fleet(daemon.socket) as client:
        witness.look(client)
        run.add("sent again", witness.settle(client))


def _check_log(daemon: Daemon) -> None:
    log = daemon.log.read_text()
    for word in ("Traceback", "[ERROR]"):
        if word in log:
            place = log.index(word)
            raise Red(f"its log tells of an error:\n{log[max(0, place - 300) : place + 2_000]}")


CAMPAIGN = Campaign(
    "stops",
    "stops the daemon with SIGTERM at random moments while four users work",
    "homes",
    campaign,
    short=1,
    long=50,
    planted={"leaves-at-once": 2},
)
