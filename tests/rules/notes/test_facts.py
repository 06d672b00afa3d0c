"""Facts of sessions become notes by themselves: of hooks and of Git, never of anybody's prose."""

import pytest

from fleetd.harness.report import (
    CommitReverted,
    Paused,
    PlanProposed,
    PromptSubmitted,
    Refused,
    SessionStarted,
    ToolFinished,
)
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.records import Note
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.note import NoteList, NotePin, NoteWithdraw
from fleetd.protocol.requests.recovery import RecoveryContextGet
from tests.support.fleet import MINUTE, Fleet
from tests.support.hook_sessions import Window

AGENT = "claude-12f459b8"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PLAN = "Write the parser\n\n1. Read"


async def session(fleet: Fleet, **report: str) -> Window:
    window = Window(fleet, **report)
    await window.tell(PromptSubmitted("Add a login"))
    return window


async def facts(fleet: Fleet, *, withdrawn: bool = False) -> list[Note]:
    return (await fleet.do(NoteList(withdrawn=withdrawn))).notes


async def texts(fleet: Fleet) -> list[str]:
    return [note.text for note in await facts(fleet)]


async def test_what_was_refused_is_ruled_out(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(Refused("permission", "Bash: make push", "Not on\nFridays"))
    await window.tell(Refused("plan", "login.md"))
    await window.tell(Refused("permission"))
    found = await facts(fleet)
    assert [note.text for note in found] == [
        "Permission denied: “Bash: make push”, with the reason “Not on Fridays”",
        "The user did not approve the plan: “login.md”",
        "Permission denied",
    ]
    assert {(note.kind, note.origin, note.agent_id) for note in found} == {
        ("ruled-out", "fact", AGENT)
    }
    prompt = (await fleet.do(RecoveryContextGet(agent_id=AGENT))).prompt
    assert f"- Recorded in your session: {found[0].text}\n" in prompt
    prompt = (await fleet.do(RecoveryContextGet(found[0].mission_id))).prompt
    assert f"- Recorded in the session of {AGENT}: {found[0].text}\n" in prompt


async def test_the_same_is_noted_once_and_a_withdrawn_one_may_come_again(fleet: Fleet) -> None:
    window = await session(fleet)
    again, retold = (
        Refused("permission", "Bash: x"),
        Refused("permission", "y", maybe_repeated=True),
    )
    for _ in range(3):
        await window.tell(again, retold)
        fleet.clock.pass_by(MINUTE)
    assert len(await facts(fleet)) == 2
    for note in await facts(fleet):
        await fleet.do(NoteWithdraw(note.id, "It may now"))
    await window.tell(again, retold)
    # Of what is told over and over, nobody knows whether it happened again.
    assert await texts(fleet) == ["Permission denied: “Bash: x”"]


async def test_a_transcript_tells_of_refusals_each_time_it_is_read(fleet: Fleet) -> None:
    window = await session(fleet, harness="codex")
    said = (Refused("permission", f"exec command: make push {SECRET}", maybe_repeated=True),)
    for _ in range(2):
        await window.tell(Paused("Done"), earlier=said)
        fleet.clock.pass_by(MINUTE)
    [note] = await facts(fleet)
    assert note.text.startswith("Permission denied: “exec command: make push ")
    assert (note.origin, note.agent_id) == ("fact", "codex-12f459b8")
    assert SECRET not in str(fleet.dump())


async def test_no_agent_withdraws_a_fact(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(Refused("permission", "Bash: x"))
    [note] = await facts(fleet)
    with pytest.raises(InvalidState, match="is a recorded fact"):
        await fleet.do(NoteWithdraw(note.id, "I think not", agent_id=AGENT))


async def test_a_commit_that_is_applied_again_is_ruled_out_no_more(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(CommitReverted("Add retries"))
    assert await texts(fleet) == ["Commit reverted: “Add retries”"]
    await window.tell(CommitReverted("Add retries", again=True))
    assert await facts(fleet) == []
    [note] = await facts(fleet, withdrawn=True)
    assert note.withdrawn_reason == "the commit was applied again"
    fleet.clock.pass_by(MINUTE)
    await window.tell(CommitReverted("Add retries"))
    assert await texts(fleet) == ["Commit reverted: “Add retries”"]


async def test_a_prompt_in_the_place_of_an_approval_leaves_a_plan_unapproved(
    fleet: Fleet,
) -> None:
    window = await session(fleet)
    await window.tell(PlanProposed(PLAN))
    await window.tell(Paused(reminder=True))
    await window.tell(PromptSubmitted("No new dependency"))
    assert await texts(fleet) == ["The user did not approve the plan: “Write the parser”"]
    await window.tell(PromptSubmitted("Go on"))
    assert len(await facts(fleet)) == 1


async def test_a_reminder_that_the_agent_idles_leaves_a_plan_unapproved_too(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(PlanProposed(PLAN))
    assert await texts(fleet) == []
    await window.tell(Paused(reminder=True))
    await window.tell(Paused(reminder=True))
    assert await texts(fleet) == ["The user did not approve the plan: “Write the parser”"]


@pytest.mark.parametrize(
    "between",
    [
        ToolFinished("ExitPlanMode", passed=True),
        ToolFinished("Edit", edited=("/home/user/project/a",), passed=True),
        SessionStarted("resume"),
        SessionStarted("startup"),
    ],
)
async def test_whatever_else_comes_between_leaves_it_open(
    fleet: Fleet, between: ToolFinished | SessionStarted
) -> None:
    window = await session(fleet)
    await window.tell(PlanProposed(PLAN))
    await window.tell(between)
    await window.tell(PromptSubmitted("Go on"))
    assert await facts(fleet) == []


async def test_a_resumed_session_and_its_prompt_in_one_report_leave_it_open(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(PlanProposed(PLAN))
    await window.tell(SessionStarted("resume"), PromptSubmitted("Go on"))
    assert await facts(fleet) == []


async def test_so_many_facts_stand(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetd.domain.notes.facts.FACTS", 3)
    window = await session(fleet)
    await window.tell(*(Refused("permission", f"N{n}") for n in range(3)))
    first = (await facts(fleet))[0]
    await fleet.do(NotePin(first.id))
    await window.tell(Refused("permission", "N3"))
    assert await texts(fleet) == [f"Permission denied: “N{n}”" for n in (0, 2, 3)]


async def test_secrets_are_removed_and_marks_cannot_be_closed(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(Refused("permission", f"Bash: curl -H 'token: {SECRET}'\n### Next ” x"))
    [text] = await texts(fleet)
    assert SECRET not in str(fleet.dump())
    assert "\n" not in text
    assert text.count("”") == 1


async def test_it_is_told_and_no_activity(fleet: Fleet) -> None:
    window = await session(fleet)
    await window.tell(Refused("permission", "Bash: x"))
    told = (await fleet.do(EventList())).events[-1]
    assert (told.type, told.agent_id) == ("note_recorded", AGENT)
    rows = fleet.sql("SELECT activity FROM events WHERE type = 'note_recorded'")
    assert rows == [{"activity": 0}]
