"""``report.get``: what a mission or an agent was asked, did, decided and left open."""

from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.context import BatchSizes
from fleetd.domain.report import story
from fleetd.harness.report import Paused, PromptSubmitted, SessionStarted, ToolFinished, ToolStarted
from fleetd.protocol.errors import InvalidParams, NotFound
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.note import NoteAdd
from fleetd.protocol.requests.report import Report, ReportGet
from fleetd.protocol.requests.sortie import SortieBlock
from tests.support.fleet import MINUTE, SECOND, Fleet, opened
from tests.support.hook_sessions import PROJECT, WorkingWindow, planned


async def report(fleet: Fleet, **of: Any) -> Report:
    return await fleet.do(ReportGet(**of))


@pytest.fixture
async def agent(fleet: Fleet) -> WorkingWindow:
    session = WorkingWindow(fleet)
    await session.tell(SessionStarted("startup"), PromptSubmitted("Add a login"))
    return session


async def failing(session: WorkingWindow, command: str, error: str) -> None:
    name = session.name()
    await session.tell(ToolStarted("Bash", call_id=name, command=command))
    ended = ToolFinished("Bash", call_id=name, command=command, passed=False, error=error)
    await session.tell(ended)


async def test_a_session_is_reported_from_its_prompt_to_what_is_open(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await agent.tell(planned("x Read the code", "> Write the form", "Test it"))
    await agent.edit(f"{PROJECT}/form.py")
    await agent.edit(f"{PROJECT}/form.py")
    await failing(agent, "cd web && pytest -q", "1 failed")
    await agent.run("cd web && pytest -q", 'git commit -m "Add the form"', "ls")
    await agent.compact()
    ended = await agent.tell(Paused("The form is there."))
    mission_id, agent_id = str(ended.mission_id), str(ended.agent_id)
    note = NoteAdd("decision", "Hash with argon2", "bcrypt cuts", mission_id=mission_id)
    await fleet.do(note)
    await fleet.do(ErrorReport(agent_id, "tool_failure", "pytest", "2 failed"))
    found = await report(fleet, mission_id=mission_id)
    assert (found.mission and found.mission.id, found.agent) == (mission_id, None)
    assert [each.text for each in found.asked] == ["Add a login"]
    assert [(each.title, each.status) for each in found.planned] == [
        ("Read the code", "completed"),
        ("Write the form", "in_progress"),
        ("Test it", "assigned"),
    ]
    [file] = found.files
    assert (file.file, file.changes, file.agents) == (f"{PROJECT}/form.py", 2, [agent_id])
    by_name = {each.command: each for each in found.commands}
    tests = by_name["cd web && pytest -q"]
    assert (tests.test, tests.runs, tests.passed, tests.failed) == (True, 2, 1, 1)
    assert (tests.result, tests.error) == ("PASS", None)
    assert not by_name["ls"].test
    assert [(each.command, each.result) for each in found.commits] == [
        ('git commit -m "Add the form"', "PASS")
    ]
    assert [each.text for each in found.decided] == ["Hash with argon2"]
    assert "Write the form" in " ".join(found.left_open.next_steps)
    assert [each.name for each in found.errors] == ["pytest"]
    assert [each.briefing for each in found.compactions] == ["given"]
    assert found.recoveries
    assert found.checkpoints
    [part] = found.agents
    assert (part.agent_id, part.calls, part.failed, part.changes) == (agent_id, 6, 1, 2)
    assert part.last_answer == "The form is there."
    of_agent = await report(fleet, agent_id=agent_id)
    assert of_agent.agent is not None
    assert of_agent.mission is None
    assert [each.id for each in of_agent.missions] == [mission_id]
    assert (of_agent.commands, of_agent.files) == (found.commands, found.files)
    assert [each.title for each in of_agent.planned] == [each.title for each in found.planned]


async def test_time_at_work_leaves_out_long_pauses_and_what_waits_for_the_user(
    fleet: Fleet, agent: WorkingWindow
) -> None:
    await agent.run("make")
    fleet.clock.pass_by(20 * MINUTE)
    name = agent.name()
    await agent.tell(ToolStarted("Bash", call_id=name, command="make all"))
    fleet.clock.pass_by(30 * MINUTE)
    await agent.tell(ToolFinished("Bash", call_id=name, command="make all", passed=True))
    await agent.tell(Paused("Done."))
    fleet.clock.pass_by(2 * MINUTE)
    ended = await agent.tell(PromptSubmitted("Go on"))
    found = await report(fleet, mission_id=ended.mission_id)
    assert found.active_ms == found.agents[0].active_ms == 30 * MINUTE + 2 * SECOND
    assert found.elapsed_ms == 52 * MINUTE + 2 * SECOND


async def test_a_command_that_failed_without_a_name_counts_once(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "specialist-1")
    told: list[tuple[str, dict[str, Any]]] = [
        ("command_finished", {"command": "make", "result": "FAIL", "error": "no rule"}),
        ("tool_failed", {"name": "Bash", "error": "no rule"}),
        ("tool_failed", {"name": "Read", "error": "no file"}),
    ]
    for kind, data in told:
        await fleet.do(EventAppend(kind, mission.id, "specialist-1", data))
    [part] = (await report(fleet, mission_id=mission.id)).agents
    assert (part.calls, part.failed) == (2, 2)


async def test_what_is_no_text_in_an_event_of_anybody_is_passed_over(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "specialist-1")
    odd: dict[str, Any] = {"command": 5, "call_id": [], "file": {}, "prompt": 1, "message": None}
    kinds = ("command_started", "command_finished", "tool_finished", "tool_failed")
    for kind in (*kinds, "prompt_submitted", "file_modified", "agent_answered"):
        data = odd | {"happened_at": "yesterday", "result": "MAYBE"}
        await fleet.do(EventAppend(kind, mission.id, "specialist-1", data))
    found = await report(fleet, mission_id=mission.id)
    assert (found.asked, found.files, found.commands) == ([], [], [])


async def test_one_of_two_subjects_is_given_and_it_is_there(fleet: Fleet) -> None:
    mission = await fleet.mission()
    for wrong in ({}, {"mission_id": mission.id, "agent_id": "alice"}):
        with pytest.raises(InvalidParams):
            await report(fleet, **wrong)
    for unknown in ({"mission_id": "msn-00000000"}, {"agent_id": "nobody"}):
        with pytest.raises(NotFound):
            await report(fleet, **unknown)
    assert (await report(fleet, mission_id=mission.id[:8])).mission == await fleet.again(mission)


async def test_of_long_lists_the_newest_are_kept_and_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "LISTED", 3)
    monkeypatch.setattr("fleetd.domain.report.collect.LISTED", 3)
    async with opened(tmp_path, batches=BatchSizes(rows=2)) as fleet:
        session = WorkingWindow(fleet)
        for number in range(8):
            await session.tell(PromptSubmitted(f"Task {number}"))
            await session.run(f"make {number}")
            await session.edit(f"{PROJECT}/{number}.py")
        ended = await session.tell(Paused("Done."))
        found = await report(fleet, mission_id=ended.mission_id)
    assert [each.text for each in found.asked] == ["Task 5", "Task 6", "Task 7"]
    assert [each.command for each in found.commands] == ["make 7", "make 6", "make 5"]
    assert [each.file.rpartition("/")[2] for each in found.files] == ["7.py", "6.py", "5.py"]
    assert (found.omitted.asked, found.omitted.commands, found.omitted.files) == (5, 5, 5)


async def test_batches_change_nothing(tmp_path: Path) -> None:
    async def told(rows: int) -> Report:
        root = tmp_path / str(rows)
        root.mkdir()
        async with opened(root, batches=BatchSizes(rows=rows)) as fleet:
            session = WorkingWindow(fleet)
            await session.tell(SessionStarted("startup"), PromptSubmitted("Go"))
            for number in range(5):
                await session.run("make test", f"make {number}")
                await session.edit()
                await session.compact()
            ended = await session.tell(Paused("Done."))
            return await report(fleet, mission_id=ended.mission_id)

    one, many = await told(1), await told(1_000)
    for field in ("asked", "files", "commands", "commits", "active_ms", "elapsed_ms", "omitted"):
        assert getattr(one, field) == getattr(many, field)
    assert len(one.compactions) == len(many.compactions) == 5


async def test_a_finished_mission_has_nothing_left_open_and_a_blocked_one_says_why(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, "specialist-1")
    sortie = await fleet.work(mission, 0, "specialist-1")
    await fleet.lock(mission, "src/0.py", "specialist-1")
    await fleet.do(SortieBlock(sortie.id, "No design"))
    found = await report(fleet, mission_id=mission.id)
    assert found.left_open.blockers == ["S0: “No design”"]
    assert [lock.held_by for lock in found.left_open.locks] == ["specialist-1"]
