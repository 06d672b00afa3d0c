"""Triggers that come close together, and how many snapshots of a run stay."""

from typing import Any

import pytest

from fleetd.config import Retention
from fleetd.harness.report import PlanItem, Planned, PromptSubmitted
from fleetd.protocol.errors import NotFound
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.snapshot import (
    DeclaredCompliance,
    DeclaredDigest,
    DeclaredStep,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
)
from fleetd.protocol.snapshots import Snapshot
from tests.support.fleet import HOUR, SECOND, Clock, Fleet, opened
from tests.support.hook_sessions import Window
from tests.support.snapshots import RUN, at_once, outcome, record, told, working


async def count(fleet: Fleet, run_id: str = RUN) -> int:
    return (await fleet.do(SnapshotList(run_id))).total


async def test_two_triggers_within_3_seconds_without_material_change_keep_one_snapshot(
    fleet: Fleet,
) -> None:
    first = await at_once(fleet, source="step_boundary")
    fleet.clock.pass_by(SECOND)
    second = await at_once(fleet, source="timer")
    assert second.snapshot_id == first.snapshot_id
    assert await count(fleet) == 1
    assert len((await fleet.do(EventList(type="snapshot_recorded"))).events) == 1


async def test_the_source_of_a_trigger_that_joins_is_appended_to_source_details(
    fleet: Fleet,
) -> None:
    first = await at_once(fleet, source="step_boundary", agent_id="ann")
    assert first.source_details == []
    fleet.clock.pass_by(SECOND)
    for _ in range(2):
        await at_once(fleet, source="timer")
    joined = await at_once(fleet, note="Before lunch")
    assert [(each.source, each.agent_id, each.count) for each in joined.source_details] == [
        ("timer", "ann", 2),
        ("manual: Before lunch", "ann", 1),
    ]
    stored = await fleet.do(SnapshotGet(first.snapshot_id))
    assert stored.source_details == joined.source_details
    assert joined.source == "step_boundary"
    assert joined.integrity == first.integrity


@pytest.mark.parametrize(("pause", "joins"), [(0, True), (3_000, True), (3_001, False)])
async def test_three_seconds_are_within_and_a_millisecond_more_is_not(
    fleet: Fleet, pause: int, joins: bool
) -> None:
    first = await at_once(fleet)
    fleet.clock.pass_by(pause)
    assert ((await at_once(fleet)).snapshot_id == first.snapshot_id) is joins


async def test_the_seconds_count_from_the_last_trigger_that_joined(fleet: Fleet) -> None:
    first = await at_once(fleet)
    for _ in range(5):
        fleet.clock.pass_by(2 * SECOND)
        assert (await at_once(fleet)).snapshot_id == first.snapshot_id
    fleet.clock.pass_by(3 * SECOND + 1)
    assert (await at_once(fleet)).snapshot_id != first.snapshot_id


async def test_a_clock_that_was_set_back_keeps_nobody_from_a_snapshot(fleet: Fleet) -> None:
    first = await at_once(fleet)
    fleet.clock.pass_by(10 * SECOND)
    fleet.clock.step(-HOUR)
    second = await at_once(fleet)
    assert second.snapshot_id != first.snapshot_id
    fleet.clock.pass_by(2 * SECOND)
    assert (await at_once(fleet)).snapshot_id == second.snapshot_id


async def test_a_clock_that_was_set_back_within_3_seconds_changes_nothing(fleet: Fleet) -> None:
    first = await at_once(fleet)
    fleet.clock.pass_by(SECOND)
    fleet.clock.step(-HOUR)
    assert (await at_once(fleet)).snapshot_id == first.snapshot_id


async def test_what_comes_after_the_machine_slept_is_another_snapshot(fleet: Fleet) -> None:
    first = await at_once(fleet)
    fleet.clock.suspend(HOUR)
    assert (await at_once(fleet)).snapshot_id != first.snapshot_id


async def test_a_restart_of_the_daemon_joins_and_one_of_the_machine_does_not(
    tmp_path: Any,
) -> None:
    clock = Clock()
    clock.awake_ms = 5 * SECOND
    async with opened(tmp_path, clock=clock) as fleet:
        first = await at_once(fleet)
    clock.pass_by(SECOND)
    async with opened(tmp_path, clock=clock) as fleet:
        assert (await at_once(fleet)).snapshot_id == first.snapshot_id
    # The new boot's clock passes the figure that the old one left.
    clock.reboot(off_ms=4 * SECOND)
    clock.awake_ms = 6 * SECOND + 500
    async with opened(tmp_path, clock=clock) as fleet:
        assert (await at_once(fleet)).snapshot_id != first.snapshot_id


STEP = {"plan_path": "PLAN.md", "step_id": "1", "step_ordinal": 1, "step_status": "in_progress"}


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "paused"},
        {"step_state": DeclaredStep(**STEP | {"step_status": "done"})},  # type: ignore[arg-type]
        {"step_state": DeclaredStep(**STEP | {"step_ordinal": 2})},  # type: ignore[arg-type]
        {"context_digest": DeclaredDigest("high")},
        {"context_digest": DeclaredDigest(protected_artifacts=["a.py"])},
        {"command_outcomes": [outcome("make", "FAIL", summary="2 failed")]},
        {"command_outcomes": [outcome("make")]},
    ],
    ids=["status", "step", "place", "pressure", "artifacts", "failure", "outcome"],
)
async def test_a_material_state_change_makes_a_snapshot_of_its_own(
    fleet: Fleet, changed: dict[str, Any]
) -> None:
    said: dict[str, Any] = {"status": "in_progress", "step_state": DeclaredStep(**STEP)}  # type: ignore[arg-type]
    first = await at_once(fleet, **said)
    assert (await at_once(fleet, **said)).snapshot_id == first.snapshot_id
    other = await at_once(fleet, **said | changed)
    assert other.snapshot_id != first.snapshot_id
    assert (await at_once(fleet, **said | changed)).snapshot_id == other.snapshot_id


async def test_when_the_plan_was_checked_is_not_material(fleet: Fleet) -> None:
    def checked(second: int) -> DeclaredStep:
        at = f"2026-01-05T12:00:0{second}Z"
        return DeclaredStep(todo_compliance=DeclaredCompliance("PASS", checked_at=at))

    first = await at_once(fleet, step_state=checked(0))
    assert (await at_once(fleet, step_state=checked(1))).snapshot_id == first.snapshot_id


async def test_a_step_that_begins_is_material_and_a_command_that_passed_is_not(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    first = await at_once(fleet, window.session_id)
    await told(fleet, "claude-12f459b8", "command_finished", command="ls", result="PASS")
    assert (await at_once(fleet, window.session_id)).snapshot_id == first.snapshot_id
    await window.tell(Planned(items=(PlanItem("A", "in_progress"),), whole=True))
    second = await at_once(fleet, window.session_id)
    assert second.snapshot_id != first.snapshot_id
    # What passed in between stands in the next snapshot.
    assert [each.name for each in second.command_outcomes] == ["ls"]


async def test_a_command_that_failed_is_material_once(fleet: Fleet) -> None:
    await working(fleet)
    first = await at_once(fleet, agent_id="spec-1")
    await told(fleet, "spec-1", "command_finished", command="make", result="FAIL", error="bad")
    second = await at_once(fleet, agent_id="spec-1")
    assert second.snapshot_id != first.snapshot_id
    assert (await at_once(fleet, agent_id="spec-1")).snapshot_id == second.snapshot_id
    await told(fleet, "spec-1", "command_finished", command="make", result="FAIL", error="worse")
    assert (await at_once(fleet, agent_id="spec-1")).snapshot_id != second.snapshot_id


async def test_triggers_of_two_runs_do_not_join(fleet: Fleet) -> None:
    assert (await at_once(fleet)).run_id == RUN
    assert (await at_once(fleet, "build-43")).run_id == "build-43"


async def test_nothing_joins_a_snapshot_whose_row_is_damaged(fleet: Fleet) -> None:
    first = await at_once(fleet)
    fleet.sql("UPDATE snapshots SET document_json = replace(document_json, 'manual', 'timer')")
    second = await at_once(fleet)
    assert second.snapshot_id != first.snapshot_id
    assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == second.snapshot_id


# Retention when a snapshot is taken


async def _kept(fleet: Fleet) -> list[str]:
    page = await fleet.do(SnapshotList(RUN, limit=1_000))
    return [each.snapshot_id for each in page.snapshots]


async def _several(fleet: Fleet, number: int, **said: Any) -> list[Snapshot]:
    return [await record(fleet, **said) for _ in range(number)]


async def test_the_latest_50_snapshots_of_a_run_are_kept(fleet: Fleet) -> None:
    other = await record(fleet, "build-43")
    taken = await _several(fleet, 53)
    kept = await _kept(fleet)
    assert kept == [each.snapshot_id for each in reversed(taken[3:])]
    with pytest.raises(NotFound) as gone:
        await fleet.do(SnapshotGet(taken[0].snapshot_id))
    assert gone.value.values["id"] == taken[0].snapshot_id
    assert await fleet.do(SnapshotGet(other.snapshot_id))
    pruned = (await fleet.do(EventList(type="snapshots_pruned"))).events
    assert [event.data["deleted"] for event in pruned] == [1, 1, 1]


async def test_the_latest_failed_and_the_latest_completed_snapshot_stay(tmp_path: Any) -> None:
    async with opened(tmp_path, retention=Retention(snapshots_per_run=3)) as fleet:
        failed = await _several(fleet, 2, status="failed")
        completed = await _several(fleet, 2, status="completed")
        latest = await _several(fleet, 5, status="in_progress")
        kept = [*reversed(latest[2:]), completed[1], failed[1]]
        assert await _kept(fleet) == [each.snapshot_id for each in kept]


async def test_a_number_that_was_lowered_is_reached_step_by_step(tmp_path: Any) -> None:
    async with opened(tmp_path) as fleet:
        await _several(fleet, 40)
        clock = fleet.clock
    async with opened(tmp_path, clock=clock, retention=Retention(snapshots_per_run=5)) as fleet:
        await record(fleet)
        assert len(await _kept(fleet)) == 21
        await record(fleet)
        assert len(await _kept(fleet)) == 5
