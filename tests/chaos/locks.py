"""Histories of locks shared by clients that are stopped and killed, searched for a valid order.

Each round has two parts on one daemon: a queue of waiters, whose order is known, and clients that
act at random while some are stopped beyond their leases or killed, and sometimes the daemon too.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockList,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from fleetd.protocol.timestamps import to_ms
from tests.chaos import injected_lock_bugs, lock_clients
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.lock_clients import Diary, Plan, now_ms
from tests.chaos.lock_history import LockHistory, check_rows
from tests.chaos.lock_model import unexplained
from tests.chaos.reservations import overlapping_line, reserve
from tests.support.processes import Daemon

CLIENTS, WAITERS = 4, 4
LEASES_MS = (60, 120, 250)
CALLS, LONG_CALLS = 30, 80
FOREVER_MS = 600_000
GRACE_MS = 60_000
PATIENCE_S = 20.0


class LockRound:
    """One daemon with one mission, and the processes that belong to it."""

    def __init__(self, run: Run, home: Path, env: dict[str, str]) -> None:
        self.run, self.home, self.project = run, home, home / "project"
        self.pids: set[int] = set()
        self.diaries: list[Path] = []
        command = (sys.executable, "-m", "fleetd")
        if run.planted:
            command = (sys.executable, injected_lock_bugs.__file__, run.planted)
        self.daemon = Daemon(home / "run" / "d.sock", home / "log", env=env, command=command)
        self.daemon.start()

    def clean_up(self) -> None:
        for pid in tuple(self.pids):
            self.end(pid)
        self.daemon.clean_up()

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.pids.discard(pid)

    def process(self, work: Callable[[], None]) -> int:
        pid = lock_clients.process(work)
        self.pids.add(pid)
        return pid

    def finish(self, pid: int) -> None:
        """Wait for a process to end."""
        limit = time.monotonic() + PATIENCE_S
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > limit:
                raise Red("a client got no answer")
            time.sleep(0.01)
        self.pids.discard(pid)

    def diary(self, name: str) -> Path:
        path = self.home / name
        if path not in self.diaries:
            self.diaries.append(path)
        return path

    def client(self) -> Fleet:
        return Fleet(self.daemon.socket)

    def waiting(self) -> int:
        """Return how many clients wait; only the database contains that."""
        connection = apsw.Connection(
            str(self.home / "data" / "squawk.db"), flags=apsw.SQLITE_OPEN_READONLY
        )
        with contextlib.closing(connection):
            connection.set_busy_timeout(5_000)
            return int(connection.execute("SELECT count(*) FROM lock_waits").fetchone()[0])

    def wait_until(self, there: Callable[[], bool]) -> None:
        _until(there, "a line did not become as long as it should")


@contextmanager
def running(run: Run) -> Iterator[LockRound]:
    with run.home() as (home, env):
        round_ = LockRound(run, home, env)
        try:
            yield round_
        finally:
            round_.clean_up()


# A queue of waiters


def line(round_: LockRound) -> None:
    """Let processes wait in a known order, kill one, and check who is served, and when."""
    file = str(round_.project / "line.py")
    with round_.client() as client:
        held = client.call(LockAcquire("holder", file, timeout_ms=FOREVER_MS))
        gone = round_.run.chance.randrange(WAITERS)
        waiters = []
        for number in range(WAITERS):
            waiters.append(round_.process(_waiter(round_, file, number)))
            _until(lambda n=number: round_.waiting() == n + 1, "a waiter came into no line")
        round_.end(waiters[gone])
        patience = 1.0 if round_.run.planted else PATIENCE_S
        with contextlib.suppress(Red if round_.run.planted else ()):
            _until(lambda: round_.waiting() < WAITERS, "who has gone stays in the line", patience)
        client.call(LockRelease(held.id, "holder"))
        for number in (number for number in range(WAITERS) if number != gone):
            round_.finish(waiters[number])
        locks = client.call(LockList(file=file, active=False)).locks
    order = [lock.held_by for lock in sorted(locks, key=lambda lock: lock.fencing_token)]
    expected = ["holder", *(f"waiter-{n}" for n in range(WAITERS) if n != gone)]
    if order != expected:
        raise Red(f"waiters came as {expected} without {gone}, who had gone; served: {order}")


def _waiter(round_: LockRound, file: str, number: int) -> Callable[[], None]:
    agent = f"waiter-{number}"

    def wait() -> None:
        with round_.client() as client:
            request = LockAcquire(agent, file, timeout_ms=1_000, wait_ms=int(PATIENCE_S * 1_000))
            lock = client.call(request)
            time.sleep(0.01)
            client.call(LockRelease(lock.id, agent))

    return wait


def _until(there: Callable[[], bool], otherwise: str, seconds: float = PATIENCE_S) -> None:
    limit = time.monotonic() + seconds
    while not there():
        if time.monotonic() > limit:
            raise Red(otherwise)
        time.sleep(0.005)


# A holder that is stopped, and one that is killed


def overtaken(round_: LockRound) -> None:
    """Stop a holder beyond its lease, let another lock the file, continue it: it is refused."""
    file, diary = str(round_.project / "stopped.py"), round_.home / "overtaken"

    def hold() -> None:
        with round_.client() as client:
            lock = client.call(LockAcquire("stopped", file, timeout_ms=150))
            os.kill(os.getpid(), signal.SIGSTOP)
            told = [str(client.call(LockCheck(file, lock.fencing_token)).valid)]
            for request in (LockRenew(lock.id, "stopped"), LockRelease(lock.id, "stopped")):
                try:
                    client.call(request)
                    told.append("taken")
                except FleetError as refusal:
                    told.append(refusal.kind)
            diary.write_text(" ".join(told))

    pid = round_.process(hold)
    os.waitpid(pid, os.WUNTRACED)
    with round_.client() as client:
        lock = client.call(LockAcquire("next", file, timeout_ms=FOREVER_MS, wait_ms=20_000))
        os.kill(pid, signal.SIGCONT)
        round_.finish(pid)
        told = diary.read_text()
        if told != "False invalid_state invalid_state":
            raise Red(f"a holder that was overtaken was told by check, renew, release: {told}")
        if not client.call(LockCheck(file, lock.fencing_token)).valid:
            raise Red("the token of the one who overtook it is not good")


def orphaned(round_: LockRound) -> None:
    """Kill a registered holder: its lease must end within the grace."""
    file = str(round_.project / "orphaned.py")
    agent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with round_.client() as client:
            client.call(AgentRegister("mortal", "specialist", pid=agent.pid))
            lock = client.call(LockAcquire("mortal", file, timeout_ms=FOREVER_MS))
            agent.kill()
            agent.wait()

            def shortened() -> bool:
                [now] = client.call(LockList(file=file)).locks
                return now.id == lock.id and to_ms(now.expires_at) <= now_ms() + GRACE_MS

            _until(shortened, "the lock of a dead process stays for its whole lease")
    finally:
        agent.kill()
        agent.wait()


# Clients that act at random


def storm(round_: LockRound) -> None:
    """Let clients lock, stop and kill some of them, and search for an order of the answers."""
    chance = round_.run.chance
    with round_.client() as client:
        plans = _plans(round_, client)
        pids = {plan.agent: round_.process(_client(round_, plan)) for plan in plans}
        for _ in range(8 if round_.run.judged else 3):
            plan = chance.choice(plans)
            time.sleep(chance.random() * 0.1)
            _trouble(round_, plan, pids)
        if not round_.run.planted and chance.random() < (0.5 if round_.run.judged else 1.0):
            round_.daemon.kill()
            round_.daemon.start()
        for pid in pids.values():
            round_.finish(pid)
    with round_.client() as client:
        locks = msgspec.to_builtins(client.call(LockList(active=False)).locks)
    _judge(round_, locks)


def _plans(round_: LockRound, client: Fleet) -> list[Plan]:
    shared = round_.run.judged and round_.run.chance.random() < 0.3
    made = client.call(
        MissionCreate(
            "Login",
            project_dir=str(round_.project),
            metadata={"lock_scope": "project"} if shared else {},
        )
    )
    mission = client.call(MissionStart(made.id))
    names = _names_in_worktrees(round_) if shared else _names(round_)
    file = names["a"][0]["file"]
    first = Diary(round_.diary("first"), client, "agent-0")
    first.call("a", LockAcquire("agent-0", file, mission_id=mission.id, timeout_ms=LEASES_MS[0]))
    client.call(CheckpointCreate(mission.id))  # recoveries take its lock again
    calls = LONG_CALLS if round_.run.judged else CALLS
    return [
        Plan(
            round_.daemon.socket,
            f"agent-{number}",
            mission.id,
            names,
            round_.run.chance.choice(LEASES_MS),
            calls,
            f"{round_.run.seed}/{round_.run.round}/{number}",
        )
        for number in range(CLIENTS)
    ]


def _names(round_: LockRound) -> dict[str, list[dict[str, str]]]:
    """Return some ways to name each file."""
    project, link = round_.project, round_.home / "link"
    (project / "src").mkdir()
    link.symlink_to(project)
    found = {}
    for key in "ab":
        name = f"src/{key}.py"
        files = [f"{project}/{name}", f"{project}//src/../src/./{key}.py", f"{link}/{name}"]
        found[key] = [{"file": file} for file in files]
        found[key] += [{"file": name}, {"file": f"{key}.py", "cwd": f"{link}/src"}]
    return found


def _names_in_worktrees(round_: LockRound) -> dict[str, list[dict[str, str]]]:
    """Return the names of each file in two worktrees of one repository, which share its lock."""
    project, other = round_.project, round_.home / "other"
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (
        ("init", "-q"),
        (*who, "commit", "-q", "--allow-empty", "-m", "Begin"),
        ("worktree", "add", "-q", str(other)),
    ):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    round_.run.add("shared by worktrees")
    return {key: [{"file": f"{place}/src/{key}.py"} for place in (project, other)] for key in "ab"}


def _client(round_: LockRound, plan: Plan, life: int = 0) -> Callable[[], None]:
    diary = round_.diary(f"{plan.agent}-{life}")
    return lambda: lock_clients.work(plan, diary)


def _trouble(round_: LockRound, plan: Plan, pids: dict[str, int]) -> None:
    """Stop a client beyond its lease, or kill it and let a successor take its name."""
    pid = pids[plan.agent]
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            round_.pids.discard(pid)
            pids[plan.agent] = round_.process(_client(round_, plan, len(round_.diaries)))
            return
    if round_.run.chance.random() < 0.5:
        round_.end(pid)
        pids[plan.agent] = round_.process(_client(round_, plan, len(round_.diaries)))
        round_.run.add("killed")
    else:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(plan.lease_ms * 1.5 / 1000)
        os.kill(pid, signal.SIGCONT)
        round_.run.add("stopped")


def _judge(round_: LockRound, locks: list[dict[str, Any]]) -> None:
    theirs = [lock for lock in locks if "src/" in lock["normalized_path"]]
    check_rows(locks)
    calls = list(lock_clients.read([diary for diary in round_.diaries if diary.exists()]))
    history = LockHistory(calls, theirs)
    for key, ops in sorted(history.ops.items()):
        missed = unexplained(ops)
        if missed is not None:
            around = sorted(ops, key=lambda op: op.called)
            place = around.index(missed)
            told = "\n    ".join(map(str, around[max(0, place - 6) : place + 3]))
            raise Red(
                f"no order of {len(ops)} operations on {key} explains\n  {missed}\n    {told}"
            )
    round_.run.add("calls", len(calls))


# Each group has its own daemon: the locks of one group would be in the other's history.
FILES, RESERVATIONS = (line, overtaken, storm), (overlapping_line, reserve)
# Each defect with the part that must detect it, to save the time of the others.
PLANTED = {
    "tokens_again": overtaken,
    "lease_ignored": storm,
    "last_come_first": line,
    "gone_are_served": line,
    "look_then_take": storm,
    "shared_ignored": reserve,
    "patterns_apart": reserve,
    "readers_pass": overlapping_line,
}


def run(run: Run) -> None:
    """Run the parts round after round, each group on its own daemon."""
    groups: list[tuple[Callable[[LockRound], None], ...]] = [FILES, RESERVATIONS]
    if run.planted:
        groups = [(PLANTED[run.planted],)]
    elif run.judged:
        groups[0] += (orphaned,)
    for _ in run.rounds():
        for parts in groups:
            with running(run) as round_:
                for part in parts:
                    part(round_)


CAMPAIGN = Campaign(
    "locks",
    "clients that lock, wait, stop and die at once, their histories searched for an order",
    "histories",
    run,
    short=1,
    long=300,
    planted=dict.fromkeys(PLANTED, 6),
)
