"""Hooks that come together are carried out a few at a time, and those of one session in order."""

import trio
import trio.testing

from fleetd.reception import AT_ONCE, Reception


async def test_few_are_served_at_once_and_all_in_the_end(autojump_clock: object) -> None:
    reception = Reception()
    most, under_way, served = 0, 0, list[int]()

    async def hook(number: int) -> None:
        nonlocal most, under_way
        async with reception.turn(number):
            under_way += 1
            most = max(most, under_way)
            await trio.sleep(1)
            under_way -= 1
            served.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(hook, number)
    assert most == AT_ONCE
    assert sorted(served) == list(range(20))


async def test_who_waits_for_his_session_takes_no_place(autojump_clock: object) -> None:
    reception = Reception()
    served: list[str] = []

    async def hook(session: str) -> None:
        async with reception.turn(session):
            await trio.sleep(1)
            served.append(session)

    async with trio.open_nursery() as nursery:
        for session in ("busy", "busy", "busy", "busy", "other"):
            nursery.start_soon(hook, session)
            await trio.testing.wait_all_tasks_blocked()
    assert served.index("other") <= 1


async def test_a_place_is_given_back_by_who_gives_up(autojump_clock: object) -> None:
    reception = Reception()
    for _ in range(AT_ONCE + 1):
        with trio.move_on_after(1):
            async with reception.turn("gone"):
                await trio.sleep_forever()
    async with reception.turn("next"):
        pass
