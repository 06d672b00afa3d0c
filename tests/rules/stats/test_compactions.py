"""``stats.recovery``: what agents did after compactions, counted from the log."""

from typing import Any

import pytest
from msgspec.structs import replace

from fleetd.harness.report import (
    Compacted,
    Compacting,
    PromptSubmitted,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.stats import CompactionEffect, RecoveryStats, StatsRecovery
from tests.support.fleet import HOUR, MINUTE, SECOND, Fleet
from tests.support.hook_sessions import Window, WorkingWindow

PLAN = "/home/user/project/plan.md"


async def stats(fleet: Fleet, **asked: Any) -> RecoveryStats:
    return await fleet.do(StatsRecovery(**asked))


async def newest(fleet: Fleet) -> CompactionEffect:
    return (await stats(fleet)).compactions[0]


@pytest.fixture
async def agent(fleet: Fleet) -> WorkingWindow:
    session = WorkingWindow(fleet)
    await session.tell(SessionStarted("startup"))
    await session.tell(PromptSubmitted("Add a login"))
    return session


async def without_briefing(fleet: Fleet, session: Window) -> None:
    told = await session.tell(PromptSubmitted("Go on"))
    await fleet.do(MissionUpdate(str(told.mission_id), briefing="off"))


def again(effect: CompactionEffect) -> tuple[int, int, int]:
    return effect.commands_again, effect.files_again, effect.subagents_again


async def test_what_was_done_within_the_hour_before_and_is_done_again_counts_once(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await agent.run("make old")
    fleet.clock.pass_by(HOUR)
    await agent.run("make  test", "git status", "ls")
    await agent.read("/p/a.py", "/p/b.py")
    await agent.delegate("Look for the parser")
    await agent.edit()
    at = fleet.clock.now
    await agent.compact()
    await agent.run("make test", "make test", "make old", "git diff")
    await agent.read("/p/a.py", "/p/c.py", "/p/a.py")
    await agent.delegate("Look for the parser")
    await agent.delegate("Write tests")
    await agent.edit()
    await agent.run("ls")

    effect = await newest(fleet)
    assert again(effect) == (2, 1, 1)
    assert (effect.calls, effect.calls_until_edit) == (11, 10)
    assert (effect.at, effect.agent_id, effect.briefing) == (at, "claude-12f459b8", "given")
    assert effect.mission_id is not None
    assert not effect.over


async def test_a_compaction_that_is_told_several_times_is_one(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await agent.run("ls")
    await agent.compact()
    await agent.tell(Compacted())
    await agent.run("ls")
    await agent.compact()
    found = await stats(fleet)
    assert [each.briefing for each in found.compactions] == ["given", "given"]
    assert [each.over for each in found.compactions] == [False, True]
    assert [each.calls for each in found.compactions] == [0, 1]


async def test_a_briefing_that_comes_after_a_call_is_of_the_compaction_before(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    agent.report["injects"] = False
    await agent.tell(Compacting(), Compacted())
    await agent.tell(ToolStarted("Bash", call_id="t-1", command="ls"))
    agent.report["injects"] = True
    ended = ToolFinished("Bash", call_id="t-1", command="ls", passed=True)
    await agent.briefed(await agent.tell(ended))
    await agent.edit()
    [effect] = (await stats(fleet)).compactions
    assert (effect.briefing, effect.calls, effect.calls_until_edit) == ("given", 2, 2)


async def test_without_a_briefing_nothing_is_known(fleet: Fleet, agent: WorkingWindow) -> None:
    agent.report["injects"] = False
    await agent.tell(Compacting(), Compacted())
    await agent.run("ls")
    await agent.tell(Compacting(), Compacted())
    fleet.clock.pass_by(HOUR + 1)
    found = await stats(fleet)
    assert [each.briefing for each in found.compactions] == [None, None]
    assert (found.unknown, found.not_over) == (2, 0)


async def test_a_mission_without_briefings_is_the_control_group(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await without_briefing(fleet, agent)
    for _ in range(2):
        await agent.compact()
        await agent.run("ls")
    found = await stats(fleet)
    assert [each.briefing for each in found.compactions] == ["off", "off"]
    assert [again(each) for each in found.compactions] == [(1, 0, 0), (0, 0, 0)]
    assert [each.type for each in await fleet.events() if "brief" in each.type] == [
        *("briefing_missed", "briefing_missed"),
    ]


async def test_who_is_recovered_by_hand_leaves_the_control_group(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await without_briefing(fleet, agent)
    await agent.compact()
    effect = await newest(fleet)
    await agent.run("ls")
    restore = RecoveryRestore(
        mission_id=effect.mission_id, agent_id=effect.agent_id, requested_by="cli", scope="agent"
    )
    await fleet.do(restore)
    assert (effect.briefing, (await newest(fleet)).briefing) == ("off", None)


async def test_an_hour_later_nothing_counts_any_more(fleet: Fleet, agent: WorkingWindow) -> None:
    await agent.run("ls")
    await agent.compact()
    fleet.clock.pass_by(HOUR - 4 * SECOND)
    await agent.run("pwd")
    assert not (await newest(fleet)).over
    fleet.clock.pass_by(2 * SECOND + 1)
    await agent.run("ls")
    await agent.edit()
    effect = await newest(fleet)
    assert (effect.over, effect.calls, effect.calls_until_edit) == (True, 1, None)
    assert again(effect) == (0, 0, 0)


async def test_between_two_compactions_both_hours_count(fleet: Fleet, agent: WorkingWindow) -> None:
    await agent.run("ls", "make old")
    await agent.compact()
    fleet.clock.pass_by(2 * HOUR)
    await agent.run("ls")
    await agent.edit()
    await agent.compact()
    await agent.run("make old", "ls")
    second, first = (await stats(fleet)).compactions
    assert (first.calls, first.calls_until_edit, *again(first)) == (0, None, 0, 0, 0)
    assert (second.calls, *again(second)) == (2, 1, 0, 0)


async def test_a_call_across_the_compaction_is_not_run_again(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await agent.tell(ToolStarted("Read", call_id="t-1"), ToolStarted("Bash", "t-2", "make"))
    await agent.read("/p/a.py")
    await agent.run("make")
    await agent.compact()
    read = ToolFinished("Read", call_id="t-1", passed=True, read="/p/a.py")
    ran = ToolFinished("Bash", call_id="t-2", command="make", passed=False, error="Exit code 2")
    await agent.tell(read, ran)
    effect = await newest(fleet)
    assert (effect.calls, *again(effect)) == (0, 0, 0, 0)


async def test_an_end_that_is_told_once_more_is_no_call(fleet: Fleet, agent: WorkingWindow) -> None:
    await agent.compact()
    failed = ToolFinished("Bash", call_id="t-2", command="make", passed=False, error="Exit code 2")
    await agent.tell(ToolStarted("Bash", "t-2", "make"))
    await agent.tell(failed)
    fleet.clock.pass_by(MINUTE)
    await agent.tell(failed, ToolFinished("Bash", call_id="t-3", command="ls"))
    await agent.tell(ToolStarted("Bash", "t-2", "make"))
    assert (await newest(fleet)).calls == 3


async def test_calls_without_names_count_where_they_begin(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    ran = ToolFinished("Bash", command="ls", passed=True)
    failed = ToolFinished("Bash", command="make", passed=False, error="Exit code 2")
    await agent.tell(ToolStarted("Bash", command="ls"))
    await agent.tell(ran)
    await agent.compact()
    await agent.tell(ToolStarted("Bash", command="make"))
    await agent.tell(failed)
    await agent.tell(ToolStarted("Bash", command="ls"))
    await agent.tell(ran)
    # One that only its end tells of.
    await agent.tell(ToolFinished("Read", passed=True, read="/p/a.py"))
    await agent.tell(ToolFinished("Edit", passed=True, edited=(PLAN,)))
    effect = await newest(fleet)
    assert (effect.calls, effect.calls_until_edit, *again(effect)) == (4, 3, 1, 0, 0)


async def test_agents_are_told_apart(fleet: Fleet, agent: WorkingWindow) -> None:
    other = WorkingWindow(fleet, session_id="99999999-aaaa")
    await other.tell(SessionStarted("startup"), PromptSubmitted("Write tests"))
    await other.run("ls")
    await agent.compact()
    await agent.run("ls")
    await other.edit()
    effect = await newest(fleet)
    assert (effect.calls, effect.calls_until_edit, *again(effect)) == (1, None, 0, 0, 0)


async def test_only_those_since_a_time_and_only_the_newest_are_listed(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    times = []
    for _ in range(3):
        await agent.run("ls")
        times.append(fleet.clock.now)
        await agent.compact()
        fleet.clock.pass_by(30 * MINUTE)
    found = await stats(fleet, since_time=times[1], limit=1)
    assert [each.at for each in found.compactions] == [times[2]]
    assert (found.more, found.not_over) == (1, 1)
    assert found.with_briefing.compactions == 1
    [last] = (await stats(fleet, since_time=times[2])).compactions
    # What was done before that time is known.
    assert last.commands_again == 0
    await agent.run("ls")
    [last] = (await stats(fleet, since_time=times[2])).compactions
    assert last.commands_again == 1
    assert (await stats(fleet, since_time=fleet.clock.now)).compactions == []


@pytest.mark.parametrize("number", [19, 20])
async def test_fewer_than_twenty_are_too_few(
    fleet: Fleet, agent: WorkingWindow, number: int
) -> None:
    for each in range(number):
        await agent.compact()
        await agent.run("ls", *["pwd"] * (each % 2))
        await agent.edit()
    fleet.clock.pass_by(2 * HOUR)
    found = await stats(fleet)
    group, empty = found.with_briefing, found.without_briefing
    assert (group.compactions, group.edited, found.fewest) == (number, number, 20)
    assert (empty.compactions, empty.edited, empty.calls_until_edit) == (0, 0, None)
    figures = (group.calls_until_edit, group.commands_again, group.files_again)
    if number < 20:
        assert figures == (None, None, None)
    else:
        assert figures == (2.5, round(28 / 20, 2), 0)


async def test_compactions_without_an_edit_lengthen_the_median(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    async def measure(edited: int, idle: int) -> float | None:
        since = fleet.clock.now
        for each in range(edited + idle):
            await agent.compact()
            await agent.run("ls")
            if each < edited:
                await agent.edit()
        fleet.clock.pass_by(2 * HOUR)
        group = (await stats(fleet, since_time=since)).with_briefing
        assert (group.compactions, group.edited) == (edited + idle, edited)
        return group.calls_until_edit

    assert await measure(11, 10) == 2
    assert await measure(10, 11) is None


async def test_pages_of_events_make_no_difference(
    fleet: Fleet, agent: WorkingWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await agent.run("ls", "pwd")
        await agent.read("/p/a.py")
        await agent.edit()
        await agent.compact()
    whole = await stats(fleet)
    batches = fleet.engine.batches
    for size in (1, 2, 7):
        monkeypatch.setattr(fleet.engine, "batches", replace(batches, looked_at=size))
        assert await stats(fleet) == whole


async def test_what_a_client_appends_is_read_with_care(fleet: Fleet, agent: WorkingWindow) -> None:
    await agent.compact()
    odd: list[tuple[str, dict[str, Any]]] = [
        ("command_started", {"command": 5, "call_id": ["x"], "happened_at": 7}),
        ("tool_finished", {"file": {"a": 1}}),
        ("tool_started", {"task": " \n "}),
        ("file_modified", {}),
    ]
    for kind, data in odd:
        await fleet.do(EventAppend(kind, agent_id="claude-12f459b8", data=data))
    assert (await newest(fleet)).calls == 2
