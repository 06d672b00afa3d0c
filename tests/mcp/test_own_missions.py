"""Which mission and which sorties are an agent's own, before it is registered and after."""

import os

import pytest

from fleetd.harness.report import PromptSubmitted, SessionEnded
from fleetd.protocol.requests.agent import AgentGet
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, MissionStart
from fleetd.protocol.requests.sortie import SortieCreate
from tests.mcp.conftest import Start
from tests.support.fleet import Fleet
from tests.support.hook_sessions import Window, working


async def test_a_sortie_that_nobody_has_is_not_the_agents_own(near: Start, fleet: Fleet) -> None:
    made = await fleet.do(MissionCreate("Add login", project_dir=os.getcwd()))
    await fleet.do(MissionStart(made.id))
    await fleet.do(SortieCreate(made.id, "Form"))
    async with near() as alice:
        told = await alice.does("mission")  # her first word: nobody has registered her
        assert "pending: “Form”" in told
        assert "(you)" not in told


async def test_the_mission_that_an_agent_reads_of_is_the_one_that_it_then_works_on(
    near: Start, fleet: Fleet
) -> None:
    here = os.getcwd()
    started = await fleet.do(MissionCreate("Started", project_dir=here))
    await fleet.do(MissionStart(started.id))
    waits = await fleet.do(MissionCreate("Waits", project_dir=here))
    async with near() as alice:
        for mission in (started, waits):
            assert mission.id in await alice.does("mission")
            await alice.does("note", last_action="Looked")
            assert mission.id in await alice.does("mission")
            agent = await fleet.do(AgentGet("alice"))
            if mission is started:
                assert agent.mission_id == started.id
                assert f"{started.id} completed" in await alice.does("finish", outcome="complete")
        # To say it twice does not end the next one, until she has a part in it.
        told = await alice.fails("finish", outcome="complete")
        assert f"{waits.id} (“Waits”) is not yours to end" in told
        assert (await fleet.do(MissionGet(waits.id))).status == "pending"
        async with near("bob") as bob:
            assert waits.id in await bob.does("mission")
            await bob.does("note", last_action="Looked")
            assert waits.id in await bob.does("mission")
            assert (await fleet.do(AgentGet("bob"))).mission_id == waits.id
        await fleet.do(MissionStart(waits.id))
        form = await fleet.do(SortieCreate(waits.id, "Form"))
        await alice.does("sortie", sortie_id=form.id, state="start")
        await alice.does("sortie", sortie_id=form.id, state="complete")
        assert f"{waits.id} completed" in await alice.does("finish", outcome="complete")


async def test_another_sessions_own_mission_is_not_the_agents(near: Start, fleet: Fleet) -> None:
    made = await fleet.do(MissionCreate("Theirs", project_dir=os.getcwd()))
    await fleet.do(MissionStart(made.id))
    fleet.sql("UPDATE missions SET origin = 'session'")
    async with near() as alice:
        assert "You have no mission" in await alice.fails("mission")
        await alice.does("plan", goal="Mine")
        assert "Goal: Mine" in await alice.does("mission")


@pytest.mark.parametrize("goal", ["Add a login", "Login with a second factor"])
async def test_a_plan_with_a_goal_makes_the_sessions_own_mission_a_persons(
    near: Start, fleet: Fleet, goal: str
) -> None:
    recorded = await Window(fleet).tell(PromptSubmitted("Add a login"))
    assert recorded.mission_id is not None
    assert (await fleet.do(MissionGet(recorded.mission_id))).origin == "session"
    async with near(recorded.agent_id) as claude:
        await claude.does("plan", sorties=[{"title": "Form"}])
        assert (await fleet.do(MissionGet(recorded.mission_id))).origin == "session"
        for _ in range(2):
            assert f"Goal: {goal}" in await claude.does("plan", goal=goal)
    planned = await fleet.do(MissionGet(recorded.mission_id))
    assert (planned.origin, planned.title) == ("person", goal)


async def test_a_mission_that_was_closed_with_its_session_says_so(
    near: Start, fleet: Fleet
) -> None:
    session, mission = await working(fleet, "x Read", "> Write", "Test")
    await session.tell(SessionEnded("logout"))
    async with near() as alice:
        told = await alice.does("mission", mission_id=mission.id)
    head = "closed with its session, 2 of 3 sorties open; resumes with it 33% (1/3 sorties)"
    assert f"{mission.id} {head}" in told
