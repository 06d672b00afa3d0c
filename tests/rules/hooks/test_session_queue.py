"""Hooks that come together are recorded a few at a time, and those of one session in order."""

import contextlib
import json
from collections.abc import Awaitable
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.engine import repositories
from fleetd.engine.hooks import deliver
from fleetd.engine.hooks.session_queue import (
    AT_LEAST,
    AT_MOST,
    BATCH_US,
    REMEMBERED,
    SHARED_AT_LEAST,
    RecordingLimit,
    SessionQueue,
    SharedLookups,
)
from fleetd.protocol.requests.hook import HookDeliver
from tests.support.fleet import Fleet


def told(fleet: Fleet, session: str, event: str, **fields: str) -> HookDeliver:
    """Return a hook of a session as Claude Code writes it."""
    payload = {"session_id": session, "cwd": str(fleet.project), "hook_event_name": event}
    delivery_id = "-".join(["delivery", session, event, *fields.values()])
    return HookDeliver(delivery_id, "claude", json.dumps(payload | fields))


async def test_few_are_recorded_at_once_and_all_in_the_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    most, under_way = 0, 0
    record = deliver._record_and_scan

    async def slowly(*given: Any, **more: Any) -> Any:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(1)
        under_way -= 1
        return await record(*given, **more)

    monkeypatch.setattr(deliver, "_record_and_scan", slowly)
    recording = fleet.engine.session_queue.recording
    for _ in range(1_000):
        recording.took(BATCH_US / 11.5)
    monkeypatch.setattr(recording, "took", lambda _: None)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(fleet.do, told(fleet, f"s-{number}", "SessionStart"))
    assert most == recording.most == 11
    assert len(fleet.sql("SELECT session_id FROM sessions")) == 20


async def test_sessions_that_wait_for_git_keep_nobody_else_waiting(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, waiting, answered = trio.Event(), list[str](), list[str]()

    async def slow(directory: str | None) -> None:
        waiting.append(str(directory))
        await go_on.wait()

    async def hear(hook: Awaitable[Any], name: str) -> None:
        await hook
        answered.append(name)

    monkeypatch.setattr(repositories, "working_tree", slow)
    mission = await fleet.mission(2)
    await fleet.checkpoint(mission)
    sessions = [f"s-{number}" for number in range(AT_MOST + 2)]
    for session in sessions:
        await fleet.do(told(fleet, session, "SessionStart", source="startup"))
        await fleet.do(told(fleet, session, "PreCompact", trigger="auto"))
    async with trio.open_nursery() as nursery:
        for session in sessions:
            hook = fleet.do(told(fleet, session, "SessionStart", source="compact"))
            nursery.start_soon(hear, hook, session)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(
            hear, fleet.do(told(fleet, "other", "UserPromptSubmit", prompt="On")), "other"
        )
        await trio.testing.wait_all_tasks_blocked()
        assert answered == ["other"]
        assert len(waiting) == len(sessions)
        go_on.set()


async def test_a_session_waits_for_its_own_turn_only(fleet: Fleet) -> None:
    reception = fleet.engine.session_queue
    served: list[str] = []

    async def hook(session: str) -> None:
        async with reception.turn(session), reception.recording:
            await trio.testing.wait_all_tasks_blocked()
            served.append(session)

    async with trio.open_nursery() as nursery:
        for session in ("busy", "busy", "busy", "busy", "other"):
            nursery.start_soon(hook, session)
            await trio.lowlevel.checkpoint()
    assert served.index("other") <= 1


@pytest.mark.parametrize("at_least", [AT_LEAST, SHARED_AT_LEAST])
def test_as_many_are_recorded_at_once_as_take_so_long_together(at_least: int) -> None:
    limit = RecordingLimit(at_least)
    assert limit.most == at_least  # nobody knows yet how long one takes
    for _ in range(100):
        limit.took(BATCH_US / 10)
    assert 9 <= limit.most <= 10
    limit.took(50 * BATCH_US)  # one that waited for the interpreter
    assert limit.most >= at_least
    for _ in range(20):
        limit.took(BATCH_US / 10)
    assert limit.most >= 9
    for _ in range(1_000):
        limit.took(BATCH_US)  # a slow disk, or a server far away
    assert limit.most == at_least
    for _ in range(1_000):
        limit.took(0)
    assert limit.most == AT_MOST


async def test_those_that_wait_are_let_in_in_their_order_whoever_leaves() -> None:
    limit, inside, go_on = RecordingLimit(2), list[int](), trio.Event()

    async def hook(number: int, scope: trio.CancelScope) -> None:
        with scope:
            async with limit:
                inside.append(number)
                await go_on.wait()

    scopes = [trio.CancelScope() for _ in range(7)]
    async with trio.open_nursery() as nursery:
        for number, scope in enumerate(scopes):
            nursery.start_soon(hook, number, scope)
            await trio.testing.wait_all_tasks_blocked()
        assert inside == [0, 1]
        scopes[2].cancel()  # it waits
        scopes[0].cancel()  # it is inside
        await trio.testing.wait_all_tasks_blocked()
        assert inside == [0, 1, 3]
        go_on.set()
    assert sorted(inside) == [0, 1, 3, 4, 5, 6]
    async with limit, limit:
        pass


async def test_those_who_ask_the_same_together_share_a_lookup_that_began_after_them() -> None:
    lookups, began, answers = SharedLookups(), list[str](), list[tuple[str, str, int]]()
    go_on = trio.Event()

    async def ask(who: str, name: str) -> None:
        async def look() -> int:
            began.append(who)
            number = len(began)
            await go_on.wait()
            return number

        answers.append((who, name, await lookups.ask(name, look)))

    async with trio.open_nursery() as nursery:
        for who, name in (("first", "a"), ("second", "a"), ("third", "a"), ("other", "b")):
            nursery.start_soon(ask, who, name)
            await trio.testing.wait_all_tasks_blocked()
        assert began == ["first", "other"]
        go_on.set()
    assert began == ["first", "other", "second"]
    found = {(who, number) for who, _, number in answers}
    assert found == {("first", 1), ("other", 2), ("second", 3), ("third", 3)}
    assert not lookups._looking


@pytest.mark.parametrize("cancelled", [True, False])
async def test_who_waits_for_a_lookup_that_comes_to_nothing_makes_another(cancelled: bool) -> None:
    lookups, answers, scope = SharedLookups(), list[str](), trio.CancelScope()

    async def fail() -> str:
        if cancelled:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        raise ValueError

    async def first() -> None:
        with scope, contextlib.suppress(ValueError):
            await lookups.ask("a", fail)

    async def answer() -> str:
        return "there"

    async def second() -> None:
        answers.append(await lookups.ask("a", answer))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
    assert answers == ["there"]


def test_reception_logs_a_new_complaint_after_1000_different_ones() -> None:
    reception = SessionQueue(shared=False)
    for number in range(REMEMBERED):
        assert reception.first_time(f"complaint {number}")
    assert not reception.first_time("complaint 0")
    assert reception.first_time("a new one")
    assert not reception.first_time("a new one")
    assert not reception.first_time("complaint 0")  # it was heard a moment ago
    assert reception.first_time("complaint 1")  # the one that was not heard for longest
    assert len(reception._complaints) == REMEMBERED
