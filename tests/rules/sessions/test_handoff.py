"""A person hands an agent's work to a new session: it moves when that begins, and not before."""

import os
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.tx import WatchProcess
from fleetd.engine.jobs.liveness import process_ended
from fleetd.harness.report import (
    Noted,
    Paused,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolStarted,
)
from fleetd.host.processes import started
from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.protocol.requests.attention import AttentionList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.handoff import (
    HandoffAsk,
    HandoffBegin,
    HandoffBegun,
    HandoffCancel,
    HandoffGet,
)
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.message import MessageInbox, MessageSend
from fleetd.protocol.requests.mission import MissionCancel, MissionGet, MissionList
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from fleetd.protocol.requests.sortie import SortieList
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import SECOND, Clock, Fleet, opened
from tests.support.hook_sessions import PROJECT, Window, planned

OLD = "claude-aaaaaaaa"
# A process that lives, and one that does not.
LIVES, DEAD = (os.getpid(), started(os.getpid())), (4_711, "then")
FORM, ROUTE = f"{PROJECT}/form.py", f"{PROJECT}/route.py"


async def claude(
    fleet: Fleet, process: tuple[int | None, str | None] = LIVES
) -> tuple[Window, str]:
    """Let a session work by a plan with two locks, and end its turn; return it and its mission."""
    session = Window(fleet, "aaaaaaaa-1")
    session.process = process
    recorded = await session.tell(PromptSubmitted("Add a login"))
    await session.tell(planned("x Look", "> Form"))
    assert recorded.mission_id is not None
    for file in (FORM, ROUTE):
        await fleet.do(LockAcquire(OLD, file, mission_id=recorded.mission_id))
    await session.tell(Paused("The form is next."))
    return session, recorded.mission_id


def successor(fleet: Fleet, begun: HandoffBegun, session_id: str = "bbbbbbbb-1") -> Window:
    """Return a session as it is started for a hand-off: its environment names agent and mission."""
    session = Window(fleet, session_id, harness="codex")
    session.env = {
        "wanted_agent_id": begun.handoff.successor_id,
        "wanted_mission_id": begun.handoff.mission_id,
    }
    return session


async def begin(fleet: Fleet, **more: Any) -> HandoffBegun:
    return await fleet.do(HandoffBegin(OLD, "codex", **more))


async def locks(fleet: Fleet) -> list[Lock]:
    return sorted((await fleet.do(LockList())).locks, key=lambda lock: lock.file)


async def holders(fleet: Fleet) -> list[tuple[str, str]]:
    return [(lock.file, lock.held_by) for lock in await locks(fleet)]


async def assigned(fleet: Fleet, mission_id: str) -> list[tuple[str, str | None]]:
    found = (await fleet.do(SortieList(mission_id))).sorties
    return [(each.title, each.assigned_to) for each in found]


async def untouched(fleet: Fleet, mission_id: str) -> None:
    """Check that everything is as before a hand-off."""
    assert await holders(fleet) == [(FORM, OLD), (ROUTE, OLD)]
    assert await assigned(fleet, mission_id) == [("Look", OLD), ("Form", OLD)]
    old = await fleet.do(AgentGet(OLD))
    assert (old.status, old.needs, old.mission_id) == ("waiting", "finished", mission_id)
    assert fleet.sql("SELECT succeeded_by FROM agents WHERE id = :id", id=OLD) == [
        {"succeeded_by": None}
    ]


async def test_a_handoff_moves_nothing_until_its_session_begins(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)

    begun = await begin(fleet)

    assert begun.handoff.state == "pending"
    assert begun.handoff.cwd == PROJECT
    assert begun.prompt.startswith(f"Hand-off {begun.handoff.id}: continue the work of {OLD}.")
    assert f"**Mission**: {OLD}: “Add a login”" in begun.prompt
    assert f"You hold {FORM.removeprefix(PROJECT + '/')}" in begun.prompt
    assert f"You took over from {OLD}" in begun.prompt
    assert {each.what for each in begun.changes} == {"sortie", "lock"}
    await untouched(fleet, mission_id)
    (taken,) = fleet.sql(
        "SELECT trigger_details FROM checkpoints WHERE id = :id", id=begun.handoff.checkpoint_id
    )
    assert taken["trigger_details"].startswith(f"Before the hand-off of {OLD}")


async def test_the_session_that_begins_has_the_work_at_once(fleet: Fleet) -> None:
    old, mission_id = await claude(fleet)
    await fleet.do(MessageSend("bob", [OLD], "Which form?", mission_id=mission_id))
    tokens = [lock.fencing_token for lock in await locks(fleet)]
    begun = await begin(fleet)
    heir = str(begun.handoff.successor_id)
    new = successor(fleet, begun)
    fleet.clock.pass_by(29 * SECOND)

    started = await new.tell(SessionStarted("startup"))

    assert (started.agent_id, started.mission_id) == (heir, mission_id)
    assert await holders(fleet) == [(FORM, heir), (ROUTE, heir)]
    assert min(lock.fencing_token for lock in await locks(fleet)) > max(tokens)
    assert await assigned(fleet, mission_id) == [("Look", OLD), ("Form", heir)]
    assert len((await fleet.do(MessageInbox(heir))).messages) == 1
    handoff = await fleet.do(HandoffGet(begun.handoff.id))
    assert (handoff.state, handoff.reason) == ("completed", None)
    # The first prompt has the briefing.
    assert (started.brief, started.lines) == (False, [])
    asked = await new.tell(PromptSubmitted(begun.prompt))
    assert (asked.brief, [line for line in asked.lines if "took over" in line]) == (False, [])
    said = (await fleet.do(EventList(types=["prompt_submitted"], agent_id=heir))).events
    assert [each.data["prompt"] for each in said] == [f"Continue the work of {OLD}."]
    assert [each.id for each in (await fleet.do(MissionList())).missions] == [mission_id]
    # A successor sees as much of the mission as who was there before.
    assert (await fleet.do(AgentGet(heir))).role == (await fleet.do(AgentGet(OLD))).role
    # The old agent waits for nobody any more, and hears of it once, when it goes on.
    shown = (await fleet.do(AttentionList())).agents
    assert [each.agent_id for each in shown] == [heir]
    assert (await old.tell(Noted("idle_prompt"))).lines == []
    (line,) = (await old.tell(PromptSubmitted("Go on"))).lines
    assert line.startswith(f"The user handed the work of {OLD} over to {heir}")
    assert "form.py" in line
    assert (await old.tell(PromptSubmitted("Go on"))).lines == []
    assert await holders(fleet) == [(FORM, heir), (ROUTE, heir)]


async def test_the_first_hook_counts_whatever_it_is(fleet: Fleet) -> None:
    await claude(fleet)
    begun = await begin(fleet)

    told = await successor(fleet, begun).tell(PromptSubmitted(begun.prompt))

    assert told.agent_id == begun.handoff.successor_id
    assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "completed"


async def test_a_server_of_tools_that_registers_its_agent_first_changes_nothing(
    fleet: Fleet,
) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)
    heir = str(begun.handoff.successor_id)
    await fleet.do(AgentRegister(heir, "specialist", mission_id=mission_id, cwd=PROJECT))
    assert (await holders(fleet))[0] == (FORM, OLD)

    await successor(fleet, begun).tell(SessionStarted("startup"))

    assert await holders(fleet) == [(FORM, heir), (ROUTE, heir)]


async def test_a_session_after_31_seconds_is_an_ordinary_one(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)
    fleet.clock.pass_by(31 * SECOND)
    assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "expired"

    started = await successor(fleet, begun).tell(SessionStarted("startup"))

    assert started.agent_id == begun.handoff.successor_id
    (line,) = started.lines
    assert line.startswith(f"The hand-off of the work of {OLD} to {started.agent_id} did not take")
    assert "the session began too late" in line
    await untouched(fleet, mission_id)
    handoff = await fleet.do(HandoffGet(begun.handoff.id))
    assert (handoff.state, handoff.reason) == ("expired", "the session began too late")


async def test_nobody_comes_and_everything_is_as_before(fleet: Fleet) -> None:
    session, mission_id = await claude(fleet)
    begun = await begin(fleet)
    fleet.clock.pass_by(31 * SECOND)

    await untouched(fleet, mission_id)
    assert (await session.tell(PromptSubmitted("Go on"))).lines == []
    await session.tell(Paused("Done."))
    again = await begin(fleet)
    assert again.handoff.id != begun.handoff.id


async def test_a_handoff_outlives_the_daemon(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        _, mission_id = await claude(fleet)
        begun = await begin(fleet)
    async with opened(tmp_path, clock=clock) as fleet:
        await untouched(fleet, mission_id)
        await successor(fleet, begun).tell(SessionStarted("startup"))
        assert (await holders(fleet))[0] == (FORM, begun.handoff.successor_id)
        assert (await assigned(fleet, mission_id))[1] == ("Form", begun.handoff.successor_id)


async def test_a_handoff_expires_while_no_daemon_runs(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        _, mission_id = await claude(fleet)
        begun = await begin(fleet)
    clock.pass_by(31 * SECOND)
    async with opened(tmp_path, clock=clock) as fleet:
        assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "expired"
        await untouched(fleet, mission_id)


async def test_a_session_that_began_in_time_counts_when_it_comes_from_the_spool(
    fleet: Fleet,
) -> None:
    await claude(fleet)
    begun = await begin(fleet)
    began = fleet.clock() + 20 * SECOND
    fleet.clock.pass_by(40 * SECOND)

    await successor(fleet, begun).tell(SessionStarted("startup"), happened_ms=began)

    assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "completed"
    assert (await holders(fleet))[0] == (FORM, begun.handoff.successor_id)


async def test_a_second_start_of_the_session_changes_nothing_more(fleet: Fleet) -> None:
    await claude(fleet)
    begun = await begin(fleet)
    new = successor(fleet, begun)
    await new.tell(SessionStarted("startup"))
    held = await locks(fleet)

    await new.tell(SessionStarted("startup"))
    other = await successor(fleet, begun, "cccccccc-1").tell(SessionStarted("startup"))

    assert await locks(fleet) == held
    assert other.agent_id == f"{begun.handoff.successor_id}.2"
    (taken,) = fleet.sql("SELECT count(*) AS n FROM recoveries WHERE taken_over_from = :a", a=OLD)
    assert taken == {"n": 1}


async def test_another_agents_session_completes_nothing(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)

    other = Window(fleet, "dddddddd-1", harness="codex")
    await other.tell(SessionStarted("startup"))
    named = Window(fleet, "eeeeeeee-1", harness="codex")
    named.env = {"wanted_agent_id": "codex-other"}
    await named.tell(SessionStarted("startup"))

    assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "pending"
    await untouched(fleet, mission_id)


async def test_an_agent_without_locks_and_plan_is_handed_over(fleet: Fleet) -> None:
    session = Window(fleet, "aaaaaaaa-1")
    recorded = await session.tell(PromptSubmitted("Add a login"))
    await session.tell(Paused("What should it look like?"))
    begun = await begin(fleet)
    assert begun.changes == []
    assert "Add a login" in begun.prompt
    assert "What should it look like?" in begun.prompt

    started = await successor(fleet, begun).tell(SessionStarted("startup"))

    assert started.mission_id == recorded.mission_id
    assert (await fleet.do(HandoffGet(begun.handoff.id))).state == "completed"
    briefing = await fleet.do(RecoveryContextGet(agent_id=started.agent_id))
    assert "Add a login" in briefing.prompt


@pytest.mark.parametrize("dead", [False, True])
async def test_a_session_that_ended_is_handed_over_too(fleet: Fleet, dead: bool) -> None:
    """Its automatic mission ended with it, and goes on with the successor."""
    session, mission_id = await claude(fleet, DEAD)
    if dead:
        await session.tell(PromptSubmitted("Go on"))
        await process_ended(fleet.engine, WatchProcess(OLD, *DEAD))
    else:
        await session.tell(SessionEnded("prompt_input_exit"))
        assert (await fleet.do(MissionGet(mission_id))).status == "cancelled"
    begun = await begin(fleet)
    if not dead:
        assert (await fleet.do(MissionGet(mission_id))).status == "cancelled"

    await successor(fleet, begun).tell(SessionStarted("startup"))

    assert (await fleet.do(MissionGet(mission_id))).status == "in_progress"
    assert (await assigned(fleet, mission_id))[1] == ("Form", begun.handoff.successor_id)


async def test_an_agent_at_work_is_refused_without_force(fleet: Fleet) -> None:
    session, mission_id = await claude(fleet)
    await session.tell(PromptSubmitted("Go on"))
    with pytest.raises(InvalidState, match=f"{OLD} is still at work: its turn is not over") as no:
        await begin(fleet)
    assert "--force" in no.value.hint
    await session.tell(ToolStarted("Bash", call_id="1", command="make"))
    with pytest.raises(InvalidState, match="a tool call is open"):
        await begin(fleet)
    assert fleet.sql("SELECT id FROM handoffs") == []

    begun = await begin(fleet, force=True)

    assert any("is still at work" in each for each in begun.warnings)
    await successor(fleet, begun).tell(SessionStarted("startup"))
    assert (await assigned(fleet, mission_id))[1] == ("Form", begun.handoff.successor_id)
    # Its turn goes on, and what it does next tells it.
    told = await session.tell(ToolStarted("Bash", call_id="2", command="make"))
    assert told.lines[0].startswith(f"The user handed the work of {OLD} over to")


async def test_what_cannot_be_handed_over_is_refused(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    with pytest.raises(NotFound, match="Agent not found: nobody"):
        await fleet.do(HandoffBegin("nobody", "codex"))
    await fleet.do(AgentRegister("idler", "specialist"))
    with pytest.raises(InvalidState, match="works in no mission"):
        await fleet.do(HandoffBegin("idler", "codex"))
    with pytest.raises(InvalidParams, match="There is an agent idler already"):
        await begin(fleet, successor_id="idler")
    begun = await begin(fleet)
    with pytest.raises(InvalidState, match="is being handed to"):
        await begin(fleet)
    await fleet.do(HandoffCancel(begun.handoff.id))
    await fleet.do(MissionCancel(mission_id, reason="Not needed"))
    with pytest.raises(InvalidState, match="is over"):
        await begin(fleet)
    with pytest.raises(NotFound):
        await fleet.do(HandoffGet("hnd-00000000"))


async def test_a_dry_run_leaves_nothing(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    before = fleet.sql("SELECT count(*) AS n FROM events"), fleet.sql("SELECT id FROM checkpoints")

    begun = await begin(fleet, dry_run=True, successor_id="codex-next")

    assert "You are codex-next from now on" in begun.prompt
    assert fleet.sql("SELECT id FROM handoffs") == []
    assert before == (
        fleet.sql("SELECT count(*) AS n FROM events"),
        fleet.sql("SELECT id FROM checkpoints"),
    )
    await untouched(fleet, mission_id)


async def test_a_cancelled_handoff_awaits_nobody(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)
    assert (await fleet.do(HandoffCancel(begun.handoff.id))).state == "cancelled"

    await successor(fleet, begun).tell(SessionStarted("startup"))

    await untouched(fleet, mission_id)
    assert (await fleet.do(HandoffCancel(begun.handoff.id))).state == "cancelled"


async def test_a_handoff_fails_when_its_mission_ended_meanwhile(fleet: Fleet) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)
    await fleet.do(MissionCancel(mission_id, reason="Not needed"))

    started = await successor(fleet, begun).tell(SessionStarted("startup"))

    handoff = await fleet.do(HandoffGet(begun.handoff.id))
    assert (handoff.state, started.agent_id) == ("failed", handoff.successor_id)
    assert "is over" in str(handoff.reason)
    assert "is over" in started.lines[0]


async def test_a_handoff_is_undone_and_a_living_agent_goes_on(fleet: Fleet) -> None:
    old, mission_id = await claude(fleet)
    begun = await begin(fleet)
    heir = str(begun.handoff.successor_id)
    await successor(fleet, begun).tell(SessionStarted("startup"))
    undo = (await fleet.do(HandoffGet(begun.handoff.id))).undo_checkpoint_id

    await fleet.do(RecoveryRestore(undo, rewind=True))

    assert await holders(fleet) == [(FORM, OLD), (ROUTE, OLD)]
    assert await assigned(fleet, mission_id) == [("Look", OLD), ("Form", OLD)]
    state = await fleet.do(AgentGet(OLD))
    assert (state.status, state.needs) == ("waiting", None)
    assert (await old.tell(PromptSubmitted("Go on"))).lines == []
    assert (await fleet.do(AgentGet(heir))).status == "waiting"


async def test_mail_follows_to_the_successor_when_the_old_session_is_closed(fleet: Fleet) -> None:
    old, mission_id = await claude(fleet)
    begun = await begin(fleet)
    heir = str(begun.handoff.successor_id)
    await successor(fleet, begun).tell(SessionStarted("startup"))
    await old.tell(SessionEnded("prompt_input_exit"))
    assert (await fleet.do(AgentGet(OLD))).status == "gone"
    assert (await fleet.do(MissionGet(mission_id))).status == "in_progress"
    await fleet.do(AgentRegister("bob", "specialist", mission_id=mission_id))

    sent = await fleet.do(MessageSend("bob", [OLD], "Hello", mission_id=mission_id))

    assert [each.agent_id for each in sent.deliveries] == [heir]


async def test_an_agent_asks_and_the_person_reads_the_command(fleet: Fleet) -> None:
    session, _ = await claude(fleet)

    asked = await fleet.do(HandoffAsk(OLD, "gemini"))

    assert (asked.state, asked.successor_id) == ("asked", None)
    assert (await fleet.do(HandoffAsk(OLD, "gemini"))).id == asked.id
    (shown,) = (await fleet.do(AttentionList(waiting=True))).agents
    assert (shown.agent_id, shown.needs) == (OLD, "question")
    assert shown.text == (f"asks to be handed over to gemini: fleetctl handoff {OLD} --to gemini")
    # Work that goes on is no answer, a person's word is.
    await session.tell(PromptSubmitted("Go on with it"))
    await session.tell(Paused("Done."))
    assert (await fleet.do(AttentionList(waiting=True))).agents == []
    await fleet.do(HandoffAsk(OLD, "codex"))
    await begin(fleet)
    assert (await fleet.do(AttentionList(waiting=True))).agents == []


@pytest.mark.parametrize("whose", ["mission", "session", "successor"])
async def test_forgetting_reaches_a_handoff(fleet: Fleet, whose: str) -> None:
    _, mission_id = await claude(fleet)
    begun = await begin(fleet)
    await successor(fleet, begun).tell(SessionStarted("startup"))

    await fleet.do(
        {
            "mission": SystemForget(mission_id=mission_id),
            "session": SystemForget(session_id="aaaaaaaa-1"),
            "successor": SystemForget(session_id="bbbbbbbb-1"),
        }[whose]
    )

    assert fleet.sql("SELECT id FROM handoffs") == []
