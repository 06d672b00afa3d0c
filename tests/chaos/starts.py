"""Many daemons start at once where one has died, dies, ends or serves: exactly one serves.

The daemons are forked from one process that has imported everything, and wait for one signal: they
start closer together than a shell could start them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from tests.chaos.campaign import Campaign, Red, Run

RIVALS, FEW = 16, 4
SETTLED_S = 60
# Code that plants each defect in the product before the fork.
DEFECTS = {
    None: "",
    "no-lock": "import fcntl; plant(fcntl, 'flock', lambda *_: None)",
    "socket-lock-only": (
        "import fleetd.host.instance_lock as it\n"
        "real = plant(it, 'locks_of', lambda *given: dict([*real(*given).items()][:1]))"
    ),
    "no-connect": "import fleetd.server.listener as it; plant(it, '_is_stale', lambda path: True)",
}
STARTER = """
import json, os, signal, sys, apsw, platformdirs, trio
import fleetd.__main__, fleetd.daemon
from tests.chaos.plant import plant
{defect}

def become(each, gate):
    os.read(gate, 1)
    os.environ.clear()
    os.environ.update(each["env"])
    log = os.open(each["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(0)
    status = 70
    try:
        status = fleetd.__main__.main([])
    finally:
        sys.stderr.flush()
        os._exit(status)

for line in sys.stdin:
    told = json.loads(line)
    if told["do"] == "fork":
        gate, opener = os.pipe()
        pids = []
        for each in told["each"]:
            pid = os.fork()
            if pid == 0:
                os.close(opener)
                become(each, gate)
            pids.append(pid)
        os.close(gate)
        print(json.dumps(pids), flush=True)
    elif told["do"] == "go":
        os.close(opener)
        print("[]", flush=True)
    else:
        found = {{}}
        for pid in told["pids"]:
            ended, status = os.waitpid(pid, 0 if told["do"] == "wait" else os.WNOHANG)
            if ended:
                found[pid] = os.waitstatus_to_exitcode(status)
        print(json.dumps(found), flush=True)
"""


class Starter:
    """The process that forks daemons; only it can wait for them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.alive: set[int] = set()

    def ask(self, do: str, **more: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def fork(self, each: list[dict[str, Any]]) -> list[int]:
        """Return the pids of daemons that wait until ``go``."""
        pids: list[int] = self.ask("fork", each=each)
        self.alive |= set(pids)
        return pids

    def ended(self, *, wait: bool = False) -> dict[int, int]:
        """Return the statuses of daemons that have ended since the last call."""
        told = self.ask("wait" if wait else "look", pids=sorted(self.alive))
        found = {int(pid): status for pid, status in told.items()}
        self.alive -= set(found)
        return found

    def kill(self) -> None:
        """Kill every remaining daemon."""
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)
        self.ended(wait=True)


@contextmanager
def starter(run: Run) -> Iterator[Starter]:
    code = STARTER.format(defect=DEFECTS[run.planted])
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    started = Starter(process)
    try:
        yield started
        started.kill()
    finally:
        process.communicate()


class ForkedDaemon:
    """One daemon of a round: where it would serve, and its exit status, if it has ended."""

    def __init__(self, home: Path, env: dict[str, str], number: int) -> None:
        self.env = env
        self.socket = Path(env["FLEET_SOCKET"])
        self._log = home / f"{number}.log"
        self.pid = 0
        self.status: int | None = None

    @property
    def told(self) -> dict[str, Any]:
        return {"env": self.env, "log": str(self._log)}

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def serves(self) -> bool:
        return self.status is None and f"listens on {self.socket} (pid" in self.log

    def client(self) -> Fleet:
        return Fleet(self.socket)


class StartRound:
    """One round: its home, its daemons, and what was acknowledged."""

    def __init__(self, run: Run, starter: Starter, home: Path, env: dict[str, str]) -> None:
        self._starter = starter
        self._home = home
        self._env = env
        self.chance = run.chance
        self.rivals = RIVALS if run.judged else FEW
        self.daemons: list[ForkedDaemon] = []
        self.titles: dict[str, set[str]] = {}

    def prepare(self, count: int, **own: Callable[[int], Path]) -> list[ForkedDaemon]:
        """Fork daemons that wait; ``own`` gives each its own value of a variable."""
        fresh = []
        for _ in range(count):
            number = len(self.daemons)
            env = self._env | {name: str(of(number)) for name, of in own.items()}
            self.daemons.append(ForkedDaemon(self._home, env, number))
            fresh.append(self.daemons[-1])
        for daemon, pid in zip(fresh, self._starter.fork([d.told for d in fresh]), strict=True):
            daemon.pid = pid
        return fresh

    def go(self) -> None:
        self._starter.ask("go")

    def settle(self) -> list[ForkedDaemon]:
        """Wait until each daemon serves or has ended; return those that serve."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            for pid, status in self._starter.ended().items():
                next(d for d in self.daemons if d.pid == pid).status = status
            unsettled = [d for d in self.daemons if d.status is None and not d.serves]
            if not unsettled:
                return [daemon for daemon in self.daemons if daemon.serves]
            if time.monotonic() > deadline:
                raise Red(f"{len(unsettled)} daemons neither serve nor end: {unsettled[0].log}")
            time.sleep(0.01)

    def first(self, **own: Callable[[int], Path]) -> ForkedDaemon:
        """Start one daemon alone and create an acknowledged record."""
        (daemon,) = self.prepare(1, **own)
        self.go()
        if daemon not in self.settle():
            raise Red(f"a daemon that starts alone does not serve: {daemon.log}")
        self.acknowledge(daemon)
        return daemon

    def acknowledge(self, daemon: ForkedDaemon) -> None:
        title = f"mission {len(self.daemons)}"
        with daemon.client() as client:
            client.call_raw("mission.create", {"title": title})
        self.titles.setdefault(daemon.env["FLEET_DB_PATH"], set()).add(title)

    def end(self, daemon: ForkedDaemon, number: int) -> None:
        """Send a signal, without waiting for its effect."""
        os.kill(daemon.pid, number)

    def one_serves(self, rivals: list[ForkedDaemon], *, may_be_none: bool = False) -> None:
        """Check which daemon serves, and the errors of the others."""
        serving = self.settle()
        if len(serving) > 1:
            raise Red(f"{len(serving)} daemons serve at once: {[d.log for d in serving]}")
        if not serving and not may_be_none:
            raise Red(f"of {len(rivals)} daemons none serves: {rivals[0].log}")
        for rival in rivals:
            refused = rival.status == 1 and "fleetd is already running" in rival.log
            if not refused and rival not in serving:
                raise Red(f"one ended with {rival.status} and said: {rival.log}")
        self._check(serving[0] if serving else self.first())

    def _check(self, daemon: ForkedDaemon) -> None:
        """Check that the serving daemon answers on its socket and has the acknowledged records."""
        with daemon.client() as client:
            if (pid := client.call_raw("system.hello")["pid"]) != daemon.pid:
                raise Red(f"{daemon.socket} leads to {pid}, not to {daemon.pid}, which serves")
            found = {each["title"] for each in client.call_raw("mission.list")["missions"]}
        if lost := self.titles.get(daemon.env["FLEET_DB_PATH"], set()) - found:
            raise Red(f"acknowledged and lost: {sorted(lost)}")
        self.acknowledge(daemon)

    def own(self, name: str) -> Callable[[int], Path]:
        """Return a function that gives each daemon a path of its own."""
        return lambda number: self._home / "run" / f"{number}" / name


def one_database(here: StartRound) -> None:
    if here.chance.random() < 0.5:
        here.end(here.first(FLEET_SOCKET=here.own("d.sock")), signal.SIGKILL)
    rivals = here.prepare(here.rivals, FLEET_SOCKET=here.own("d.sock"))
    here.go()
    here.one_serves(rivals)


def somebody_listens(here: StartRound) -> None:
    """Check a socket of systemd, which may listen without a daemon: no daemon may remove it."""
    rivals = here.prepare(here.rivals)
    path = rivals[0].socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unit:
        unit.bind(str(path))
        unit.listen()
        before = path.lstat().st_ino
        here.go()
        serving = here.settle()
        if serving or not path.exists() or path.lstat().st_ino != before:
            raise Red(f"the socket on which somebody listens was taken: {rivals[0].log}")
        if statuses := {rival.status for rival in rivals} - {1}:
            raise Red(f"they ended with {statuses}: {rivals[0].log}")


def one_directory(here: StartRound) -> None:
    rivals = here.prepare(
        here.rivals, FLEET_SOCKET=here.own("d.sock"), FLEET_DB_PATH=here.own("squawk.db")
    )
    here.go()
    here.one_serves(rivals)


def stale_socket(here: StartRound) -> None:
    here.end(here.first(), signal.SIGKILL)
    rivals = here.prepare(here.rivals)
    here.go()
    here.one_serves(rivals)


def while_it_dies(here: StartRound) -> None:
    _while(here, signal.SIGKILL)


def while_it_ends(here: StartRound) -> None:
    _while(here, signal.SIGTERM)


def _while(here: StartRound, number: int) -> None:
    first, rivals = here.first(), here.prepare(here.rivals)
    early = here.chance.random() < 0.5
    if early:
        here.end(first, number)
    here.go()
    time.sleep(here.chance.random() * 0.03)
    if not early:
        here.end(first, number)
    while first.status is None:
        here.settle()
        time.sleep(0.005)
    wanted = -signal.SIGKILL if number == signal.SIGKILL else 0
    if first.status != wanted:
        raise Red(f"the one that served ended with {first.status}: {first.log}")
    here.one_serves(rivals, may_be_none=True)


KINDS = (
    one_database,
    somebody_listens,
    one_directory,
    stale_socket,
    while_it_dies,
    while_it_ends,
)


def go(run: Run) -> None:
    """Start daemons at once, each kind of round in turn."""
    with starter(run) as forking:
        for number in run.rounds():
            with run.home() as (home, env):
                here = StartRound(run, forking, home, env)
                try:
                    KINDS[number % len(KINDS)](here)
                finally:
                    forking.kill()
                run.add("daemons", len(here.daemons))


CAMPAIGN = Campaign(
    name="starts",
    what="16 daemons at once on one socket, one database or one directory",
    unit="rounds",
    run=go,
    short=len(KINDS),
    long=600,
    planted={"no-lock": 1, "socket-lock-only": 1, "no-connect": 2},
)
