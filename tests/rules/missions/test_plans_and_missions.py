"""Plans and automatic missions beside everything else: recovery, forgetting, housekeeping."""

from typing import Any

import pytest

from fleetd.domain.core.context import BatchSizes
from fleetd.engine.jobs import daily
from fleetd.harness.report import PromptSubmitted, SessionEnded, SessionStarted
from fleetd.protocol.records import Mission, RestoreResult
from fleetd.protocol.requests.agent import AgentGet
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionList,
    MissionStart,
    MissionUpdate,
)
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import DAY, HOUR, MINUTE, Fleet
from tests.support.hook_sessions import Window, planned, working


async def told(fleet: Fleet, mission: Mission) -> list[str]:
    return [f"{each.title} {each.status}" for each in await fleet.sorties(mission)]


async def back(fleet: Fleet, **restore: Any) -> RestoreResult:
    """Recover, and let so much time go by that what is told next is no double of what was."""
    restored = await fleet.restore(**restore)
    fleet.clock.pass_by(MINUTE)
    return restored


@pytest.mark.parametrize("whole", [True, False])
async def test_what_the_plan_dropped_and_a_recovery_brought_back_is_dropped_again(
    fleet: Fleet, whole: bool
) -> None:
    session, mission = await working(fleet, "> Read", "Write", "Test")
    await fleet.checkpoint(mission)
    await session.tell(planned("> Read", "Test"))
    assert await told(fleet, mission) == ["Read in_progress", "Test assigned"]
    await back(fleet, mission_id=mission.id, agent_id="claude-12f459b8", scope="agent")
    assert "Write assigned" in await told(fleet, mission)
    await session.tell(planned("> Read", whole=False) if not whole else planned("> Read", "Test"))
    assert await told(fleet, mission) == ["Read in_progress", "Test assigned"]


async def test_after_a_recovery_the_same_list_counts_again(fleet: Fleet) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    checkpoint = await fleet.checkpoint(mission)
    await session.tell(planned("x Read", "> Write"))
    await back(fleet, checkpoint=checkpoint, rewind=True)
    assert await told(fleet, mission) == ["Read in_progress", "Write assigned"]
    await session.tell(planned("x Read", "> Write"))
    assert await told(fleet, mission) == ["Read completed", "Write in_progress"]


async def test_a_sortie_that_a_recovery_took_out_comes_back_when_the_plan_names_it(
    fleet: Fleet,
) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    older = await fleet.checkpoint(mission)
    await session.tell(planned("> Read"))
    newer = await fleet.checkpoint(mission)
    await back(fleet, checkpoint=older)
    await session.tell(planned("> Read", "Write"))
    await back(fleet, checkpoint=newer)
    assert await told(fleet, mission) == ["Read in_progress"]
    await session.tell(planned("> Read", "Write"))
    assert await told(fleet, mission) == ["Read in_progress", "Write assigned"]


async def test_no_word_of_a_plan_is_left_of_what_was_forgotten(fleet: Fleet) -> None:
    _, mission = await working(fleet, "> Read", "Write")
    await working(fleet, "> Think", session_id="other-session")
    await fleet.do(SystemForget(mission_id=mission.id))
    assert [row["text"] for row in fleet.sql("SELECT text FROM plan_items")] == ["Think"]
    await fleet.do(SystemForget(session_id="other-session"))
    assert fleet.sql("SELECT * FROM plan_items") == []


async def test_a_deleted_mission_takes_its_plans_along(fleet: Fleet) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    await session.tell(SessionEnded("logout"))
    await fleet.do(MissionDelete(mission.id))
    assert fleet.sql("SELECT * FROM plan_items") == []
    await session.tell(SessionStarted("resume"), planned("Read"))
    (mission,) = (await fleet.do(MissionList())).missions
    assert await told(fleet, mission) == ["Read assigned"]


async def test_who_resumes_reads_what_was_done_last_and_not_who_left(fleet: Fleet) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    await session.tell(planned("x Read", "> Write"))
    await session.tell(SessionEnded("logout"))
    assert (await fleet.again(mission)).status == "cancelled"
    recorded = await session.tell(SessionStarted("resume"))
    assert recorded.mission_id == mission.id
    assert (await fleet.again(mission)).status == "in_progress"
    context = (
        await back(fleet, mission_id=mission.id, agent_id=recorded.agent_id)
    ).recovery_context
    assert "completed “Read”" in context.last_action
    assert context.next_steps[0].startswith("Write (in progress")


# Missions that nobody needs any more


async def tidy(fleet: Fleet) -> None:
    """Let the daily work be done once."""
    await daily.tidy(fleet.engine)
    await fleet.settle()


async def test_a_session_that_ended_without_a_word_is_closed_after_a_week(fleet: Fleet) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    fleet.sql("UPDATE agents SET status = 'lost'")
    fleet.clock.pass_by(7 * DAY)
    await tidy(fleet)
    assert (await fleet.again(mission)).status == "in_progress"
    fleet.clock.pass_by(1)
    await tidy(fleet)
    assert (await fleet.again(mission)).status == "cancelled"
    (ended,) = await fleet.events(mission, "mission_cancelled")
    assert ended.data["reason"].startswith(
        "Closed with its session (nobody came back to it for 7 days), 2 of 2 sorties open"
    )
    await session.tell(SessionStarted("resume"), planned("x Read", "> Write"))
    assert (await fleet.again(mission)).status == "in_progress"


@pytest.mark.parametrize(
    ("agent", "closed"),
    [
        ("status = 'idle', pid = 4711", False),
        ("status = 'idle', pid = NULL", True),
        ("status = 'active', pid = NULL, last_seen_at = '2999'", False),
        ("status = 'gone', pid = NULL", True),
    ],
)
async def test_who_may_still_live_keeps_a_mission_open(
    fleet: Fleet, agent: str, closed: bool
) -> None:
    _, mission = await working(fleet, "> Read")
    fleet.sql(f"UPDATE agents SET {agent}")
    fleet.clock.pass_by(8 * DAY)
    await tidy(fleet)
    assert ((await fleet.again(mission)).status == "cancelled") is closed


async def test_what_a_person_created_is_left_alone(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    fleet.clock.pass_by(100 * DAY)
    await tidy(fleet)
    assert (await fleet.again(mission)).status == "in_progress"
    await fleet.do(MissionCancel(mission.id, "enough"))
    fleet.clock.pass_by(100 * DAY)
    await tidy(fleet)
    assert await fleet.checkpoint_ids(mission) == []
    assert (await fleet.again(mission)).status == "cancelled"


@pytest.mark.parametrize("batches", [BatchSizes(rows=2)])
async def test_an_automatic_mission_goes_with_its_last_checkpoint(fleet: Fleet) -> None:
    sessions = [await working(fleet, "> Read", session_id=f"{n}-session") for n in range(5)]
    for session, _ in sessions[:4]:
        await session.tell(SessionEnded("logout"))
    (_, kept), (_, open_one) = sessions[3], sessions[4]
    await fleet.do(MissionUpdate(kept.id, title="Login"))
    fleet.clock.pass_by(30 * DAY - HOUR)
    await sessions[4][0].tell(PromptSubmitted("Go on"))
    await tidy(fleet)
    assert len((await fleet.do(MissionList())).missions) == 5
    fleet.clock.pass_by(2 * HOUR)
    await tidy(fleet)
    left = {mission.id for mission in (await fleet.do(MissionList())).missions}
    assert left == {kept.id, open_one.id}
    assert {path.split("/")[0] for path in fleet.files() if path.startswith("msn-")} <= left
    # Whoever resumes such a session begins anew, under the agent's name of before.
    recorded = await sessions[0][0].tell(SessionStarted("resume"), planned("Read"))
    assert recorded.mission_id not in {*left, None}
    assert recorded.agent_id is not None
    assert (await fleet.do(AgentGet(recorded.agent_id))).mission_id == recorded.mission_id


async def test_a_clients_metadata_automatic_lets_no_mission_be_closed_or_deleted(
    fleet: Fleet,
) -> None:
    mark = {"automatic": True}
    mission = await fleet.do(MissionCreate("Mine", metadata=mark))
    assert (mission.origin, mission.metadata) == ("person", mark)
    await fleet.do(MissionStart(mission.id))
    fleet.clock.pass_by(100 * DAY)
    await tidy(fleet)
    assert (await fleet.again(mission)).status == "in_progress"
    await fleet.do(MissionCancel(mission.id, "enough"))
    fleet.clock.pass_by(100 * DAY)
    await tidy(fleet)
    assert (await fleet.again(mission)).closed_reason == "person"


async def test_a_rewind_clears_the_closed_reason_and_its_undoing_brings_it_back(
    fleet: Fleet,
) -> None:
    session, mission = await working(fleet, "> Read", "Write")
    earlier = await fleet.checkpoint(mission)
    await session.tell(planned("x Read", "> Write"), SessionEnded("logout"))
    assert (await fleet.again(mission)).closed_reason == "session"
    rewound = await back(fleet, checkpoint=earlier, rewind=True)
    mission = await fleet.again(mission)
    assert (mission.status, mission.closed_reason) == ("in_progress", None)
    await fleet.restore(checkpoint_id=rewound.undo_checkpoint_id)
    mission = await fleet.again(mission)
    assert (mission.status, mission.closed_reason) == ("cancelled", "session")
    assert (await session.tell(SessionStarted("resume"))).mission_id == mission.id
    assert (await fleet.again(mission)).status == "in_progress"


@pytest.mark.parametrize("batches", [BatchSizes(rows=2)])
async def test_sessions_go_with_their_missions_and_living_ones_stay(fleet: Fleet) -> None:
    for number in range(3):
        session, _ = await working(fleet, "> Read", session_id=f"{number}-session")
        await session.tell(SessionEnded("logout"))
    await Window(fleet, "3-opened-only").tell(SessionStarted("startup"))
    living = Window(fleet, "4-sits-there")
    living.process = (4_711, "then")
    await living.tell(SessionStarted("startup"))
    fleet.clock.pass_by(31 * DAY)
    recent, _ = await working(fleet, "> Read", session_id="5-recent")
    await recent.tell(SessionEnded("logout"))
    for _ in range(2):  # first the checkpoints go, then what they kept
        await tidy(fleet)
    kept = {"claude-4-sits-t", "claude-5-recent"}
    assert {row["agent_id"] for row in fleet.sql("SELECT agent_id FROM sessions")} == kept
    assert {row["id"] for row in fleet.sql("SELECT id FROM agents")} == kept


async def test_a_checkpoint_that_is_there_still_keeps_its_mission(fleet: Fleet) -> None:
    session, mission = await working(fleet, "> Read")
    await session.tell(SessionEnded("logout"))
    fleet.clock.pass_by(29 * DAY)
    await fleet.checkpoint(mission)
    fleet.clock.pass_by(2 * DAY)
    await tidy(fleet)
    assert (await fleet.again(mission)).status == "cancelled"
