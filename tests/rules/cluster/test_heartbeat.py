"""The timer by which machines that share a store stay in touch, under virtual time."""

from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
import trio

from fleetd.domain.cluster import membership
from fleetd.domain.cluster.membership import HEARTBEAT_MS, LOST_MS, UNBROKEN_MS
from fleetd.engine.change_feed import Bell
from fleetd.engine.engine import OnBehalf
from fleetd.engine.jobs import cluster as operations
from fleetd.engine.jobs import timers
from fleetd.engine.jobs.cluster import check_processes, heartbeat, refuse_duplicate_id
from fleetd.host import processes
from fleetd.protocol.errors import Unavailable
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.store.api import StoreUnready
from fleetd.store.machine_identity import DaemonInstance
from tests.support.fleet import MINUTE, Clock, opened

NORTH, SOUTH = "0000000000000001", "0000000000000002"
BEAT_S, LOST_S = HEARTBEAT_MS / 1000, LOST_MS / 1000


@pytest.fixture
async def machines(tmp_path):
    """Two machines, each with an engine of its own on one database, in virtual time."""
    clock = Clock()
    clock.follow_trio()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened(tmp_path / name, clock=clock, machine=name, database=tmp_path / "shared.db")
            )
            for name in (NORTH, SOUTH)
        ]


@pytest.fixture
def sent(monkeypatch):
    """The heartbeats in their order: of which machine, when, and whether they were thorough."""
    heartbeats = []
    write = OnBehalf.write

    async def noted(self, rule, *args, **named):
        if rule is membership.renew:
            heartbeats.append(
                SimpleNamespace(
                    machine=self._engine.machine,
                    at=trio.current_time(),
                    thorough=named["thorough"],
                )
            )
        return await write(self, rule, *args, **named)

    monkeypatch.setattr(OnBehalf, "write", noted)
    return heartbeats


@pytest.fixture
def away(monkeypatch):
    """Machines for which the store is away: while one is named here, it is told so at once."""
    named = set()

    def refused(real):
        async def run(self, *args, **more):
            if self._engine.machine in named:
                raise Unavailable("The store is away.", retry=True)
            return await real(self, *args, **more)

        return run

    for name in ("read", "write"):
        monkeypatch.setattr(OnBehalf, name, refused(getattr(OnBehalf, name)))
    return named


def standing(fleet):
    return {row["id"]: row["status"] for row in fleet.sql("SELECT id, status FROM machines")}


async def start(fleet, mission, agent, process):
    await fleet.do(AgentRegister(agent, "specialist", pid=process.pid, mission_id=mission.id))


async def status(fleet, agent):
    return (await fleet.do(AgentGet(agent))).status


async def test_machines_that_run_miss_nobody(machines, nursery, autojump_clock):
    for fleet in machines:
        nursery.start_soon(timers.send_heartbeats, fleet.engine)

    await trio.sleep(10 * 60 + 1)

    assert standing(machines[0]) == {NORTH: "here", SOUTH: "here"}
    nursery.cancel_scope.cancel()


async def test_machines_that_start_together_spread_their_heartbeats(
    machines, nursery, autojump_clock, monkeypatch, sent
):
    fractions = iter((0.25, 0.75, 0.5, 0.125))
    monkeypatch.setattr(timers.random, "random", lambda: next(fractions))
    begun = trio.current_time()
    for fleet in machines:
        nursery.start_soon(timers.send_heartbeats, fleet.engine)
    await trio.sleep(3 * BEAT_S)
    for fleet in machines:
        fleet.engine.store_back.ring()
    await trio.sleep(2 * BEAT_S)

    each = [
        [beat.at - begun for beat in sent if beat.machine == machine] for machine in (NORTH, SOUTH)
    ]
    first = {tuple(round(at, 1) for at in times[:4]) for times in each}
    assert first == {(0.0, 2.5, 12.5, 22.5), (0.0, 7.5, 17.5, 27.5)}
    again = {tuple(round(at, 2) for at in times[4:]) for times in each}
    assert again == {(30.0, 35.0, 45.0), (30.0, 31.25, 41.25)}
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_shared", [True, False])
async def test_the_first_pause_of_a_timer_is_random_in_a_shared_store_only(
    autojump_clock, monkeypatch, is_shared
):
    monkeypatch.setattr(timers.random, "random", lambda: 0.25)
    engine = SimpleNamespace(machine=NORTH if is_shared else "", store_back=Bell())
    pauses = timers.Pauses(engine)

    async def sleep(*, rings_at=None):
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            if rings_at:
                nursery.start_soon(ring, rings_at)
            came_back = await pauses.sleep(60)
            nursery.cancel_scope.cancel()
        return round(trio.current_time() - begun), came_back

    async def ring(after):
        await trio.sleep(after)
        engine.store_back.ring()

    first = 15 if is_shared else 60
    found = [await sleep(), await sleep(), await sleep(rings_at=40), await sleep(), await sleep()]
    assert found == [(first, False), (60, False), (40, True), (first, False), (60, False)]
    engine.store_back.ring()  # while the timer works, or waits for the store
    assert [await sleep(), await sleep()] == [(first, False), (60, False)]


async def test_one_heartbeat_a_minute_looks_at_all_machines(
    machines, nursery, autojump_clock, monkeypatch, sent
):
    monkeypatch.setattr(timers.random, "random", lambda: 1.0)
    nursery.start_soon(timers.send_heartbeats, machines[0].engine)

    await trio.sleep(12 * BEAT_S + 1)

    assert [beat.thorough for beat in sent] == [True, *[False] * 5] * 2 + [True]
    nursery.cancel_scope.cancel()


async def test_a_machine_that_stops_telling_is_missed_and_found_again(
    machines, nursery, autojump_clock, mortal
):
    north, south = machines
    mission = await north.mission()
    await start(south, mission, "spec-1", mortal())
    nursery.start_soon(timers.send_heartbeats, north.engine)
    async with trio.open_nursery() as hanging:
        hanging.start_soon(timers.send_heartbeats, south.engine)
        await trio.sleep(LOST_S + 1)
        hanging.cancel_scope.cancel()

    await trio.sleep(LOST_S + 2 * BEAT_S)
    assert standing(north) == {NORTH: "here", SOUTH: "lost"}
    assert await status(north, "spec-1") == "lost"

    nursery.start_soon(timers.send_heartbeats, south.engine)
    await trio.sleep(1)
    assert standing(north) == {NORTH: "here", SOUTH: "here"}
    assert await status(north, "spec-1") == "active"
    nursery.cancel_scope.cancel()


async def test_a_store_that_was_away_for_all_costs_no_machine_its_place(
    machines, nursery, autojump_clock, away, caplog
):
    for fleet in machines:
        nursery.start_soon(timers.send_heartbeats, fleet.engine)
    await trio.sleep(2 * LOST_S + 1)
    away.update((NORTH, SOUTH))
    await trio.sleep(10 * LOST_S)

    away.clear()
    machines[0].engine.store_back.ring()
    await trio.sleep(2 * LOST_S)

    assert standing(machines[0]) == {NORTH: "here", SOUTH: "here"}
    assert "lost" not in caplog.text
    nursery.cancel_scope.cancel()


async def test_a_store_that_comes_back_is_told_at_once(machines, nursery, autojump_clock, away):
    north, _ = machines
    away.add(NORTH)
    nursery.start_soon(timers.send_heartbeats, north.engine)
    await trio.sleep(BEAT_S / 2)
    assert standing(north) == {}

    away.clear()
    north.engine.store_back.ring()
    await north.settle()

    assert standing(north) == {NORTH: "here"}
    nursery.cancel_scope.cancel()


async def test_what_goes_wrong_does_not_end_it(
    machines, nursery, autojump_clock, monkeypatch, caplog
):
    north, _ = machines
    write, bugs = north.engine.write, iter([ValueError("a bug")])

    async def broken(rule, *rest, **named):
        if rule is membership.renew and (bug := next(bugs, None)):
            raise bug
        return await write(rule, *rest, **named)

    monkeypatch.setattr(north.engine, "write", broken)
    nursery.start_soon(timers.send_heartbeats, north.engine)
    await trio.sleep(BEAT_S + 1)

    assert standing(north) == {NORTH: "here"}
    assert "The heartbeat of this machine failed" in caplog.text
    nursery.cancel_scope.cancel()


async def test_processes_are_watched_though_the_store_was_away_at_the_start(
    machines, nursery, autojump_clock, away, mortal
):
    north, _ = machines
    mission, process = await north.mission(), mortal()
    await start(north, mission, "spec-1", process)
    process.kill()
    process.wait()
    away.add(NORTH)
    nursery.start_soon(timers.watch_processes, north.engine)
    await trio.sleep(MINUTE / 1000)

    away.clear()
    await trio.sleep(timers.PAUSE_S + 1)

    assert await status(north, "spec-1") == "lost"
    nursery.cancel_scope.cancel()


async def test_processes_are_looked_at_again_when_the_store_is_back(machines, mortal, monkeypatch):
    north, _ = machines
    mission, process = await north.mission(), mortal()
    await start(north, mission, "spec-1", process)
    posted = []
    monkeypatch.setattr(north.engine.process_watcher, "post", posted.append)

    await check_processes(north.engine)

    assert [(each.agent_id, each.pid, each.started) for each in posted] == [
        ("spec-1", process.pid, processes.started(process.pid))
    ]


@pytest.mark.sqlite_only("there each daemon has a nonce, which tells them apart")
async def test_computers_of_one_home_directory_do_not_pass_for_one_machine(
    tmp_path, machines, monkeypatch
):
    north, _ = machines
    await heartbeat(north.engine)
    again = {
        "clock": north.clock,
        "machine": NORTH,
        "database": tmp_path / "shared.db",
    }
    async with opened(tmp_path / "restarted", **again):
        pass
    await heartbeat(north.engine)

    monkeypatch.setattr(operations, "host_name", lambda: "another")
    with pytest.raises(StoreUnready, match=f"uses the id of this machine .{NORTH}."):
        async with opened(tmp_path / "twin", **again):
            pass
    north.clock.pass_by(UNBROKEN_MS + 1)
    async with opened(tmp_path / "renamed", **again):
        pass


async def test_a_computer_that_was_started_anew_waits_until_nobody_beats_by_its_machine_id(
    tmp_path, machines, nursery, autojump_clock, monkeypatch
):
    """Its boot is another one; so is that of a copy, whose original beats meanwhile."""
    north, _ = machines
    (tmp_path / "data").mkdir()
    north.engine.instance = DaemonInstance(tmp_path / "data")
    north.engine.instance.begin("1")
    await heartbeat(north.engine)

    again = north.engine.instance = DaemonInstance(tmp_path / "data")
    again.boot_id = "the next boot"
    began = trio.current_time()
    await refuse_duplicate_id(north.engine)
    assert UNBROKEN_MS / 1000 - 1 <= trio.current_time() - began <= UNBROKEN_MS / 1000
    await heartbeat(north.engine)

    copy = DaemonInstance(tmp_path / "data")
    copy.boot_id = "on another computer"
    nursery.start_soon(timers.send_heartbeats, north.engine)
    copied = SimpleNamespace(
        instance=copy,
        read=north.engine.read,
        outbox=north.engine.outbox,
        config=north.engine.config,
        machine=NORTH,
    )
    began = trio.current_time()
    with pytest.raises(StoreUnready, match=f"uses the id of this machine .{NORTH}."):
        await refuse_duplicate_id(copied)
    assert trio.current_time() - began <= BEAT_S + 1
    nursery.cancel_scope.cancel()


async def test_a_store_that_is_away_does_not_hold_up_the_end(tmp_path, away, caplog):
    async with opened(tmp_path, machine=NORTH) as north:
        await heartbeat(north.engine)
        away.add(NORTH)
    assert "do not see that this one left: The store is away." in caplog.text
    assert "waits for locks" not in caplog.text
