"""Which mission is meant where none is named: the same for every method that can be asked so."""

import pytest

from fleetd.protocol.errors import InvalidState
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionCurrent,
    MissionSelect,
    MissionStart,
    MissionUpdate,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet
from tests.support.fleet import HOUR, MINUTE

PURPOSES = ["work", "briefing", "recovery"]


async def begun(fleet, title, directory=None):
    """Begin a mission with a checkpoint, by default in the fleet's directory."""
    made = await fleet.do(MissionCreate(title, project_dir=directory or str(fleet.project)))
    mission = await fleet.do(MissionStart(made.id))
    await fleet.checkpoint(mission)
    return mission


async def select(fleet, purpose, cwd=None, **more):
    """Return the title of the mission that is meant, and what says so."""
    found = await fleet.do(MissionSelect(purpose, cwd or str(fleet.project), **more))
    return found.mission.title, found.reason


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_the_agent_that_is_taken_over_then_the_agent_then_the_directory(fleet, purpose):
    theirs, own = await begun(fleet, "Theirs", "/srv/a"), await begun(fleet, "Own", "/srv/b")
    await begun(fleet, "Here")
    await fleet.agents(theirs, "spec-1")
    await fleet.agents(own, "spec-2")

    both = {"agent_id": "spec-2", "take_over_from": "spec-1"}
    assert await select(fleet, purpose, **both) == ("Theirs", "take_over")
    assert await select(fleet, purpose, agent_id="spec-2") == ("Own", "agent")
    assert await select(fleet, purpose, agent_id="nobody") == ("Here", "directory")
    assert await select(fleet, purpose) == ("Here", "directory")


async def test_to_recover_what_waits_comes_first_and_otherwise_what_is_at_work(fleet):
    await begun(fleet, "Older")
    fleet.clock.pass_by(MINUTE)
    stale = await begun(fleet, "Stale")
    fleet.clock.pass_by(HOUR)
    busy = await begun(fleet, "Busy")

    found = await fleet.do(MissionSelect("recovery", str(fleet.project)))
    assert [each.mission_title for each in found.candidates] == ["Stale", "Older"]
    assert (found.mission.id, found.reason) == (stale.id, "directory")
    assert await select(fleet, "work") == ("Busy", "directory")
    assert await select(fleet, "briefing") == ("Busy", "directory")

    found = await fleet.do(MissionSelect("recovery", str(fleet.project), threshold_ms=2 * HOUR))
    assert (found.mission.id, found.candidates) == (busy.id, [])


async def test_to_recover_a_mission_elsewhere_is_only_listed_however_alone_it_is(fleet):
    await begun(fleet, "Elsewhere", "/srv/a")
    with pytest.raises(InvalidState, match=r"^No missions need recovery\.$") as error:
        await select(fleet, "recovery")
    assert "candidates" not in error.value.values

    fleet.clock.pass_by(HOUR)
    with pytest.raises(InvalidState, match="1 mission waits for recovery and none") as error:
        await select(fleet, "recovery")
    (told,) = error.value.values["candidates"]
    assert (told["project_dir"], told["title"]) == ("/srv/a", "Elsewhere")
    for purpose in ("work", "briefing"):
        assert await select(fleet, purpose) == ("Elsewhere", "only")


async def test_an_agent_s_mission_that_is_over_is_briefed_of_and_not_gone_on_with(fleet):
    over = await begun(fleet, "Over", "/srv/a")
    await fleet.agents(over, "spec-1")
    await fleet.do(MissionComplete(over.id))
    await begun(fleet, "Here")

    assert await select(fleet, "briefing", agent_id="spec-1") == ("Over", "agent")
    assert await select(fleet, "work", agent_id="spec-1") == ("Here", "directory")
    assert await select(fleet, "recovery", agent_id="spec-1") == ("Here", "directory")
    # Its work is meant and no other's, so the recovery can say that there is none left.
    told = {"agent_id": "spec-2", "take_over_from": "spec-1"}
    assert await select(fleet, "recovery", **told) == ("Over", "take_over")
    with pytest.raises(InvalidState, match="was completed at"):
        await fleet.restore(cwd=str(fleet.project), **told)


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_an_agent_that_never_registered_is_known_by_its_open_sorties(fleet, purpose):
    mission = await fleet.mission(2, title="Theirs")
    await fleet.work(mission, 0, "spec-1")
    fleet.sql("DELETE FROM agents")
    await begun(fleet, "Here", "/srv/here")

    told = await select(fleet, purpose, "/srv/here", agent_id="spec-1")
    assert told == ("Theirs", "agent")
    await fleet.complete(mission, 0)
    told = await select(fleet, purpose, "/srv/here", agent_id="spec-1")
    assert told == ("Here", "directory")


async def test_the_methods_that_are_asked_without_a_name_follow_the_same_order(fleet):
    theirs = await begun(fleet, "Theirs", "/srv/a")
    await fleet.do(AgentRegister("spec-1", "specialist", mission_id=theirs.id))
    here = await begun(fleet, "Here")
    fleet.clock.pass_by(HOUR)
    cwd = str(fleet.project)

    assert (await fleet.restore(cwd=cwd, dry_run=True)).mission_id == here.id
    told = await fleet.restore(cwd=cwd, agent_id="spec-1", dry_run=True)
    assert (told.mission_id, told.agent_id) == (theirs.id, "spec-1")
    told = await fleet.restore(
        cwd=cwd, agent_id="spec-2", take_over_from="spec-1", scope="agent", dry_run=True
    )
    assert (told.mission_id, told.take_over_from) == (theirs.id, "spec-1")
    current = (await fleet.do(MissionCurrent(cwd, "spec-1"))).mission
    assert current is not None
    assert current.id == theirs.id
    briefing = await fleet.do(RecoveryContextGet(agent_id="spec-1", cwd=cwd))
    assert "**Mission**: Theirs" in briefing.prompt
    briefing = await fleet.do(RecoveryContextGet(cwd=cwd))
    assert "**Mission**: Here" in briefing.prompt


async def test_without_a_directory_the_only_mission_that_waits_is_recovered(fleet):
    first = await begun(fleet, "First", "/srv/a")
    fleet.clock.pass_by(HOUR)
    assert (await fleet.restore(dry_run=True)).mission_id == first.id

    second = await begun(fleet, "Second", "/srv/b")
    fleet.clock.pass_by(HOUR)
    with pytest.raises(InvalidState, match="2 missions wait for recovery"):
        await fleet.restore(dry_run=True)
    with pytest.raises(InvalidState, match=r"^No missions need recovery\.$"):
        await fleet.do(MissionSelect("recovery", threshold_ms=3 * HOUR))
    for each in (first, second):
        await fleet.do(MissionCancel(each.id, "enough"))
    with pytest.raises(InvalidState, match=r"^No missions need recovery\.$"):
        await fleet.restore(dry_run=True)


@pytest.mark.parametrize("purpose", ["work", "briefing"])
async def test_a_directory_means_the_mission_of_another_one_that_its_agent_works_on(fleet, purpose):
    """So it is after a take-over across directories, in the successor's own."""
    here = str(fleet.project)
    theirs = await begun(fleet, "Theirs", "/srv/a")
    await begun(fleet, "Other", "/srv/b")  # so that none is the only one
    for number in range(2):
        heir = AgentRegister(f"heir-{number}", "specialist", mission_id=theirs.id, cwd=here)
        await fleet.do(heir)

    assert await select(fleet, purpose) == ("Theirs", "directory")
    assert await select(fleet, purpose, f"{here}/src") == ("Theirs", "directory")
    with pytest.raises(InvalidState, match="none belongs to this directory"):
        await select(fleet, purpose, "/srv")
    found = await fleet.do(MissionCurrent(here))
    assert (found.mission.id, found.belongs) == (theirs.id, False)
    # What was made for a session comes before, or after, as it is at work; a person's comes first.
    fleet.sql("UPDATE missions SET origin = 'session' WHERE id = :id", id=theirs.id)
    assert await select(fleet, purpose) == ("Theirs", "directory")
    own = await begun(fleet, "Own")
    fleet.sql("UPDATE missions SET origin = 'session' WHERE id = :id", id=own.id)
    assert await select(fleet, purpose) == ("Own", "directory")
    await fleet.do(MissionUpdate(theirs.id, priority="high"))
    assert await select(fleet, purpose) == ("Theirs", "directory")
    await fleet.do(MissionUpdate(own.id, title="Ours"))
    await fleet.do(MissionUpdate(theirs.id, priority="low"))
    assert await select(fleet, purpose) == ("Ours", "directory")


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_an_agent_that_left_a_directory_brings_no_mission_there(fleet, purpose):
    theirs = await begun(fleet, "Theirs", "/srv/a")
    await begun(fleet, "Other", "/srv/b")
    heir = AgentRegister("heir", "specialist", mission_id=theirs.id, cwd=str(fleet.project))
    await fleet.do(heir)
    if purpose != "recovery":  # for that it is another directory's also while the agent is there
        await fleet.do(AgentDeregister("heir"))
    fleet.clock.pass_by(HOUR)

    with pytest.raises(InvalidState, match="none belongs to this directory"):
        await select(fleet, purpose)
