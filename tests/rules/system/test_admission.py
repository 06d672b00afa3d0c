"""Who waits at the gate, and what that costs."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fleetd.domain.core.context import Caller
from fleetd.engine.engine import ADMISSION_LOOK_S, Admission
from fleetd.protocol.requests.mission import MissionList
from fleetd.store.api import Availability, Away, StoreAway

AWAY = Away(0, "connecting", "it is away")
CLIENT = Caller(kind="client", uid=0, pid=1)


class Beats:
    """Counts the signs of life of a timer, and ends a busy loop, in which no time passes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        assert self.count < 100, "a busy loop"


async def test_timers_do_not_loop_while_the_store_is_away_and_the_gate_still_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    availability, beats = Availability(), Beats()
    gate = Admission(availability, lambda: 0)
    gate.open()
    availability.lose(AWAY)  # and nobody has shut it yet
    with trio.move_on_after(60) as waited:
        await gate.wait_open(beats)
    assert waited.cancelled_caught
    assert beats.count <= 60 / ADMISSION_LOOK_S + 1


async def test_a_timer_waits_until_it_is_opened_anew_and_not_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """That the store is there again is not enough: what was missed comes first."""
    availability, beats, passed = Availability(), Beats(), trio.Event()
    gate = Admission(availability, lambda: 0)

    async def timer() -> None:
        await gate.wait_open(beats)
        passed.set()

    gate.open()
    availability.lose(AWAY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer)
        await wait_all_tasks_blocked()
        availability.regain()
        await trio.sleep(3 * ADMISSION_LOOK_S)
        assert not passed.is_set()
        with pytest.raises(StoreAway):
            gate.admit(MissionList(), CLIENT)
        since = trio.current_time()
        gate.open()
        await passed.wait()
        assert trio.current_time() == since
    gate.admit(MissionList(), CLIENT)


async def test_a_gate_that_was_shut_opens_for_all_who_wait() -> None:
    availability, beats = Availability(), Beats()
    gate = Admission(availability, lambda: 0)
    gate.open()
    gate.shut()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(gate.wait_open, beats)
            await wait_all_tasks_blocked()
            assert beats.count == 3
            gate.open()
