"""Hooks that come together are recorded a few at a time, and those of one session in order."""

import json
from collections.abc import Awaitable
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.engine import repositories
from fleetd.engine.hooks import deliver
from fleetd.engine.hooks.session_queue import AT_ONCE, REMEMBERED, SessionQueue
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
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(fleet.do, told(fleet, f"s-{number}", "SessionStart"))
    assert most == AT_ONCE
    assert len(fleet.sql("SELECT session_id FROM sessions")) == 20


async def test_sessions_that_wait_for_git_keep_nobody_else_waiting(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, waiting, answered = trio.Event(), list[str](), list[str]()

    async def slow(directory: str | None) -> tuple[str, ...]:
        waiting.append(str(directory))
        await go_on.wait()
        return ()

    async def hear(hook: Awaitable[Any], name: str) -> None:
        await hook
        answered.append(name)

    monkeypatch.setattr(repositories, "summary", slow)
    mission = await fleet.mission(2)
    await fleet.checkpoint(mission)
    sessions = [f"s-{number}" for number in range(AT_ONCE + 2)]
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


def test_reception_logs_a_new_complaint_after_1000_different_ones() -> None:
    reception = SessionQueue()
    for number in range(REMEMBERED):
        assert reception.first_time(f"complaint {number}")
    assert not reception.first_time("complaint 0")
    assert reception.first_time("a new one")
    assert not reception.first_time("a new one")
    assert not reception.first_time("complaint 0")  # it was heard a moment ago
    assert reception.first_time("complaint 1")  # the one that was not heard for longest
    assert len(reception._complaints) == REMEMBERED
