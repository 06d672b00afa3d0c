"""Which mission and which sorties are an agent's own, before it is registered and after."""

import os

from fleetd.wire.requests.agent import AgentGet
from fleetd.wire.requests.mission import MissionCreate, MissionGet, MissionStart
from fleetd.wire.requests.sortie import SortieCreate
from tests.fleet import Fleet
from tests.mcp_server.conftest import Start


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
    own = {"automatic": True}
    made = await fleet.do(MissionCreate("Theirs", project_dir=os.getcwd(), metadata=own))
    await fleet.do(MissionStart(made.id))
    async with near() as alice:
        assert "You have no mission" in await alice.fails("mission")
        await alice.does("plan", goal="Mine")
        assert "Goal: Mine" in await alice.does("mission")
