"""Snapshots of runs are taken back like all the rest: rows, files, latest.json and bytes."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fleetd.domain.artifacts.ingest import ingest, repair_row
from fleetd.domain.erasure import steps
from fleetd.domain.erasure.scope import ErasureTarget
from fleetd.domain.snapshots import snapshots as record_rules
from fleetd.domain.snapshots.codec import to_file
from fleetd.harness.report import PlanItem, Planned, SubagentStarted, ToolFinished, ToolStarted
from fleetd.protocol.errors import InvalidState, NotFound, Storage
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete, MissionList
from fleetd.protocol.requests.snapshot import (
    DeclaredOutcome,
    DeclaredStep,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotRecord,
)
from fleetd.protocol.requests.system import Forgotten, SystemForget
from fleetd.protocol.snapshots import Snapshot
from fleetd.store.files.record_files import RecordFiles
from tests.support.erasure import SECRET, places_of, rows_with
from tests.support.fleet import MINUTE, Fleet, opened
from tests.support.hook_sessions import Window


async def record(fleet: Fleet, run_id: str | None = None, **more: object) -> Snapshot:
    """Record a run; so long after the last that no trigger joins."""
    fleet.clock.pass_by(MINUTE)
    taken = await fleet.do(SnapshotRecord(run_id, **more))  # type: ignore[arg-type]
    await fleet.settle()
    return taken


async def whisper(fleet: Fleet, run_id: str | None = None, **more: object) -> Snapshot:
    """Record a run with something secret in every place there is."""
    return await record(
        fleet,
        run_id,
        step_state=DeclaredStep(plan_path=f"/tmp/{SECRET}", step_status="in_progress"),
        command_outcomes=[DeclaredOutcome("shell", SECRET, "FAIL", summary=SECRET)],
        note=SECRET,
        idempotency_key=f"{run_id}-{more.get('agent_id')}-{fleet.clock.now}",
        **more,
    )


async def command(fleet: Fleet, agent_id: str, text: str) -> None:
    """Let an agent report a command that has ended."""
    data = {"command": text, "exit_code": 1, "call_id": text}
    await fleet.do(EventAppend("command_finished", agent_id=agent_id, data=data))


async def runs(fleet: Fleet) -> list[str]:
    page = await fleet.do(SnapshotList(limit=1_000))
    return sorted({each.run_id for each in page.snapshots})


async def forgotten(fleet: Fleet, request: SystemForget) -> Forgotten:
    """Forget something after a look that must foresee all of it."""
    foreseen = await fleet.do(msgspec.structs.replace(request, dry_run=True))
    done = await fleet.do(request)
    told = {"details": [], "run_details": [], "living_agents": [], "dry_run": False}
    assert done == msgspec.structs.replace(foreseen, **told)
    return foreseen


@pytest.mark.sqlite_only("the bytes of a file are looked at")
async def test_a_forgotten_session_leaves_not_a_byte_of_its_runs(
    fleet: Fleet, tmp_path: Path
) -> None:
    window = Window(fleet, "s-1234567890")
    await window.tell(Planned((PlanItem(SECRET, "in_progress"),), True))
    below = Window(fleet, "s-1234567890", subagent="sub-1")
    await below.tell(SubagentStarted())
    await below.tell(ToolStarted("Bash", "1", SECRET))
    await below.tell(ToolFinished("Bash", "1", SECRET, passed=False))
    other = Window(fleet, "s-other")
    await other.tell()
    for run_id in ("s-1234567890", "s-1234567890.sub-1", "s-other"):
        await record(fleet, run_id)
        await record(fleet, run_id)
    assert places_of(tmp_path / "data", SECRET)
    assert places_of(tmp_path / ".flightline", SECRET)

    foreseen = await forgotten(fleet, SystemForget(session_id="s-1234567890"))

    # A step that begins and a command that fails have snapshots of their own.
    assert (foreseen.runs, foreseen.snapshots) == (2, 6)
    assert [(each.run_id, each.snapshots) for each in foreseen.run_details] == [
        ("s-1234567890", 3),
        ("s-1234567890.sub-1", 3),
    ]
    assert all(each.bytes > 1_000 for each in foreseen.run_details)
    assert foreseen.files == 8
    assert await runs(fleet) == ["s-other"]
    assert places_of(tmp_path, SECRET, "s-1234567890") == []
    assert sorted(path.name for path in fleet.checkpoints.iterdir()) == ["s-other"]


async def test_a_run_that_no_agent_is_known_of_is_forgotten_by_its_name(
    fleet: Fleet, tmp_path: Path
) -> None:
    await whisper(fleet, "nightly-build")
    await whisper(fleet, "nightly-build.part")
    kept = await record(fleet, "nightly-builds")
    fleet.sql(
        "INSERT INTO events (type, stream, timestamp, activity, data_json) VALUES"
        " ('backup_failed', 'fleet', '', 0, :data)",
        data='{"checkpoint_id":"cp_1_1","error":"no room for /x/nightly-build/history"}',
    )

    foreseen = await forgotten(fleet, SystemForget(session_id="nightly-build"))

    assert (foreseen.runs, foreseen.snapshots, foreseen.agents, foreseen.missions) == (2, 2, 0, 0)
    assert foreseen.events == 3
    assert places_of(tmp_path, SECRET, "nightly-build/", '"nightly-build"', "build.part") == []
    assert await runs(fleet) == [kept.run_id]
    with pytest.raises(NotFound, match="Session not found: nightly-build"):
        await fleet.do(SystemForget(session_id="nightly-build"))


async def test_a_mission_takes_the_runs_of_its_agents_along(fleet: Fleet, tmp_path: Path) -> None:
    mission, other = await fleet.mission(1, title=SECRET), await fleet.mission(1)
    await fleet.agents(mission, "alice")
    await fleet.agents(other, "bob")
    await whisper(fleet, "run-a", agent_id="alice")
    kept = await record(fleet, "run-b", agent_id="bob")

    foreseen = await forgotten(fleet, SystemForget(mission.id))

    assert (foreseen.runs, foreseen.snapshots) == (1, 1)
    assert places_of(tmp_path, SECRET, "run-a", mission.id) == []
    assert await fleet.do(SnapshotGet(kept.snapshot_id)) == kept


async def test_of_an_agent_that_stays_what_it_recorded_for_the_mission_goes_and_nothing_else(
    fleet: Fleet, tmp_path: Path
) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1, title=SECRET)
    await fleet.do(AgentRegister("alice", "specialist", mission_id=first.id))
    await command(fleet, "alice", "before")
    before = await record(fleet, "run-a", agent_id="alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    await fleet.work(second, 0, "alice", notes=SECRET)
    await command(fleet, "alice", SECRET)
    told = await record(fleet, "run-a", agent_id="alice")
    await command(fleet, "alice", f"{SECRET} again")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=first.id))
    mixed = await record(fleet, "run-a", agent_id="alice")
    await command(fleet, "alice", "after")
    step = DeclaredStep(step_id="next")  # else the step stands as it was said last
    after = await record(fleet, "run-a", agent_id="alice", step_state=step)
    assert SECRET in str(told)
    assert SECRET in str(mixed)

    foreseen = await forgotten(fleet, SystemForget(second.id))

    # The third is of the step that began.
    assert (foreseen.agents, foreseen.runs, foreseen.snapshots) == (0, 0, 3)
    assert [(each.run_id, each.snapshots) for each in foreseen.run_details] == [("run-a", 3)]
    assert places_of(tmp_path, SECRET, second.id) == []
    page = await fleet.do(SnapshotList("run-a"))
    ids = [each.snapshot_id for each in page.snapshots]
    assert ids == [after.snapshot_id, before.snapshot_id]
    assert set(fleet.files()) == {
        "run-a/latest.json",
        *(f"run-a/history/{each}.json" for each in ids),
    }


async def test_latest_json_becomes_the_newest_that_stays(fleet: Fleet) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(first, "alice")
    await command(fleet, "alice", "kept")
    kept = await record(fleet, "run-a", agent_id="alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    await record(fleet, "run-a", agent_id="alice")

    await fleet.do(SystemForget(second.id))

    assert (await fleet.do(SnapshotLatest("run-a"))).snapshot_id == kept.snapshot_id
    latest = fleet.checkpoints / "run-a" / "latest.json"
    history = fleet.checkpoints / "run-a" / "history" / f"{kept.snapshot_id}.json"
    assert latest.read_bytes() == history.read_bytes()


async def test_a_copy_of_what_was_forgotten_does_not_stay_in_latest_json(fleet: Fleet) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1, title=SECRET)
    await fleet.agents(first, "alice")
    kept = await record(fleet, "run-a", agent_id="alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    await fleet.work(second, 0, "alice")
    await whisper(fleet, "run-a", agent_id="alice")
    fleet.sql("UPDATE snapshots SET document_json = '{}' WHERE id = :id", id=kept.snapshot_id)

    await fleet.do(SystemForget(second.id))

    # The row of the one that stays is of no use, its file is.
    names = (f"history/{kept.snapshot_id}.json", "latest.json")
    assert fleet.files() == {f"run-a/{name}": to_file(kept) for name in names}


async def test_a_lock_and_a_step_tie_a_snapshot_to_their_missions(fleet: Fleet) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(first, "alice")
    await fleet.lock(second, f"/tmp/{SECRET}", "alice")
    held = await record(fleet, "run-a", agent_id="alice")
    assert f"/tmp/{SECRET}" in held.context_digest.protected_artifacts
    (sortie,) = await fleet.sorties(second)
    await record(fleet, "run-b", step_state=DeclaredStep(step_id=sortie.id))
    await record(fleet, "run-c", step_state=DeclaredStep(step_id="somewhere else"))

    await fleet.do(SystemForget(second.id))

    assert await runs(fleet) == ["run-c"]
    assert rows_with(fleet, SECRET) == {}


async def test_a_failure_that_was_declared_in_a_mission_goes_with_it_wherever_it_is_said_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    first, second = await fleet.mission(1, title=SECRET), await fleet.mission(1)
    await fleet.agents(first, "alice")
    failed = [DeclaredOutcome("shell", SECRET, "FAIL", summary=SECRET)]
    await record(fleet, "run-a", agent_id="alice", command_outcomes=failed)
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    fleet.sql("UPDATE sorties SET assigned_to = 'alice' WHERE mission_id = :id", id=second.id)
    again = await record(fleet, "run-a", agent_id="alice")
    assert SECRET in again.step_state.resume_hints.next_actions[0]
    after = await record(fleet, "run-a", agent_id="alice")

    await forgotten(fleet, SystemForget(first.id))

    assert places_of(tmp_path, SECRET, first.id) == []
    page = await fleet.do(SnapshotList("run-a"))
    assert [each.snapshot_id for each in page.snapshots] == [after.snapshot_id]


async def test_a_failure_that_the_log_still_tells_of_ties_a_snapshot_to_its_mission(
    fleet: Fleet, tmp_path: Path
) -> None:
    first, second = await fleet.mission(1, title=SECRET), await fleet.mission(1)
    await fleet.agents(first, "alice")
    data = {"command": SECRET, "result": "FAIL", "call_id": "1"}
    await fleet.do(EventAppend("command_finished", agent_id="alice", data=data))
    await record(fleet, "run-a", agent_id="alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    await fleet.work(second, 0, "alice")
    told = [await record(fleet, "run-a", agent_id="alice") for _ in range(2)]
    assert all(SECRET in each.step_state.resume_hints.next_actions[0] for each in told)

    await forgotten(fleet, SystemForget(first.id))

    assert places_of(tmp_path, SECRET, first.id) == []


async def test_what_came_back_from_a_file_goes_by_its_step(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    (sortie,) = await fleet.sorties(mission)
    taken = await record(fleet, "run-b", step_state=DeclaredStep(step_id=sortie.id))
    fleet.sql("DELETE FROM runs")
    fleet.sql("DELETE FROM snapshots")
    fleet.sql("DELETE FROM snapshot_missions")
    assert (await fleet.do(SnapshotGet(taken.snapshot_id))).warnings

    await fleet.do(SystemForget(mission.id))

    assert fleet.sql("SELECT id FROM snapshots") == []
    assert fleet.files() == {}


async def test_a_project_takes_its_runs_and_who_mentions_its_files(
    fleet: Fleet, tmp_path: Path
) -> None:
    root = str(fleet.project)
    await fleet.mission(1)
    await fleet.do(AgentRegister("inside", "specialist", cwd=f"{root}/deep"))
    await fleet.do(AgentRegister("beside", "specialist", cwd=f"{root}-2"))
    await whisper(fleet, "run-in", agent_id="inside")
    plan = DeclaredStep(plan_path=f"{root}/{SECRET}.md")
    await record(fleet, "run-out", agent_id="beside", step_state=plan)
    kept = await record(
        fleet, "run-out", agent_id="beside", step_state=DeclaredStep(plan_path=f"{root}-2/b.md")
    )

    foreseen = await forgotten(fleet, SystemForget(project_dir=root))

    assert (foreseen.runs, foreseen.snapshots) == (1, 2)
    assert not places_of(fleet.database.parent, SECRET, f"{root}/", "run-in")
    assert not places_of(fleet.checkpoints, SECRET, f"{root}/", "run-in")
    page = await fleet.do(SnapshotList())
    assert [each.snapshot_id for each in page.snapshots] == [kept.snapshot_id]


async def test_a_deleted_mission_takes_its_snapshots_along(fleet: Fleet) -> None:
    mission, other = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(mission, "alice")
    await record(fleet, "run-a", agent_id="alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=other.id))
    await command(fleet, "alice", "elsewhere")
    kept = await record(fleet, "run-a", agent_id="alice")
    await fleet.do(MissionCancel(mission.id, "over"))

    await fleet.do(MissionDelete(mission.id))

    (summary,) = (await fleet.do(SnapshotList())).snapshots
    assert summary.snapshot_id == kept.snapshot_id
    assert fleet.files().keys() == {
        "run-a/latest.json",
        f"run-a/history/{kept.snapshot_id}.json",
    }


async def test_a_run_of_two_agents_loses_what_the_one_that_goes_recorded(
    fleet: Fleet, tmp_path: Path
) -> None:
    mission, other = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(mission, "alice")
    await fleet.agents(other, "bob")
    kept = await fleet.do(SnapshotRecord("shared", agent_id="bob"))
    # At the same moment: what somebody else has to say is no part of it.
    await fleet.do(SnapshotRecord("shared", agent_id="alice", note=SECRET))

    await forgotten(fleet, SystemForget(mission.id))

    (summary,) = (await fleet.do(SnapshotList())).snapshots
    assert summary.snapshot_id == kept.snapshot_id
    assert places_of(tmp_path, SECRET, "alice") == []


async def test_a_file_of_before_brings_no_run_back_and_what_is_recorded_since_is_kept(
    fleet: Fleet,
) -> None:
    old = await record(fleet, "run-a")
    await fleet.do(SystemForget(session_id="run-a"))

    with pytest.raises(InvalidState, match=r"run of snapshot .* was forgotten"):
        await fleet.engine.write(repair_row, old)
    assert (await fleet.engine.write(ingest, [old])).ids == []

    new = await record(fleet, "run-a")
    fleet.sql("DELETE FROM snapshots")
    healed = await fleet.do(SnapshotGet(new.snapshot_id))
    assert healed.integrity == new.integrity
    assert [row["id"] for row in fleet.sql("SELECT id FROM snapshots")] == [new.snapshot_id]


async def test_files_that_are_still_to_be_written_do_not_reappear(fleet: Fleet) -> None:
    mission, other = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(mission, "alice", "carol")
    await fleet.work(other, 0, "alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id))

    async def note(run_id: str, agent_id: str) -> None:
        request = SnapshotRecord(run_id, agent_id=agent_id)
        await fleet.engine.run(record_rules.record, request)

    await note("run-a", "alice")
    await note("run-c", "carol")
    await fleet.do(SystemForget(mission.id))
    await fleet.settle()
    assert fleet.files() == {}
    assert fleet.sql("SELECT id FROM snapshots") == []


async def test_a_file_that_cannot_be_removed_is_named_and_a_later_attempt_goes_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1)
    await fleet.agents(first, "alice")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=second.id))
    await command(fleet, "alice", "there")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=first.id))
    taken = await record(fleet, "run-a", agent_id="alice")

    def refuse(self: RecordFiles, run_id: str, ids: list[str], *_: object) -> dict[str, OSError]:
        return {each: PermissionError(1, "Operation not permitted") for each in ids}

    with monkeypatch.context() as patched:
        patched.setattr(RecordFiles, "remove", refuse)
        with pytest.raises(Storage, match=f"{taken.snapshot_id}.json could not be removed"):
            await fleet.do(SystemForget(second.id))
    assert fleet.sql("SELECT * FROM forgetting") == []
    assert (await fleet.do(SystemForget(second.id))).missions == 1
    assert not any("run-a" in name for name in fleet.files())


async def step(fleet: Fleet, target: ErasureTarget, *cleared: str) -> None:
    await fleet.engine.write(steps.step, target, cleared)


async def marked(fleet: Fleet, target: ErasureTarget) -> None:
    await step(fleet, target)


async def without_files(fleet: Fleet, target: ErasureTarget) -> None:
    await step(fleet, target)
    fleet.engine.backups["snapshot"].clear("run-a")
    if target.kind == "mission":
        fleet.engine.backups["checkpoint"].clear(target.name)


async def without_rows(fleet: Fleet, target: ErasureTarget) -> None:
    await without_files(fleet, target)
    await step(fleet, target, "run-a", target.name)


@pytest.mark.parametrize("crashed", [marked, without_files, without_rows])
@pytest.mark.parametrize("kind", ["mission", "session"])
async def test_what_a_crash_interrupted_is_finished_at_the_next_start(
    tmp_path: Path, kind: str, crashed: Callable[[Fleet, ErasureTarget], object]
) -> None:
    async with opened(tmp_path) as fleet:
        mission, other = await fleet.mission(1, title=SECRET), await fleet.mission(1)
        await fleet.checkpoint(mission)
        if kind == "mission":  # the agent stays: its run goes in part
            await fleet.agents(other, "alice")
            await command(fleet, "alice", "elsewhere")
            await record(fleet, "run-b", agent_id="alice")
        await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id))
        await whisper(fleet, "run-a", agent_id="alice")
        await whisper(fleet, "run-b", agent_id="alice")
        # Nothing is swept up at this end: it stands for a crash.
        fleet.engine.outbox.post = lambda work: None  # type: ignore[method-assign]
        name = mission.id if kind == "mission" else "run-a"
        await crashed(fleet, ErasureTarget(kind=kind, name=name))  # type: ignore[arg-type, misc]
    async with opened(tmp_path) as fleet:
        assert fleet.sql("SELECT * FROM forgetting") == []
        assert "run-a" not in await runs(fleet)
        if kind == "mission":
            assert [m.id for m in (await fleet.do(MissionList())).missions] == [other.id]
            assert places_of(tmp_path, SECRET, mission.id, "run-a/") == []
            assert await runs(fleet) == ["run-b"]
        else:
            assert places_of(tmp_path, '"run-a"', "run-a/") == []
