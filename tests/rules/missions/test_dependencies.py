"""Sorties that wait for others: by hand, by a plan, in checkpoints and in briefings."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.domain.missions import dependencies
from fleetd.harness.report import PlanItem, PlanLink, Planned
from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.checkpoint import CheckpointCompare, CheckpointGet
from fleetd.protocol.requests.mission import MissionUpdate, NewSortie
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieGet,
    SortieList,
    SortieRemove,
    SortieUpdate,
)
from tests.support.fleet import MINUTE, Fleet
from tests.support.hook_sessions import Window, working


async def ready(fleet: Fleet, mission: Mission) -> list[str]:
    page = await fleet.do(SortieList(mission.id, ready=True))
    return [each.id for each in page.sorties]


async def ids(fleet: Fleet, mission: Mission) -> list[str]:
    return [each.id for each in await fleet.sorties(mission)]


async def waits(fleet: Fleet, mission: Mission) -> dict[str, list[str]]:
    """Return the titles of what each sortie depends on, by its title."""
    sorties = await fleet.sorties(mission)
    titles = {each.id: each.title for each in sorties}
    return {
        each.title: [titles[on] for on in each.depends_on] for each in sorties if each.depends_on
    }


async def test_a_sortie_is_ready_once_all_that_it_depends_on_is_completed(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    first, second = await ids(fleet, mission)
    new = SortieCreate(mission.id, "Ship", depends_on=[first, second, first])
    ship = await fleet.do(new)
    assert (ship.depends_on, ship.waits_for) == ([first, second], [first, second])
    assert await ready(fleet, mission) == [first, second]
    await fleet.do(SortieComplete(first))
    ship = await fleet.do(SortieGet(ship.id))
    assert (ship.depends_on, ship.waits_for) == ([first, second], [second])
    assert await ready(fleet, mission) == [second]
    await fleet.do(SortieBlock(second, "No key"))
    assert await ready(fleet, mission) == []
    await fleet.do(SortieFail(second, "No key"))
    assert await ready(fleet, mission) == []
    await fleet.do(SortieUpdate(ship.id, depends_on=[first]))
    assert await ready(fleet, mission) == [ship.id]
    done = await fleet.do(SortieComplete(ship.id))
    assert (done.depends_on, done.waits_for) == ([first], [])


async def test_sorties_that_would_wait_for_each_other_are_refused(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    a, b, c = await ids(fleet, mission)
    await fleet.do(SortieUpdate(a, depends_on=[b]))
    await fleet.do(SortieUpdate(b, depends_on=[c]))
    before = await fleet.sorties(mission)
    with pytest.raises(InvalidParams, match=f"{c} -> {a} -> {b} -> {c}") as refused:
        await fleet.do(SortieUpdate(c, depends_on=[a]))
    assert refused.value.values["cycle"] == [c, a, b, c]
    with pytest.raises(InvalidParams, match=f"{a} -> {a}"):
        await fleet.do(SortieUpdate(a, depends_on=[a]))
    assert await fleet.sorties(mission) == before


async def test_unknown_sorties_and_those_of_another_mission_are_refused(fleet: Fleet) -> None:
    mission, other = await fleet.mission(1), await fleet.mission(1)
    [mine], [theirs] = await ids(fleet, mission), await ids(fleet, other)
    with pytest.raises(NotFound):
        await fleet.do(SortieCreate(mission.id, "Ship", depends_on=["srt-unknown1"]))
    with pytest.raises(InvalidParams, match=f"is in mission {other.id}"):
        await fleet.do(SortieUpdate(mine, depends_on=[theirs]))
    assert await ids(fleet, mission) == [mine]
    await fleet.do(SortieComplete(mine))
    with pytest.raises(InvalidState, match="already completed"):
        await fleet.do(SortieUpdate(mine, title="Other"))


async def test_a_change_says_which_fields_changed_and_nothing_when_none_did(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    first, second = await ids(fleet, mission)
    change = SortieUpdate(
        second, title="Ship", description="All", priority="high", depends_on=[first]
    )
    changed = await fleet.do(change)
    assert (changed.title, changed.description, changed.priority) == ("Ship", "All", "high")
    await fleet.do(change)
    told = await fleet.events(mission, "sortie_updated")
    assert [event.data["fields"] for event in told] == [
        ["title", "description", "priority", "depends_on"]
    ]


async def test_a_dependency_on_a_removed_sortie_vanishes(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    first, second = await ids(fleet, mission)
    await fleet.do(
        MissionUpdate(mission.id, sorties=[NewSortie("Ship", depends_on=[first, second])])
    )
    await fleet.do(SortieRemove(first))
    assert [each.depends_on for each in await fleet.sorties(mission)] == [[], [second]]


async def test_checkpoints_keep_dependencies_and_a_recovery_restores_them(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    a, b, c = await ids(fleet, mission)
    await fleet.do(SortieUpdate(b, depends_on=[a]))
    checkpoint = await fleet.checkpoint(mission)
    assert [each.depends_on for each in checkpoint.sorties] == [[], [a], []]
    assert (await fleet.do(CheckpointGet(checkpoint.id))).sorties == checkpoint.sorties
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieUpdate(b, depends_on=[]))
    await fleet.do(SortieUpdate(c, depends_on=[b]))
    found = await fleet.do(CheckpointCompare(checkpoint.id))
    changed = {each.id: each.changes[0] for each in found.sorties.changed}
    assert (changed[b].before, changed[b].after) == ([a], [])
    assert (changed[c].before, changed[c].after) == ([], [b])
    await fleet.do(SortieRemove(c))
    await fleet.restore(checkpoint)
    assert [each.depends_on for each in await fleet.sorties(mission)] == [[], [a], []]


async def test_a_recovery_leaves_no_cycle_and_no_dependency_on_what_is_gone(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    a, b = await ids(fleet, mission)
    await fleet.do(SortieUpdate(a, depends_on=[b]))
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieUpdate(a, depends_on=[]))
    await fleet.do(SortieUpdate(b, depends_on=[a]))
    await fleet.do(SortieComplete(b))
    restored = await fleet.restore(checkpoint)
    found = {each.id: each.depends_on for each in await fleet.sorties(mission)}
    assert dependencies.cycle_of(found, a, found[a]) is None
    assert any("not restored: they would wait" in line for line in restored.warnings)


async def test_a_checkpoint_without_any_keeps_those_that_were_added_since(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    a, b = await ids(fleet, mission)
    checkpoint = await fleet.checkpoint(mission)
    fleet.clock.pass_by(MINUTE)
    await fleet.do(SortieUpdate(b, depends_on=[a]))
    await fleet.restore(checkpoint)
    assert (await fleet.do(SortieGet(b))).depends_on == [a]
    fleet.clock.pass_by(MINUTE)
    await fleet.restore(checkpoint, rewind=True)
    assert (await fleet.do(SortieGet(b))).depends_on == []


async def test_a_briefing_names_what_a_step_waits_for(fleet: Fleet) -> None:
    mission = await fleet.mission(4)
    a, b, c, d = await fleet.sorties(mission)
    await fleet.do(SortieUpdate(d.id, depends_on=[a.id, b.id, c.id]))
    await fleet.checkpoint(mission)
    briefing = await fleet.do(RecoveryContextGet(mission.id))
    line = f"- {d.title} (pending; waits for {a.title}, {b.title} and 1 more)"
    assert briefing.prompt.count(line) == 1
    assert briefing.prompt.count(f"- {d.title} (") == 1
    for each in (a, b, c):
        await fleet.do(SortieComplete(each.id))
    briefing = await fleet.do(RecoveryContextGet(mission.id))
    assert "waits for" not in briefing.prompt


async def tasks(session: Window, *links: PlanLink, **items: str) -> None:
    """Tell of tasks by their ids, and of what waits for what."""
    named = tuple(PlanItem(text, "pending", item_id) for item_id, text in items.items())
    session.fleet.clock.pass_by(MINUTE)
    await session.tell(Planned(named, whole=False, shared=True, links=links))


async def test_a_plan_says_what_waits_for_what(fleet: Fleet) -> None:
    session, mission = await working(fleet)
    await tasks(session, t1="Parse", t2="Print", t3="Ship")
    await tasks(session, PlanLink("t3", "t1"), PlanLink("t3", "t2"), PlanLink("t3", "unknown"))
    assert await waits(fleet, mission) == {"Ship": ["Parse", "Print"]}
    await tasks(session, PlanLink("t3", "t1"))
    assert len(await fleet.events(mission, "sortie_updated")) == 1
    await tasks(session, PlanLink("t3", "t1", ends=True))
    assert await waits(fleet, mission) == {"Ship": ["Print"]}


async def test_a_cycle_in_a_plan_is_ignored_and_the_plan_is_kept(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    session, mission = await working(fleet)
    links = (PlanLink("t1", "t2"), PlanLink("t2", "t1"), PlanLink("t3", "t2"))
    with caplog.at_level(logging.WARNING):
        await tasks(session, *links, t1="Parse", t2="Print", t3="Ship")
    assert await waits(fleet, mission) == {"Parse": ["Print"], "Ship": ["Print"]}
    assert "has sorties wait for each other; fleetd ignores it" in caplog.text


GRAPHS = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)
)


@given(GRAPHS, st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3))
@settings(deadline=None)
def test_a_cycle_that_is_named_is_one_and_none_is_missed(known, start, wanted) -> None:
    graph = known | {start: wanted}
    reached: set[str] = set()
    look = list(wanted)
    while look:
        if (here := look.pop()) not in reached:
            reached.add(here)
            look += graph.get(here, ())
    cycle = dependencies.cycle_of(known, start, wanted)
    assert (cycle is not None) == (start in reached)
    if cycle is not None:
        assert cycle[0] == cycle[-1] == start
        assert all(on in graph[each] for each, on in pairwise(cycle))
