"""A lost agent's work handed over to a session that has hooks: it moves, with its own plan."""

import json
from typing import Any

import pytest

from fleetd.domain.core.tx import WatchProcess
from fleetd.engine.jobs.liveness import process_ended
from fleetd.harness.report import (
    Compacted,
    Compacting,
    Paused,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
)
from fleetd.protocol.endings import standing
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.records import Mission, RestoreResult
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageInbox, MessageSend
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionGet,
    MissionList,
    MissionSelect,
    MissionStart,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryList, RecoveryRestore
from fleetd.protocol.requests.sortie import SortieList
from fleetd.protocol.requests.system import SystemStatus
from tests.support.fleet import MINUTE, SECOND, Fleet
from tests.support.hook_sessions import PROJECT, Window, planned

LOST, HEIR = "claude-aaaaaaaa", "codex-bbbbbbbb"


async def claude(fleet: Fleet, *plan: str, **window: Any) -> tuple[Window, str]:
    """Let a session of Claude Code work by a plan; return it and its mission."""
    session = Window(fleet, "aaaaaaaa-1", **window)
    session.process = (4_711, "then")
    recorded = await session.tell(PromptSubmitted("Add a login"))
    await session.tell(planned(*(plan or ("x Look", "> Form", "Route"))))
    assert recorded.mission_id is not None
    return session, recorded.mission_id


async def codex(fleet: Fleet, *plan: str, **window: Any) -> tuple[Window, str]:
    """Let a session of Codex work on something of its own; return it and its mission."""
    session = Window(fleet, "bbbbbbbb-1", **({"harness": "codex"} | window))
    session.process = (4_712, "then")
    recorded = await session.tell(PromptSubmitted("Mend the parser"))
    if plan:
        await session.tell(planned(*plan))
    assert recorded.mission_id is not None
    return session, recorded.mission_id


async def dies(fleet: Fleet) -> None:
    await process_ended(fleet.engine, WatchProcess(LOST, 4_711, "then"))


async def hand_over(fleet: Fleet, mission_id: str, **more: Any) -> RestoreResult:
    """Do what ``resume --mission M --take-over-from … --agent …`` does, a while later."""
    fleet.clock.pass_by(30 * SECOND)
    wish = {"agent_id": HEIR, "take_over_from": LOST, "scope": "agent"}
    result = await fleet.do(RecoveryRestore(mission_id=mission_id, **(wish | more)))
    fleet.clock.pass_by(MINUTE)
    return result


async def undo(fleet: Fleet, result: RestoreResult) -> RestoreResult:
    done = await fleet.do(RecoveryRestore(result.undo_checkpoint_id, rewind=True))
    fleet.clock.pass_by(MINUTE)
    return done


async def sorties(fleet: Fleet, mission_id: str) -> list[str]:
    """Return the sorties of a mission, in order, with status and agent."""
    found = (await fleet.do(SortieList(mission_id))).sorties
    return [f"{each.title} {each.status} {each.assigned_to}" for each in found]


async def ids(fleet: Fleet, mission_id: str) -> dict[str, str]:
    return {each.title: each.id for each in (await fleet.do(SortieList(mission_id))).sorties}


async def mission(fleet: Fleet, mission_id: str) -> Mission:
    return await fleet.do(MissionGet(mission_id))


def closed_reason(fleet: Fleet, mission_id: str) -> str | None:
    (row,) = fleet.sql("SELECT closed_reason FROM missions WHERE id = :id", id=mission_id)
    return row["closed_reason"]


async def test_hand_over_moves_a_session_with_hooks_and_its_plan_into_the_mission(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "x Read", "> Write", "Test")
    before = await ids(fleet, own)
    await fleet.do(LockAcquire(HEIR, f"{PROJECT}/parser.py", mission_id=own))
    await dies(fleet)

    result = await hand_over(fleet, theirs)

    assert (await fleet.do(AgentGet(HEIR))).mission_id == theirs
    assert await sorties(fleet, theirs) == [
        f"Look completed {LOST}",
        f"Form in_progress {HEIR}",
        f"Route assigned {HEIR}",
        f"Write in_progress {HEIR}",
        f"Test assigned {HEIR}",
    ]
    after = await ids(fleet, theirs)
    assert (after["Write"], after["Test"]) == (before["Write"], before["Test"])
    # What was finished stays where it was done.
    assert await sorties(fleet, own) == [f"Read completed {HEIR}"]
    ended = await mission(fleet, own)
    assert (ended.status, closed_reason(fleet, own)) == ("cancelled", "merged")
    page = await fleet.do(MissionList(closed_reason="merged"))
    assert ([each.id for each in page.missions], page.total) == ([own], 1)
    assert (await fleet.do(MissionList(closed_reason="session"))).total == 0
    assert (ended.total_sorties, ended.completed_sorties) == (1, 1)
    assert (await mission(fleet, theirs)).total_sorties == 5
    moved = await fleet.events(await mission(fleet, theirs), "sortie_moved")
    assert [event.data["title"] for event in moved] == ["Write", "Test"]
    assert {event.data["from_mission"] for event in moved} == {own}
    (lock,) = [each for each in await fleet.locks() if each.held_by == HEIR]
    assert lock.mission_id == theirs
    assert not result.kept
    told = {(each.what, each.id): each.after for each in result.changed}
    assert told["mission", own] == f"merged into {theirs}"
    assert told["sortie", before["Write"]] == f"in {theirs}"
    assert told["agent", HEIR] == f"in {theirs}"
    assert "Write" in result.prompt


async def test_hand_over_is_told_once_by_the_next_hook_and_ends_as_resumed(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, _ = await codex(fleet, "> Write")
    await dies(fleet)
    await hand_over(fleet, theirs)
    assert (await fleet.do(RecoveryList(theirs))).recoveries[0].state == "briefed"

    first = await session.tell(PromptSubmitted("How far are you?"))
    then = await session.tell(ToolStarted("Bash", "call-1", command="make test"))

    assert first.mission_id == theirs
    (line,) = first.lines
    assert f"{HEIR} took over the work of {LOST}" in line
    assert f"mission {theirs} ({LOST}: “Add a login”)" in line
    assert "“Form”, “Route”, “Write”" in line
    assert then.lines == []
    (recovery,) = (await fleet.do(RecoveryList(theirs))).recoveries
    assert (recovery.agent_id, recovery.state) == (HEIR, "resumed")
    assert (await fleet.do(SystemStatus())).recoveries == []


async def test_hand_over_is_not_told_to_a_hook_that_nobody_reads(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, _ = await codex(fleet)
    await dies(fleet)
    await hand_over(fleet, theirs)
    silent = Window(fleet, "bbbbbbbb-1", harness="codex", injects=False)
    silent.process, silent.told = session.process, 50

    assert (await silent.tell(ToolStarted("Bash", "c-1", command="ls"))).lines == []
    assert len((await session.tell(PromptSubmitted("Go on"))).lines) == 1


async def test_hand_over_is_in_every_later_briefing(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "x Read", "> Write")
    edited = ToolFinished("Edit", "call-9", edited=(f"{PROJECT}/parser.py",), passed=True)
    await session.tell(edited)
    await session.tell(ToolFinished("Bash", "call-8", command="make parser", passed=False))
    await dies(fleet)
    await hand_over(fleet, theirs)

    for minutes in (2, 3):
        fleet.clock.pass_by(MINUTE)
        await session.tell(Compacting("auto"))
        recorded = await session.tell(Compacted(), SessionStarted("compact"))
        assert (recorded.brief, recorded.mission_id) == (True, theirs)
        briefing = await session.briefed(recorded)
        assert f"(agent {HEIR}, mission {theirs})" in briefing
        assert f"\n### Others\n- You took over from {LOST}\n" in briefing
        for title in ("Form", "Route", "Write"):
            assert title in briefing
        # What it did and was told before it came goes on to count, beside what the lost one was.
        for told in ("\n- parser.py\n", "\n- make parser failed "):
            assert told in briefing
        for to, text in (("", "Mend the parser"), (f", to {LOST}", "Add a login")):
            assert f"\n- Your user, {minutes} minutes ago{to}:\n  > {text}\n" in briefing
        assert own not in briefing
        await session.tell(ToolStarted("Bash", "call-1", command="make test"))
    context = (await fleet.do(RecoveryContextGet(agent_id=HEIR))).recovery_context
    steps = [step.split(" (")[0] for step in context.next_steps]
    assert steps[-3:] == [f"{LOST}: “Form”", "Write", f"{LOST}: “Route”"]


async def test_hand_over_lets_the_plan_go_on_in_the_mission(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "x Read", "> Write", "Test")
    before = await ids(fleet, own)
    await dies(fleet)
    await hand_over(fleet, theirs)
    start = (await fleet.do(MissionGet(theirs))).total_sorties

    await session.tell(planned("x Read", "x Write", "> Test"))

    assert await sorties(fleet, own) == [f"Read completed {HEIR}"]
    assert await sorties(fleet, theirs) == [
        f"Look completed {LOST}",
        f"Form in_progress {HEIR}",
        f"Route assigned {HEIR}",
        f"Write completed {HEIR}",
        f"Test in_progress {HEIR}",
    ]
    assert (await mission(fleet, theirs)).total_sorties == start
    # A step that is to do again is done here, a new one is added here, and what goes goes from here
    await session.tell(planned("> Read", "x Write", "Form", "Tell"))
    assert await sorties(fleet, own) == [f"Read completed {HEIR}"]
    now = await ids(fleet, theirs)
    assert now["Read"] != before["Read"]
    told = await sorties(fleet, theirs)
    assert {f"Read in_progress {HEIR}", f"Tell assigned {HEIR}"} < set(told)
    assert f"Test failed {HEIR}" in told
    assert sum(each.startswith("Form ") for each in told) == 1


async def test_hand_over_of_a_session_whose_plan_is_finished_ends_its_mission_as_completed(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "x Read", "x Write")
    await dies(fleet)
    await hand_over(fleet, theirs)

    assert ((await mission(fleet, own)).status, closed_reason(fleet, own)) == (
        "completed",
        "merged",
    )
    for _ in range(2):
        fleet.clock.pass_by(MINUTE)
        await session.tell(planned("x Read", "x Write"))
    assert (await mission(fleet, theirs)).total_sorties == 3
    assert (await mission(fleet, own)).status == "completed"


async def test_hand_over_passes_no_milestone_twice_though_sorties_come_along(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet, "x Look", "x Think", "> Form", "Route")
    session, _ = await codex(fleet, *(f"Step {n}" for n in range(4)))
    await dies(fleet)
    passed = await fleet.checkpoint_ids(await mission(fleet, theirs), "progress")

    await hand_over(fleet, theirs)
    await session.tell(planned("x Step 0", *(f"Step {n}" for n in range(1, 4))))
    await session.tell(planned("x Step 0", "x Step 1", *(f"Step {n}" for n in range(2, 4))))

    # 2 of 4, 2 of 8, 4 of 8: half of it was passed before.
    assert (await mission(fleet, theirs)).progress_percent == 50
    assert await fleet.checkpoint_ids(await mission(fleet, theirs), "progress") == passed


async def test_hand_over_takes_an_undo_checkpoint_also_right_after_the_loss(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    await codex(fleet)
    await dies(fleet)  # takes a checkpoint that equals what is there

    result = await hand_over(fleet, theirs)

    assert result.undo_checkpoint_id is not None
    assert result.undo_checkpoint_id != result.checkpoint_id
    # Nothing is left to take over: there is nothing to undo.
    again = await hand_over(fleet, theirs)
    assert again.undo_checkpoint_id is None
    assert again.changed == []
    # The next recovery gives nothing back to the one who is lost.
    await fleet.restore(mission_id=theirs)
    assert f"Form in_progress {HEIR}" in await sorties(fleet, theirs)


@pytest.mark.parametrize("heard", [False, True])
async def test_hand_over_can_be_undone(fleet: Fleet, heard: bool) -> None:
    _, theirs = await claude(fleet)
    await fleet.do(LockAcquire(LOST, f"{PROJECT}/form.py", mission_id=theirs))
    await fleet.do(MessageSend("boss", [LOST], "Hurry", mission_id=theirs))
    session, own = await codex(fleet, "x Read", "> Write", "Test")
    await fleet.do(LockAcquire(HEIR, f"{PROJECT}/parser.py", mission_id=own))
    before = {name: await sorties(fleet, name) for name in (theirs, own)}
    await dies(fleet)
    result = await hand_over(fleet, theirs)
    assert {lock.held_by for lock in await fleet.locks()} == {HEIR}
    if heard:
        assert len((await session.tell(PromptSubmitted("Go on"))).lines) == 2  # and the mail
        await session.tell(planned("x Read", "> Write", "Test", "Tell"))
        before[own] = [*before[own], f"Tell assigned {HEIR}"]

    undone = await undo(fleet, result)

    assert {name: sorted(await sorties(fleet, name)) for name in before} == {
        name: sorted(told) for name, told in before.items()
    }
    assert undone.errors == []
    reopened = {each.id: each.after for each in undone.changed if each.what == "mission"}
    assert reopened == {own: "in_progress"}
    assert (await fleet.do(AgentGet(HEIR))).mission_id == own
    assert (await fleet.do(AgentGet(HEIR))).role == "dispatch"
    told = (await fleet.do(RecoveryContextGet(theirs))).prompt
    assert "Mend the parser" not in told
    assert (await mission(fleet, own)).status == "in_progress"
    assert closed_reason(fleet, own) is None
    held = {lock.file: (lock.held_by, lock.mission_id) for lock in await fleet.locks()}
    assert held == {f"{PROJECT}/form.py": (LOST, theirs), f"{PROJECT}/parser.py": (HEIR, own)}
    assert [m.subject for m in (await fleet.do(MessageInbox(LOST))).messages] == ["Hurry"]
    assert (await fleet.do(MessageInbox(HEIR))).messages == []
    then = await session.tell(planned("x Read", "x Write", "> Test"))
    assert then.mission_id == own
    assert [f"took over the work of {LOST} was undone" in each for each in then.lines] == (
        [True] if heard else []
    )
    # Somebody else may take the work over now.
    await fleet.do(AgentRegister("third", "specialist"))
    await fleet.restore(mission_id=theirs, agent_id="third", take_over_from=LOST)
    assert "Form in_progress third" in await sorties(fleet, theirs)


@pytest.mark.parametrize("compacted", [False, True])
async def test_hand_over_that_is_undone_leaves_no_recovery_waiting_for_the_successor(
    fleet: Fleet, compacted: bool
) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "> Write")
    await dies(fleet)
    result = await hand_over(fleet, theirs)
    if compacted:
        await session.tell(Compacting("auto"))
        await session.briefed(await session.tell(Compacted(), SessionStarted("compact")))
    waits = [each for each in (await fleet.do(SystemStatus())).recoveries if each.agent_id == HEIR]
    assert {each.state for each in waits} == {"briefed"}

    await undo(fleet, result)

    shown = (await fleet.do(SystemStatus())).recoveries
    assert [each.id for each in shown if each.agent_id == HEIR] == []
    told = await fleet.events(await mission(fleet, theirs), "recovery_confirmed")
    assert {each.id for each in waits} <= {event.data["recovery_id"] for event in told}
    assert (await session.tell(PromptSubmitted("Go on"))).mission_id == own


async def test_hand_over_leaves_no_recovery_waiting_where_the_successor_was(fleet: Fleet) -> None:
    _, theirs = await claude(fleet, cwd="/srv/other")
    shop = await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    await fleet.do(MissionStart(shop.id))
    session, own = await codex(fleet, "> Write")
    assert own == shop.id
    await session.tell(Compacting("auto"))
    await session.briefed(await session.tell(Compacted(), SessionStarted("compact")))
    await dies(fleet)

    await hand_over(fleet, theirs)

    shown = (await fleet.do(SystemStatus())).recoveries
    assert [(each.mission_id, each.agent_id) for each in shown] == [(theirs, HEIR)]


async def test_hand_over_makes_the_successor_what_the_lost_agent_was(fleet: Fleet) -> None:
    shop = await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    await fleet.do(MissionStart(shop.id))
    _, theirs = await claude(fleet)
    assert theirs == shop.id
    _, own = await codex(fleet, "> Write", cwd="/srv/other")
    assert own != theirs
    roles = [(await fleet.do(AgentGet(each))).role for each in (LOST, HEIR)]
    assert roles == ["specialist", "dispatch"]
    await dies(fleet)

    result = await hand_over(fleet, theirs)

    assert (await fleet.do(AgentGet(HEIR))).role == "specialist"
    await undo(fleet, result)
    assert (await fleet.do(AgentGet(HEIR))).role == "dispatch"


async def test_hand_over_that_is_undone_leaves_the_successor_no_lock_that_it_came_by(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet)
    await fleet.do(LockAcquire(HEIR, f"{PROJECT}/parser.py", mission_id=own))
    await fleet.do(LockAcquire(LOST, f"{PROJECT}/form.py", mission_id=theirs))
    await dies(fleet)
    fleet.clock.pass_by(2 * MINUTE)  # the grace for the locks of the dead is over
    result = await hand_over(fleet, theirs)
    await fleet.do(LockAcquire(HEIR, f"{PROJECT}/late.py"))
    assert {lock.held_by for lock in await fleet.locks()} == {HEIR}

    undone = await undo(fleet, result)

    held = {lock.file: lock.mission_id for lock in await fleet.locks()}
    assert held == {f"{PROJECT}/parser.py": own, f"{PROJECT}/late.py": own}
    assert undone.released_locks == ["form.py"]
    assert (await session.tell(PromptSubmitted("Go on"))).mission_id == own


@pytest.mark.parametrize("registered", [False, True])
async def test_hand_over_is_undone_as_a_whole_after_the_lost_agent_came_back(
    fleet: Fleet, registered: bool
) -> None:
    lost, theirs = await claude(fleet)
    await fleet.do(LockAcquire(LOST, f"{PROJECT}/form.py", mission_id=theirs))
    await fleet.do(MessageSend("boss", [LOST], "Hurry", mission_id=theirs))
    session, own = await codex(fleet, "x Read", "> Write", "Test")
    before = {name: await sorties(fleet, name) for name in (theirs, own)}
    await dies(fleet)
    result = await hand_over(fleet, theirs)
    await session.tell(PromptSubmitted("Go on"))
    if registered:
        await fleet.do(AgentRegister(LOST, "dispatch"))
    else:
        lost.process = (4_713, "later")
        recorded = await lost.tell(SessionStarted("resume"), PromptSubmitted("Where are we?"))
        assert any(f"was taken over by {HEIR}" in line for line in recorded.lines)

    undone = await undo(fleet, result)

    assert undone.errors == []
    assert {name: sorted(await sorties(fleet, name)) for name in before} == {
        name: sorted(told) for name, told in before.items()
    }
    assert (await fleet.do(AgentGet(HEIR))).mission_id == own
    assert ((await mission(fleet, own)).status, closed_reason(fleet, own)) == ("in_progress", None)
    assert {lock.file: lock.held_by for lock in await fleet.locks()} == {f"{PROJECT}/form.py": LOST}
    assert [m.subject for m in (await fleet.do(MessageInbox(LOST))).messages] == ["Hurry"]
    assert (await fleet.do(MessageInbox(HEIR))).messages == []
    told = (await session.tell(planned("x Read", "x Write", "> Test"))).lines
    assert [f"took over the work of {LOST} was undone" in line for line in told] == [True]
    heard = (await lost.tell(PromptSubmitted("And now?"))).lines
    (line,) = [line for line in heard if "took over" in line or "taken over" in line]
    assert f"That {HEIR} took over the work of {LOST} was undone" in line
    assert f"are {LOST}'s again" in line
    # Twice is the same as once, also for whoever went there since by himself.
    await fleet.do(AgentRegister(HEIR, "dispatch", mission_id=theirs))
    await undo(fleet, result)
    assert (await fleet.do(AgentGet(HEIR))).mission_id == theirs


async def test_hand_over_that_was_taken_up_by_another_since_is_not_undone_for_it(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet)
    await dies(fleet)
    result = await hand_over(fleet, theirs)
    await session.tell(PromptSubmitted("Go on"))
    await process_ended(fleet.engine, WatchProcess(HEIR, 4_712, "then"))
    await hand_over(fleet, theirs, agent_id="third", take_over_from=HEIR)

    await undo(fleet, result)

    assert f"Form in_progress {LOST}" in await sorties(fleet, theirs)
    assert (await mission(fleet, own)).status == "in_progress"
    with pytest.raises(InvalidState, match="already taken over by third"):
        await hand_over(fleet, theirs, agent_id="fourth", take_over_from=HEIR)


async def test_hand_over_in_a_dry_run_moves_nobody(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "> Write")
    await dies(fleet)
    await fleet.settle()
    before = fleet.dump()

    shown = await hand_over(fleet, theirs, dry_run=True)

    assert fleet.dump() == before
    real = await hand_over(fleet, theirs)
    assert shown.would_restore == real.changed
    assert any(each.what == "mission" and each.id == own for each in real.changed)


async def test_hand_over_to_a_session_that_begins_later_is_told_to_it(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    await dies(fleet)
    await hand_over(fleet, theirs, agent_id="heir")
    session = Window(fleet, "bbbbbbbb-1", harness="codex")
    session.env = {"wanted_agent_id": "heir"}

    first = await session.tell(SessionStarted("startup"))
    then = await session.tell(PromptSubmitted("Go on"))

    assert (await fleet.do(AgentGet("heir"))).mission_id == theirs
    assert (await fleet.do(AgentGet("heir"))).role == "dispatch"
    told = [line for line in (*first.lines, *then.lines) if "took over the work" in line]
    assert len(told) == 1
    assert (await fleet.do(RecoveryList(theirs))).recoveries[0].state == "resumed"


async def test_hand_over_leaves_a_mission_open_in_which_others_live(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "> Write")
    await fleet.do(AgentRegister("helper", "specialist", mission_id=own))
    await dies(fleet)

    await hand_over(fleet, theirs)

    assert (await mission(fleet, own)).status == "in_progress"
    assert await sorties(fleet, own) == []
    assert f"Write in_progress {HEIR}" in await sorties(fleet, theirs)


async def test_hand_over_takes_subagents_along(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet)
    within = Window(fleet, "bbbbbbbb-1", harness="codex", subagent="a1b2c3")
    within.process = session.process
    await within.tell(SubagentStarted("Explore"))
    await within.tell(ToolStarted("Bash", "call-1", command="ls"))
    await dies(fleet)

    await hand_over(fleet, theirs)
    recorded = await within.tell(ToolFinished("Bash", "call-1", command="ls", passed=True))

    assert recorded.mission_id == theirs
    assert closed_reason(fleet, own) == "merged"


async def test_hand_over_takes_only_the_sessions_plan_out_of_a_persons_mission(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet, cwd="/srv/other")
    shop = await fleet.do(MissionCreate("Shop", project_dir=PROJECT))
    await fleet.do(MissionStart(shop.id))
    _, own = await codex(fleet, "x Read", "> Write")
    assert own == shop.id
    sortie = (await fleet.do(SortieList(own))).sorties[0]
    fleet.sql("DELETE FROM plan_items WHERE sortie_id = :id", id=sortie.id)
    fleet.sql("UPDATE sorties SET status = 'assigned' WHERE id = :id", id=sortie.id)
    await dies(fleet)

    result = await hand_over(fleet, theirs)

    assert (await mission(fleet, own)).status == "in_progress"
    assert closed_reason(fleet, own) is None
    assert await sorties(fleet, own) == [f"Read assigned {HEIR}"]
    assert f"Write in_progress {HEIR}" in await sorties(fleet, theirs)
    assert (await fleet.do(AgentGet(HEIR))).mission_id == theirs
    await undo(fleet, result)
    assert (await fleet.do(AgentGet(HEIR))).mission_id == own
    assert sorted(await sorties(fleet, own)) == [
        f"Read assigned {HEIR}",
        f"Write in_progress {HEIR}",
    ]


async def test_hand_over_lasts_when_the_session_ends_and_is_resumed(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "> Write")
    await dies(fleet)
    await hand_over(fleet, theirs)
    await session.tell(PromptSubmitted("Go on"))
    await session.tell(Paused("Done for today."))
    await session.tell(SessionEnded("exit"))
    assert (await mission(fleet, theirs)).status == "cancelled"
    fleet.clock.pass_by(MINUTE)

    await session.tell(SessionStarted("resume"))

    assert (await mission(fleet, theirs)).status == "in_progress"
    assert (await mission(fleet, own)).status == "cancelled"
    assert (await fleet.do(AgentGet(HEIR))).mission_id == theirs


async def test_hand_over_is_the_same_when_only_its_files_are_left(fleet: Fleet) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "x Read", "> Write")
    await dies(fleet)
    await hand_over(fleet, theirs)
    await fleet.settle()

    newest = {}
    for name in (theirs, own):
        content = json.loads((fleet.checkpoints / name / "latest.json").read_text("utf-8"))
        newest[name] = content["mission"]["status"], [s["title"] for s in content["sorties"]]

    assert newest == {
        theirs: ("in_progress", ["Look", "Form", "Route", "Write"]),
        own: ("cancelled", ["Read"]),
    }


async def test_hand_over_across_directories_is_meant_in_the_directory_of_the_successor(
    fleet: Fleet,
) -> None:
    elsewhere = "/srv/other"
    _, theirs = await claude(fleet)
    session, own = await codex(fleet, "> Write", cwd=elsewhere)
    fleet.sql("UPDATE missions SET project_dir = :cwd WHERE id = :id", cwd=elsewhere, id=own)
    shop = await fleet.do(MissionCreate("Shop", project_dir="/srv/shop"))
    await fleet.do(MissionStart(shop.id))
    await dies(fleet)
    result = await hand_over(fleet, theirs)
    await session.tell(PromptSubmitted("Go on"))

    told = (await fleet.do(RecoveryContextGet(cwd=elsewhere))).prompt
    assert "Form" in told
    assert "Write" in told
    found = await fleet.do(MissionSelect("work", elsewhere))
    assert (found.mission.id, found.reason) == (theirs, "directory")
    await undo(fleet, result)
    assert (await fleet.do(MissionSelect("work", elsewhere))).mission.id == own


async def test_hand_over_leaves_no_merged_mission_to_be_told_of_where_the_session_works(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "> Write")
    fleet.sql("UPDATE missions SET project_dir = '/srv/other' WHERE id = :id", id=own)
    await dies(fleet)
    await hand_over(fleet, theirs)
    assert closed_reason(fleet, own) == "merged"

    with pytest.raises(InvalidState, match="none belongs to this directory") as refused:
        await fleet.do(RecoveryContextGet(cwd="/srv/other"))
    assert own not in [each["id"] for each in refused.value.values["candidates"]]


@pytest.mark.parametrize(
    ("plan", "status", "told"),
    [
        (("x Read", "> Write"), "cancelled", "merged into {}"),
        (("x Read",), "completed", "completed; merged into {}"),
    ],
)
async def test_hand_over_names_the_mission_that_the_sessions_was_merged_into(
    fleet: Fleet, plan: tuple[str, ...], status: str, told: str
) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, *plan)
    await dies(fleet)
    result = await hand_over(fleet, theirs)

    ended = await mission(fleet, own)
    assert (ended.status, ended.merged_into) == (status, theirs)
    assert standing(ended.status, ended.closed_reason, 2, 0, ended.merged_into) == told.format(
        theirs
    )
    listed = (await fleet.do(MissionList())).missions
    assert {each.id: each.merged_into for each in listed} == {own: theirs, theirs: None}
    (event,) = await fleet.events(ended, f"mission_{status}")
    assert (event.data["closed_reason"], event.data["merged_into"]) == ("merged", theirs)
    await undo(fleet, result)
    assert (await mission(fleet, own)).merged_into is None


async def test_hand_over_names_no_mission_that_another_agent_of_the_merged_one_went_to(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "x Read", "> Write")
    await fleet.do(AgentRegister("helper", "specialist", mission_id=own))
    fleet.sql("UPDATE agents SET status = 'lost' WHERE id = 'helper'")
    await dies(fleet)
    await hand_over(fleet, theirs)
    third = await fleet.do(MissionCreate("Third"))
    await fleet.do(MissionStart(third.id))
    await fleet.checkpoint(third)
    await fleet.do(AgentRegister("gone", "specialist", mission_id=third.id))
    await hand_over(fleet, third.id, agent_id="helper", take_over_from="gone")

    assert (await mission(fleet, own)).merged_into == theirs


async def test_hand_over_is_named_to_whoever_ends_the_merged_mission_once_more(
    fleet: Fleet,
) -> None:
    _, theirs = await claude(fleet)
    _, own = await codex(fleet, "> Write")
    await dies(fleet)
    await hand_over(fleet, theirs)

    with pytest.raises(InvalidState, match="already merged into another mission") as error:
        await fleet.do(MissionCancel(own, "enough"))

    # To rewind it would open a mission that has nothing in it any more.
    assert f"fleetctl mission timeline {own} shows" in error.value.hint
