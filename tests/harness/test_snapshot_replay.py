"""Recorded sessions, through real client and daemon, give the snapshots one would write by hand."""

from collections.abc import Callable
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.requests.snapshot import SnapshotGet, SnapshotList
from fleetd.protocol.requests.sortie import SortieList
from fleetd.protocol.snapshots import Snapshot
from tests.support.snapshots import line

from .test_claude_replay import SESSION, Session
from .test_codex_replay import Run

STEPS = ("Read the plan", "Write the parser", "Test it")
LETTERS = {"p": "pending", "i": "in_progress", "c": "completed"}


def recorded(client: Fleet, run_id: str) -> list[Snapshot]:
    """Return the snapshots of a run as they were taken."""
    page = client.call(SnapshotList(run_id, limit=500))
    assert page.total == len(page.snapshots)
    return [client.call(SnapshotGet(each.snapshot_id)) for each in reversed(page.snapshots)]


def plan(session: Session, statuses: str) -> None:
    """Tell that Claude wrote its list of steps, of which there is no recording."""
    todos = [
        {"content": step, "status": LETTERS[letter], "activeForm": step}
        for step, letter in zip(STEPS, statuses, strict=True)
    ]
    fields: dict[str, Any] = {
        "tool_name": "TodoWrite",
        "tool_input": {"todos": todos},
        "tool_response": {"oldTodos": [], "newTodos": todos},
        "tool_use_id": f"toolu_{statuses}",
        "duration_ms": 3,
    }
    session.quiet("PostToolUse.Edit", **fields)


def test_a_session_of_claude_gives_the_snapshots_one_would_write_by_hand(
    connect: Callable[[], Fleet],
) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", "UserPromptSubmit")
    plan(session, "ipp")
    session.quiet("PreToolUse.Bash", "PostToolUseFailure.Bash")
    session.quiet("PostToolUse.Edit", "PostToolUse.Bash.reinterpreted_exit1")
    plan(session, "cip")
    session.quiet("PreCompact.auto")
    session.briefed("SessionStart.compact")
    session.quiet("PostCompact.auto")
    plan(session, "cci")
    session.pause()
    session.quiet("UserPromptSubmit", "PreCompact.manual")
    session.briefed("SessionStart.compact")
    session.quiet("PostCompact.auto")
    plan(session, "ccc")
    session.pause()
    session.quiet("SessionEnd.other")

    snapshots = recorded(session.client, SESSION)
    assert [line(each) for each in snapshots] == [
        "step_boundary in_progress | 1 in_progress | low | TodoWrite PASS 3 ms",
        "error_boundary in_progress | 1 in_progress | low | false FAIL 11 ms",
        (
            "step_boundary in_progress | 1 done | low | Edit PASS 3 ms"
            " | grep -c zzz /dev/null PASS 17 ms | TodoWrite PASS 3 ms"
        ),
        "step_boundary in_progress | 2 in_progress | low",
        "timer in_progress | 2 in_progress | high",
        "step_boundary in_progress | 2 done | low | TodoWrite PASS 3 ms",
        "step_boundary in_progress | 3 in_progress | low",
        "manual in_progress | 3 in_progress | high",
        "step_boundary completed | 3 done | low | TodoWrite PASS 3 ms",
    ]
    sorties = session.client.call(SortieList(session.mission.id)).sorties
    places = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [each.step_state.step_id for each in snapshots] == [sorties[n].id for n in places]
    assert [each.note for each in snapshots if each.note] == [
        "before the auto compaction",
        "before the manual compaction",
    ]
    assert {each.step_state.todo_compliance.result for each in snapshots} == {"PASS"}
    assert snapshots[3].step_state.resume_hints.next_actions[-1] == "Then: Test it"


def test_a_run_of_codex_gives_the_snapshots_one_would_write_by_hand(
    connect: Callable[[], Fleet],
) -> None:
    run = Run(connect, "_sequence.planned", "_rollout.planned")
    run.play()
    snapshots = recorded(run.client, "01a2016d-7071-7d63-a3bf-8e1f3ddaf33a")
    assert [line(each, timed=False) for each in snapshots] == [
        "step_boundary in_progress | 1 in_progress | low | update_plan PASS",
        # How a command ended stands in the rollout only, and is read there a little later.
        (
            "step_boundary in_progress | 1 done | low | apply_patch PASS | false WARN"
            " | cat nofile WARN | update_plan PASS"
        ),
        "step_boundary in_progress | 2 in_progress | low",
        (
            "error_boundary in_progress | 2 in_progress | low | apply_patch PASS | false FAIL"
            " | cat nofile FAIL | true PASS"
        ),
        "timer in_progress | 2 in_progress | high",
        "timer paused | 2 in_progress | low",
    ]
    [first, second] = run.client.call(SortieList(run.mission.id)).sorties
    assert [each.step_state.step_id for each in snapshots] == [first.id] * 2 + [second.id] * 4


def test_a_session_without_a_plan_is_recorded_where_something_fails(
    connect: Callable[[], Fleet],
) -> None:
    session = Session(connect)
    session.quiet("SessionStart.startup", "UserPromptSubmit", "PostToolUse.Edit")
    assert recorded(session.client, SESSION) == []
    session.quiet("PreToolUse.Bash", "PostToolUseFailure.Bash")
    session.quiet("SessionEnd.other")
    assert [line(each) for each in recorded(session.client, SESSION)] == [
        "error_boundary in_progress | no step | low | Edit PASS 3 ms | false FAIL 11 ms",
        "timer paused | no step | low",
    ]
