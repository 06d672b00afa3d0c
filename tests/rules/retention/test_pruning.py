"""Pruning, by itself and on request: PRN-001 to PRN-008 of the test plan, and more.

What stays for whose sake is tested rule by rule; also the plan's own examples.
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from fleetctl.client import sync as fleetctl_client
from fleetd.config import Limits, Retention
from fleetd.domain.artifacts.outbox import backup, removals
from fleetd.domain.checkpoints import checkpoints
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.retention import pruning as rules
from fleetd.engine.files.outbox import FIRST_PAUSE_S
from fleetd.engine.jobs.daily import DAY_S, run_daily_work
from fleetd.engine.jobs.liveness import scan
from fleetd.engine.services import pruning
from fleetd.protocol.errors import NotFound, Storage
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointPrune,
)
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionDelete,
    MissionFail,
    MissionGet,
)
from fleetd.protocol.requests.recovery import RecoveryDetect
from fleetd.protocol.requests.sortie import SortieProgress
from tests.support.fleet import DAY, HOUR, MINUTE, Fleet, meet_rules, opened
from tests.support.processes import Daemon

BATCH = 5
ALL_BUT_ONE = CheckpointPrune(older_than_days=0, keep_per_mission=1)


@pytest.fixture
def batches() -> BatchSizes:
    """Make batches small, so that a few checkpoints are many of them."""
    return BatchSizes(records=BATCH)


async def taken(fleet: Fleet, mission: Mission, number: int, apart: int = MINUTE) -> list[str]:
    """Take checkpoints with some time before each; return their ids, oldest first."""
    ids = []
    for _ in range(number):
        fleet.clock.pass_by(apart)
        ids.append((await fleet.checkpoint(mission, wait_for_backup=False)).id)
    await fleet.settle()
    return ids


async def left(fleet: Fleet, mission: Mission) -> list[str]:
    return (await fleet.checkpoint_ids(mission))[::-1]


async def stir(fleet: Fleet, mission: Mission) -> None:
    """Let somebody do something, so that the mission does not wait for recovery."""
    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "a"}))


def rows(fleet: Fleet) -> list[str]:
    """Every row there is, also those that are marked."""
    return [row["id"] for row in fleet.sql("SELECT id FROM checkpoints ORDER BY seq")]


@pytest.mark.case("PRN-001")
@pytest.mark.parametrize("prune", [CheckpointPrune(), CheckpointPrune(older_than_days=7)])
async def test_PRN_001_what_is_older_than_the_threshold_goes(
    fleet: Fleet, prune: CheckpointPrune
) -> None:
    mission = await fleet.mission()
    old = await taken(fleet, mission, 5, DAY)
    fleet.clock.pass_by(8 * DAY)
    recent = await taken(fleet, mission, 3)
    pruned = await fleet.do(prune)
    assert pruned.deleted == 5
    assert [each.id for each in pruned.details] == old
    assert await left(fleet, mission) == recent


async def test_a_reply_names_the_first_and_counts_all(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "DETAILS_MAX", 30)
    mission = await fleet.mission()
    old = await taken(fleet, mission, 40, DAY)
    sizes = sum(row["size_bytes"] for row in fleet.sql("SELECT * FROM checkpoints"))
    prune = CheckpointPrune(older_than_days=0, keep_per_mission=1, idempotency_key="once")
    shown = await fleet.do(msgspec.structs.replace(prune, dry_run=True, idempotency_key=None))
    pruned = await fleet.do(prune)
    assert shown == pruned == await fleet.do(prune)
    assert [each.id for each in pruned.details] == old[:30]
    assert pruned.deleted == 39
    left_over = sum(row["size_bytes"] for row in fleet.sql("SELECT * FROM checkpoints"))
    assert pruned.freed_bytes == sizes - left_over


async def test_exactly_at_the_threshold_it_is_not_older_yet(fleet: Fleet) -> None:
    mission = await fleet.mission()
    first, *others = await taken(fleet, mission, 4)
    fleet.clock.pass_by(7 * DAY - 3 * MINUTE)
    await stir(fleet, mission)
    assert (await fleet.do(CheckpointPrune())).deleted == 0
    assert await left(fleet, mission) == [first, *others]
    fleet.clock.pass_by(1)
    assert [each.id for each in (await fleet.do(CheckpointPrune())).details] == [first]
    assert await left(fleet, mission) == others


async def test_no_days_ask_for_no_age_at_all(fleet: Fleet) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 3, apart=0)
    fleet.clock.step(-DAY)
    assert (await fleet.do(ALL_BUT_ONE)).deleted == 2
    assert await left(fleet, mission) == ids[2:]


@pytest.mark.case("PRN-002")
@pytest.mark.parametrize("keep", [1, 3, 5, 6])
async def test_PRN_002_the_newest_stay_however_old(fleet: Fleet, keep: int) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 5, DAY)
    fleet.clock.pass_by(100 * DAY)
    await stir(fleet, mission)
    pruned = await fleet.do(CheckpointPrune(older_than_days=1, keep_per_mission=keep))
    assert pruned.deleted == max(0, 5 - keep)
    assert await left(fleet, mission) == ids[-keep:]


async def test_the_newest_are_those_of_the_log_and_not_of_the_clock(fleet: Fleet) -> None:
    mission = await fleet.mission()
    first = await taken(fleet, mission, 2)
    fleet.clock.step(-30 * DAY)
    later = await taken(fleet, mission, 2)
    await stir(fleet, mission)
    fleet.clock.step(30 * DAY)
    assert (await fleet.do(CheckpointPrune(keep_per_mission=2))).deleted == 0
    fleet.clock.pass_by(8 * DAY)
    await stir(fleet, mission)
    await fleet.do(CheckpointPrune(keep_per_mission=2))
    assert await left(fleet, mission) == later
    assert not {*first} & {*rows(fleet)}


@pytest.mark.case("PRN-003")
@pytest.mark.parametrize("end", [MissionComplete, MissionFail, MissionCancel])
async def test_PRN_003_of_a_finished_mission_only_the_final_one_stays_for_30_days_from_its_end(
    fleet: Fleet, end: type[MissionComplete | MissionFail | MissionCancel]
) -> None:
    mission = await fleet.mission(4)
    await taken(fleet, mission, 5)
    fleet.clock.pass_by(40 * DAY)
    if end is MissionComplete:
        await fleet.complete(mission, 0, 1, 2, 3)
        await fleet.do(MissionComplete(mission.id))
        final = await fleet.do(CheckpointGet((await left(fleet, mission))[-1]))
        assert (final.trigger, final.trigger_details) == ("progress", "Mission completed")
        assert final.progress_percent == 100
    else:
        await fleet.do(end(mission.id, "enough"))
    ids = await left(fleet, mission)
    assert [each.id for each in (await fleet.do(CheckpointPrune())).details] == ids[:-1]
    assert await left(fleet, mission) == ids[-1:]
    fleet.clock.pass_by(30 * DAY)
    assert (await fleet.do(CheckpointPrune())).deleted == 0
    fleet.clock.pass_by(1)
    assert (await fleet.do(CheckpointPrune())).deleted == 1
    assert await left(fleet, mission) == []
    assert fleet.files() == {}


async def test_the_settings_decide_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    retention = Retention(days=2, keep=2, completed_days=1)
    async with opened(tmp_path, retention=retention) as fleet:
        mission, done = await fleet.mission(0), await fleet.mission(0, title="Done")
        ids = await taken(fleet, mission, 4)
        await fleet.do(MissionComplete(done.id))
        fleet.clock.pass_by(2 * DAY)
        await stir(fleet, mission)
        asked = await fleet.do(CheckpointPrune(older_than_days=3, keep_per_mission=1))
        assert {each.mission_id for each in asked.details} == {done.id}
        assert [each.id for each in (await fleet.do(CheckpointPrune())).details] == ids[:2]


async def test_undo_checkpoints_are_pruned_like_others(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    start = await fleet.checkpoint(mission)
    sortie = (await fleet.sorties(mission))[0]
    await fleet.do(SortieProgress(sortie.id, 40))
    undo_id = (await fleet.restore(start)).undo_checkpoint_id
    recent = await taken(fleet, mission, 3)
    fleet.clock.pass_by(8 * DAY)
    await stir(fleet, mission)
    gone = [each.id for each in (await fleet.do(CheckpointPrune())).details]
    assert undo_id in gone
    assert await left(fleet, mission) == recent


async def test_the_target_of_latest_json_stays_behind_an_undo_checkpoint(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    target = await fleet.checkpoint(mission)
    sortie = (await fleet.sorties(mission))[0]
    for percent in (10, 20):
        fleet.clock.pass_by(MINUTE)
        await fleet.do(SortieProgress(sortie.id, percent))
        await fleet.restore(target)
    newest_undo = (await left(fleet, mission))[-1]
    await fleet.do(ALL_BUT_ONE)
    assert await left(fleet, mission) == [target.id, newest_undo]
    assert os.readlink(fleet.file_of(target).parent / "latest.json") == f"{target.id}.json"


async def test_pruning_one_mission_leaves_the_others(fleet: Fleet) -> None:
    mission, other = await fleet.mission(1), await fleet.mission(1)
    mine, theirs = await taken(fleet, mission, 3), await taken(fleet, other, 3)
    prune = msgspec.structs.replace(ALL_BUT_ONE, mission_id=other.id)
    assert (await fleet.do(prune)).deleted == 2
    assert await left(fleet, mission) == mine
    assert await left(fleet, other) == theirs[2:]
    with pytest.raises(NotFound):
        await fleet.do(CheckpointPrune(mission_id="msn-00000000"))


@pytest.mark.parametrize("value", [0, -1])
def test_at_least_one_checkpoint_is_kept(value: int) -> None:
    with pytest.raises(msgspec.ValidationError, match="keep_per_mission"):
        msgspec.convert({"keep_per_mission": value}, CheckpointPrune)
    assert msgspec.convert({"older_than_days": 0}, CheckpointPrune).older_than_days == 0


async def test_the_target_of_latest_json_stays_while_the_newest_has_no_file(fleet: Fleet) -> None:
    mission = await fleet.mission()
    first, target, *_ = await taken(fleet, mission, 4)
    # As if the disk had refused the files of the newest two.
    fleet.sql("UPDATE checkpoints SET backed_up_at = NULL WHERE id <> :a AND id <> :b",
              a=first, b=target)  # fmt: skip
    await fleet.do(ALL_BUT_ONE)
    assert (await left(fleet, mission))[0] == target
    assert len(await left(fleet, mission)) == 2


async def test_what_waits_for_recovery_keeps_what_no_recovery_has_used(fleet: Fleet) -> None:
    mission, other = await fleet.mission(), await fleet.mission(title="At work")
    ids, others = await taken(fleet, mission, 5), await taken(fleet, other, 5)
    fleet.clock.pass_by(9 * DAY)
    await stir(fleet, other)
    pruned = await fleet.do(CheckpointPrune())
    assert [each.id for each in pruned.details] == others[:2]
    assert await left(fleet, mission) == ids
    await stir(fleet, mission)
    assert [each.id for each in (await fleet.do(CheckpointPrune())).details] == ids[:2]


async def test_of_what_waits_for_recovery_goes_what_one_has_used(fleet: Fleet) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 6)
    await fleet.restore(checkpoint_id=ids[0])
    fleet.clock.pass_by(30 * DAY)
    pruned = await fleet.do(CheckpointPrune(keep_per_mission=1))
    assert [each.id for each in pruned.details] == [ids[0]]
    assert await left(fleet, mission) == ids[1:]


async def test_a_mission_whose_agents_came_back_and_are_not_briefed_yet_waits_for_recovery(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 3)
    fleet.clock.pass_by(HOUR)
    await scan(fleet.engine)
    await fleet.agents(mission, "spec-1")  # registering is activity, and no end of the waiting
    assert (await fleet.do(RecoveryDetect())).candidates

    assert (await fleet.do(ALL_BUT_ONE)).deleted == 0
    assert await left(fleet, mission) == ids

    await fleet.restore(mission_id=mission.id, agent_id="spec-1")
    await stir(fleet, mission)
    assert (await fleet.do(ALL_BUT_ONE)).deleted == 2


@pytest.mark.case("PRN-004")
async def test_PRN_004_it_runs_at_the_start(
    fleet: Fleet, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 5)
    fleet.clock.pass_by(8 * DAY)
    await stir(fleet, mission)
    nursery.start_soon(run_daily_work, fleet.engine)
    await fleet.settle()
    assert await left(fleet, mission) == ids[2:]
    assert "Pruned 2 checkpoints" in caplog.text


@pytest.mark.case("PRN-004")
def test_PRN_004_a_daemon_that_starts_prunes_while_it_serves(
    daemon: Daemon, connect: Callable[[], fleetctl_client.Fleet], home: Path
) -> None:
    client = connect()
    mission = client.call_raw("mission.create", {"title": "Long ago"})["id"]
    client.call_raw("mission.start", {"mission_id": mission})
    ids = [client.call_raw("checkpoint.create", {"mission_id": mission})["id"] for _ in range(5)]
    daemon.stop()
    settings = home / "config" / "fleet" / "config.toml"
    settings.parent.mkdir()
    settings.write_text("[retention]\ndays = 0\n")
    daemon.start()
    again, deadline = connect(), time.monotonic() + 20
    while "[INFO] Pruned 2 checkpoints, " not in daemon.log.read_text():
        assert time.monotonic() < deadline, daemon.log.read_text()
        time.sleep(0.02)
    left = again.call_raw("checkpoint.list")["checkpoints"]
    assert [each["id"] for each in left] == ids[:1:-1]


@pytest.mark.case("PRN-005")
async def test_PRN_005_it_runs_daily(
    fleet: Fleet, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    fleet.clock.follow_trio()
    mission = await fleet.mission()
    nursery.start_soon(run_daily_work, fleet.engine)
    await trio.sleep(60)
    numbers = []
    for _ in range(12):
        await fleet.checkpoint(mission, wait_for_backup=False)
        await trio.sleep(DAY_S - 120)
        await stir(fleet, mission)
        await trio.sleep(120)
        numbers.append(len(rows(fleet)))
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7]


@pytest.mark.case("PRN-007")
@pytest.mark.parametrize("keep", [1, 2])
async def test_PRN_007_rows_and_files_go_together(fleet: Fleet, keep: int) -> None:
    missions = [await fleet.mission(1) for _ in range(3)]
    ids = [await taken(fleet, mission, 12, apart=0) for mission in missions]
    sizes = {row["id"]: row["size_bytes"] for row in fleet.sql("SELECT * FROM checkpoints")}
    before = fleet.files()
    prune = msgspec.structs.replace(ALL_BUT_ONE, keep_per_mission=keep)
    shown = await fleet.do(msgspec.structs.replace(prune, dry_run=True))
    assert fleet.files() == before
    pruned = await fleet.do(prune)
    assert shown == pruned
    assert pruned.deleted == len(pruned.details) == 3 * (12 - keep)
    assert pruned.freed_bytes == sum(sizes[each.id] for each in pruned.details)
    assert rows(fleet) == [kept for each in ids for kept in each[-keep:]]
    assert fleet.files().keys() == {
        f"{mission.id}/{name}.json"
        for mission, each in zip(missions, ids, strict=True)
        for name in (*each[-keep:], "latest")
    }
    for gone in pruned.details:
        with pytest.raises(NotFound):
            await fleet.do(CheckpointGet(gone.id))
    assert (await fleet.do(prune)).deleted == 0


@pytest.mark.case("PRN-008")
async def test_PRN_008_one_line_and_one_event_tell_of_a_pruning(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    for mission in [await fleet.mission(1) for _ in range(3)]:
        await taken(fleet, mission, 8, apart=0)
    sizes = {row["id"]: row["size_bytes"] for row in fleet.sql("SELECT * FROM checkpoints")}
    pruned = await fleet.do(ALL_BUT_ONE)
    freed = sum(sizes[each.id] for each in pruned.details)
    assert (pruned.deleted, pruned.freed_bytes) == (3 * 7, freed)
    (event,) = await fleet.events(kind="checkpoints_pruned")
    assert event.data == {"deleted": 21, "freed_bytes": freed}
    said = [record for record in caplog.records if "Pruned" in record.message]
    assert [(r.levelname, r.message) for r in said] == [
        ("INFO", f"Pruned 21 checkpoints, {freed} bytes")
    ]
    await fleet.do(ALL_BUT_ONE)
    await fleet.do(msgspec.structs.replace(ALL_BUT_ONE, keep_per_mission=9, dry_run=True))
    assert len(await fleet.events(kind="checkpoints_pruned")) == 1
    assert len([record for record in caplog.records if "Pruned" in record.message]) == 1


async def test_nothing_to_prune_is_nothing_to_tell(fleet: Fleet) -> None:
    pruned = await fleet.do(CheckpointPrune())
    assert (pruned.deleted, pruned.freed_bytes, pruned.details) == (0, 0, [])
    assert await fleet.events() == []


async def test_every_mission_is_looked_at_however_many_there_are(fleet: Fleet) -> None:
    missions = [await fleet.mission(1) for _ in range(2 * BatchSizes().owners + 1)]
    for mission in missions:
        await taken(fleet, mission, 2, apart=0)
    shown = await fleet.do(msgspec.structs.replace(ALL_BUT_ONE, dry_run=True))
    assert len(rows(fleet)) == 2 * len(missions)
    assert await fleet.do(ALL_BUT_ONE) == shown
    assert {each.mission_id for each in shown.details} == {mission.id for mission in missions}
    assert len(rows(fleet)) == len(missions)


async def test_large_checkpoints_are_marked_in_smaller_portions(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(1)
    await taken(fleet, mission, 9)
    fleet.sql("UPDATE checkpoints SET size_bytes = 1500000")
    portions = []

    async def note(rule: Any, *args: Any) -> None:
        if rule is rules.mark:
            portions.append(len(args[-1]))

    meet_rules(fleet.engine, monkeypatch, note)
    assert (await fleet.do(ALL_BUT_ONE)).deleted == 8
    assert sum(portions) == 8
    assert max(portions) == 2


async def meanwhile(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[], Awaitable[Any]],
    request: CheckpointPrune = ALL_BUT_ONE,
) -> list[str]:
    """Let something happen between the looking and the marking; return what was pruned."""
    happened = False

    async def meet(rule: Any, *_: Any) -> None:
        nonlocal happened
        if rule is rules.mark and not happened:
            happened = True
            await happens()

    meet_rules(fleet.engine, monkeypatch, meet)
    pruned = await fleet.do(request)
    assert happened
    assert pruned.deleted == len(pruned.details)
    return [each.id for each in pruned.details]


async def test_a_mission_that_falls_silent_meanwhile_keeps_its_checkpoints(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await taken(fleet, mission := await fleet.mission(), 4)

    async def fall_silent() -> None:
        fleet.clock.pass_by(HOUR)

    assert await meanwhile(fleet, monkeypatch, fall_silent) == []
    assert await left(fleet, mission) == ids


async def test_a_mission_that_a_recovery_reopens_meanwhile_keeps_its_checkpoints(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 4)
    await fleet.do(MissionCancel(mission.id, "enough"))

    async def reopen() -> None:
        await fleet.restore(checkpoint_id=ids[0], rewind=True)

    assert await meanwhile(fleet, monkeypatch, reopen, CheckpointPrune()) == []
    assert set(ids) <= {*await left(fleet, mission)}
    assert (await fleet.do(MissionGet(mission.id))).status == "in_progress"


async def test_the_newest_stay_when_newer_ones_are_deleted_meanwhile(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 5)

    async def delete() -> None:
        for checkpoint_id in (ids[4], ids[0]):
            await fleet.do(CheckpointDelete(checkpoint_id))

    prune = CheckpointPrune(older_than_days=0, keep_per_mission=2)
    assert await meanwhile(fleet, monkeypatch, delete, prune) == ids[1:2]
    assert await left(fleet, mission) == ids[2:4]


async def test_one_that_is_taken_meanwhile_stays(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission()
    ids = await taken(fleet, mission, 3)
    new: list[Checkpoint] = []

    async def take() -> None:
        new.append(await fleet.do(CheckpointCreate(mission.id)))

    assert await meanwhile(fleet, monkeypatch, take) == ids[:2]
    assert new[0].storage_locations == ["sqlite", "file"]
    assert await left(fleet, mission) == [ids[2], new[0].id]


async def test_a_mission_that_is_deleted_meanwhile_is_passed_over(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission, other = await fleet.mission(), await fleet.mission(title="Another")
    await taken(fleet, mission, 3)
    others = await taken(fleet, other, 3)
    await fleet.do(MissionCancel(mission.id, "enough"))

    async def delete() -> None:
        await fleet.do(MissionDelete(mission.id))

    gone = await meanwhile(fleet, monkeypatch, delete)
    assert gone == others[:2]
    assert rows(fleet) == others[2:]
    assert (await fleet.do(ALL_BUT_ONE)).deleted == 0


async def test_what_was_marked_when_it_broke_off_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, batches=BatchSizes(records=BATCH)) as fleet:
        mission = await fleet.mission(1)
        ids = await taken(fleet, mission, 13, apart=0)
        pruned = await stuck(fleet)
        assert pruned.deleted == 12
        assert len(rows(fleet)) == 13
        assert await left(fleet, mission) == ids[12:]
    async with opened(tmp_path, batches=BatchSizes(records=BATCH)) as fleet:
        await fleet.settle()
        assert rows(fleet) == ids[12:]
        assert fleet.files().keys() == {f"{mission.id}/{ids[12]}.json", f"{mission.id}/latest.json"}
        with pytest.raises(NotFound):
            await fleet.do(CheckpointGet(ids[0]))


async def stuck(fleet: Fleet) -> Any:
    """Prune while no file can be removed, so that the rows stay marked."""

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    fleet.engine.backups["checkpoint"].remove = refuse  # type: ignore[assignment, method-assign]
    return await fleet.do(ALL_BUT_ONE)


async def test_a_marked_one_does_not_come_back_from_its_file(fleet: Fleet) -> None:
    ids = await taken(fleet, mission := await fleet.mission(), 3)
    await stuck(fleet)
    assert (await fleet.do(ALL_BUT_ONE)).deleted == 0
    with pytest.raises(NotFound):
        await fleet.do(CheckpointGet(ids[0]))
    assert await left(fleet, mission) == ids[2:]


async def test_one_file_that_cannot_be_removed_keeps_its_row_and_no_other(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    ids = await taken(fleet, mission := await fleet.mission(), 5)
    unlink = os.unlink

    def refuse(path: Any, **more: Any) -> None:
        if path == f"{ids[1]}.json":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert (await fleet.do(ALL_BUT_ONE)).deleted == 4
    assert rows(fleet) == [ids[1], ids[4]]
    assert await left(fleet, mission) == [ids[4]]
    assert f"Failed to remove the file of {ids[1]}: " in caplog.text
    await trio.sleep(FIRST_PAUSE_S + 0.1)
    assert rows(fleet) == [ids[4]]
    assert f"{mission.id}/{ids[1]}.json" not in fleet.files()


async def test_a_file_to_write_does_not_wait_for_those_to_remove(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(1)
    ids = await taken(fleet, mission, 20, apart=0)
    order = []

    async def note(rule: Any, *_: Any) -> None:
        if rule in (backup, removals):
            order.append(rule)

    meet_rules(fleet.engine, monkeypatch, note)
    async with trio.open_nursery() as nursery:
        for checkpoint_id in ids[:-1]:
            nursery.start_soon(
                fleet.engine.run, checkpoints.delete, CheckpointDelete(checkpoint_id)
            )
        nursery.start_soon(fleet.engine.run, checkpoints.create, CheckpointCreate(mission.id))
    await fleet.settle()
    assert order.index(backup) < 2
    assert order.count(removals) <= 5
    assert len(rows(fleet)) == 2


async def test_a_full_house_does_not_end_the_daemon_and_is_tried_again_the_next_day(
    fleet: Fleet,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    ids = await taken(fleet, mission := await fleet.mission(0), 3)
    await fleet.do(MissionCancel(mission.id, "enough"))

    async def full(*_: Any) -> None:
        raise Storage("The disk is full; nothing was stored.")

    with monkeypatch.context() as patch:
        meet_rules(fleet.engine, patch, full)
        fleet.clock.follow_trio()
        nursery.start_soon(run_daily_work, fleet.engine)
        await fleet.settle()
    assert "The cleanup of checkpoints is postponed for a day: The disk is full" in caplog.text
    assert rows(fleet) == ids
    await trio.sleep(DAY_S + 1)
    assert rows(fleet) == ids[2:]


async def test_the_cap_spares_the_newest_milestone_and_not_the_ones_before(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=5)) as fleet:
        mission = await fleet.mission(4)
        await fleet.complete(mission, 0, 1)
        early, milestone = (await left(fleet, mission))[:2]
        ids = await taken(fleet, mission, 6)
        assert await left(fleet, mission) == [milestone, *ids[2:]]
        assert early not in rows(fleet)
        gone = [
            event.data["checkpoint_id"] for event in await fleet.events(kind="checkpoint_deleted")
        ]
        assert gone == [early, *ids[:2]]


async def test_a_cap_that_was_lowered_is_reached_step_by_step(tmp_path: Path) -> None:
    async with opened(tmp_path, batches=BatchSizes(records=BATCH)) as fleet:
        mission = await fleet.mission(1)
        ids = await taken(fleet, mission, 50, apart=0)
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=10)) as fleet:
        numbers = []
        for _ in range(4):
            ids.append((await fleet.checkpoint(mission)).id)
            numbers.append(len(await left(fleet, mission)))
        assert numbers == [31, 12, 10, 10]
        assert await left(fleet, mission) == ids[-10:]
