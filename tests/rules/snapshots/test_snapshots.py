"""Snapshots of runs: what the lifecycle's document says of their schema, sentence by sentence."""

import hashlib
import json
import re
from typing import Any

import msgspec
import pytest

from fleetd.config import Retention
from fleetd.domain.snapshots import codec
from fleetd.domain.snapshots.outcomes import LAST_EVENTS
from fleetd.harness.report import (
    Compacting,
    Failed,
    Paused,
    PlanItem,
    Planned,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.mission import MissionGet
from fleetd.protocol.requests.snapshot import (
    DeclaredCompliance,
    DeclaredDigest,
    DeclaredHints,
    DeclaredOutcome,
    DeclaredStep,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotRecord,
)
from fleetd.protocol.requests.sortie import SortieBlock, SortieFail
from fleetd.protocol.snapshots import MOST_COUNTED
from fleetd.protocol.types import RunStatus, StepStatus
from tests.support.fleet import MINUTE, SECOND, Fleet, opened
from tests.support.hook_sessions import PROJECT, Window
from tests.support.snapshots import RUN, at_once, outcome, record, told, working

FIELDS = [
    *("snapshot_id", "created_at", "run_id", "source", "status"),
    *("step_state", "context_digest", "command_outcomes", "integrity"),
]


async def planned(window: Window, *items: str) -> None:
    marks = {">": "in_progress", "x": "completed"}
    plan = [PlanItem(text=i[2:], status=marks.get(i[0], "pending")) for i in items]  # type: ignore[arg-type]
    await window.tell(Planned(items=tuple(plan), whole=True))


# Snapshot schema


async def test_each_snapshot_is_a_single_json_document_with_deterministic_top_level_fields(
    fleet: Fleet,
) -> None:
    snapshot = await record(fleet, command_outcomes=[outcome("make")])
    data = codec.to_file(snapshot)
    assert list(json.loads(data)) == FIELDS
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert codec.to_file(codec.from_file(data, "here")) == data
    stored = fleet.sql("SELECT document_json FROM snapshots")[0]["document_json"]
    assert stored.encode() + b"\n" == data


async def test_the_fields_of_each_part_stand_in_the_order_of_the_document(fleet: Fleet) -> None:
    snapshot = await record(fleet, command_outcomes=[outcome("make")])
    whole = json.loads(codec.to_file(snapshot))
    assert list(whole["step_state"]) == [
        *("plan_path", "step_id", "step_ordinal", "step_status"),
        *("todo_compliance", "resume_hints"),
    ]
    assert list(whole["step_state"]["todo_compliance"]) == ["result", "violations", "checked_at"]
    assert list(whole["step_state"]["resume_hints"]) == ["eligible", "reason_code", "next_actions"]
    assert list(whole["context_digest"]) == [
        *("window_pressure", "protected_artifacts", "dropped_items", "policy_profile"),
    ]
    assert [list(each) for each in whole["command_outcomes"]] == [
        ["kind", "name", "result", "duration_ms", "reason_code", "summary"]
    ]


async def test_snapshot_id_is_a_stable_unique_id(fleet: Fleet) -> None:
    fleet.clock.ms += 7
    first = await at_once(fleet)
    second = await at_once(fleet, "build-43")
    assert re.fullmatch(r"cp_20260105T120000007Z_\d+", first.snapshot_id)
    assert first.created_at == second.created_at == "2026-01-05T12:00:00.007Z"
    assert first.snapshot_id != second.snapshot_id
    assert (await fleet.do(SnapshotGet(first.snapshot_id))).snapshot_id == first.snapshot_id


async def test_two_snapshots_of_a_run_in_one_millisecond_are_two_and_in_order(
    fleet: Fleet,
) -> None:
    first = await at_once(fleet, status="in_progress")
    second = await at_once(fleet, status="paused")
    third = await at_once(fleet, status="completed")
    assert first.created_at == third.created_at
    page = await fleet.do(SnapshotList(RUN))
    assert [each.snapshot_id for each in page.snapshots] == [
        each.snapshot_id for each in (third, second, first)
    ]
    assert (await fleet.do(SnapshotLatest(RUN))).status == "completed"


async def test_the_newest_is_the_newest_also_when_the_clock_was_set_back(fleet: Fleet) -> None:
    await at_once(fleet, status="in_progress")
    fleet.clock.step(-10 * MINUTE)
    second = await at_once(fleet, status="paused")
    assert (await fleet.do(SnapshotLatest(RUN))).snapshot_id == second.snapshot_id
    assert second.created_at == "2026-01-05T11:50:00.000Z"


async def test_created_at_is_an_rfc3339_utc_timestamp(fleet: Fleet) -> None:
    assert (await at_once(fleet)).created_at == "2026-01-05T12:00:00.000Z"


async def test_run_id_is_the_session_associated_with_the_snapshot(fleet: Fleet) -> None:
    window = Window(fleet, "12f459b8-ddba")
    await window.tell(SessionStarted("startup"), PromptSubmitted("Add login"))
    snapshot = await record(fleet, None, agent_id="claude-12f459b8")
    assert snapshot.run_id == "12f459b8-ddba"
    assert snapshot.agent_id == "claude-12f459b8"


@pytest.mark.parametrize("source", ["step_boundary", "error_boundary", "timer", "manual"])
async def test_source_is_what_triggered_it(fleet: Fleet, source: Any) -> None:
    assert (await record(fleet, source=source)).source == source
    [summary] = (await fleet.do(SnapshotList(RUN))).snapshots
    assert summary.source == source


@pytest.mark.parametrize("status", ["in_progress", "failed", "completed", "paused"])
async def test_status_is_the_execution_status_that_is_declared(fleet: Fleet, status: Any) -> None:
    await working(fleet)
    assert (await record(fleet, status=status, agent_id="spec-1")).status == status


async def test_status_is_completed_when_every_step_of_the_plan_is_done(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "x A", "> B")
    assert (await record(fleet, window.session_id)).status == "in_progress"
    await planned(window, "x A", "x B")
    assert (await record(fleet, window.session_id)).status == "completed"


async def test_status_is_paused_while_the_agent_waits_for_its_user(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> A")
    await window.tell(Paused())
    assert (await record(fleet, window.session_id)).status == "paused"
    await window.tell(PromptSubmitted("Go on"))
    assert (await record(fleet, window.session_id)).status == "in_progress"


async def test_status_is_paused_when_the_session_ended_before_its_plan_did(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> A")
    await window.tell(SessionEnded())
    snapshot = await record(fleet, window.session_id)
    assert (snapshot.status, snapshot.step_state.resume_hints.eligible) == ("paused", True)


async def test_status_is_failed_when_the_turn_broke_off_until_something_is_done(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> A")
    await window.tell(Failed("overloaded"))
    snapshot = await record(fleet, window.session_id)
    assert snapshot.status == "failed"
    assert snapshot.step_state.resume_hints.reason_code == "resume_after_failure"
    assert snapshot.step_state.resume_hints.next_actions == [
        "Look into what failed: overloaded",
        "Continue: A",
    ]
    await window.tell(PromptSubmitted("Go on"))
    assert (await record(fleet, window.session_id)).status == "in_progress"


async def test_status_is_failed_when_the_agent_was_lost(fleet: Fleet) -> None:
    await working(fleet)
    fleet.sql("UPDATE agents SET status = 'lost' WHERE id = 'spec-1'")
    snapshot = await record(fleet, agent_id="spec-1")
    assert snapshot.status == "failed"
    first, *_ = snapshot.step_state.resume_hints.next_actions
    assert first == "Look into what failed: spec-1 ended without notice"


async def test_integrity_is_a_checksum_and_format_version_metadata(fleet: Fleet) -> None:
    snapshot = await record(fleet, command_outcomes=[outcome("ünïcode")])
    whole = json.loads(codec.to_file(snapshot))
    integrity = whole.pop("integrity")
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert integrity == {
        "algorithm": "sha256",
        "digest": hashlib.sha256(canonical.encode()).hexdigest(),
        "format_version": 1,
    }


# step_state contract


async def test_step_state_is_what_is_declared(fleet: Fleet) -> None:
    step = DeclaredStep("PLAN.md", "3b", 4, "in_progress")
    state = (await record(fleet, step_state=step)).step_state
    assert (state.plan_path, state.step_id, state.step_ordinal, state.step_status) == (
        *("PLAN.md", "3b", 4, "in_progress"),
    )
    [summary] = (await fleet.do(SnapshotList(RUN))).snapshots
    assert (summary.step_id, summary.step_ordinal, summary.step_status) == ("3b", 4, "in_progress")


async def test_step_state_is_the_step_under_way_in_the_plan_of_a_session(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "x A", "> B", "- C")
    state = (await record(fleet, window.session_id)).step_state
    sortie = fleet.sql("SELECT id FROM sorties WHERE title = 'B'")[0]["id"]
    assert (state.plan_path, state.step_id, state.step_ordinal) == (None, sortie, 2)
    assert state.step_status == "in_progress"


@pytest.mark.parametrize(
    ("items", "ordinal", "status"),
    [
        (["x A", "- B", "- C"], 2, "pending"),
        (["x A", "- B", "> C"], 3, "in_progress"),
        (["x A", "x B"], 2, "done"),
    ],
)
async def test_the_step_is_the_one_under_way_else_the_next_else_the_last_closed(
    fleet: Fleet, items: list[str], ordinal: int, status: str
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, *items)
    state = (await record(fleet, window.session_id)).step_state
    assert (state.step_ordinal, state.step_status) == (ordinal, status)


async def test_a_step_that_the_plan_dropped_is_skipped_and_a_failed_one_failed(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> A")
    await planned(window)
    assert (await record(fleet, window.session_id)).step_state.step_status == "skipped"

    mission = await working(fleet, 1)
    [sortie] = fleet.sql("SELECT id FROM sorties WHERE mission_id = :m", m=mission)
    await fleet.do(SortieFail(sortie["id"], "no way", "spec-1"))
    assert (await record(fleet, "r2", agent_id="spec-1")).step_state.step_status == "failed"


async def test_a_step_that_is_named_is_that_step_with_what_is_known_of_it(fleet: Fleet) -> None:
    mission = await working(fleet, 3)
    second = fleet.sql("SELECT id FROM sorties WHERE mission_id = :m ORDER BY position", m=mission)
    step = DeclaredStep(step_id=second[1]["id"], step_status="done")
    state = (await record(fleet, agent_id="spec-1", step_state=step)).step_state
    assert (state.step_ordinal, state.step_status) == (2, "done")
    other = DeclaredStep(step_id="of-another-plan")
    state = (await record(fleet, agent_id="spec-1", step_state=other)).step_state
    assert (state.step_id, state.step_ordinal, state.step_status) == (
        *("of-another-plan", None, None),
    )


async def test_of_a_run_nobody_knows_is_said_what_is_declared_and_nothing_else(
    fleet: Fleet,
) -> None:
    snapshot = await record(fleet)
    state = snapshot.step_state
    assert (state.plan_path, state.step_id, state.step_ordinal, state.step_status) == (None,) * 4
    assert state.resume_hints.reason_code == "resume_no_plan"
    assert not state.resume_hints.eligible
    assert snapshot.command_outcomes == []
    assert snapshot.agent_id is None


async def test_what_was_declared_stands_until_something_else_is_declared(fleet: Fleet) -> None:
    """A heartbeat of a run that only its caller knows must not take its step away."""
    step = DeclaredStep("PLAN.md", "3b", 4, "in_progress")
    first = await record(
        fleet, status="paused", step_state=step, context_digest=DeclaredDigest("high", ["a.md"])
    )
    beat = await record(fleet, source="timer")
    assert beat.snapshot_id != first.snapshot_id
    assert beat.status == "paused"
    assert beat.step_state == first.step_state
    assert beat.context_digest == first.context_digest
    after = await record(fleet, step_state=DeclaredStep("PLAN.md", "4", 5, "pending"))
    assert after.step_state.step_id == "4"


async def test_todo_compliance_is_pass_without_violations(fleet: Fleet) -> None:
    await working(fleet)
    complied = (await record(fleet, agent_id="spec-1")).step_state.todo_compliance
    assert (complied.result, complied.violations) == ("PASS", [])
    assert complied.checked_at == fleet.clock.now


async def test_two_steps_in_progress_at_once_are_a_violation(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> A", "> B", "- C")
    complied = (await record(fleet, window.session_id)).step_state.todo_compliance
    assert (complied.result, complied.violations) == (
        "FAIL",
        ["2 steps are in progress at once: A; B"],
    )


async def test_todo_compliance_that_is_declared_wins(fleet: Fleet) -> None:
    await working(fleet)
    said = DeclaredCompliance("WARN", ["no tests"], "2026-01-05T13:00:00+02:00")
    snapshot = await record(fleet, agent_id="spec-1", step_state=DeclaredStep(todo_compliance=said))
    complied = snapshot.step_state.todo_compliance
    assert (complied.result, complied.violations) == ("WARN", ["no tests"])
    assert complied.checked_at == "2026-01-05T11:00:00.000Z"
    assert snapshot.step_state.step_ordinal == 1


@pytest.mark.parametrize("when", ["yesterday", "", "0001-01-01T00:00:00+23:59", "2026-13-01"])
async def test_a_time_of_checking_that_is_none_is_refused(fleet: Fleet, when: str) -> None:
    said = DeclaredStep(todo_compliance=DeclaredCompliance("PASS", checked_at=when))
    with pytest.raises(InvalidParams) as caught:
        await record(fleet, step_state=said)
    assert caught.value.values["field"] == "step_state.todo_compliance.checked_at"
    assert fleet.sql("SELECT count(*) AS n FROM runs") == [{"n": 0}]


async def test_resume_hints_name_what_to_do_next_in_the_order_of_the_plan(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "- A", "> B", "x C", "- D")
    hints = (await record(fleet, window.session_id)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (True, "resume_ready")
    assert hints.next_actions == ["Continue: B", "Then: A", "Then: D"]


async def test_resume_hints_put_what_failed_first_until_something_passes(fleet: Fleet) -> None:
    await working(fleet, 1)
    await told(fleet, "spec-1", "command_finished", command="make", result="FAIL", error="2 bad")
    hints = (await record(fleet, agent_id="spec-1")).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (True, "resume_after_failure")
    assert hints.next_actions == ["Look into what failed: make: 2 bad", "Continue: S0"]
    again = (await record(fleet, agent_id="spec-1")).step_state.resume_hints
    assert again == hints
    await told(fleet, "spec-1", "command_finished", command="make", result="PASS")
    hints = (await record(fleet, agent_id="spec-1")).step_state.resume_hints
    assert (hints.reason_code, hints.next_actions) == ("resume_ready", ["Continue: S0"])


async def test_what_failed_a_thousand_events_ago_is_not_what_failed_last(fleet: Fleet) -> None:
    await working(fleet)
    await told(fleet, "spec-1", "command_finished", command="pytest", result="FAIL")
    first = await record(fleet, agent_id="spec-1")
    fleet.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :most)"
        " INSERT INTO events (type, timestamp, agent_id, activity, stream, data_json)"
        " SELECT 'file_read', :at, 'spec-1', 1, 'agent:spec-1', '{}' FROM n",
        most=LAST_EVENTS,
        at=first.created_at,
    )
    codes = [
        (await record(fleet, agent_id="spec-1")).step_state.resume_hints.reason_code
        for _ in range(2)
    ]
    # What the snapshot before says is not forgotten, and said again once.
    assert codes == ["resume_after_failure", "resume_ready"]


async def test_a_run_with_nothing_left_to_do_is_not_eligible(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "x A")
    hints = (await record(fleet, window.session_id)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (False, "resume_nothing_left")
    assert hints.next_actions == []


async def test_a_blocked_step_says_why(fleet: Fleet) -> None:
    mission = await working(fleet, 1)
    [sortie] = fleet.sql("SELECT id FROM sorties WHERE mission_id = :m", m=mission)
    await fleet.do(SortieBlock(sortie["id"], "no key", "spec-1"))
    state = (await record(fleet, agent_id="spec-1")).step_state
    assert state.step_status == "in_progress"
    assert state.resume_hints.next_actions == ["Continue: S0 (blocked: no key)"]


async def test_a_step_that_is_declared_stands_for_the_plan_that_nobody_knows(
    fleet: Fleet,
) -> None:
    step = DeclaredStep("PLAN.md", step_ordinal=4, step_status="in_progress")
    hints = (await record(fleet, step_state=step)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (True, "resume_ready")
    assert hints.next_actions == ["Continue: step 4 of PLAN.md"]


async def test_resume_hints_that_are_declared_win_and_the_rest_is_computed(fleet: Fleet) -> None:
    await working(fleet, 1)
    said = DeclaredStep(resume_hints=DeclaredHints(eligible=False, reason_code="needs_review"))
    hints = (await record(fleet, agent_id="spec-1", step_state=said)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (False, "needs_review")
    assert hints.next_actions == ["Continue: S0"]
    said = DeclaredStep(resume_hints=DeclaredHints(eligible=False, next_actions=["Ask Ann"]))
    hints = (await record(fleet, agent_id="spec-1", step_state=said)).step_state.resume_hints
    assert (hints.reason_code, hints.next_actions) == ("resume_declared", ["Ask Ann"])


@pytest.mark.parametrize("step_status", ["done", "skipped"])
@pytest.mark.parametrize("status", [None, "completed"])
async def test_a_run_whose_told_plan_is_finished_is_told_resume_nothing_left(
    fleet: Fleet, step_status: StepStatus, status: RunStatus | None
) -> None:
    said = DeclaredStep(plan_path="PLAN.md", step_ordinal=2, step_status=step_status)
    hints = (await record(fleet, step_state=said, status=status)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (False, "resume_nothing_left")
    assert hints.next_actions == []


async def test_a_run_that_is_completed_has_nothing_left_whatever_its_step_was(
    fleet: Fleet,
) -> None:
    said = DeclaredStep(plan_path="PLAN.md", step_ordinal=2, step_status="in_progress")
    assert (await record(fleet, step_state=said)).step_state.resume_hints.eligible
    state = (await record(fleet, status="completed")).step_state
    assert (state.step_ordinal, state.step_status) == (2, "in_progress")
    assert (state.resume_hints.eligible, state.resume_hints.reason_code) == (
        *(False, "resume_nothing_left"),
    )


async def test_who_says_what_comes_next_says_that_the_run_can_go_on(fleet: Fleet) -> None:
    said = DeclaredStep(resume_hints=DeclaredHints(next_actions=["Write tests"]))
    hints = (await record(fleet, step_state=said)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (True, "resume_declared")
    said = DeclaredStep(resume_hints=DeclaredHints(eligible=False, next_actions=["Write tests"]))
    hints = (await record(fleet, step_state=said)).step_state.resume_hints
    assert (hints.eligible, hints.reason_code) == (False, "resume_no_plan")


async def test_actions_and_violations_are_20_at_most_and_the_rest_is_counted(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await planned(window, "> 0", *(f"- {n}" for n in range(1, 25)))
    snapshot = await record(fleet, window.session_id)
    assert len(snapshot.step_state.resume_hints.next_actions) == 20
    assert snapshot.context_digest.dropped_items == 5
    said = DeclaredStep(todo_compliance=DeclaredCompliance("FAIL", [f"v{n}" for n in range(23)]))
    snapshot = await record(fleet, "r2", step_state=said)
    assert snapshot.step_state.todo_compliance.violations == [f"v{n}" for n in range(20)]
    assert snapshot.context_digest.dropped_items == 3


# context_digest contract


@pytest.mark.parametrize(
    ("tokens", "size", "expected"),
    [
        (None, None, "low"),
        (500, None, "low"),
        (0, 1_000, "low"),
        (499, 1_000, "low"),
        (500, 1_000, "medium"),
        (799, 1_000, "medium"),
        (800, 1_000, "high"),
        (2_000, 1_000, "high"),
    ],
)
async def test_window_pressure_follows_what_the_harness_told_of_its_window(
    fleet: Fleet, tokens: int | None, size: int | None, expected: str
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    fleet.sql("UPDATE sessions SET window_tokens = :t, window_size = :s", t=tokens, s=size)
    snapshot = await record(fleet, window.session_id)
    assert snapshot.context_digest.window_pressure == expected
    assert (snapshot.window_tokens, snapshot.window_size) == (tokens, size)


async def test_window_pressure_is_high_while_the_window_is_about_to_be_compacted(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(Compacting())
    digest = (await record(fleet, window.session_id)).context_digest
    assert digest.window_pressure == "high"


async def test_protected_artifacts_are_the_files_locked_then_those_of_the_open_step(
    fleet: Fleet,
) -> None:
    mission_id = await working(fleet)
    mission = await fleet.do(MissionGet(mission_id))
    await fleet.lock(mission, "src/b.py", "spec-1")
    await fleet.lock(mission, "src/a.py", "somebody-else")
    digest = (await at_once(fleet, agent_id="spec-1")).context_digest
    assert digest.protected_artifacts == ["src/b.py", "src/0.py"]
    fleet.clock.pass_by(11 * MINUTE)  # the lease has run out
    digest = (await at_once(fleet, agent_id="spec-1")).context_digest
    assert digest.protected_artifacts == ["src/0.py"]


async def test_protected_artifacts_are_50_at_most_and_dropped_items_counts_the_rest(
    fleet: Fleet,
) -> None:
    said = DeclaredDigest(protected_artifacts=[f"f{n}" for n in range(60)])
    digest = (await record(fleet, context_digest=said)).context_digest
    assert digest.protected_artifacts == [f"f{n}" for n in range(50)]
    assert digest.dropped_items == 10


async def test_dropped_items_is_a_count_only(fleet: Fleet) -> None:
    many = [outcome(f"c{n}") for n in range(60)]
    snapshot = await record(
        fleet, command_outcomes=many, context_digest=DeclaredDigest(dropped_items=7)
    )
    assert snapshot.context_digest.dropped_items == 17


async def test_dropped_items_counts_no_further_than_a_count_may_be(fleet: Fleet) -> None:
    said = DeclaredDigest(dropped_items=MOST_COUNTED)
    many = [outcome(f"c{n}") for n in range(51)]
    snapshot = await record(fleet, command_outcomes=many, context_digest=said)
    assert snapshot.context_digest.dropped_items == MOST_COUNTED


async def test_policy_profile_is_the_active_profile(fleet: Fleet) -> None:
    assert (await record(fleet)).context_digest.policy_profile == "default"
    said = DeclaredDigest(policy_profile="frugal")
    assert (await record(fleet, context_digest=said)).context_digest.policy_profile == "frugal"


async def test_a_profile_of_ones_own_is_known_by_its_digest(tmp_path: Any) -> None:
    profiles = set()
    for days in (3, 4):
        place = tmp_path / str(days)
        place.mkdir()
        async with opened(place, retention=Retention(snapshot_days=days)) as fleet:
            profiles.add((await record(fleet)).context_digest.policy_profile)
    assert len(profiles) == 2
    assert all(re.fullmatch("custom-[0-9a-f]{8}", profile) for profile in profiles)


# command_outcomes contract


async def test_command_outcomes_are_an_array_of_bounded_entries(fleet: Fleet) -> None:
    many = [outcome(f"c{n}") for n in range(60)]
    kept = (await record(fleet, command_outcomes=many)).command_outcomes
    assert [each.name for each in kept] == [f"c{n}" for n in range(10, 60)]
    [summary] = (await fleet.do(SnapshotList(RUN))).snapshots
    assert summary.outcome_count == 50


@pytest.mark.parametrize("kind", ["shell", "slash_command", "tool_use"])
@pytest.mark.parametrize("result", ["PASS", "FAIL", "WARN"])
async def test_an_outcome_has_kind_name_result_duration_reason_code_and_summary(
    fleet: Fleet, kind: Any, result: Any
) -> None:
    said = DeclaredOutcome(kind, "make test", result, 1_200, "exit_2", "2 failed")
    [kept] = (await record(fleet, command_outcomes=[said])).command_outcomes
    assert msgspec.to_builtins(kept) == msgspec.to_builtins(said)


async def test_reason_code_is_optional(fleet: Fleet) -> None:
    [kept] = (await record(fleet, command_outcomes=[outcome("ls")])).command_outcomes
    assert kept.reason_code is None


async def test_outcomes_are_those_since_the_previous_snapshot(fleet: Fleet) -> None:
    await working(fleet)
    await told(fleet, "spec-1", "command_finished", command="make", result="PASS", call_id="1")
    first = await record(fleet, agent_id="spec-1")
    await told(fleet, "spec-1", "command_finished", command="ls", result="PASS", call_id="2")
    await told(fleet, "other", "command_finished", command="rm", result="PASS", call_id="3")
    second = await record(fleet, agent_id="spec-1")
    third = await record(fleet, agent_id="spec-1")
    assert [[each.name for each in s.command_outcomes] for s in (first, second, third)] == [
        *(["make"], ["ls"], []),
    ]


async def test_the_first_outcomes_of_a_run_are_those_of_its_session(fleet: Fleet) -> None:
    """An agent that has a second session does not tell of the first one's commands."""
    window = Window(fleet, "first-session")
    window.env = {"wanted_agent_id": "ann"}
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(ToolFinished("Bash", "1", "make", passed=True))
    await window.tell(SessionEnded())
    fleet.clock.pass_by(SECOND)
    window = Window(fleet, "second-session")
    window.env = {"wanted_agent_id": "ann"}
    await window.tell(PromptSubmitted("Add logout"))
    await window.tell(ToolFinished("Bash", "2", "ls", passed=True))
    snapshot = await record(fleet, "second-session")
    assert snapshot.agent_id == "ann"
    assert [each.name for each in snapshot.command_outcomes] == ["ls"]


async def test_two_harnesses_with_one_session_id_lose_each_other_no_outcome(fleet: Fleet) -> None:
    """They are one run; each agent's commands stand in its own snapshots."""
    names: dict[str, list[str]] = {"claude": [], "codex": []}
    windows = {name: Window(fleet, "same", harness=name) for name in names}
    for name, window in windows.items():
        await window.tell(PromptSubmitted("Add login"), delivery_id=f"{name}-begins")
    for number in range(3):
        for name, window in windows.items():
            ran = f"{name}-{number}"
            done = ToolFinished("Bash", ran, ran, passed=True)
            await window.tell(done, delivery_id=f"delivery-{ran}")
        # The other's snapshot comes in between.
        for name in ("codex", "claude") if number % 2 else ("claude", "codex"):
            fleet.clock.pass_by(SECOND)
            snapshot = await record(fleet, "same", agent_id=f"{name}-same")
            names[name] += [each.name for each in snapshot.command_outcomes]
    assert names == {name: [f"{name}-{number}" for number in range(3)] for name in names}


async def test_a_call_is_one_outcome_of_which_the_newest_word_counts(fleet: Fleet) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(ToolStarted("Bash", "1", "make"))
    fleet.clock.pass_by(1_500)
    await window.tell(ToolFinished("Bash", "1", "make", passed=False, error="Exit 2\nbad"))
    await window.tell(ToolFinished("Read", "2", passed=False, error="no file", duration_ms=3))
    await window.tell(ToolFinished("Read", "3", passed=True, duration_ms=4))
    await window.tell(ToolFinished("Bash", "4", "ls"))
    await record(fleet, window.session_id)
    # What failed has its own snapshots already.
    page = await fleet.do(SnapshotList(window.session_id))
    taken = [await fleet.do(SnapshotGet(each.snapshot_id)) for each in reversed(page.snapshots)]
    kept = [outcome for each in taken for outcome in each.command_outcomes]
    assert [(o.kind, o.name, o.result, o.duration_ms, o.reason_code, o.summary) for o in kept] == [
        ("shell", "make", "FAIL", 1_500, "command_failed", "Exit 2 bad"),
        ("tool_use", "Read", "FAIL", 0, "tool_failed", "no file"),
        ("tool_use", "Read", "PASS", 4, None, ""),
        ("shell", "ls", "WARN", 0, "outcome_unknown", ""),
    ]


async def test_a_call_that_began_before_the_last_snapshot_has_its_whole_duration(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Add login"))
    await window.tell(ToolStarted("Bash", "1", "make"))
    await record(fleet, window.session_id)
    await window.tell(ToolFinished("Bash", "1", "make", passed=True))
    [kept] = (await record(fleet, window.session_id)).command_outcomes
    assert kept.duration_ms == MINUTE


async def test_a_slash_command_is_told_from_a_tool(fleet: Fleet) -> None:
    await working(fleet)
    await told(fleet, "spec-1", "tool_finished", tool="SlashCommand", call_id="1")
    [kept] = (await record(fleet, agent_id="spec-1")).command_outcomes
    assert kept.kind == "slash_command"


async def test_outcomes_of_the_log_are_the_last_50_and_the_others_are_counted(
    fleet: Fleet,
) -> None:
    await working(fleet)
    for n in range(70):
        await told(fleet, "spec-1", "tool_finished", tool=f"t{n}", call_id=str(n))
    snapshot = await record(fleet, agent_id="spec-1")
    assert [each.name for each in snapshot.command_outcomes] == [f"t{n}" for n in range(20, 70)]
    assert snapshot.context_digest.dropped_items == 20


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"command": 5, "duration_ms": "long", "call_id": ["x"], "result": {"a": 1}},
        {"command": "x" * 70_000, "duration_ms": -1, "error": "y" * 70_000, "result": "MAYBE"},
        {"name": "\x1b[31m\u202ered", "duration_ms": True, "happened_at": "then"},
        {"duration_ms": 2**60},
    ],
)
@pytest.mark.parametrize("kind", ["command_finished", "tool_finished", "tool_failed"])
async def test_whatever_is_appended_as_an_event_a_snapshot_can_be_taken(
    fleet: Fleet, kind: str, data: dict[str, Any]
) -> None:
    await working(fleet)
    await told(fleet, "spec-1", kind, **data)
    snapshot = await record(fleet, agent_id="spec-1")
    [kept] = snapshot.command_outcomes
    assert 0 < len(kept.name) <= 200
    assert len(kept.summary) <= 500
    assert kept.duration_ms == 0
    assert "\x1b" not in kept.name
    assert codec.from_file(codec.to_file(snapshot), "here").command_outcomes == [kept]


async def test_declared_outcomes_win_and_those_of_the_log_stand_in_the_next(fleet: Fleet) -> None:
    await working(fleet)
    await told(fleet, "spec-1", "command_finished", command="make", result="PASS")
    first = await record(fleet, agent_id="spec-1", command_outcomes=[outcome("mine")])
    assert [each.name for each in first.command_outcomes] == ["mine"]
    second = await record(fleet, agent_id="spec-1")
    assert [each.name for each in second.command_outcomes] == ["make"]


async def test_secrets_in_what_is_declared_are_gone(fleet: Fleet) -> None:
    secret = "ghp_" + "a1B2" * 9
    step = DeclaredStep(
        todo_compliance=DeclaredCompliance("FAIL", [f"token {secret}"]),
        resume_hints=DeclaredHints(next_actions=[f"use {secret}"]),
    )
    said = [outcome(f"curl -H {secret}", summary="x" * 455 + f" {secret}")]
    snapshot = await record(fleet, step_state=step, command_outcomes=said, note=f"with {secret}")
    assert secret not in msgspec.json.encode(snapshot).decode()
    assert len(snapshot.command_outcomes[0].summary) <= 500
    await fleet.settle()
    assert secret not in str(fleet.dump())
    assert not any(secret.encode() in data for data in fleet.files().values() if data)


# What a snapshot leaves behind


async def test_a_snapshot_is_no_activity_of_anybody(fleet: Fleet) -> None:
    mission_id = await working(fleet)
    before = await fleet.do(MissionGet(mission_id))
    seen = fleet.sql("SELECT last_seen_at FROM agents")
    snapshot = await record(fleet, agent_id="spec-1")
    assert await fleet.do(MissionGet(mission_id)) == before
    assert fleet.sql("SELECT last_seen_at FROM agents") == seen
    [event] = (await fleet.do(EventList(type="snapshot_recorded"))).events
    assert (event.mission_id, event.agent_id) == (mission_id, "spec-1")
    assert event.data == {
        "snapshot_id": snapshot.snapshot_id,
        "run_id": RUN,
        "source": "manual",
        "status": "in_progress",
    }


async def test_a_snapshot_is_told_of_in_the_daemons_log(fleet: Fleet, caplog: Any) -> None:
    caplog.set_level("INFO")
    snapshot = await record(fleet, source="step_boundary")
    line = f"Snapshot recorded: {snapshot.snapshot_id} (step_boundary) of {RUN}"
    assert line in [entry.message for entry in caplog.records]


async def test_a_repeated_key_returns_the_first_snapshot_and_changes_nothing(
    fleet: Fleet,
) -> None:
    request = SnapshotRecord(RUN, status="paused", idempotency_key="k")
    first = await fleet.do(request)
    fleet.clock.pass_by(MINUTE)
    again = await fleet.do(request)
    assert again.snapshot_id == first.snapshot_id
    assert (await fleet.do(SnapshotList(RUN))).total == 1


async def test_an_agent_of_the_protocol_is_recorded_as_one_of_a_hook_is(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("ann", "specialist", session_id="my/own run", cwd=PROJECT))
    snapshot = await record(fleet, None, agent_id="ann")
    assert re.fullmatch("my-own-run-[0-9a-f]{8}", snapshot.run_id)
    assert (await fleet.do(SnapshotLatest(agent_id="ann"))).snapshot_id == snapshot.snapshot_id
