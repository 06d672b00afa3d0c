"""A mission is begun, and a plan is added to, by one request: all of it or nothing."""

import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionGet,
    MissionList,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.sortie import SortieList
from tests.support.fleet import Fleet

PIECES = [NewSortie("Form"), NewSortie("Tests")]


async def test_an_agent_begins_a_mission_with_its_sorties_by_one_request(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("alice", "dispatch"))
    begun = await fleet.do(MissionCreate("Add login", sorties=PIECES, agent_id="alice", start=True))

    assert (begun.status, begun.total_sorties) == ("in_progress", 2)
    assert (await fleet.do(AgentGet("alice"))).mission_id == begun.id
    events = (await fleet.do(EventList(mission_id=begun.id))).events
    assert [(each.type, each.agent_id) for each in events] == [
        ("mission_created", "alice"),
        ("sortie_created", "alice"),
        ("sortie_created", "alice"),
        ("mission_started", "alice"),
    ]


async def test_an_agent_that_nobody_registered_begins_nothing(fleet: Fleet) -> None:
    with pytest.raises(NotFound):
        await fleet.do(MissionCreate("Add login", sorties=PIECES, agent_id="alice", start=True))
    assert (await fleet.do(MissionList())).total == 0


async def test_sorties_are_added_by_one_update_and_applied_once_under_one_key(
    fleet: Fleet,
) -> None:
    mission = await fleet.do(MissionCreate("Add login", sorties=[NewSortie("Draft")]))
    for _ in range(2):
        changed = await fleet.do(
            MissionUpdate(mission.id, title="Login", sorties=PIECES, idempotency_key="k")
        )
        assert (changed.title, changed.total_sorties) == ("Login", 3)
    sorties = (await fleet.do(SortieList(mission.id))).sorties
    assert [each.title for each in sorties] == ["Draft", "Form", "Tests"]
    assert (await fleet.do(MissionUpdate(mission.id, sorties=PIECES))).total_sorties == 5


async def test_a_mission_that_is_over_takes_no_sorties_and_keeps_its_title(fleet: Fleet) -> None:
    mission = await fleet.do(MissionCreate("Add login"))
    await fleet.do(MissionCancel(mission.id, "Not now"))
    with pytest.raises(InvalidState, match="accepts no more sorties"):
        await fleet.do(MissionUpdate(mission.id, title="Login", sorties=PIECES))
    assert (await fleet.do(MissionGet(mission.id))).title == "Add login"
    with pytest.raises(InvalidParams, match="Nothing to change"):
        await fleet.do(MissionUpdate(mission.id))
