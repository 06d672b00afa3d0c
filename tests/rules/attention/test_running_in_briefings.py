"""Running For You: what runs for an agent beside its turn, in its briefing."""

import re

from fleetd.harness.report import PromptSubmitted, RunningItem, WorkEnded, WorkRuns
from fleetd.protocol.requests.recovery import RecoveryContextGet
from tests.support.fleet import MINUTE, SECOND, Fleet
from tests.support.hook_sessions import Window

HEADING = "### Running For You"


async def window(fleet: Fleet, *items: RunningItem) -> Window:
    session = Window(fleet)
    await session.tell(PromptSubmitted("Add a login"))
    await session.tell(WorkRuns(items))
    return session


async def briefing(fleet: Fleet, max_chars: int | None = None) -> str:
    asked = RecoveryContextGet(agent_id="claude-12f459b8", max_chars=max_chars)
    return (await fleet.do(asked)).prompt


def lines(prompt: str) -> list[str]:
    return prompt.partition(f"{HEADING}\n")[2].partition("\n\n")[0].splitlines()


async def test_each_line_tells_what_runs_and_the_age_of_its_last_sign(fleet: Fleet) -> None:
    session = await window(fleet, RunningItem("a1", "subagent", "Read\nthe notes"))
    fleet.clock.pass_by(2 * MINUTE)
    shell = RunningItem("b2", "shell", "npm run ”dev“", "/tmp/b2.output")
    await session.tell(WorkRuns((shell, RunningItem("c3", "schedule"))))
    fleet.clock.pass_by(5 * SECOND)
    prompt = await briefing(fleet)
    assert lines(prompt) == [
        '- shell b2 “npm run "dev"”: last sign just now, output in /tmp/b2.output',
        "- schedule c3: last sign just now",
        "- subagent a1 “Read”: last sign 2 minutes ago",
    ]
    assert prompt.endswith("continue the mission.")
    for work in ("a1", "b2", "c3"):
        await session.tell(WorkEnded(work))
    assert HEADING not in await briefing(fleet)


async def test_it_is_of_the_reader_only(fleet: Fleet) -> None:
    session = await window(fleet, RunningItem("a1", "shell", "make"))
    mission_id = (await session.tell(PromptSubmitted("Go on"))).mission_id
    assert HEADING not in (await fleet.do(RecoveryContextGet(mission_id))).prompt


async def test_many_are_cut_with_a_count_and_the_prompt_keeps_its_length(fleet: Fleet) -> None:
    await window(fleet, *(RunningItem(f"w{n:03}", "shell", "make " * 20) for n in range(70)))
    told = lines(await briefing(fleet, 50_000))
    assert len(told) == 51
    assert told[-1] == "- (20 more: fleetctl agent show claude-12f459b8)"
    for most in (9_500, 3_000, 1_000):
        prompt = await briefing(fleet, most)
        assert len(prompt) <= most
        if HEADING in prompt:
            *shown, rest = lines(prompt)
            assert len(shown) + int(re.findall(r"\d+", rest)[0]) == 70
            assert shown


async def test_control_characters_never_reach_a_briefing(fleet: Fleet) -> None:
    await window(fleet, RunningItem("a\x1b[31m1", "shell", "ma\u202eke\x07", "/tmp/\x1bx"))
    assert all(line.isprintable() for line in lines(await briefing(fleet)))
