"""Machines that share a store: daemons are killed, the server restarts, clocks differ.

In each second the plan may disturb a daemon, the server, the network between them or a clock.
Meanwhile users work on every machine, some clients subscribe to all events, and others compete for
locks. In the end the state must match all that each client was told.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleetctl.client import Fleet
from tests.chaos import shared_locks
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.checker import CrewChecker
from tests.chaos.machines import FleetMachine, FleetMachines, running
from tests.chaos.people import PATIENCE_S, Town, home_of
from tests.chaos.shared_locks import Series
from tests.chaos.view import DaemonView, check, wait_until

MACHINES = 3
# The offsets of the machines' wall clocks, and the step of one clock during the run.
CLOCKS_MS = (-2_000, 0, 2_000)
STEP_MS = 3_600_000
# A machine counts as lost after a minute; its agents become lost at the next check.
LONG_AWAY_S = 85
PROBE_S = 5.0
OFTEN_S = 3
LOOKS = 2
# What the doctor may find: that a clock is wrong, and that this computer's disk is full.
EXCUSED = ("clock", "disk")


@dataclass(frozen=True)
class Size:
    """The number of users on each machine: each user has two agents."""

    users: int
    listeners: int
    lockers: int
    pause_s: float


SMALL, LARGE = Size(3, 1, 2, 0.25), Size(10, 3, 2, 0.6)


def campaign(run: Run) -> None:
    """Run a fleet for some seconds, each of which is a round."""
    size = LARGE if run.judged and not run.planted else SMALL
    with run.home() as (place, _), running(place, MACHINES, run.planted) as machines:
        _Fleet(run, machines, size, place).live()


class _Fleet:
    """One fleet, its users, and the disturbances."""

    def __init__(self, run: Run, machines: FleetMachines, size: Size, place: Path) -> None:
        self._run, self._machines, self._size = run, machines, size
        self._chance = run.chance
        self._place = place / "diaries"
        self._place.mkdir()
        self._town = Town(machines.all, str(run.seed), size.users, size.listeners)
        self._witness = _Witness(self._town, machines)
        self._series: list[Series] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._away: FleetMachine | None = None

    def live(self) -> None:
        """Run all seconds, and check the result."""
        for machine, ms in zip(self._machines.all, CLOCKS_MS, strict=True):
            machine.set_clock(ms)
        self._town.start(self._size.pause_s)
        try:
            for second in self._run.rounds():
                # A round that takes longer is not made up for: postponed actions keep their order.
                over = time.monotonic() + 1
                self._second(second)
                self._town.well()
                self._catch_up()
                while (left := over - time.monotonic()) > 0:
                    time.sleep(min(left, 0.1))
                    self._catch_up()
            self._heal()
            self._judge()
        finally:
            self._town.leave()

    # Disturbances

    def _second(self, number: int) -> None:
        """Do what the plan has for a second; start nothing long near the end."""
        self._chance = self._run.chance
        count = self._run.count
        for machine in self._machines.all:
            machine.well()
        self._locks(number)
        if self._run.planted or number % OFTEN_S == 2:
            self._cut_a_commit()
        if number >= count - 3:
            return
        if number % 15 == 5:
            self._kill()
        if number % 20 == 10:
            self._server(number // 20)
        if number % 30 == 26:
            self._part(self._chance.choice(self._machines.all))
        if number in (count // 3, count * 2 // 3):
            self._step_a_clock(ahead=number == count // 3)
        if number == count // 2 and count > 3 * LONG_AWAY_S:
            self._leave_for_long()

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, what))

    def _catch_up(self, *, all_of_it: bool = False) -> None:
        """Run the postponed actions that are due."""
        now = time.monotonic()
        for each in [each for each in self._due if all_of_it or each[0] <= now]:
            self._due.remove(each)
            each[1]()

    def _kill(self) -> None:
        there = [each for each in self._machines.all if each.here.is_set()]
        if len(there) < MACHINES - 1:
            return
        machine = self._chance.choice(there)
        machine.kill()
        self._run.add("daemons killed")
        self._later(self._chance.random() * 3, machine.start)

    def _server(self, turn: int) -> None:
        """Restart the server in one of two ways, or suspend it for a while."""
        server = self._machines.server
        way = ("fast", "immediate", "still")[turn % 3]
        if way == "still":
            server.suspend()
            self._later(3, server.resume)
            self._run.add("times the server stood still")
        else:
            server.stop(way)
            self._later(self._chance.random() * 3, server.start)
            self._run.add("restarts of the server")

    def _cut_a_commit(self) -> None:
        when = self._chance.choice(("before", "half", "after"))
        self._machines.network.cut(self._chance.randrange(MACHINES), when)

    def _part(self, machine: FleetMachine) -> None:
        """Cut a machine's connection to the server for a while."""
        network = self._machines.network
        network.close(machine.number)
        self._later(4, lambda: network.open(machine.number))
        self._run.add("times without network")

    def _step_a_clock(self, *, ahead: bool) -> None:
        machine = self._machines.all[1 if ahead else 2]
        off = CLOCKS_MS[machine.number]
        machine.set_clock(off + (STEP_MS if ahead else -STEP_MS))
        self._run.add("clocks stepped by an hour")

    def _leave_for_long(self) -> None:
        """Kill a daemon, and restart it after its machine counts as lost."""
        machine = next(each for each in reversed(self._machines.all) if each.here.is_set())
        for worker in self._town.workers:
            if worker.machine is machine:
                worker.forgets_locks.set()
        machine.kill()
        self._away = machine
        self._later(LONG_AWAY_S, machine.start)

    # Locks

    def _locks(self, number: int) -> None:
        """Start a series of lock clients when the previous one is over and judged."""
        if self._series and self._series[-1].over():
            there = [each for each in self._machines.all if each.here.is_set()]
            if not there or self._due:
                return
            self._judge_locks(self._series.pop(), there[0])
        if not self._series and number < self._run.count - 8:
            there = [each for each in self._machines.all if each.here.is_set()]
            seed, clients = str(self._run.seed), self._size.lockers
            if there and (begun := shared_locks.begin(there, number, self._place, seed, clients)):
                self._series.append(begun)

    def _judge_locks(self, series: Series, machine: FleetMachine) -> None:
        with machine.patient() as client:
            self._run.add("calls for locks", shared_locks.judge(series, client))
            self._run.add("histories of locks")

    # At the end

    def _heal(self) -> None:
        """Restore everything, and wait until all clients are idle."""
        self._catch_up(all_of_it=True)
        for machine in self._machines.all:
            self._machines.network.open(machine.number)
            machine.patient().close()
        self._town.finish()
        for series in self._series:
            wait_until(series.over, "a client of locks gets no answer", 2 * PATIENCE_S)
            self._judge_locks(series, self._machines.all[0])
        self._run.figures["commits cut"] = self._machines.network.cuts()

    def _judge(self) -> None:
        town, witness = self._town, self._witness
        with self._machines.all[0].patient() as client:
            self._run.add("sent again", witness.settle_all(client))
            self._probe(client)
            witness.log.read(client)
            town.leave()
            town.well()
            events = witness.log.events
            town.check_heard(events[seq] for seq in sorted(events))
            town.check_said(witness.log.words)
            self._check_lost()
        self._check_alike()
        self._run.add("acknowledged", sum(each.answered for each in town.workers))
        self._run.add("events", witness.log.position)
        self._run.add("resumed", sum(each.resumed for each in town.subscribers))
        for machine in self._machines.all:
            machine.here.clear()
            machine.daemon.stop()
            machine.well()

    def _probe(self, client: Fleet) -> None:
        """Append an event while no other client writes: every machine must get it immediately."""
        seq = client.call_raw("event.append", {"type": "test_probed", "data": {}})["seq"]
        for each in self._town.subscribers:
            heard = lambda each=each: each.position >= seq  # noqa: E731
            what = f"{each._machine.name} does not hear of other machines' commits"
            wait_until(heard, what, PROBE_S)

    def _check_lost(self) -> None:
        """Check that the agents of the machine that was away were lost once, and no others."""
        lost = list(self._witness.log.of("agent_lost"))
        away = f"m{self._away.number}w" if self._away else "nobody"
        names = [str(event["agent_id"]) for event in lost]
        if self._away:
            names = [each for each in names if not each.startswith("claude-hooked-")]
        # The sessions of its users have agents too; clients of locks leave without unregistering.
        its = (away, f"claude-{away}", "locker-")
        strange = [name for name in names if not name.startswith(its)]
        check(not strange, f"agents of machines that were there were lost: {strange}")
        twice = {name for name in names if names.count(name) > 1}
        check(not twice, f"agents were lost more than once: {twice}")
        if self._away:
            check(lost, f"{self._away.name} was away for {LONG_AWAY_S} s and no agent was lost")
            self._run.add("agents lost", len(lost))

    def _check_alike(self) -> None:
        """Check that every machine shows the same fleet, once all background work is done."""
        with self._witness.clients() as clients:

            def differ() -> list[str]:
                first, *others = ([*map(set, vars(DaemonView(each)).values())] for each in clients)
                return [f"machine {n}" for n, each in enumerate(others, 1) if each != first]

            wait_until(lambda: not differ(), "machines show different fleets", PROBE_S * 4)


class _Witness(CrewChecker):
    """A checker for several machines, each with its own spool and files."""

    def __init__(self, town: Town, machines: FleetMachines) -> None:
        super().__init__(town, machines.all[0].home, patience_s=PATIENCE_S)  # type: ignore[arg-type]
        self._town, self._machines = town, machines

    def settle_all(self, client: Fleet) -> int:
        """Send requests in flight again; check that all was done once and all copies agree."""
        retried = self._town.again()
        with self.clients() as clients:
            for each in clients:
                wait_until(
                    lambda each=each: not each.call_raw("hook.status")["spool"]["files"],
                    "hook payloads stay in the spool",
                    PATIENCE_S,
                )
            self._look_in_rest(client)
            for machine, each in zip(self._machines.all, clients, strict=True):
                self._check_files(machine, each)
        return retried

    def _look_in_rest(self, client: Fleet) -> None:
        """Check again if background work changed something between two looks: a silence, a loss."""
        for _ in range(LOOKS):
            with suppress(Red):
                self.look(client)
                return
            time.sleep(1)
        self.look(client)

    @contextmanager
    def clients(self) -> Iterator[list[Fleet]]:
        """Yield a client of each machine."""
        clients = [machine.patient() for machine in self._machines.all]
        try:
            yield clients
        finally:
            for client in clients:
                client.close()

    def _check_files(self, machine: FleetMachine, client: Fleet) -> None:
        """Check that a machine's files and rows agree as soon as all files are written."""
        place = home_of(machine)

        def differ() -> set[str]:
            rows = self._machines.rows(
                "SELECT id FROM checkpoints WHERE machine = %s AND deleted_at IS NULL", machine.id
            )
            files = {path.stem for path in place.glob("msn-*/chk-*.json")}
            return files ^ {str(row["id"]) for row in rows}

        try:
            wait_until(lambda: not differ(), "rows and files differ", PATIENCE_S)
        except Red as red:
            raise Red(f"{machine.name}: {red}: {sorted(differ())[:5]}") from red
        for method in ("checkpoint.verify", "snapshot.verify", "system.doctor"):
            found = client.call_raw(method)["findings"]
            bad = [each for each in found if not each["ok"] and each["check"] not in EXCUSED]
            check(not bad, f"{machine.name}, {method}: {bad[:5]}")
        left = [str(path) for path in place.rglob(".tmp-*")]
        check(not left, f"{machine.name}: left behind: {left}")


CAMPAIGN = Campaign(
    name="fleet",
    what="three daemons on one PostgreSQL that are killed, cut off and restarted, at work",
    unit="seconds",
    run=campaign,
    short=20,
    long=600,
    planted={
        "no-lock": 15,
        "no-compare": 45,
        "no-notify": 6,
        "run-twice": 60,
        "own-clock": 15,
        "believed": 20,
    },
    shared=True,
)
