"""Those who follow the log from the same place are told by one reading, and miss nothing."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fleetd.domain.core.context import Context
from fleetd.domain.core.tx import Tx
from fleetd.domain.events import streams
from fleetd.engine.change_feed import AT_ONCE, PAGE
from fleetd.protocol.requests.event import EventAppend, EventPage, EventSubscribe
from fleetd.server.subscription import Follower
from tests.support.fleet import Fleet

MANY = 3 * AT_ONCE + 1


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return from where the log is read from now on, whoever reads."""
    seen: list[int] = []
    tail = streams.tail

    def heard(tx: Tx, ctx: Context, since: int, *more: Any, **named: Any) -> EventPage:
        seen.append(since)
        return tail(tx, ctx, since, *more, **named)

    monkeypatch.setattr(streams, "tail", heard)
    return seen


class Ear:
    """A subscriber and what it heard."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def send(self, data: bytes) -> None:
        self.lines += data.splitlines()


async def follow(fleet: Fleet, nursery: trio.Nursery, **wish: Any) -> tuple[Ear, Follower]:
    request = EventSubscribe(**wish)
    follower = Follower(fleet.engine, request, await fleet.do(request))
    ear = Ear()
    nursery.start_soon(follower.run, ear.send)
    return ear, follower


async def say(fleet: Fleet, number: int = 1, kind: str = "step_taken") -> None:
    for n in range(number):
        await fleet.do(EventAppend(kind, data={"n": n}))


async def test_one_reading_serves_everybody_who_waits_at_the_end(
    fleet: Fleet, readings: list[int]
) -> None:
    async with trio.open_nursery() as nursery:
        ears = [(await follow(fleet, nursery))[0] for _ in range(MANY)]
        await wait_all_tasks_blocked()
        readings.clear()
        await say(fleet)
        await wait_all_tasks_blocked()
        assert [len(ear.lines) for ear in ears] == [1] * MANY
        assert len(readings) == 2  # what came, and whether more did meanwhile
        nursery.cancel_scope.cancel()


async def test_others_get_their_turn_while_many_are_told(fleet: Fleet) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        ears = [(await follow(fleet, nursery))[0] for _ in range(MANY)]
        await wait_all_tasks_blocked()
        nursery.start_soon(other)
        await say(fleet)
        began = turns
        while not all(ear.lines for ear in ears):
            await trio.lowlevel.checkpoint()
        assert turns - began >= MANY // AT_ONCE
        nursery.cancel_scope.cancel()


async def test_when_the_one_who_reads_leaves_the_others_are_told_all_the_same(
    fleet: Fleet,
) -> None:
    async with trio.open_nursery() as nursery:
        (_, reads), (first, _), (second, _) = [await follow(fleet, nursery) for _ in range(3)]
        await wait_all_tasks_blocked()
        reads.end()
        await wait_all_tasks_blocked()
        await say(fleet)
        await wait_all_tasks_blocked()
        assert len(first.lines) == len(second.lines) == 1
        nursery.cancel_scope.cancel()


async def test_those_who_come_from_anywhere_hear_everything_once_and_in_order(
    fleet: Fleet,
) -> None:
    await say(fleet, 2 * PAGE)
    async with trio.open_nursery() as nursery:
        ears = []
        for n in range(30):
            ears.append((await follow(fleet, nursery, since=n))[0])
            await say(fleet)
        await wait_all_tasks_blocked()
        every = b"".join(ears[0].lines)
        assert every.count(b'"seq":') == 2 * PAGE + 30
        for n, ear in enumerate(ears):
            told = [line.partition(b'"event":')[2] for line in ears[0].lines]
            assert [line.partition(b'"event":')[2] for line in ear.lines] == told[n:]
        nursery.cancel_scope.cancel()


async def test_who_wants_little_of_a_long_log_has_that_looked_up(
    fleet: Fleet, readings: list[int]
) -> None:
    await say(fleet, 20 * PAGE)
    await say(fleet, 3, "build_failed")
    async with trio.open_nursery() as nursery:
        ear, _ = await follow(fleet, nursery, since=0, types=["build_failed", "never_was"])
        await wait_all_tasks_blocked()
        assert len(ear.lines) == 3
        assert len(readings) <= 4
        await say(fleet, 1)
        await say(fleet, 1, "build_failed")
        await wait_all_tasks_blocked()
        assert len(ear.lines) == 4
        nursery.cancel_scope.cancel()
