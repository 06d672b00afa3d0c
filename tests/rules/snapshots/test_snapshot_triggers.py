"""What makes runs' snapshots by themselves: each trigger of the document, and nothing else."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from fleetd.config import Retention
from fleetd.domain.agents.due_work import due_work
from fleetd.domain.core.tx import WatchProcess
from fleetd.engine import repositories
from fleetd.engine.jobs.liveness import process_ended, scan
from fleetd.engine.jobs.timers import scan_liveness
from fleetd.harness.report import (
    Compacted,
    Compacting,
    Failed,
    Paused,
    PlanItem,
    Planned,
    PlanStatus,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    ToolFinished,
    ToolStarted,
)
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from fleetd.protocol.snapshots import SnapshotDocument
from fleetd.protocol.timestamps import to_ms
from tests.support.fleet import HOUR, MINUTE, SECOND, Clock, Fleet, opened
from tests.support.hook_sessions import Window
from tests.support.snapshots import line

RUN = "12f459b8-ddba"
AGENT = "claude-12f459b8"
BEAT = 120 * SECOND
LETTERS: dict[str, PlanStatus] = {"p": "pending", "i": "in_progress", "c": "completed"}


def told(fleet: Fleet, run_id: str = RUN) -> list[SnapshotDocument]:
    """Return what was recorded of a run, in order."""
    rows = fleet.sql(
        "SELECT document_json FROM snapshots WHERE run_id = :run ORDER BY seq", run=run_id
    )
    return [msgspec.json.decode(row["document_json"], type=SnapshotDocument) for row in rows]


def lines(fleet: Fleet, run_id: str = RUN) -> list[str]:
    return [line(each) for each in told(fleet, run_id)]


def seconds(fleet: Fleet, start: int) -> list[int]:
    """Return how many seconds after a moment each was taken."""
    return [(to_ms(each.created_at) - start) // SECOND for each in told(fleet)]


def notes(fleet: Fleet) -> list[str | None]:
    return [row["note"] for row in fleet.sql("SELECT note FROM snapshots ORDER BY seq")]


def plan(statuses: str, *, of: Sequence[str] = ("Model", "Form", "Mail"), **more: Any) -> Planned:
    """Return a whole list: a letter per item, a blank for one that the list does not name."""
    items = tuple(
        PlanItem(text, LETTERS[letter])
        for text, letter in zip(of, statuses, strict=False)
        if letter != " "
    )
    return Planned(items, **({"whole": True} | more))


@pytest.fixture
async def window(fleet: Fleet) -> Window:
    """A session whose user has spoken."""
    session = Window(fleet, RUN)
    await session.tell(SessionStarted("startup"))
    await session.tell(PromptSubmitted("Add login"))
    return session


@pytest.fixture
async def watched(
    fleet: Fleet, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fleet]:
    """A fleet with its timer, trio's time on both of its clocks, and no Git to wait for."""

    async def nothing(directory: str | None) -> None:
        return None

    monkeypatch.setattr(repositories, "working_tree", nothing)
    fleet.clock.follow_trio()
    nursery.start_soon(scan_liveness, fleet.engine)
    yield fleet
    nursery.cancel_scope.cancel()


# --- step boundary ----------------------------------------------------------------------------


async def test_after_a_step_enters_in_progress(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ppp"))
    assert lines(fleet) == []
    await window.tell(plan("ipp"))
    assert lines(fleet) == ["step_boundary in_progress | 1 in_progress | low"]
    [first] = told(fleet)
    [mission] = (await fleet.do(MissionList())).missions
    assert first.step_state.step_id == (await fleet.sorties(mission))[0].id
    await window.tell(plan("ipp"))
    assert len(lines(fleet)) == 1


async def test_after_a_step_reaches_a_terminal_state_done(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    await window.tell(plan("cip"))
    await window.tell(plan("cci"))
    await window.tell(plan("ccc"))
    assert lines(fleet) == [
        "step_boundary in_progress | 1 in_progress | low",
        "step_boundary in_progress | 1 done | low",
        "step_boundary in_progress | 2 in_progress | low",
        "step_boundary in_progress | 2 done | low",
        "step_boundary in_progress | 3 in_progress | low",
        "step_boundary completed | 3 done | low",
    ]
    assert {each.step_state.todo_compliance.result for each in told(fleet)} == {"PASS"}


async def test_after_a_step_reaches_a_terminal_state_failed(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    [mission] = (await fleet.do(MissionList())).missions
    [first, *_] = await fleet.sorties(mission)
    await fleet.do(SortieFail(first.id, "no database", AGENT))
    assert lines(fleet)[1:] == ["step_boundary in_progress | 1 failed | low"]


async def test_after_a_step_reaches_a_terminal_state_skipped(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    await window.tell(plan("  i"))
    assert [each.step_state.step_status for each in told(fleet)] == [
        "in_progress",
        "skipped",
        "skipped",
        "in_progress",
    ]
    # What was begun is given up, what nobody began is gone; both at the place they had.
    assert lines(fleet)[1:] == [
        "step_boundary in_progress | 1 skipped | low",
        "step_boundary in_progress | 2 skipped | low",
        "step_boundary in_progress | 1 in_progress | low",
    ]


async def test_a_step_that_is_told_once_it_is_done_has_one_snapshot(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("cpp"))
    assert lines(fleet) == ["step_boundary in_progress | 1 done | low"]


async def test_of_more_steps_than_a_run_may_keep_snapshots_the_last_are_told(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, retention=Retention(snapshots_per_run=2)) as fleet:
        await Window(fleet, RUN).tell(plan("ccci", of=("Model", "Form", "Mail", "Tests")))
        assert lines(fleet) == [
            "step_boundary in_progress | 3 done | low",
            "step_boundary in_progress | 4 in_progress | low",
        ]
        assert await fleet.events(kind="snapshots_pruned") == []


async def test_a_step_that_is_opened_again_begins_again(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("c", of=("Model",)))
    await window.tell(plan("p", of=("Model",)))
    await window.tell(plan("i", of=("Model",)))
    assert lines(fleet) == [
        "step_boundary completed | 1 done | low",
        "step_boundary in_progress | 1 in_progress | low",
    ]


async def test_sorties_that_an_agent_reports_by_itself_are_steps_too(fleet: Fleet) -> None:
    mission = await fleet.mission(3)
    await fleet.do(AgentRegister("spec-1", "specialist", session_id=RUN, mission_id=mission.id))
    first, second, third = await fleet.sorties(mission)
    await fleet.do(SortieStart(first.id, "spec-1"))
    await fleet.do(SortieStart(first.id, "spec-1"))
    await fleet.do(SortieBlock(first.id, "waiting for a key", "spec-1"))
    await fleet.do(SortieUnblock(first.id, "spec-1"))
    await fleet.do(SortieComplete(first.id))
    await fleet.do(SortieProgress(second.id, 40, agent_id="spec-1"))
    await fleet.do(SortieFail(second.id, "too hard", "spec-1"))
    await fleet.do(SortieComplete(third.id, agent_id="spec-1"))
    assert lines(fleet) == [
        "step_boundary in_progress | 1 in_progress | low",
        "step_boundary completed | 1 done | low",
        "step_boundary in_progress | 2 in_progress | low",
        "step_boundary in_progress | 2 failed | low",
        "step_boundary in_progress | 3 done | low",
    ]


async def test_a_sortie_of_an_agent_without_any_run_makes_none(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    first, second = await fleet.sorties(mission)
    await fleet.do(SortieStart(first.id, "spec-1"))
    await fleet.do(SortieComplete(first.id, agent_id="spec-1"))
    await fleet.do(SortieComplete(second.id))
    await fleet.do(ErrorReport("spec-1", "exception", "ValueError", "no"))
    await fleet.do(AgentDeregister("spec-1"))
    assert fleet.sql("SELECT id FROM snapshots") == fleet.sql("SELECT id FROM runs") == []


async def test_a_plan_that_is_shared_is_the_sessions_and_one_of_its_own_a_subagents(
    fleet: Fleet, window: Window
) -> None:
    inside = Window(fleet, RUN, subagent="a1")
    await inside.tell(plan("ip", whole=False, shared=True))
    assert lines(fleet) == ["step_boundary in_progress | 1 in_progress | low"]
    await inside.tell(plan("i", of=("Look around",)))
    assert lines(fleet, f"{RUN}.a1") == ["step_boundary in_progress | 1 in_progress | low"]
    await inside.tell(SubagentEnded("Done"))
    assert lines(fleet, f"{RUN}.a1")[1:] == ["timer paused | 1 in_progress | low"]
    assert len(lines(fleet)) == 1


async def test_what_a_recovery_brings_back_is_no_step_that_anybody_took(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    [mission] = (await fleet.do(MissionList())).missions
    kept = await fleet.checkpoint(mission)
    await window.tell(plan("cip"))
    before = lines(fleet)
    await fleet.do(RecoveryRestore(checkpoint_id=kept.id, rewind=True))
    assert lines(fleet) == before


# --- error boundary ---------------------------------------------------------------------------


async def test_immediately_after_a_recoverable_error_is_classified(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    await window.tell(ToolStarted("Bash", "call-1", command="make test"))
    fleet.clock.pass_by(7 * SECOND)
    await window.tell(
        ToolFinished("Bash", "call-1", command="make test", passed=False, error="Exit code 2")
    )
    await window.tell(ToolFinished("Edit", "call-2", passed=False, error="no such text"))
    await window.tell(ToolFinished("Edit", "call-3", passed=True, duration_ms=4))
    fleet.clock.pass_by(4 * SECOND)
    await fleet.do(ErrorReport(AGENT, "exception", "ValueError", "not a number"))
    assert lines(fleet)[1:] == [
        "error_boundary in_progress | 1 in_progress | low | make test FAIL 7000 ms",
        "error_boundary in_progress | 1 in_progress | low | Edit FAIL",
        "error_boundary in_progress | 1 in_progress | low | Edit PASS 4 ms",
    ]
    assert notes(fleet)[1:] == [None, None, "ValueError: not a number"]


async def test_what_a_transcript_tells_of_failures_is_one_boundary(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(ToolStarted("Bash", "call-1", command="make test"))
    fleet.clock.pass_by(2 * SECOND)
    await window.tell(ToolFinished("Bash", "call-1", command="make test"))
    await window.tell(plan("i", of=("Model",)))
    fleet.clock.pass_by(MINUTE)
    late = [
        ToolFinished("Bash", "call-1", command="make test", passed=False, error="Exit code 2"),
        ToolFinished("Edit", "call-2", passed=False, error="no such text"),
    ]
    await window.tell(Paused(), earlier=tuple(late))
    assert lines(fleet) == [
        "step_boundary in_progress | 1 in_progress | low | make test WARN 2000 ms",
        "error_boundary in_progress | 1 in_progress | low | make test FAIL 2000 ms | Edit FAIL",
    ]


async def test_immediately_before_a_forced_stop_due_to_unrecoverable_error(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    await window.tell(Failed("overloaded"))
    assert lines(fleet)[1:] == ["error_boundary failed | 1 in_progress | low"]
    assert notes(fleet)[1:] == ["overloaded"]
    kinds = [event.type for event in await fleet.events()]
    assert kinds.index("error_reported") > max(
        seq for seq, kind in enumerate(kinds) if kind == "snapshot_recorded"
    )


async def test_a_process_that_ended_without_a_word_failed(fleet: Fleet, window: Window) -> None:
    window.process = (4_711, "then")
    await window.tell(plan("ipp"))
    await process_ended(fleet.engine, WatchProcess(AGENT, 4_711, "then"))
    assert lines(fleet)[1:] == ["error_boundary failed | 1 in_progress | low"]
    assert notes(fleet)[1:] == ["process 4711 is gone"]
    await process_ended(fleet.engine, WatchProcess(AGENT, 4_711, "then"))
    assert len(lines(fleet)) == 2


async def test_a_letter_that_nobody_gets_is_no_error_of_the_run_that_wrote_it(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    [mission] = (await fleet.do(MissionList())).missions
    await fleet.agents(mission, "spec-9")
    await fleet.do(AgentDeregister("spec-9"))
    with pytest.raises(InvalidState):
        await fleet.write(mission, ["spec-9"], sender=AGENT)
    assert await fleet.events(kind="message_failed")
    assert len(lines(fleet)) == 1


# --- timer boundary ---------------------------------------------------------------------------


async def alive(fleet: Fleet, ms: int, every: int = 10 * SECOND) -> None:
    """Let time pass in which the agent is heard of, without doing anything that is recorded."""
    for _ in range(ms // every):
        await trio.sleep(every / SECOND)
        await fleet.do(EventAppend("file_modified", agent_id=AGENT, data={"file": "a.py"}))


async def test_periodic_heartbeat_every_120_seconds_while_a_plan_is_in_progress(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    start = watched.clock()
    await alive(watched, 30 * SECOND)
    await window.tell(plan("ipp"))
    await alive(watched, 5 * MINUTE)
    await window.tell(plan("ccc"))
    await alive(watched, HOUR)
    assert lines(watched) == [
        "step_boundary in_progress | 1 in_progress | low",
        "timer in_progress | 1 in_progress | low",
        "timer in_progress | 1 in_progress | low",
        "step_boundary completed | 1 done | low",
        "step_boundary completed | 2 done | low",
        "step_boundary completed | 3 done | low",
    ]
    assert seconds(watched, start) == [30, 150, 270, 330, 330, 330]


async def test_a_run_without_a_plan_has_no_heartbeat(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    start = watched.clock()
    await window.tell(ToolFinished("Bash", "c1", "make", passed=False))
    await alive(watched, 10 * MINUTE)
    assert [line.split()[0] for line in lines(watched)] == ["error_boundary"]
    await window.tell(plan("ipp"))
    await alive(watched, 130 * SECOND)
    assert seconds(watched, start) == [0, 600, 720]


async def test_the_heartbeat_is_counted_from_the_newest_snapshot(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    start = watched.clock()
    await window.tell(plan("ipp"))
    await alive(watched, 100 * SECOND)
    await window.tell(plan("cip"))
    await alive(watched, 200 * SECOND)
    assert seconds(watched, start) == [0, 100, 100, 220]


async def test_an_agent_that_waits_for_its_user_is_told_once_and_beats_when_it_goes_on(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    start = watched.clock()
    await window.tell(plan("ipp"))
    await trio.sleep(60)
    await window.tell(Paused())
    await trio.sleep(40 * 60)
    assert lines(watched)[1:] == ["timer paused | 1 in_progress | low"]
    assert seconds(watched, start) == [0, 120]
    back = watched.clock()
    await window.tell(PromptSubmitted("Go on"))
    await alive(watched, 250 * SECOND)
    assert lines(watched)[2:] == ["timer in_progress | 1 in_progress | low"] * 2
    assert seconds(watched, back)[2:] == [120, 240]


async def test_an_agent_that_waits_has_no_heartbeat_for_another_that_works(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    other = Window(watched, "another-session")
    for session in (window, other):
        await session.tell(PromptSubmitted("Add login"))
        await session.tell(plan("ipp"))
    await other.tell(Paused())
    await alive(watched, 9 * MINUTE)
    assert [each.source for each in told(watched)] == ["step_boundary", *["timer"] * 4]
    assert [each.status for each in told(watched, "another-session")] == ["in_progress", "paused"]


async def test_an_agent_that_is_lost_or_gone_has_no_heartbeat(
    watched: Fleet, window: Window, autojump_clock: Any
) -> None:
    await window.tell(plan("ipp"))
    # Nobody can watch it: it is lost when it was not heard of for five minutes.
    await trio.sleep(30 * 60)
    assert lines(watched)[1:] == ["timer in_progress | 1 in_progress | low"] * 2
    other = Window(watched, "another-session")
    await other.tell(PromptSubmitted("Add tests"))
    await other.tell(plan("i", of=("Tests",)))
    await other.tell(SessionEnded("exit"))
    await trio.sleep(30 * 60)
    assert [each.status for each in told(watched, "another-session")] == ["in_progress", "paused"]


async def test_a_run_that_went_before_under_the_same_name_has_no_heartbeat(
    watched: Fleet, autojump_clock: Any
) -> None:
    first, second = (Window(watched, session) for session in ("session-1", "session-2"))
    for window in (first, second):
        window.env = {"wanted_agent_id": AGENT}
    await first.tell(PromptSubmitted("Add login"))
    await first.tell(plan("ipp"))
    watched.sql("UPDATE sessions SET ended_at = started_at")
    await second.tell(PromptSubmitted("Go on"))
    await second.tell(plan("cpp"))
    await alive(watched, 3 * MINUTE)
    assert [each.source for each in told(watched, "session-1")] == ["step_boundary"]
    assert [each.source for each in told(watched, "session-2")] == ["step_boundary", "timer"]


async def test_the_timer_looks_neither_late_nor_all_the_time(
    watched: Fleet, window: Window, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = watched.engine.read

    async def counted(rule: Any, *rest: Any, **named: Any) -> Any:
        nonlocal looks
        looks += rule is due_work
        return await read(rule, *rest, **named)

    monkeypatch.setattr(watched.engine, "read", counted)
    window.process = (4_711, "then")
    await window.tell(SessionStarted("resume"), PromptSubmitted("Go on"))
    start = watched.clock()
    await trio.sleep(50)
    await window.tell(plan("ipp"))
    await trio.sleep(3_610)
    assert seconds(watched, start)[:4] == [50, 170, 290, 410]
    assert len(told(watched)) == 31
    assert looks <= 100


@pytest.mark.parametrize("off", ["restart", "suspend", "reboot"])
async def test_a_heartbeat_that_fell_due_meanwhile_comes_first_thing(
    tmp_path: Path, off: str
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        window = Window(fleet, RUN)
        await window.tell(PromptSubmitted("Add login"))
        await window.tell(plan("ipp"))
        clock.pass_by(BEAT - SECOND)
        assert await scan(fleet.engine) == SECOND
        assert len(lines(fleet)) == 1
        if off == "suspend":
            clock.suspend(HOUR)
            assert await scan(fleet.engine) == SECOND
            assert len(lines(fleet)) == 1
    if off == "reboot":
        clock.reboot(MINUTE)
    else:
        clock.pass_by(SECOND)
    async with opened(tmp_path, clock=clock) as fleet:
        assert await scan(fleet.engine) == BEAT
        assert lines(fleet)[1:] == ["timer in_progress | 1 in_progress | low"]
        await scan(fleet.engine)
        assert len(lines(fleet)) == 2


async def test_after_a_restart_of_the_machine_the_heartbeat_is_counted_on(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        window = Window(fleet, RUN)
        await window.tell(PromptSubmitted("Add login"))
        await window.tell(plan("ipp"))
    clock.reboot(5 * SECOND)
    clock.pass_by(10 * SECOND)
    async with opened(tmp_path, clock=clock) as fleet:
        looked = await scan(fleet.engine)
        assert looked == BEAT - 15 * SECOND
        assert len(lines(fleet)) == 1


# --- manual boundary, and the window ----------------------------------------------------------


@pytest.mark.parametrize(("trigger", "source"), [("auto", "timer"), ("manual", "manual")])
async def test_before_a_compaction_the_window_is_full_and_afterwards_it_is_not(
    fleet: Fleet, window: Window, trigger: str, source: str
) -> None:
    await window.tell(plan("ipp"))
    await window.tell(Compacting(trigger))
    await window.tell(Compacted())
    await window.tell(plan("cip"))
    assert lines(fleet)[1:] == [
        f"{source} in_progress | 1 in_progress | high",
        "step_boundary in_progress | 1 done | low",
        "step_boundary in_progress | 2 in_progress | low",
    ]
    assert notes(fleet)[1] == f"before the {trigger} compaction"


async def test_a_compaction_that_only_may_come_is_none(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    await window.tell(Compacting(certain=False))
    assert len(lines(fleet)) == 1


async def test_two_triggers_within_3_seconds_keep_one_snapshot(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    await fleet.do(ErrorReport(AGENT, "exception", "ValueError", "not a number"))
    assert len(lines(fleet)) == 1
    [row] = fleet.sql("SELECT source_details_json FROM snapshots")
    assert "error_boundary" in row["source_details_json"]


# --- the end of a session ---------------------------------------------------------------------


async def test_a_session_that_ends_with_steps_to_do_is_paused(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("cip"))
    await window.tell(SessionEnded("exit"))
    assert lines(fleet)[2:] == ["timer paused | 2 in_progress | low"]
    assert notes(fleet)[2:] == ["exit"]
    await window.tell(SessionStarted("resume"))
    await window.tell(plan("cci"))
    assert [each.status for each in told(fleet)[3:]] == ["in_progress", "in_progress"]


async def test_a_session_that_ends_with_everything_done_was_told_already(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("c", of=("Model",)))
    await window.tell(Paused())
    await window.tell(SessionEnded("exit"))
    assert lines(fleet) == ["step_boundary completed | 1 done | low"]


async def test_a_session_that_broke_off_and_ends_stays_failed(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    await window.tell(Failed("overloaded"))
    await window.tell(SessionEnded("exit"))
    assert [each.status for each in told(fleet)] == ["in_progress", "failed"]


async def test_a_session_of_which_nothing_was_recorded_ends_so(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(SessionEnded("exit"))
    assert fleet.sql("SELECT id FROM runs") == []


# --- what snapshots leave alone ---------------------------------------------------------------


async def test_snapshots_are_no_activity_and_take_no_checkpoint(
    fleet: Fleet, window: Window
) -> None:
    await window.tell(plan("ipp"))
    [mission] = (await fleet.do(MissionList())).missions
    written = ("snapshots", "snapshot_missions", "runs", "events", "sqlite_sequence", "tallies")
    before = fleet.dump(*written)
    progress = (mission.progress_percent, mission.completed_sorties)
    fleet.clock.pass_by(BEAT)
    await scan(fleet.engine)
    assert len(lines(fleet)) == 2
    assert fleet.dump(*written) == before
    again = await fleet.again(mission)
    assert again.last_activity_at == mission.last_activity_at
    assert (again.progress_percent, again.completed_sorties) == progress


async def test_heartbeats_hide_no_silence(fleet: Fleet, window: Window) -> None:
    await window.tell(plan("ipp"))
    for _ in range(5):
        fleet.clock.pass_by(MINUTE)
        await scan(fleet.engine)
    assert len(lines(fleet)) == 3
    fleet.clock.pass_by(1)
    await scan(fleet.engine)
    assert len(await fleet.events(kind="context_compacted")) == 1


async def test_a_prompt_stands_in_no_snapshot(tmp_path: Path) -> None:
    secret = "the launch code"
    for kept in (True, False):
        root = tmp_path / str(kept)
        root.mkdir()
        async with opened(root, keep_prompts=kept) as fleet:
            window = Window(fleet, RUN)
            await window.tell(PromptSubmitted(f"Use {secret}"))
            await window.tell(plan("ipp"))
            await window.tell(Compacting())
            await window.tell(Compacted(f"The user said {secret}"))
            await window.tell(PromptSubmitted(f"Use {secret} again"))
            await window.tell(ToolFinished("Edit", "call-2", passed=False, error="no such text"))
            await window.tell(SessionEnded("exit"))
            assert len(lines(fleet)) == 4
            assert secret not in str(fleet.sql("SELECT * FROM snapshots"))


async def test_of_a_project_that_is_ignored_nothing_is_recorded(tmp_path: Path) -> None:
    async with opened(tmp_path, project_ignore=[str(tmp_path / "project")]) as fleet:
        window = Window(fleet, RUN, cwd=str(fleet.project))
        with pytest.raises(InvalidState):
            await window.tell(plan("ipp"))
        assert fleet.sql("SELECT id FROM runs") == fleet.sql("SELECT id FROM snapshots") == []


async def test_a_project_that_is_ignored_from_now_on_has_no_heartbeat(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        place = str(fleet.project)
        window = Window(fleet, RUN, cwd=place)
        await window.tell(plan("ipp"))
    clock.pass_by(BEAT)
    async with opened(tmp_path, clock=clock, project_ignore=[place]) as fleet:
        assert await scan(fleet.engine) == BEAT
        assert len(lines(fleet)) == 1
