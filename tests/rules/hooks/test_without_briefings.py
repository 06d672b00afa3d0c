"""A mission with ``briefing`` off: hooks brief nobody, say all else, and record that."""

import itertools
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from fleetd.engine.engine import DAEMON
from fleetd.engine.hooks.deliver import record_delivery
from fleetd.engine.jobs.liveness import scan
from fleetd.harness.report import Compacted, PromptSubmitted, SessionStarted
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointVerify
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, MissionList, MissionUpdate
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryList
from fleetd.protocol.requests.stats import StatsRecovery
from fleetd.protocol.types import OnOff
from tests.support.fleet import MINUTE, SECOND, Fleet, opened
from tests.support.hook_sessions import Window

SESSION = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"
AGENT = "claude-777e68b4"
HEADING = "Progress"
_ids = itertools.count()


def payload(fleet: Fleet, event: str, **fields: Any) -> HookDeliver:
    said = {"session_id": SESSION, "cwd": str(fleet.project), "hook_event_name": event} | fields
    return HookDeliver(f"without-{next(_ids):08}", "claude", json.dumps(said))


async def deliver(fleet: Fleet, event: str, **fields: Any) -> str:
    """Deliver a payload as Claude Code writes it, and return the text that its model reads."""
    stdout = (await fleet.do(payload(fleet, event, **fields))).stdout
    if not stdout:
        return ""
    [output] = json.loads(stdout).values()
    return str(output["additionalContext"])


async def compact(fleet: Fleet) -> str:
    fleet.clock.pass_by(3 * SECOND)
    await deliver(fleet, "PreCompact", trigger="auto")
    said = await deliver(fleet, "SessionStart", source="compact")
    await deliver(fleet, "PostCompact", trigger="auto", compact_summary="What was said")
    return said


async def work(fleet: Fleet) -> None:
    call = {"tool_name": "Read", "tool_input": {}, "tool_use_id": f"toolu_{next(_ids)}"}
    await deliver(fleet, "PreToolUse", **call)


async def told(fleet: Fleet, *types: str) -> list[tuple[str, dict[str, Any]]]:
    page = await fleet.do(EventList(types=list(types)))
    return [(each.type, each.data) for each in page.events]


BRIEFINGS = ("window_briefed", "briefing_missed")


async def begun(fleet: Fleet, briefing: OnOff = "off") -> Mission:
    await deliver(fleet, "SessionStart", source="startup")
    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    [mission] = (await fleet.do(MissionList())).missions
    assert mission.briefing == "on"
    return await fleet.do(MissionUpdate(mission.id, briefing=briefing))


async def test_nobody_is_briefed_and_nothing_is_recovered(fleet: Fleet) -> None:
    mission = await begun(fleet)
    assert mission.briefing == "off"
    for _ in range(2):
        assert await compact(fleet) == ""
        await work(fleet)
        fleet.clock.pass_by(3 * SECOND)
        assert await deliver(fleet, "UserPromptSubmit", prompt="Go on") == ""
    assert await told(fleet, *BRIEFINGS) == [("briefing_missed", {"reason": "off"})] * 2
    assert (await fleet.do(RecoveryList())).recoveries == []
    # Who asks is answered.
    asked = await fleet.do(RecoveryContextGet(mission_id=mission.id, agent_id=AGENT))
    assert "Add login" in asked.prompt


async def test_a_briefing_that_is_given_is_recorded_with_its_length(fleet: Fleet) -> None:
    await begun(fleet, "on")
    briefing = await compact(fleet)
    assert HEADING in briefing
    assert await told(fleet, *BRIEFINGS) == [("window_briefed", {"characters": len(briefing)})]


async def test_mail_is_told_as_ever(fleet: Fleet) -> None:
    mission = await begun(fleet)
    await fleet.do(AgentRegister("dispatch-1", "dispatch", mission_id=mission.id))
    await fleet.do(MessageSend("dispatch-1", [AGENT], "Which fields?", mission_id=mission.id))
    await deliver(fleet, "PreCompact", trigger="auto")
    await deliver(fleet, "PostCompact", trigger="auto")
    said = await deliver(fleet, "UserPromptSubmit", prompt="Go on")
    assert "1 unread message waits" in said
    assert HEADING not in said
    assert await told(fleet, *BRIEFINGS) == [("briefing_missed", {"reason": "off"})]


async def test_switched_on_again_the_next_compaction_is_briefed(fleet: Fleet) -> None:
    mission = await begun(fleet)
    assert await compact(fleet) == ""
    await fleet.do(MissionUpdate(mission.id, briefing="on"))
    await work(fleet)
    assert await deliver(fleet, "UserPromptSubmit", prompt="Go on") == ""
    assert HEADING in await compact(fleet)
    assert [kind for kind, _ in await told(fleet, *BRIEFINGS)] == [*reversed(BRIEFINGS)]


async def test_a_reply_that_nobody_read_is_recorded_and_its_briefing_given_again(
    fleet: Fleet,
) -> None:
    await begun(fleet, "on")
    await deliver(fleet, "PreCompact", trigger="auto")
    lost = payload(fleet, "SessionStart", source="compact")
    assert (await fleet.do(lost)).stdout
    assert [each.briefing for each in (await fleet.do(StatsRecovery())).compactions] == ["given"]
    await record_delivery(fleet.engine, lost, DAEMON, happened_ms=fleet.clock())
    assert [each.briefing for each in (await fleet.do(StatsRecovery())).compactions] == [None]
    assert HEADING in await deliver(fleet, "UserPromptSubmit", prompt="Go on")
    assert [(kind, data.get("reason")) for kind, data in await told(fleet, *BRIEFINGS)] == [
        *(("window_briefed", None), ("briefing_missed", "reply_lost"), ("window_briefed", None)),
    ]


@pytest.mark.parametrize("briefing", ["on", "off"])
async def test_a_mission_that_waits_for_recovery_is_no_compaction(
    fleet: Fleet, briefing: OnOff
) -> None:
    session = Window(fleet)
    started = await session.tell(PromptSubmitted("Go"))
    await fleet.do(MissionUpdate(str(started.mission_id), briefing=briefing))
    fleet.clock.pass_by(6 * MINUTE)
    await scan(fleet.engine)
    resumed = await session.tell(SessionStarted("resume"))
    assert (resumed.brief, resumed.compacted, resumed.lines) == (briefing == "on", False, [])
    if resumed.brief:
        await session.briefed(resumed)
    assert not (await session.tell(PromptSubmitted("Go on"))).brief
    assert await told(fleet, *BRIEFINGS) == []


async def test_a_request_of_gemini_is_not_changed(fleet: Fleet) -> None:
    session = Window(fleet, harness="gemini", injects=False)
    started = await session.tell(SessionStarted("startup"), PromptSubmitted("Go"))
    await session.tell(Compacted())
    said = {
        "session_id": session.session_id,
        "cwd": str(fleet.project),
        "hook_event_name": "BeforeModel",
        "llm_request": {"messages": [{"role": "user", "content": "The context"}]},
    }
    replies, both = [], get_args(OnOff)
    for briefing in both:
        await fleet.do(MissionUpdate(str(started.mission_id), briefing=briefing))
        asked = HookDeliver(f"gemini-{briefing}", "gemini", json.dumps(said))
        replies.append((await fleet.do(asked)).stdout)
    assert HEADING in replies[0]
    assert replies[1] == ""


async def test_the_setting_is_part_of_checkpoints_and_comes_back_with_a_lost_database(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.do(
            MissionCreate("Add login", project_dir=str(fleet.project), start=True, briefing="off")
        )
        other = await fleet.mission(title="Another")
        taken = await fleet.checkpoint(mission)
        await fleet.checkpoint(other)
        await fleet.settle()
        known = msgspec.json.decode(fleet.file_of(taken).read_bytes(), type=Checkpoint).mission
        assert known is not None
        assert known.briefing == "off"
        assert (await fleet.do(CheckpointGet(taken.id))).mission == known
        verified = await fleet.do(CheckpointVerify(mission.id))
        assert not [each for each in verified.findings if not each.ok]
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        found = [(await fleet.do(MissionGet(each.id))).briefing for each in (mission, other)]
        assert found == ["off", "on"]


async def test_it_comes_back_into_an_older_database_and_no_recovery_changes_it(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        first = await fleet.checkpoint(mission)
    older = fleet.copied_database()
    async with opened(tmp_path) as fleet:
        changed = await fleet.do(MissionUpdate(mission.id, briefing="off"))
        assert changed.briefing == "off"
        [event] = (await fleet.do(EventList(type="mission_updated"))).events
        assert event.data == {"fields": ["briefing"]}
        await fleet.restore(first, rewind=True)
        assert (await fleet.again(mission)).briefing == "off"
        await fleet.checkpoint(mission)
    fleet.put_back(older)
    async with opened(tmp_path) as fleet:
        assert (await fleet.again(mission)).briefing == "off"


async def test_nothing_to_change_is_refused_with_all_that_can_be_changed(fleet: Fleet) -> None:
    mission = await fleet.mission()
    with pytest.raises(InvalidParams, match="metadata, sorties and briefing are missing"):
        await fleet.do(MissionUpdate(mission.id))
