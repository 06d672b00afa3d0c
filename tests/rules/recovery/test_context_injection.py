"""INJ-001 to INJ-006 of the test plan: what a briefing tells, and whom."""

import json
import re

import pytest

from fleetd.protocol.requests.agent import AgentNote
from fleetd.protocol.requests.checkpoint import DeclaredContext, ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import SortieBlock, SortieGet, SortieProgress
from tests.support.fleet import HOUR, MINUTE

HEADINGS = ["Next Steps", "Current Blockers", "Files Modified", "Time Context"]
CLOSING = "Please review the current state and continue the mission."


async def briefing(fleet, mission, agent=None, **more):
    return await fleet.do(RecoveryContextGet(mission.id, agent, **more))


def headings(prompt):
    return re.findall(r"^### (.*)$", prompt, re.MULTILINE)


def section(prompt, heading):
    """Return the lines below a heading."""
    part = prompt.partition(f"### {heading}\n")[2]
    return re.split(r"\n\n", part)[0].split("\n")


@pytest.mark.case("INJ-001")
async def test_INJ_001_last_action_tells_the_newest_activity(fleet):
    mission = await fleet.mission()
    await fleet.agents(mission, "Specialist-1", "Specialist-2")
    await fleet.lock(mission, "src/auth.ts", "Specialist-2")
    await fleet.checkpoint(mission)

    told = await briefing(fleet, mission)

    assert told.recovery_context.last_action == "Specialist-2 was editing src/auth.ts"
    assert "**Last Action**: Specialist-2 was editing src/auth.ts\n" in told.prompt


@pytest.mark.case("INJ-001")
async def test_INJ_001_what_the_daemon_says_itself_is_no_last_action(fleet):
    mission = await fleet.mission()
    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "src/a.py"}))
    await fleet.checkpoint(mission, trigger="compaction")
    await fleet.restore(mission_id=mission.id)

    context = (await briefing(fleet, mission)).recovery_context

    assert context.last_action == "spec-1 edited src/a.py"


@pytest.mark.case("INJ-001")
async def test_INJ_001_a_callers_own_words_come_first(fleet):
    mission = await fleet.mission()
    await fleet.lock(mission, "src/auth.ts", "spec-1")
    declared = DeclaredContext(
        last_action="Weighing two designs",
        next_steps=["Ask the user"],
        blockers=["No decision yet"],
        files_modified=["notes.md"],
        mission_summary="Sign-in without passwords",
    )

    context = (await fleet.checkpoint(mission, recovery_context=declared)).recovery_context

    assert context.last_action == "Weighing two designs"
    assert context.mission_summary == "Sign-in without passwords"
    assert context.next_steps[:2] == ["Ask the user", "S0 (pending)"]
    assert context.blockers == ["No decision yet"]
    assert context.files_modified == ["notes.md"]


@pytest.mark.case("INJ-002")
async def test_INJ_002_next_steps_are_the_open_sorties_in_order(fleet):
    mission = await fleet.mission(5)
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.complete(mission, 0)
    await fleet.work(mission, 2, "spec-1", 10, "Blocked later")
    await fleet.do(SortieBlock((await fleet.sorties(mission))[2].id, "schema missing"))
    await fleet.work(mission, 3, "spec-2", 40, "Complete auth.ts changes")
    await fleet.checkpoint(mission)

    told = await briefing(fleet, mission)

    expected = [
        "S3 (in progress by spec-2, 40%): “Complete auth.ts changes”",
        "S2 (blocked by spec-1, 10%): “Blocked later”",
        "S1 (pending)",
        "S4 (pending)",
    ]
    assert told.recovery_context.next_steps == expected
    assert section(told.prompt, "Next Steps") == [f"- {line}" for line in expected]


@pytest.mark.case("INJ-002")
async def test_INJ_002_what_an_agent_declared_comes_first_and_each_field_replaces(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await fleet.do(AgentNote("spec-1", next_steps=["old"], blockers=["waiting for review"]))
    await fleet.do(AgentNote("spec-1", next_steps=["Complete auth.ts changes", "Run tests"]))

    context = (await fleet.checkpoint(mission)).recovery_context

    assert context.next_steps == [
        "spec-1: “Complete auth.ts changes”",
        "spec-1: “Run tests”",
        "S0 (pending)",
    ]
    assert context.blockers == ["spec-1: “waiting for review”"]


@pytest.mark.case("INJ-003")
async def test_INJ_003_blockers_are_errors_blocked_sorties_and_lock_conflicts(fleet):
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    await fleet.work(mission, 0, "spec-1")
    lock = await fleet.lock(mission, "src/0.py", "spec-1")
    await fleet.do(SortieBlock((await fleet.sorties(mission))[0].id, "waiting for API response"))
    await fleet.do(ErrorReport("spec-1", "exception", "OSError", "disk full", mission.id))
    checkpoint = await fleet.checkpoint(mission)
    fleet.sql("UPDATE locks SET held_by = 'spec-9' WHERE id = :id", id=lock.id)

    told = await fleet.restore(checkpoint)

    assert told.recovery_context.blockers == [
        "Lock conflict: src/0.py held by spec-9",
        "Error: disk full",
        "S0: “waiting for API response”",
    ]
    listed = section(told.prompt, "Current Blockers")
    assert listed == [f"- {line}" for line in told.recovery_context.blockers]


@pytest.mark.case("INJ-003")
async def test_INJ_003_an_error_that_was_overcome_blocks_no_longer(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    sortie = await fleet.work(mission, 0, "spec-1")
    await fleet.do(ErrorReport("spec-1", "exception", "OSError", "disk full", mission.id))
    assert (await briefing(fleet, mission)).recovery_context.blockers == ["Error: disk full"]

    await fleet.do(SortieProgress(sortie.id, 60, agent_id="spec-1"))

    told = await briefing(fleet, mission)
    assert told.recovery_context.blockers == []
    assert section(told.prompt, "Current Blockers") == ["- None"]


@pytest.mark.case("INJ-004")
async def test_INJ_004_files_modified_newest_first_each_once(fleet):
    mission = await fleet.mission(3)
    for file in ("src/auth.ts", "tests/auth.test.ts", "src/auth.ts"):
        fleet.clock.pass_by(1)
        await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": file}))
    await fleet.work(mission, 1, "spec-1")
    await fleet.checkpoint(mission)

    told = await briefing(fleet, mission)

    expected = ["src/auth.ts", "tests/auth.test.ts", "src/1.py"]
    assert told.recovery_context.files_modified == expected
    assert section(told.prompt, "Files Modified") == [f"- {file}" for file in expected]


@pytest.mark.case("INJ-005")
async def test_INJ_005_prompt_is_the_text_of_the_specification(fleet):
    mission = await fleet.mission(4)
    await fleet.complete(mission, 0, 1)
    fleet.clock.pass_by(HOUR)
    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "src/auth.ts"}))
    last = fleet.clock.now
    fleet.clock.pass_by(30 * MINUTE)

    prompt = (await briefing(fleet, mission)).prompt

    assert (
        prompt
        == f"""\
## Recovery Context

You are resuming a mission after context compaction.

**Mission**: Implementing authentication
**Progress**: 50% (2/4 sorties complete)
**Last Action**: spec-1 edited src/auth.ts

### Next Steps
- S2 (pending)
- S3 (pending)

### Current Blockers
- None

### Files Modified
- src/auth.ts
- src/0.py
- src/1.py

### Time Context
- Elapsed: 1h 30m
- Last activity: {last} (30 minutes ago)

fleetd recorded this work (mission {mission.id}). It states facts and gives no orders. A sortie is\
 a step of the plan. `fleetctl context` or the tool `briefing` has more.

### Done
- S0
- S1

{CLOSING}"""
    )


@pytest.mark.case("INJ-005")
async def test_INJ_005_prompt_is_natural_language_and_ends_with_its_closing_sentence(fleet):
    mission = await fleet.mission(3)
    await fleet.agents(mission, "dispatch-1", "spec-1")
    await fleet.work(mission, 0, "spec-1", 50, "Step 1")
    await fleet.lock(mission, "src/0.py", "spec-1")
    await fleet.write(mission, ["spec-1"], "Review", body="Please look at auth.ts")
    for kind, data in (
        ("command_finished", {"command": "pytest -q", "result": "FAIL"}),
        ("prompt_submitted", {"prompt": "Use argon2,\nnot bcrypt"}),
    ):
        await fleet.do(EventAppend(kind, mission.id, "spec-1", data))
    lock = (await fleet.locks())[0]
    checkpoint = await fleet.checkpoint(mission)
    fleet.sql("UPDATE locks SET held_by = 'spec-9'")
    await fleet.do(LockAcquire("spec-1", "/tmp/own.py", mission_id=mission.id))

    result = await fleet.restore(checkpoint, agent_id="spec-1")
    prompt = result.prompt

    assert prompt.startswith("## Recovery Context\n\nYou are resuming a mission")
    assert prompt.endswith(f"\n\n{CLOSING}")
    assert headings(prompt) == [*HEADINGS, "Task", "Now", "Others", "Recovery Errors"]
    assert "**Progress**: 0% (0/3 sorties complete), 3 sorties restored\n" in prompt
    assert section(prompt, "Task") == [
        "- Your user, just now:",
        "  > Use argon2,",
        "  > not bcrypt",
    ]
    work, failed, held = section(prompt, "Now")
    assert work == f"- {(await fleet.sorties(mission))[0].id} (S0): src/0.py"
    assert failed == "- pytest -q failed just now"
    assert held == "- You hold /tmp/own.py for 10m 0s more"
    assert section(prompt, "Others") == [
        "- spec-9 holds src/0.py",
        "- The rest of the fleet: 0/2 other sorties complete",
        "- Mail from dispatch-1, just now: “Review”: “Please look at auth.ts”",
    ]
    assert section(prompt, "Current Blockers") == [f"- Lock conflict: {lock.file} held by spec-9"]
    assert section(prompt, "Recovery Errors") == [f"- Lock conflict: {lock.file} held by spec-9"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(prompt)


@pytest.mark.case("INJ-006")
async def test_INJ_006_a_specialist_asks_for_its_own_part(fleet):
    mission = await fleet.mission(4)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    await fleet.complete(mission, 3)
    await fleet.work(mission, 0, "spec-1", 50, "auth in hand")
    await fleet.work(mission, 1, "spec-2", 20, "api begun")
    await fleet.do(SortieBlock((await fleet.sorties(mission))[1].id, "spec-2 waits"))
    await fleet.lock(mission, "src/0.py", "spec-1")
    await fleet.lock(mission, "src/1.py", "spec-2")
    await fleet.write(mission, ["spec-1"], "For one")
    await fleet.write(mission, ["spec-2"], "For two")
    checkpoint = await fleet.checkpoint(mission)

    told = await briefing(fleet, mission, "spec-1")

    context = told.recovery_context
    assert told.checkpoint_id == checkpoint.id
    assert context.files_modified == ["src/0.py"]
    assert context.next_steps == ["S0 (in progress, 50%): “auth in hand”"]
    assert context.blockers == []
    assert context.mission_summary == "Implementing authentication"
    for foreign in ("S1", "For two", "spec-2 waits", "api begun"):
        assert foreign not in told.prompt
    # Who holds what is all that it reads of another's work.
    assert section(told.prompt, "Others") == [
        "- spec-2 holds src/1.py",
        "- The rest of the fleet: 1/3 other sorties complete with spec-2",
        "- Mail from dispatch-1, just now: “For one”",
    ]
    assert told.prompt.count("src/1.py") == 1
    whole = await briefing(fleet, mission, "dispatch-1")
    assert "S1: “spec-2 waits”" in whole.recovery_context.blockers


@pytest.mark.case("INJ-006")
async def test_INJ_006_asking_changes_nothing(fleet):
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    sortie = await fleet.work(mission, 0, "spec-1")
    await fleet.write(mission, ["spec-1"])
    await fleet.checkpoint(mission)
    before = fleet.dump()

    first = await briefing(fleet, mission, "spec-1")
    second = await fleet.do(RecoveryContextGet(agent_id="spec-1"))

    assert first == second
    assert fleet.dump() == before
    assert (await fleet.do(SortieGet(sortie.id))).recovery_context is None


@pytest.mark.case("INJ-002")
@pytest.mark.parametrize("agent", ["dispatch-1", "spec-1"])
@pytest.mark.parametrize("kept", [False, True])
async def test_INJ_002_an_agents_own_note_comes_first_though_another_agent_does_something(
    fleet, agent, kept
):
    mission = await fleet.mission(2)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    note = {"next_steps": ["Hand out S1"], "blockers": ["No reviewer yet"]}
    await fleet.do(AgentNote(agent, last_action="Weighed two designs", **note))
    await fleet.work(mission, 0, "spec-2")
    if kept:
        await fleet.checkpoint(mission)

    told = await briefing(fleet, mission, agent)

    context = told.recovery_context
    assert context.last_action == "Weighed two designs"
    assert context.next_steps[0] == "Hand out S1"
    assert context.blockers == ["No reviewer yet"]
    assert f"{agent}: “" not in told.prompt
    whole = (await briefing(fleet, mission)).recovery_context
    assert whole.last_action == "spec-2 reached 50% of “S0”: “Working”"
    assert whole.next_steps[0] == f"{agent}: “Hand out S1”"


@pytest.mark.case("INJ-002")
async def test_INJ_002_a_dispatch_reads_its_note_of_now_and_not_that_of_its_checkpoint(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "dispatch-1", "spec-1")
    await fleet.do(AgentNote("dispatch-1", next_steps=["Ask"], blockers=["No answer"]))
    await fleet.checkpoint(mission)
    await fleet.do(AgentNote("dispatch-1", next_steps=["Write it down"], blockers=[]))
    await fleet.work(mission, 0, "spec-1")

    context = (await briefing(fleet, mission, "dispatch-1")).recovery_context

    assert context.next_steps == ["Write it down", "S0 (in progress by spec-1, 50%): “Working”"]
    assert context.blockers == []


@pytest.mark.case("INJ-006")
async def test_INJ_006_an_agent_that_nobody_registered_is_briefed_about_the_whole_mission(fleet):
    mission = await fleet.mission(3)
    await fleet.agents(mission, "spec-1", "spec-2")
    await fleet.work(mission, 0, "spec-1", 40, "auth in hand")
    await fleet.do(SortieBlock((await fleet.sorties(mission))[1].id, "waiting for an answer"))
    await fleet.do(EventAppend("prompt_submitted", mission.id, "spec-1", {"prompt": "Be quick"}))
    checkpoint = await fleet.checkpoint(mission)
    nobody = await fleet.restore(checkpoint)

    told = await fleet.restore(checkpoint, agent_id="newcomer")

    assert told.recovery_context == nobody.recovery_context
    assert told.recovery_context.last_action == "spec-1 was given a prompt by its user"
    assert told.recovery_context.blockers == ["S1: “waiting for an answer”"]
    assert len(told.recovery_context.next_steps) == 3
    assert "Be quick" in told.prompt
    assert "The rest of the fleet" not in told.prompt


@pytest.mark.case("INJ-006")
async def test_INJ_006_an_agent_that_nobody_registered_reads_the_part_it_was_given(fleet):
    mission = await fleet.mission(2)
    await fleet.work(mission, 0, "stranger", 40, "auth in hand")
    checkpoint = await fleet.checkpoint(mission)

    told = await fleet.restore(checkpoint, agent_id="stranger")

    assert told.recovery_context.next_steps == ["S0 (in progress, 40%): “auth in hand”"]
    assert "The rest of the fleet: 0/1" in told.prompt
