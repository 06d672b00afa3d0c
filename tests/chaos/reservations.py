"""Locks on files, directories and patterns, exclusive and shared, by clients that stop and die.

The paths of a small universe, with pathspec and prefixes, decide here what a lock covers. The rows
of the locks contain when each was held; every answer must fit the locks held during its request.
"""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from pathspec import GitIgnoreSpec

from fleetctl.client import Fleet
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockList, LockRelease, LockRenew
from fleetd.protocol.timestamps import to_ms
from tests.chaos.campaign import Red
from tests.chaos.lock_clients import Diary, LockCall, read

_NAMES = ("src", "lib", "deep", "a.py", "b.md", "c.py", "x.md")
UNIVERSE = ["/".join(path) for deep in (1, 2, 3) for path in itertools.product(_NAMES, repeat=deep)]
TARGETS = (
    *("src/a.py", "src/deep/c.py", "lib/a.py", "README.md"),
    *("src/", "src/deep/", "lib/"),
    *("src/**", "src/*.py", "**/a.py", "*.md", "src/d?ep/*"),
)
LEASES_MS = (60, 120, 250, 2_000)
CALLS = 30
# A client's clock is the daemon's, but each is read a moment before or after.
SLACK_MS = 3


def wanted(name: str) -> dict[str, str]:
    """Return the field of a request that names the target."""
    return {"pattern" if "*" in name or "?" in name else "file": name}


@cache
def covered(name: str) -> frozenset[str]:
    """Return the paths of the universe, and the named one, that a lock covers."""
    if "pattern" in wanted(name):
        return frozenset(GitIgnoreSpec.from_lines([name]).match_files(UNIVERSE))
    if name.endswith("/"):
        return frozenset(path for path in UNIVERSE if path.startswith(name))
    return frozenset([name])


def meet(one: str, other: str) -> bool:
    return bool(covered(one) & covered(other))


@dataclass(frozen=True)
class Client:
    """The task of a client: so many calls on targets of a directory, at random."""

    socket: Path
    project: Path
    agent: str
    seed: str
    diary: Path

    def work(self) -> None:
        chance = random.Random(self.seed)
        with Fleet(self.socket) as client:
            notes = Diary(self.diary, client, self.agent)
            held: list[Any] = []
            for _ in range(CALLS):
                self._step(notes, chance, held)
                time.sleep(chance.random() * 0.01)

    def _step(self, notes: Diary, chance: random.Random, held: list[Any]) -> None:
        luck = chance.random()
        if held and luck < 0.35:
            lock = held.pop(chance.randrange(len(held)))
            notes.call(lock.file, LockRelease(lock.id, self.agent))
        elif held and luck < 0.45:
            lock = chance.choice(held)
            notes.call(lock.file, LockRenew(lock.id, self.agent))
        elif held and luck < 0.6:
            lock = chance.choice(held)
            file = chance.choice(["src/a.py", "src/deep/c.py", "lib/a.py"])
            check = LockCheck(f"{self.project}/{file}", lock.fencing_token)
            notes.call(file, check)
        else:
            name = chance.choice(TARGETS)
            request = LockAcquire(
                self.agent,
                cwd=str(self.project),
                mode=chance.choice(["exclusive", "shared"]),
                timeout_ms=chance.choice(LEASES_MS),
                wait_ms=chance.choice([0, 0, 40, 150]),
                **wanted(name),
            )
            lock = notes.call(name, request)
            if lock is not None:
                held.append(lock)


def reserve(round_: Any) -> None:
    """Let clients lock overlapping targets, stop and kill some, and judge their answers."""
    chance = round_.run.chance
    clients = [
        Client(
            round_.daemon.socket,
            round_.project,
            f"reserver-{number}",
            f"{round_.run.seed}/{round_.run.round}/r{number}",
            round_.home / f"reserver-{number}",
        )
        for number in range(5)
    ]
    pids = [round_.process(each.work) for each in clients]
    for _ in range(3):
        time.sleep(chance.random() * 0.15)
        place = chance.randrange(len(pids))
        if pids[place] not in round_.pids or os.waitpid(pids[place], os.WNOHANG) != (0, 0):
            round_.pids.discard(pids[place])
        elif chance.random() < 0.5:
            round_.end(pids[place])
            round_.run.add("killed")
        else:
            os.kill(pids[place], signal.SIGSTOP)
            time.sleep(chance.choice(LEASES_MS[:3]) * 1.5 / 1_000)
            os.kill(pids[place], signal.SIGCONT)
            round_.run.add("stopped")
    for pid in pids:
        if pid in round_.pids:
            round_.finish(pid)
    judge(_rows(round_), [*read([each.diary for each in clients if each.diary.exists()])])


def _rows(round_: Any) -> dict[str, "Held"]:
    rows, after = [], None
    with round_.client() as client:
        while page := client.call(LockList(active=False, after=after, limit=500)).locks:
            rows += page
            after = page[-1].id
    ours = [row for row in rows if row.held_by.startswith(("reserver", "late"))]
    return {row.id: _held(msgspec.to_builtins(row)) for row in ours}


@dataclass(frozen=True)
class Held:
    """A lock that was held from ``begun`` to ``ended``, in ms of the wall clock."""

    file: str
    agent: str
    modes: frozenset[str]
    token: int
    begun: int
    ended: int

    def within(self, begun: float, ended: float) -> bool:
        """Return whether it was held at some moment between two."""
        return self.begun <= ended + SLACK_MS and self.ended >= begun - SLACK_MS


def _held(row: dict[str, Any]) -> Held:
    end = to_ms(row["released_at"] or row["expires_at"])
    modes = frozenset([row["mode"]])
    return Held(
        row["file"], row["held_by"], modes, row["fencing_token"], to_ms(row["acquired_at"]), end
    )


def judge(rows: dict[str, Held], calls: list[LockCall]) -> None:
    """Raise Red for the impossible: two locks that exclude each other, or a wrong answer."""
    # The holder of a shared lock may have made it exclusive, and the other way round.
    for call in calls:
        if call.method == "lock.acquire" and call.error is None and call.result:
            row = rows[call.result["id"]]
            modes = row.modes | {call.result["mode"]}
            rows[call.result["id"]] = Held(
                row.file, row.agent, modes, row.token, row.begun, row.ended
            )
    for one, other in itertools.combinations(rows.values(), 2):
        if one.token == other.token:
            raise Red(f"token {one.token} was given twice: {one} and {other}")
        apart = one.ended <= other.begun or other.ended <= one.begun
        shared = "shared" in one.modes and "shared" in other.modes
        if one.agent != other.agent and not apart and not shared and meet(one.file, other.file):
            raise Red(f"held at once: {one} and {other}")
    for call in calls:
        if call.answered is not None:
            _judge_answer(rows, call, call.answered)


def _judge_answer(rows: dict[str, Held], call: LockCall, answered: float) -> None:
    if call.error == "lock_conflict":
        row = rows.get(call.result["id"])
        if row is None or not row.within(call.called, answered):
            raise Red(f"refused for a lock that nobody held then: {call}, {row}")
        if row.agent == call.agent:
            raise Red(f"refused for a lock of its own: {call}")
    elif call.method == "lock.acquire" and call.error is None and call.result:
        if not rows[call.result["id"]].within(call.called, answered):
            raise Red(f"granted outside of its call: {call}")
    elif call.method == "lock.check" and call.error is None:
        token = call.request["fencing_token"]
        row = next(each for each in rows.values() if each.token == token)
        covers = call.key in covered(row.file)
        if call.result["valid"] and not (covers and row.within(call.called, answered)):
            raise Red(f"a token that guards nothing is good: {call}, {row}")
        always = row.begun < call.called - SLACK_MS and row.ended > answered + SLACK_MS
        if not call.result["valid"] and covers and always:
            raise Red(f"a token in force is not good: {call}, {row}")


# A queue of waiters for overlapping targets

LINE = (
    ("src/a.py", "exclusive"),
    ("src/*.py", "shared"),
    ("src/deep/", "exclusive"),
    ("src/**", "shared"),
)


def overlapping_line(round_: Any) -> None:
    """Let clients wait for overlapping targets, kill one, and check that none is overtaken."""
    gone = round_.run.chance.randrange(len(LINE))
    with round_.client() as client:
        held = client.call(
            LockAcquire(
                "reserver-x", "src/", cwd=str(round_.project), mode="shared", timeout_ms=600_000
            )
        )
        pids = []
        for number, (name, mode) in enumerate(LINE):
            pids.append(round_.process(_waiter(round_, number, name, mode)))
            round_.wait_until(lambda n=number: round_.waiting() == n + 1)
        # A new reader of a target that a writer waits for must queue behind it.
        late = Diary(round_.home / f"late-{time.monotonic_ns()}", client, "late")
        request = LockAcquire("late", "src/a.py", cwd=str(round_.project), mode="shared")
        if late.call("src/a.py", request) is not None:
            raise Red("a new reader was let in before one who waits to write")
        round_.end(pids[gone])
        round_.wait_until(lambda: round_.waiting() < len(LINE))
        client.call(LockRelease(held.id, "reserver-x"))
        for number, pid in enumerate(pids):
            if number != gone:
                round_.finish(pid)
        rows = client.call(LockList(active=False)).locks
    tokens = {row.held_by: row.fencing_token for row in rows if row.held_by.startswith("line-")}
    for one, other in itertools.combinations(range(len(LINE)), 2):
        shared = LINE[one][1] == LINE[other][1] == "shared"
        if gone in (one, other) or shared or not meet(LINE[one][0], LINE[other][0]):
            continue
        if tokens[f"line-{one}"] > tokens[f"line-{other}"]:
            raise Red(f"{LINE[other]} was served before {LINE[one]}, which waited longer")


def _waiter(round_: Any, number: int, name: str, mode: Any) -> Callable[[], None]:
    def wait() -> None:
        with round_.client() as client:
            request = LockAcquire(
                f"line-{number}",
                cwd=str(round_.project),
                mode=mode,
                timeout_ms=2_000,
                wait_ms=20_000,
                **wanted(name),
            )
            lock = client.call(request)
            time.sleep(0.01)
            client.call(LockRelease(lock.id, f"line-{number}"))

    return wait
