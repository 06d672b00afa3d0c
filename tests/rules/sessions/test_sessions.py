"""Sessions of agent CLIs: who they are, what they join, and when their agents are briefed."""

from pathlib import Path

import pytest

from fleetd.domain.core.context import TranscriptMark
from fleetd.domain.core.tx import WatchProcess
from fleetd.engine.jobs.liveness import process_ended, scan
from fleetd.harness.report import (
    AnyHappening,
    Compacted,
    Compacting,
    DirectoryChanged,
    Failed,
    Noted,
    Paused,
    PermissionRequested,
    PlanItem,
    Planned,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    WorkRuns,
)
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentGet, AgentList, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate, CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionCurrent,
    MissionGet,
    MissionList,
    MissionSelect,
    MissionStart,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryDetect, RecoveryList
from fleetd.protocol.requests.system import SystemStatus
from fleetd.protocol.timestamps import iso
from fleetd.protocol.types import SelectionPurpose
from tests.support.fleet import HOUR, MINUTE, SECOND, Fleet, opened
from tests.support.hook_sessions import PROJECT, Window


async def _types(fleet: Fleet) -> list[str]:
    return [event.type for event in (await fleet.do(EventList(limit=1_000))).events]


async def _recovery(fleet: Fleet) -> str:
    return (await fleet.do(RecoveryList())).recoveries[0].state


async def _only_mission(fleet: Fleet) -> Mission:
    [mission] = (await fleet.do(MissionList())).missions
    return mission


async def test_the_first_prompt_gives_a_session_a_mission(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(SessionStarted("startup"))
    assert (await fleet.do(MissionList())).missions == []
    await window.tell(PromptSubmitted("Add login\n\nwith a form"))
    mission = await _only_mission(fleet)
    assert (mission.title, mission.status) == ("Add login", "in_progress")
    assert mission.project_dir == PROJECT
    agent = await fleet.do(AgentGet("claude-12f459b8"))
    assert (agent.mission_id, agent.role, agent.harness) == (mission.id, "dispatch", "claude")
    [prompt] = (await fleet.do(EventList(type="prompt_submitted"))).events
    assert prompt.data == {"prompt": "Add login\n\nwith a form"}


async def test_work_without_a_prompt_gets_a_mission_too(fleet: Fleet) -> None:
    await Window(fleet).tell(ToolStarted("Bash", "call-1", command="make test"))
    assert (await _only_mission(fleet)).status == "in_progress"


async def test_tools_become_events(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    start = (await fleet.do(EventList(limit=1_000))).position
    await window.tell(ToolStarted("Bash", "call-1", command="make test"))
    await window.tell(ToolFinished("Bash", "call-1", command="make test", passed=False, error="2"))
    await window.tell(ToolFinished("Edit", "call-2", edited=(f"{PROJECT}/a.py",), passed=True))
    await window.tell(ToolFinished("Bash", "call-3", command="true", passed=True, duration_ms=3))
    every = (await fleet.do(EventList(since=start))).events
    found = [event for event in every if event.type != "snapshot_recorded"]
    assert [(event.type, event.data) for event in found] == [
        ("command_started", {"tool": "Bash", "command": "make test", "call_id": "call-1"}),
        (
            "command_finished",
            {"command": "make test", "result": "FAIL", "error": "2", "call_id": "call-1"},
        ),
        ("tool_failed", {"name": "Bash", "error": "2", "call_id": "call-1"}),
        ("file_modified", {"file": f"{PROJECT}/a.py", "tool": "Edit"}),
        ("tool_finished", {"tool": "Edit", "call_id": "call-2"}),
        (
            "command_finished",
            {"command": "true", "result": "PASS", "call_id": "call-3", "duration_ms": 3},
        ),
    ]


async def test_a_transcript_tells_how_calls_ended_once_and_only_what_no_event_told(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(ToolFinished("apply_patch", "call-1", edited=("/srv/a.py",)))
    await window.tell(ToolFinished("Bash", "call-2", command="make test"))
    earlier = (
        ToolFinished("apply_patch", "call-1", edited=("/srv/a.py",), passed=True),
        ToolFinished("Bash", "call-2", command="make test", passed=False, error="Exit code 2"),
        ToolFinished("apply_patch", "call-3", edited=("/srv/b.py",), passed=True),
    )
    for moment in ("1", "2"):
        await window.tell(Paused(moment), earlier=earlier)
    told = await fleet.events()
    edited = [event.data["file"] for event in told if event.type == "file_modified"]
    assert edited == ["/srv/a.py", "/srv/b.py"]
    results = [event.data.get("result") for event in told if event.type == "command_finished"]
    assert results == [None, "FAIL"]
    assert (await _types(fleet)).count("tool_failed") == 1


async def test_what_a_transcript_told_is_known_however_much_other_work_follows(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    calls = [
        ToolFinished("Bash", f"call-{number}", command="make", passed=False, error="Exit code 2")
        for number in range(100)
    ]
    await window.tell(*(ToolFinished("Bash", each.call_id, command="make") for each in calls))
    await window.tell(Compacting("auto"), earlier=tuple(calls))
    await window.tell(*(ToolFinished("Fetch", f"fetch-{number}") for number in range(500)))
    before = await _types(fleet)
    await window.tell(Paused("Done"), earlier=tuple(calls))
    told = (await _types(fleet))[len(before) :]
    assert told[:2] == ["agent_answered", "agent_paused"]
    assert not {"command_finished", "tool_failed"} & {*told}
    assert before.count("tool_failed") == 100


async def test_a_compaction_is_kept_briefed_once_and_confirmed(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(
        Planned((PlanItem("Write the form", "in_progress"), PlanItem("Test it", "pending")), True)
    )
    await window.tell(ToolFinished("Edit", edited=(f"{PROJECT}/form.py",), passed=True))
    assert not (await window.tell(Compacting("auto"))).brief
    mission = await _only_mission(fleet)
    [checkpoint] = (await fleet.do(CheckpointList(mission_id=mission.id))).checkpoints
    assert checkpoint.trigger == "compaction"
    due = await window.tell(SessionStarted("compact"))
    assert due.brief
    prompt = await window.briefed(due)
    assert "Write the form" in prompt
    assert "\n### Files Modified\n- form.py\n\n" in prompt
    assert "**Last Action**: claude-12f459b8 edited form.py\n" in prompt
    assert "Add login" in prompt
    assert not (await window.tell(Compacted("a summary"))).brief
    assert await _recovery(fleet) == "briefed"
    assert not (await window.tell(ToolStarted("Bash", "c", command="ls"))).brief
    assert await _recovery(fleet) == "resumed"
    again = await window.tell(Compacting("auto"), SessionStarted("compact"))
    assert again.brief


async def test_a_compaction_told_only_after_it_is_briefed_at_the_next_chance(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    window.report["injects"] = False
    await window.tell(Compacting("auto"))
    assert not (await window.tell(Compacted())).brief
    window.report["injects"] = True
    due = await window.tell(ToolFinished("Read", "c-1", passed=True))
    assert due.brief
    await window.briefed(due)
    assert not (await window.tell(SessionStarted("compact"))).brief


async def test_a_compaction_of_which_nothing_more_is_heard_is_assumed_at_the_next_prompt(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Compacting("manual"))
    assert not (await window.tell(ToolFinished("Read", "c-1", passed=True))).brief
    assert (await window.tell(PromptSubmitted("Go on"))).brief


async def test_clearing_is_no_compaction(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Compacting("manual"))
    assert not (await window.tell(SessionStarted("clear"))).brief
    assert not (await window.tell(PromptSubmitted("Something else"))).brief


async def test_what_was_cleared_can_be_asked_for(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(Planned((PlanItem("Write the form", "in_progress"),), True))
    await window.tell(SessionEnded("clear"))
    cleared = (await _only_mission(fleet)).id
    later = Window(fleet, "bbbbbbbb-1")
    await later.tell(SessionStarted("clear"))
    asked = RecoveryContextGet(cwd=PROJECT)
    briefing = await fleet.do(asked)
    assert "Write the form" in briefing.prompt
    assert briefing.warnings == []
    await later.tell(PromptSubmitted("Something else"))
    briefing = await fleet.do(asked)
    assert "Something else" in briefing.prompt
    how = f"fleetctl context --mission {cleared}"
    assert briefing.warnings == [
        f"the session before this one worked on {cleared} (“Add login”): {how}"
    ]
    with pytest.raises(InvalidState, match="none belongs to this directory") as refused:
        await fleet.do(RecoveryContextGet(cwd="/elsewhere"))
    # What was cleared is no candidate: only its own directory gives it.
    assert cleared not in [each["id"] for each in refused.value.values["candidates"]]


@pytest.mark.parametrize("purpose", ["work", "briefing"])
async def test_the_mission_of_a_session_elsewhere_is_a_candidate_for_a_person_and_for_no_session(
    fleet: Fleet, purpose: SelectionPurpose
) -> None:
    with pytest.raises(InvalidState, match="No active mission found"):
        await fleet.do(MissionSelect(purpose, cwd="/home/user"))
    await Window(fleet).tell(PromptSubmitted("Add login"))
    at_work = await _only_mission(fleet)
    with pytest.raises(InvalidState, match="1 mission is in progress and none belongs") as refused:
        await fleet.do(MissionSelect(purpose, cwd="/home/user"))
    (candidate,) = refused.value.values["candidates"]
    assert (candidate["id"], candidate["project_dir"]) == (at_work.id, PROJECT)
    with pytest.raises(InvalidState, match="1 mission is in progress and none belongs"):
        await fleet.do(CheckpointCreate(cwd="/home/user"))
    assert (await fleet.do(MissionCurrent(cwd="/home/user"))).mission is None
    for title in ("Port", "Ship"):
        made = await fleet.do(MissionCreate(title, project_dir=f"/srv/{title}"))
        await fleet.do(MissionStart(made.id))
    with pytest.raises(InvalidState, match="3 missions are in progress and none") as refused:
        await fleet.do(MissionSelect(purpose, cwd="/home/user"))
    assert [each["id"] for each in refused.value.values["candidates"]][2] == at_work.id
    with pytest.raises(InvalidState, match="2 missions are in progress and none"):
        await fleet.do(MissionCurrent(cwd="/home/user"))


async def test_a_briefing_whose_reply_was_never_read_is_given_again(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Compacting("auto"))
    due = await window.tell(SessionStarted("compact"))
    await window.briefed(due)
    delivery = f"{window.session_id}-None-{window.told:08}"
    again = await window.tell(
        SessionStarted("compact"), delivery_id=delivery, happened_ms=fleet.clock()
    )
    assert again.known
    assert (await window.tell(PromptSubmitted("Still there?"))).brief


async def test_a_transcript_that_was_written_anew_shows_a_compaction(fleet: Fleet) -> None:
    window = Window(fleet)
    window.mark = TranscriptMark(1_000, "a")
    await window.tell(PromptSubmitted("Go"))
    window.mark = TranscriptMark(2_000, "a")
    assert not (await window.tell(ToolFinished("Read", "c-1", passed=True))).brief
    window.mark = TranscriptMark(900, "a")
    due = await window.tell(ToolFinished("Read", "c-2", passed=True))
    assert due.brief
    await window.briefed(due)
    assert not (await window.tell(ToolFinished("Read", "c-3", passed=True))).brief


async def test_a_transcript_whose_beginning_is_not_known_for_a_while_shows_none(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    for number, (head, brief) in enumerate(
        ((None, False), ("a", False), (None, False), ("a", False), (None, False), ("b", True))
    ):
        window.mark = TranscriptMark(number, head)
        due = await window.tell(ToolFinished("Read", f"c-{number}", passed=True))
        assert due.brief == brief


async def test_what_was_done_since_the_checkpoint_is_not_taken_back_by_a_briefing(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Planned((PlanItem("One", "in_progress"), PlanItem("Two", "pending")), True))
    await window.tell(Compacting("auto", certain=False))
    await window.tell(Planned((PlanItem("One", "completed"), PlanItem("Two", "in_progress")), True))
    due = await window.tell(Compacted(), SessionStarted("compact"))
    prompt = await window.briefed(due)
    [one, two] = await fleet.sorties(await _only_mission(fleet))
    assert (one.status, two.status) == ("completed", "in_progress")
    assert "Two (in progress" in prompt


async def test_a_compaction_that_only_may_happen_is_kept_when_something_changed(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    for _ in range(3):
        fleet.clock.pass_by(3 * SECOND)
        await window.tell(Compacting("auto", certain=False))
    mission = await _only_mission(fleet)
    assert (await fleet.do(CheckpointList(mission_id=mission.id))).total == 1
    await window.tell(Planned((PlanItem("One", "in_progress"),), True))
    fleet.clock.pass_by(3 * SECOND)
    await window.tell(Compacting("auto", certain=False))
    assert (await fleet.do(CheckpointList(mission_id=mission.id))).total == 2


async def test_a_subagent_is_an_agent_of_its_own(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    helper = Window(fleet, subagent="acb594f61d1631b05")
    await helper.tell(SubagentStarted("general-purpose"))
    await helper.tell(Compacting("auto"))
    assert not (await window.tell(PromptSubmitted("And?"))).brief
    assert (await helper.tell(SessionStarted("compact"))).brief
    agent = await fleet.do(AgentGet("claude-12f459b8.acb594f6"))
    assert (agent.role, agent.mission_id) == ("specialist", (await _only_mission(fleet)).id)
    await helper.tell(SubagentEnded("PONG"))
    assert (await fleet.do(AgentGet(agent.id))).status == "gone"
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "active"


async def test_a_pause_makes_the_session_wait_and_its_subagents_with_it(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await Window(fleet, subagent="acb594f6").tell(SubagentStarted())
    await window.tell(Paused("All done."))
    agents = (await fleet.do(AgentList())).agents
    assert {agent.status for agent in agents} == {"waiting"}
    fleet.clock.pass_by(20 * MINUTE)
    assert (await fleet.do(RecoveryDetect())).candidates == []


async def test_ids_are_taken_from_the_environment_the_session_and_never_twice(
    fleet: Fleet,
) -> None:
    named = Window(fleet, "aaaaaaaa-1")
    named.env = {"wanted_agent_id": "specialist-1"}
    nested = Window(fleet, "bbbbbbbb-1")
    nested.env = {"wanted_agent_id": "specialist-1"}
    odd = Window(fleet, "cccccccc-1")
    odd.env = {"wanted_agent_id": "no such/name"}
    same_start = Window(fleet, "cccccccc-2")
    for window in (named, nested, odd, same_start):
        await window.tell(PromptSubmitted(f"Go {window.session_id}"))
    ids = [agent.id for agent in (await fleet.do(AgentList())).agents]
    assert ids == ["claude-cccccccc", "claude-cccccccc.2", "specialist-1", "specialist-1.2"]
    await named.tell(SessionEnded("exit"))
    later = Window(fleet, "dddddddd-1")
    later.env = {"wanted_agent_id": "specialist-1"}
    recorded = await later.tell(PromptSubmitted("Back"))
    assert recorded.agent_id == "specialist-1"


async def test_a_session_joins_what_a_person_created_and_no_other_sessions_mission(
    fleet: Fleet,
) -> None:
    first, second = Window(fleet, "aaaaaaaa-1"), Window(fleet, "bbbbbbbb-1")
    await first.tell(PromptSubmitted("One"))
    await second.tell(PromptSubmitted("Two"))
    assert (await fleet.do(MissionList())).total == 2
    mission = await fleet.do(MissionCreate("By hand", project_dir="/home/user"))
    third = Window(fleet, "cccccccc-1")
    await third.tell(SessionStarted("startup"))
    assert (await fleet.do(MissionGet(mission.id))).status == "pending"
    recorded = await third.tell(PromptSubmitted("Three"))
    assert recorded.mission_id == mission.id
    agent = await fleet.do(AgentGet("claude-cccccccc"))
    assert agent.role == "specialist"
    assert (await fleet.do(MissionGet(mission.id))).status == "in_progress"


async def test_a_mission_made_for_a_session_stays_that_when_the_database_is_lost(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as fleet:
        window = Window(fleet)
        await window.tell(PromptSubmitted("Add login"))
        await window.tell(Compacting("auto"))
    fleet.lose_database()
    async with opened(tmp_path) as fleet:
        assert (await _only_mission(fleet)).title == "Add login"
        other = await Window(fleet, "bbbbbbbb-1").tell(PromptSubmitted("Something else"))
        assert (await fleet.do(MissionGet(other.mission_id))).title == "Something else"


async def test_the_environment_names_the_mission_to_join(fleet: Fleet) -> None:
    there = await fleet.do(MissionCreate("Elsewhere", project_dir="/srv/other"))
    window = Window(fleet)
    window.env = {"wanted_mission_id": there.id}
    assert (await window.tell(PromptSubmitted("Go"))).mission_id == there.id
    lost = Window(fleet, "bbbbbbbb-1")
    lost.env = {"wanted_mission_id": "msn-00000000"}
    assert (await lost.tell(PromptSubmitted("Go"))).mission_id not in (None, there.id)


async def test_a_mission_closes_with_its_session_and_opens_when_it_is_resumed(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Planned((PlanItem("One", "in_progress"),), True))
    await window.tell(SessionEnded("exit"))
    mission = await _only_mission(fleet)
    assert mission.status == "cancelled"
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "gone"
    resumed = await window.tell(SessionStarted("resume"))
    assert (await _only_mission(fleet)).status == "in_progress"
    assert not resumed.brief
    agent = await fleet.do(AgentGet("claude-12f459b8"))
    assert (agent.status, agent.mission_id) == ("waiting", mission.id)


async def test_a_name_that_is_used_again_takes_no_earlier_sessions_mission_along(
    fleet: Fleet,
) -> None:
    alice: dict[str, str | None] = {"wanted_agent_id": "alice"}
    first, second = Window(fleet, "aaaaaaaa-1"), Window(fleet, "bbbbbbbb-1")
    first.env = second.env = alice
    await first.tell(PromptSubmitted("Write the shop"))
    await first.tell(SessionEnded("exit"))
    await second.tell(SessionStarted("startup"))
    await second.tell(PromptSubmitted("Write the till"))
    missions = (await fleet.do(MissionList())).missions
    assert {(each.title, each.status) for each in missions} == {
        ("Write the shop", "completed"),
        ("Write the till", "in_progress"),
    }
    shop = await fleet.do(MissionCreate("Theirs", project_dir="/srv/other"))
    third = Window(fleet, "cccccccc-1", cwd="/srv/other")
    third.env = alice
    await second.tell(SessionEnded("exit"))
    await third.tell(PromptSubmitted("Look at the other one"))
    assert (await fleet.do(AgentGet("alice"))).mission_id == shop.id


async def test_a_name_that_is_used_again_after_a_crash_goes_on_where_it_was(fleet: Fleet) -> None:
    first, second = Window(fleet, "aaaaaaaa-1"), Window(fleet, "bbbbbbbb-1")
    elsewhere = Window(fleet, "cccccccc-1", cwd="/srv/other")
    first.env = second.env = elsewhere.env = {"wanted_agent_id": "alice"}
    first.process, second.process = (4_711, "then"), (4_712, "then")
    begun = await first.tell(PromptSubmitted("Write the shop"))
    await process_ended(fleet.engine, WatchProcess("alice", 4_711, "then"))
    assert (await second.tell(PromptSubmitted("Go on"))).mission_id == begun.mission_id
    await process_ended(fleet.engine, WatchProcess("alice", 4_712, "then"))
    assert (await elsewhere.tell(PromptSubmitted("Go"))).mission_id != begun.mission_id


async def test_a_subagent_never_gets_a_mission_of_its_own(fleet: Fleet) -> None:
    window, within = Window(fleet), Window(fleet, subagent="a1b2c3")
    await within.tell(SubagentStarted("Explore"))
    await within.tell(ToolStarted("Bash", "call-1", command="ls"))
    begun = await _only_mission(fleet)
    await fleet.do(MissionCancel(begun.id, "enough"))
    await within.tell(ToolFinished("Bash", "call-1", command="ls", passed=True))
    again = await window.tell(PromptSubmitted("Go"))
    assert len((await fleet.do(MissionList())).missions) == 2
    assert (await fleet.do(AgentGet("claude-12f459b8.a1b2c3"))).mission_id == again.mission_id
    await window.tell(SessionEnded("exit"))
    statuses = {each.id: each.status for each in (await fleet.do(MissionList())).missions}
    assert statuses == {begun.id: "cancelled", again.mission_id: "completed"}


async def _is_silent(fleet: Fleet) -> bool:
    fleet.clock.pass_by(6 * MINUTE)
    await scan(fleet.engine)
    return "context_compacted" in await _types(fleet)


async def test_a_resumed_session_whose_user_has_not_said_anything_yet_is_not_silent(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(SessionEnded("exit"))
    fleet.clock.pass_by(MINUTE)
    window.process = (4_711, "then")
    await window.tell(SessionStarted("resume"))
    assert (await _only_mission(fleet)).status == "in_progress"
    assert not await _is_silent(fleet)
    await window.tell(PromptSubmitted("Go on"))
    assert await _is_silent(fleet)


async def test_a_session_that_only_opens_makes_nobody_silent_who_waits(fleet: Fleet) -> None:
    await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    one, other = Window(fleet, "aaaaaaaa-1"), Window(fleet, "bbbbbbbb-1")
    one.process, other.process = (4_711, "then"), (4_712, "then")
    await one.tell(PromptSubmitted("Go"))
    await one.tell(Paused("Done."))
    await other.tell(SessionStarted("startup"))
    assert (await fleet.do(AgentGet("claude-bbbbbbbb"))).mission_id is not None
    assert not await _is_silent(fleet)


async def test_the_silence_after_a_loss_is_noticed_though_a_session_opens_beside_it(
    fleet: Fleet,
) -> None:
    await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    one, other = Window(fleet), Window(fleet, "bbbbbbbb-1")
    one.process, other.process = (4_711, "then"), (4_712, "then")
    await one.tell(PromptSubmitted("Go"))
    await _end_process(fleet)
    fleet.clock.pass_by(MINUTE)
    await other.tell(SessionStarted("startup"))
    assert await _is_silent(fleet)


async def _end_process(fleet: Fleet) -> None:
    await process_ended(fleet.engine, WatchProcess("claude-12f459b8", 4_711, "then"))


async def test_closing_the_terminal_of_a_session_that_waits_ends_it_in_good_order(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    window.process = (4_711, "then")
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Paused("Done."))
    await _end_process(fleet)
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "gone"
    assert (await _only_mission(fleet)).status == "completed"


async def test_a_terminal_that_was_closed_is_no_activity_of_its_mission(fleet: Fleet) -> None:
    mission = await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    window = Window(fleet)
    window.process = (4_711, "then")
    await window.tell(PromptSubmitted("Go"))
    await fleet.do(LockAcquire("claude-12f459b8", "src/a.py", cwd=PROJECT))
    await window.tell(Paused("Done."))
    before = (await fleet.do(MissionGet(mission.id))).last_activity_at
    fleet.clock.pass_by(MINUTE)
    await _end_process(fleet)
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "gone"
    assert (await fleet.do(LockList())).locks == []
    assert (await fleet.do(MissionGet(mission.id))).last_activity_at == before


async def test_an_agent_that_nobody_can_watch_is_not_lost_while_its_tool_runs(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    fleet.clock.pass_by(6 * MINUTE)  # the daemon has been listening for that long
    await window.tell(ToolStarted("Bash", "call-1", command="make"))
    assert not await _is_silent(fleet)
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "active"
    await window.tell(ToolFinished("Bash", "call-1", command="make", passed=True))
    assert await _is_silent(fleet)
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "lost"


async def test_a_process_that_ends_in_the_middle_of_a_turn_is_a_loss(fleet: Fleet) -> None:
    window = Window(fleet)
    window.process = (4_711, "then")
    await window.tell(PromptSubmitted("Go"))
    await _end_process(fleet)
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "lost"
    assert (await _only_mission(fleet)).status == "in_progress"


async def test_a_resumed_session_that_had_been_lost_is_briefed(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    fleet.clock.pass_by(6 * MINUTE)
    await scan(fleet.engine)
    due = await window.tell(SessionStarted("resume"))
    assert due.brief


async def test_a_new_session_is_told_of_the_mission_that_waits_nearby(fleet: Fleet) -> None:
    window = Window(fleet, "aaaaaaaa-1")
    await window.tell(PromptSubmitted("Add login"))
    fleet.clock.pass_by(6 * MINUTE)
    await scan(fleet.engine)
    told = await Window(fleet, "bbbbbbbb-1").tell(SessionStarted("startup"))
    mission = await _only_mission(fleet)
    assert len(told.lines) == 1
    assert f"Mission {mission.id} (claude-aaaaaaaa: “Add login”)" in told.lines[0]
    elsewhere = Window(fleet, "cccccccc-1", cwd="/srv/other")
    assert (await elsewhere.tell(SessionStarted("startup"))).lines == []


async def test_a_compaction_that_makes_a_new_session_is_briefed_in_its_mission(
    fleet: Fleet,
) -> None:
    before = Window(fleet, "aaaaaaaa-1", harness="droid")
    begun = await before.tell(PromptSubmitted("Go"))
    await before.tell(Compacting())
    after = Window(fleet, "bbbbbbbb-1", harness="droid", previous_session_id=before.session_id)
    due = await after.tell(SessionStarted("compact"))
    assert (due.brief, due.agent_id, due.mission_id) == (True, begun.agent_id, begun.mission_id)
    assert "Go" in await after.briefed(due)
    await before.tell(SessionEnded("compacted"))
    assert not (await after.tell(PromptSubmitted("Go on"))).brief
    assert (await _only_mission(fleet)).status == "in_progress"


async def test_the_same_event_by_two_ways_counts_once(fleet: Fleet) -> None:
    window = Window(fleet)
    assert not (await window.tell(PromptSubmitted("Go"))).known
    assert (await window.tell(PromptSubmitted("Go"))).known
    fleet.clock.pass_by(3 * SECOND)
    assert not (await window.tell(PromptSubmitted("Go"))).known
    assert (await _types(fleet)).count("prompt_submitted") == 2


async def test_two_turns_that_end_alike_within_a_moment_are_two(fleet: Fleet) -> None:
    window = Window(fleet)
    for prompt in ("Go", "Go on"):
        await window.tell(PromptSubmitted(prompt))
        assert not (await window.tell(Paused("DONE"))).known
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "waiting"


async def test_two_compactions_within_a_moment_are_briefed_both(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    for number in range(2):
        await window.tell(Compacting("auto"))
        due = await window.tell(SessionStarted("compact"))
        assert due.brief
        await window.briefed(due)
        await window.tell(ToolStarted("Bash", f"call-{number}", command="ls"))


async def test_what_waited_in_the_spool_is_compared_by_its_own_time(fleet: Fleet) -> None:
    window = Window(fleet)
    for minutes in (3, 2, 1):
        at = fleet.clock() - minutes * MINUTE
        assert not (await window.tell(PromptSubmitted("Go"), happened_ms=at)).known
    assert (await _types(fleet)).count("prompt_submitted") == 3


async def test_what_waited_in_the_spool_tells_when_it_happened(fleet: Fleet) -> None:
    window = Window(fleet)
    last_night = fleet.clock() - 9 * HOUR
    await window.tell(PromptSubmitted("Go"), happened_ms=last_night)
    done = ToolFinished("Bash", "c-1", command="make", passed=True)
    await window.tell(done, happened_ms=last_night + MINUTE)
    [prompt] = await fleet.events(kind="prompt_submitted")
    assert (prompt.timestamp, prompt.data["happened_at"]) == (fleet.clock.now, iso(last_night))
    await window.tell(Compacting("auto"))
    briefing = await window.briefed(await window.tell(SessionStarted("compact")))
    assert "\n- Your user, 9 hours ago:\n  > Go\n" in briefing
    assert "\n- make passed 8 hours ago\n" in briefing


async def test_what_the_environment_names_and_is_not_there_is_said_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    window = Window(fleet)
    window.env = {"wanted_agent_id": "no such/name", "wanted_mission_id": "msn-00000000"}
    await window.tell(SessionStarted("startup"))
    await window.tell(PromptSubmitted("Go"))
    assert [
        record.getMessage() for record in caplog.records if "FLEET_" in record.getMessage()
    ] == [
        "FLEET_AGENT_ID of session 12f459b8-ddba is 'no such/name', not a valid agent id",
        "FLEET_MISSION_ID of session 12f459b8-ddba is 'msn-00000000', which is unknown",
    ]


async def test_a_failed_turn_is_an_error_and_a_pause(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(Failed("overloaded"))
    mission = await _only_mission(fleet)
    [checkpoint] = (await fleet.do(CheckpointList(mission_id=mission.id))).checkpoints
    assert (checkpoint.trigger, checkpoint.trigger_details) == ("error", "TurnFailed: overloaded")
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "waiting"


async def test_a_notification_is_no_activity(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    before = (await _only_mission(fleet)).last_activity_at
    fleet.clock.pass_by(MINUTE)
    await window.tell(Noted("permission_denied", "Bash: no"))
    assert (await _only_mission(fleet)).last_activity_at == before
    assert (await _types(fleet))[-1] == "hook_noted"


async def test_an_agent_that_goes_elsewhere_is_there_and_stays_in_its_mission(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(DirectoryChanged(), cwd="/home/user/other")
    assert (await fleet.do(AgentList())).agents == []
    await window.tell(PromptSubmitted("Go"), Paused("Done."))
    before = await _types(fleet)
    await window.tell(DirectoryChanged(), cwd="/home/user/other")
    agent = await fleet.do(AgentGet("claude-12f459b8"))
    mission = await _only_mission(fleet)
    assert (agent.cwd, agent.mission_id) == ("/home/user/other", mission.id)
    assert (agent.status, mission.project_dir) == ("waiting", PROJECT)
    assert await _types(fleet) == before
    await window.tell(SessionEnded("exit"))
    await window.tell(DirectoryChanged(), cwd=PROJECT)
    agent = await fleet.do(AgentGet("claude-12f459b8"))
    assert (agent.cwd, agent.status) == ("/home/user/other", "gone")


async def _needs(fleet: Fleet, agent_id: str = "claude-12f459b8") -> tuple[str, str | None]:
    agent = await fleet.do(AgentGet(agent_id))
    assert (agent.needs is None) == (agent.needs_since is None)
    return agent.status, agent.needs


@pytest.mark.parametrize("reminder", [False, True])
async def test_a_permission_prompt_is_no_work_and_lets_the_agent_wait_with_the_reason(
    fleet: Fleet, *, reminder: bool
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"), ToolStarted("Bash", "call-1", command="make"))
    before = await _only_mission(fleet)
    fleet.clock.pass_by(MINUTE)
    since = iso(fleet.clock())
    asked = PermissionRequested("Bash: make", reminder=reminder)
    await window.tell(asked)
    fleet.clock.pass_by(10 * SECOND)
    await window.tell(PermissionRequested("Claude needs your permission", reminder=True))
    mission = await _only_mission(fleet)
    assert (mission.last_activity_at, mission.id) == (before.last_activity_at, before.id)
    assert await _needs(fleet) == ("waiting", "permission")
    agent = await fleet.do(AgentGet("claude-12f459b8"))
    assert agent.needs_since == since
    assert (await fleet.do(SystemStatus())).missions[0].needs_permission == 1
    # Who waits for a person has lost nothing.
    fleet.clock.pass_by(2 * HOUR)
    await scan(fleet.engine)
    assert "context_compacted" not in await _types(fleet)
    await window.tell(ToolFinished("Bash", "call-1", command="make", passed=True))
    assert await _needs(fleet) == ("active", None)
    assert (await fleet.do(SystemStatus())).missions[0].needs_permission == 0


@pytest.mark.parametrize(
    ("then", "status"),
    [
        (Paused(), ("waiting", "finished")),
        (PromptSubmitted("Do something else"), ("active", None)),
        (Failed("overloaded"), ("waiting", "failed")),
        (SessionEnded("exit"), ("gone", None)),
        (
            ToolFinished("Bash", "call-1", command="make", passed=False, error="no"),
            ("active", None),
        ),
    ],
)
async def test_the_next_activity_of_the_agent_ends_that_it_needs_a_permission(
    fleet: Fleet, then: AnyHappening, status: tuple[str, str | None]
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"), ToolStarted("Bash", "call-1", command="make"))
    await window.tell(PermissionRequested("Bash: make"))
    fleet.clock.pass_by(MINUTE)
    await window.tell(then)
    assert await _needs(fleet) == status


async def test_a_lost_agent_and_one_that_came_back_need_no_permission(fleet: Fleet) -> None:
    window = Window(fleet)
    window.process = (4_711, "then")
    await window.tell(PromptSubmitted("Go"), PermissionRequested("Bash: make"))
    await _end_process(fleet)
    assert await _needs(fleet) == ("lost", "lost")
    await window.tell(PermissionRequested("Bash: make"))
    assert await _needs(fleet) == ("waiting", "permission")
    await fleet.do(AgentRegister("claude-12f459b8", "dispatch"))
    assert await _needs(fleet) == ("active", None)


async def test_a_reminder_of_a_subagents_permission_prompt_is_not_the_sessions_own(
    fleet: Fleet,
) -> None:
    window, helper = Window(fleet), Window(fleet, subagent="acb594f61d1631b05")
    await window.tell(PromptSubmitted("Go"), ToolStarted("Task", "call-1"))
    started = await helper.tell(SubagentStarted(), ToolStarted("Bash", "call-2", command="make"))
    assert started.agent_id is not None
    await helper.tell(PermissionRequested("Bash: make"))
    await window.tell(PermissionRequested("Claude needs your permission", reminder=True))
    assert await _needs(fleet, started.agent_id) == ("waiting", "permission")
    assert await _needs(fleet) == ("active", None)
    # An interrupt ends the turn of both.
    await window.tell(WorkRuns((), whole=("subagent",)), Paused())
    assert await _needs(fleet, started.agent_id) == ("waiting", None)
    assert await _needs(fleet) == ("waiting", "finished")
    # One that comes too late is of no turn any more.
    await window.tell(PermissionRequested("Claude still needs your permission", reminder=True))
    assert await _needs(fleet) == ("waiting", "finished")


async def test_a_permission_prompt_after_the_end_brings_no_session_back(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(SessionEnded("exit"))
    ended = await _types(fleet)
    await window.tell(PermissionRequested("Claude needs your permission", reminder=True))
    assert await _types(fleet) == ended
    assert await _needs(fleet) == ("gone", None)


async def test_the_end_of_a_session_that_nobody_saw_begin_leaves_nothing(fleet: Fleet) -> None:
    await Window(fleet).tell(SessionEnded("other"))
    assert await _types(fleet) == []
    assert (await fleet.do(AgentList())).agents == []


async def test_a_session_ends_once_however_often_that_is_told(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(SessionEnded("exit"))
    await fleet.settle()
    ended = await _types(fleet)
    for moment in ("1", "2"):
        window.report["moment"] = moment
        await window.tell(SessionEnded("exit"))
    assert await _types(fleet) == ended
    window.report["moment"] = "3"
    await window.tell(SessionStarted("resume"))
    await window.tell(SessionEnded("exit"))
    assert (await _types(fleet)).count("agent_deregistered") == 2


async def test_what_is_said_in_passing_after_the_end_brings_no_session_back(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Go"))
    await window.tell(SessionEnded("exit"))
    await fleet.settle()
    before = await _types(fleet)
    await window.tell(Noted("auth_success", "x"))
    assert await _types(fleet) == before
    assert (await fleet.do(AgentGet("claude-12f459b8"))).status == "gone"


async def test_secrets_in_reports_are_left_behind(fleet: Fleet) -> None:
    window = Window(fleet)
    token = "ghp_" + "a1B2" * 9
    await window.tell(PromptSubmitted(f"Use {token} to push"))
    await window.tell(ToolFinished("Bash", command=f"curl -H 'X: {token}' x", passed=True))
    events = (await fleet.do(EventList(limit=1_000))).events
    assert token not in repr(events)
    assert "[redacted:" in (await _only_mission(fleet)).title
