"""Waiting for a lock: in order of arrival, to the end of a lease, while the client is there."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fleetd.domain.agents import agent_loss
from fleetd.domain.liveness.silence import AGENT_SILENCE_MS
from fleetd.domain.locks import leases, locks
from fleetd.engine.engine import DAEMON
from fleetd.protocol.errors import LockConflict
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.lock import LockCheck, LockForceRelease, LockRelease, LockRenew
from tests.support.fleet import HOUR, Fleet

LEASE_MS, PATIENCE_MS = 10_000, 60_000


@pytest.fixture
def virtual(fleet: Fleet) -> Fleet:
    """A fleet whose clock runs with virtual time; the test itself must ask for autojump_clock."""
    fleet.clock.follow_trio()
    return fleet


class Waiters:
    """Agents that wait for one file, and what became of each: its lock or its error."""

    def __init__(self, fleet: Fleet, nursery: trio.Nursery) -> None:
        self.fleet, self.nursery = fleet, nursery
        self.outcome: dict[str, Any] = {}
        self.at_ms: dict[str, int] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.mission: Any = None
        self._begun = fleet.clock()

    async def add(self, agent: str, **options: Any) -> None:
        options = {"wait_ms": PATIENCE_MS, "timeout_ms": LEASE_MS, **options}
        self.scopes[agent] = trio.CancelScope()
        self.nursery.start_soon(self._wait, agent, options)
        await trio.testing.wait_all_tasks_blocked()

    async def _wait(self, agent: str, options: dict[str, Any]) -> None:
        with self.scopes[agent]:
            try:
                self.outcome[agent] = await self.fleet.lock(self.mission, "a.py", agent, **options)
            except LockConflict as conflict:
                self.outcome[agent] = conflict
            self.at_ms[agent] = self.fleet.clock() - self._begun


async def prepared(fleet: Fleet, nursery: trio.Nursery) -> tuple[Waiters, Lock]:
    waiters = Waiters(fleet, nursery)
    waiters.mission = await fleet.mission()
    held = await fleet.lock(waiters.mission, "a.py", "holder", timeout_ms=LEASE_MS)
    return waiters, held


async def test_waiters_are_served_in_order_of_arrival(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        for agent in ("one", "two", "three"):
            await waiters.add(agent)
        assert waiters.outcome == {}
        order, tokens = [], [held.fencing_token]
        lock = held
        for agent in ("one", "two", "three"):
            await virtual.do(LockRelease(lock.id, lock.held_by))
            await trio.testing.wait_all_tasks_blocked()
            lock = waiters.outcome[agent]
            order.append(lock.held_by)
            tokens.append(lock.fencing_token)
            assert list(waiters.outcome) == order
    assert order == ["one", "two", "three"]
    assert tokens == sorted(set(tokens))
    assert waiters.at_ms == dict.fromkeys(order, 0)


async def test_a_wait_ends_at_the_end_of_the_lease_to_the_millisecond(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        for agent in ("one", "two"):
            await waiters.add(agent)
    assert waiters.at_ms["one"] == pytest.approx(LEASE_MS, abs=2)
    assert waiters.at_ms["two"] == pytest.approx(2 * LEASE_MS, abs=4)
    assert [e.data["held_by"] for e in await virtual.events(kind="lock_expired")][:1] == ["holder"]

    async def valid(lock: Lock) -> bool:
        request = LockCheck(lock.normalized_path, lock.fencing_token)
        return (await virtual.engine.run(locks.check, request)).valid

    assert not await valid(held)
    assert await valid(waiters.outcome["two"])


async def test_a_lease_that_is_renewed_meanwhile_is_waited_for_to_its_new_end(
    virtual: Fleet,
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        await waiters.add("one")
        await trio.sleep(LEASE_MS / 2_000)
        await virtual.do(LockRenew(held.id, "holder"))
    assert waiters.at_ms["one"] == pytest.approx(1.5 * LEASE_MS, abs=2)


async def test_a_wait_that_ends_empty_names_the_holder_and_leaves_an_error_checkpoint(
    virtual: Fleet,
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, _ = await prepared(virtual, nursery)
        await waiters.add("one", wait_ms=3_000)
    assert waiters.at_ms["one"] == pytest.approx(3_000, abs=2)
    conflict = waiters.outcome["one"]
    assert isinstance(conflict, LockConflict)
    assert conflict.values["existing_lock"].held_by == "holder"
    (checkpoint_id,) = await virtual.checkpoint_ids(waiters.mission, "error")
    (row,) = virtual.sql("SELECT trigger_details FROM checkpoints WHERE id = :i", i=checkpoint_id)
    assert row["trigger_details"] == "LockTimeout: waited 3000 ms for a.py, held by holder"
    assert virtual.sql("SELECT * FROM lock_waits") == []


async def test_who_gave_up_waiting_is_passed_over(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, _ = await prepared(virtual, nursery)
        await waiters.add("impatient", wait_ms=1_000)
        await waiters.add("two")
    assert isinstance(waiters.outcome["impatient"], LockConflict)
    assert waiters.outcome["two"].held_by == "two"
    assert waiters.at_ms["two"] == pytest.approx(LEASE_MS, abs=2)


async def test_a_waiter_whose_client_is_gone_is_passed_over(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        for agent in ("gone", "two"):
            await waiters.add(agent)
        waiters.scopes["gone"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert [w["agent_id"] for w in virtual.sql("SELECT agent_id FROM lock_waits")] == ["two"]
        await virtual.do(LockRelease(held.id, "holder"))
    assert list(waiters.outcome) == ["two"]
    assert [lock.held_by for lock in await virtual.locks()] == ["two"]


async def test_a_lock_that_is_granted_to_a_client_that_is_just_leaving_is_given_back(
    virtual: Fleet,
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        for agent in ("leaving", "two"):
            await waiters.add(agent)
        # The release grants it in its own transaction; the waiter is cancelled before it looks.
        waiters.scopes["leaving"].cancel()
        await virtual.engine.handle(LockRelease(held.id, "holder"), DAEMON)
    assert list(waiters.outcome) == ["two"]
    assert waiters.at_ms["two"] == 0
    assert [lock.held_by for lock in await virtual.locks()] == ["two"]
    assert virtual.sql("SELECT * FROM lock_waits") == []


async def test_a_lock_taken_by_force_goes_to_whoever_waited_longest(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        for agent in ("one", "two"):
            await waiters.add(agent)
        await virtual.do(LockForceRelease(held.id, "dispatch-1", "holder is stuck"))
        await trio.testing.wait_all_tasks_blocked()
        assert list(waiters.outcome) == ["one"]


async def test_a_free_file_is_not_waited_for(virtual: Fleet, autojump_clock: MockClock) -> None:
    mission = await virtual.mission()
    lock = await virtual.lock(mission, "a.py", "one", wait_ms=PATIENCE_MS)
    assert lock.held_by == "one"
    assert virtual.sql("SELECT * FROM lock_waits") == []


async def test_waiting_for_ones_own_lock_renews_it(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    mission = await virtual.mission()
    first = await virtual.lock(mission, "a.py", "one", timeout_ms=LEASE_MS)
    await trio.sleep(5)
    again = await virtual.lock(mission, "a.py", "one", timeout_ms=LEASE_MS, wait_ms=PATIENCE_MS)
    assert (again.id, again.fencing_token) == (first.id, first.fencing_token)
    assert again.expires_at > first.expires_at


async def test_without_patience_the_answer_comes_at_once(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    mission = await virtual.mission()
    await virtual.lock(mission, "a.py", "one")
    before = trio.current_time()
    with pytest.raises(LockConflict):
        await virtual.lock(mission, "a.py", "two")
    assert trio.current_time() == before
    assert await virtual.checkpoint_ids(mission, "error") == []


async def test_who_comes_when_a_lease_ran_out_is_told_of_the_lock_that_the_first_in_line_gets(
    virtual: Fleet,
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, _ = await prepared(virtual, nursery)
        await waiters.add("one")
        virtual.clock.step(LEASE_MS)
        with pytest.raises(LockConflict) as refused:
            await virtual.lock(waiters.mission, "a.py", "newcomer")
        told = refused.value.values["existing_lock"]
    assert waiters.outcome["one"] == told
    assert [lock.id for lock in await virtual.locks()] == [told.id]


async def test_who_meets_the_lock_of_a_lost_agent_is_told_what_to_do(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    mission = await virtual.mission()
    await virtual.agents(mission, "one")
    held = await virtual.lock(mission, "a.py", "one", timeout_ms=HOUR)
    virtual.clock.pass_by(AGENT_SILENCE_MS + 1)
    await virtual.engine.write(agent_loss.lose_silent_agent, "one")
    with pytest.raises(LockConflict) as refused:
        await virtual.lock(mission, "a.py", "two")
    assert refused.value.message.endswith("; that agent is lost.")
    assert "--take-over-from one" in refused.value.hint
    assert f"force-release {held.id}" in refused.value.hint


async def test_two_waits_of_one_agent_for_one_file_get_the_same_lease(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        got: list[Lock] = []

        async def wait() -> None:
            got.append(await virtual.lock(waiters.mission, "a.py", "one", wait_ms=PATIENCE_MS))

        for _ in range(2):
            nursery.start_soon(wait)
            await virtual.settle()
        await waiters.add("two", wait_ms=1_000)
        await virtual.do(LockRelease(held.id, "holder"))
        await virtual.settle()
        first, second = got
    assert (second.id, second.fencing_token) == (first.id, first.fencing_token)
    assert first.held_by == "one"
    assert isinstance(waiters.outcome["two"], LockConflict)
    assert virtual.sql("SELECT * FROM lock_waits") == []
    errors = await virtual.checkpoint_ids(waiters.mission, "error")
    assert len(errors) == 1  # of the wait of the other agent, which ended empty


async def test_a_second_wait_whose_client_leaves_takes_nothing_from_the_first(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        got: list[Lock] = []
        leaving = [trio.CancelScope(), trio.CancelScope()]

        async def wait(scope: trio.CancelScope) -> None:
            with scope:
                got.append(await virtual.lock(waiters.mission, "a.py", "one", wait_ms=PATIENCE_MS))

        for scope in leaving:
            nursery.start_soon(wait, scope)
            await virtual.settle()
        # Whichever is granted it has lost its client before it can look; the other one gets it.
        leaving[0].cancel()
        await virtual.engine.handle(LockRelease(held.id, "holder"), DAEMON)
        await virtual.settle()
    (lock,) = got
    assert [each.id for each in await virtual.locks()] == [lock.id]
    assert virtual.sql("SELECT * FROM lock_waits") == []


async def test_a_lock_that_its_agent_heard_of_by_another_call_is_not_given_back_by_its_wait(
    virtual: Fleet, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        await waiters.add("one")
        waiters.scopes["one"].cancel()
        # The release grants it to the wait; before that looks, the agent asks for it as well.
        await virtual.engine.handle(LockRelease(held.id, "holder"), DAEMON)
        lock = await virtual.lock(waiters.mission, "a.py", "one")
        await virtual.settle()
    assert waiters.outcome == {}
    assert [each.id for each in await virtual.locks()] == [lock.id]


async def test_a_lock_that_a_recovery_gives_to_a_waiter_ends_its_wait(virtual: Fleet) -> None:
    async with trio.open_nursery() as nursery:
        waiters, held = await prepared(virtual, nursery)
        checkpoint = await virtual.checkpoint(waiters.mission)
        await virtual.do(LockRelease(held.id, "holder"))
        await virtual.lock(waiters.mission, "a.py", "other", timeout_ms=HOUR)
        await waiters.add("holder")
        await virtual.restore(checkpoint, force_locks=True)
        await virtual.settle()
        (now,) = await virtual.locks()
        assert waiters.outcome["holder"].id == now.id
    assert virtual.sql("SELECT * FROM lock_waits") == []


async def test_a_grant_that_is_no_activity_renews_a_lock_that_the_agent_has_without_any(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    held = await fleet.lock(mission, "a.py", "one")
    fleet.clock.pass_by(HOUR // 60)
    before = (await fleet.again(mission)).last_activity_at
    claim = leases.LeaseRequest(
        path=held.normalized_path,
        file=held.file,
        agent_id="one",
        mission_id=mission.id,
        purpose=held.purpose,
        timeout_ms=held.timeout_ms,
    )

    row = await fleet.engine.write(leases.grant, claim, activity=False)

    assert row is not None
    assert row["id"] == held.id
    assert (await fleet.events(mission))[-1].type == "lock_renewed"
    assert (await fleet.again(mission)).last_activity_at == before
