"""What goes by itself when nobody needs it any more: old events, old idempotency keys."""

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.config import Retention
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.retention import events_and_locks
from fleetd.domain.system.daily_rounds import rounds as daily_rounds
from fleetd.engine.jobs import daily
from fleetd.engine.jobs.daily import DAY_S, LOOK_S, STEPPED_BACK_S, run_daily_work, tidy
from fleetd.protocol.errors import Storage
from fleetd.protocol.events import CheckpointsPruned
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointDelete
from fleetd.protocol.requests.event import CursorAdvance, CursorGet, EventAppend
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete
from fleetd.protocol.requests.snapshot import SnapshotLatest, SnapshotRecord
from tests.support.fleet import DAY, HOUR, MINUTE, SECOND, Clock, Fleet, meet_rules, opened

BATCH = 5


@pytest.fixture
def batches() -> BatchSizes:
    """Make batches small, so that a few events are many of them."""
    return BatchSizes(rows=BATCH)


async def clean_up(fleet: Fleet) -> None:
    """Let the daily work be done once, and the files go."""
    await tidy(fleet.engine)
    await fleet.settle()


async def finished(fleet: Fleet) -> Mission:
    """Return a mission that is over and has no checkpoint left."""
    mission = await fleet.mission(0)
    await fleet.do(MissionCancel(mission.id, "enough"))
    assert await fleet.checkpoint_ids(mission) == []
    return mission


async def test_events_that_nobody_needs_go_after_30_days_and_the_newest_stays(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    await finished(fleet)
    old = await fleet.happen(12)
    before = await fleet.seqs()
    fleet.clock.pass_by(30 * DAY)
    await clean_up(fleet)
    assert await fleet.seqs() == before
    fleet.clock.pass_by(1)
    await clean_up(fleet)
    assert await fleet.seqs() == old[-1:]
    assert f"Removed {len(before) - 1} unneeded events older than 30 days" in caplog.text
    # The end of the log never goes back, and no position is given twice.
    assert await fleet.happen(1) == [old[-1] + 1]


async def test_an_empty_log_has_nothing_to_lose(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    await clean_up(fleet)
    assert await fleet.seqs() == []
    assert "Removed" not in caplog.text


async def test_the_age_is_a_setting(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(event_days=2)) as fleet:
        await fleet.happen(3)
        fleet.clock.pass_by(2 * DAY + 1)
        (last,) = await fleet.happen(1)
        await clean_up(fleet)
        assert await fleet.seqs() == [last]


async def test_events_of_unfinished_missions_stay(fleet: Fleet) -> None:
    pending, working = await fleet.mission(1, start=False), await fleet.mission(1)
    over = await finished(fleet)
    kept = [event.seq for each in (pending, working) for event in await fleet.events(each)]
    await fleet.happen(6, mission_id=over.id)
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await clean_up(fleet)
    assert await fleet.seqs() == [*sorted(kept), last]


async def test_events_of_a_mission_with_a_checkpoint_stay_until_that_is_gone(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(0)
    checkpoint = await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "enough"))
    kept = await fleet.seqs()
    fleet.clock.pass_by(30 * DAY - HOUR)
    await fleet.do(CheckpointDelete(checkpoint.id))
    fleet.clock.pass_by(2 * HOUR)
    await clean_up(fleet)
    assert not {*kept} & {*await fleet.seqs()}


async def test_events_stay_as_long_as_the_final_checkpoint_does(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(event_days=1, completed_days=5)) as fleet:
        mission = await fleet.mission(0)
        await fleet.checkpoint(mission)
        await fleet.do(MissionCancel(mission.id, "enough"))
        kept = await fleet.seqs()
        fleet.clock.pass_by(4 * DAY)
        await clean_up(fleet)
        assert await fleet.seqs() == kept
        fleet.clock.pass_by(2 * DAY)
        await clean_up(fleet)
        assert [event.type for event in await fleet.events()] == [CheckpointsPruned.type]


async def test_what_a_cursor_has_not_come_to_stays(fleet: Fleet) -> None:
    over = await finished(fleet)
    mine = await fleet.happen(6, mission_id=over.id)
    await fleet.do(AgentRegister("spec-1", "specialist"))
    theirs = await fleet.happen(6, agent_id="spec-1")
    await fleet.do(CursorAdvance("reader", f"mission:{over.id}", mine[3]))
    await fleet.do(CursorAdvance("slow", f"mission:{over.id}", mine[2]))
    await fleet.do(CursorAdvance("slow", "agent:spec-1", theirs[4]))
    fleet.clock.pass_by(20 * DAY)
    for consumer, stream in (("reader", f"mission:{over.id}"), ("slow", "agent:spec-1")):
        await fleet.do(CursorGet(consumer, stream))
    await fleet.do(CursorGet("slow", f"mission:{over.id}"))
    fleet.clock.pass_by(11 * DAY)
    (last,) = await fleet.happen(1)
    await clean_up(fleet)
    assert await fleet.seqs() == [*mine[3:], theirs[5], last]
    await fleet.do(CursorAdvance("slow", f"mission:{over.id}", last))
    await clean_up(fleet)
    assert await fleet.seqs() == [*mine[4:], theirs[5], last]


async def test_a_mission_that_was_deleted_needs_no_events(fleet: Fleet) -> None:
    over = await finished(fleet)
    await fleet.do(MissionDelete(over.id))
    fleet.sql("UPDATE events SET mission_id = :id", id=over.id)
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await clean_up(fleet)
    assert await fleet.seqs() == [last]


async def test_what_comes_after_a_young_event_is_young_whatever_its_clock_said(
    fleet: Fleet,
) -> None:
    old = await fleet.happen(2)
    fleet.clock.pass_by(40 * DAY)
    young = await fleet.happen(1)
    fleet.clock.step(-40 * DAY)
    stepped = await fleet.happen(7)
    fleet.clock.step(40 * DAY)
    await fleet.happen(1)
    await clean_up(fleet)
    left = await fleet.seqs()
    assert left[:8] == [*young, *stepped]
    assert not {*old} & {*left}


async def test_an_event_of_a_clock_that_was_ahead_stays_and_hides_no_other(
    fleet: Fleet,
) -> None:
    before = await fleet.happen(2)
    fleet.clock.step(365 * DAY)
    ahead = await fleet.happen(BATCH + 2)
    fleet.clock.step(-365 * DAY)
    after = await fleet.happen(2)
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await clean_up(fleet)
    assert await fleet.seqs() == [*ahead, last]
    assert not {*before, *after} & {*await fleet.seqs()}


async def test_an_event_that_is_needed_again_meanwhile_stays(fleet: Fleet) -> None:
    over = await finished(fleet)
    events = await fleet.happen(2, mission_id=over.id)
    fleet.clock.pass_by(31 * DAY)
    await fleet.happen(1)
    await fleet.do(CursorAdvance("reader", f"mission:{over.id}", events[-1]))
    found = (await fleet.engine.read(events_and_locks.find_old, 0)).found
    assert found.unneeded == found.until == BATCH
    fleet.sql("UPDATE cursors SET position = :seq", seq=events[0])
    assert await fleet.engine.write(events_and_locks.drop_old, 0, found.until) == BATCH - 1
    assert events[1] in await fleet.seqs()


async def test_a_disk_that_is_full_leaves_the_log_as_it_is_until_the_next_day(
    fleet: Fleet,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    await fleet.happen(3 * BATCH)
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    drops = 0

    async def full(rule: Any, *_: Any) -> None:
        nonlocal drops
        drops += rule is events_and_locks.drop_old
        if drops == 2:
            raise Storage("The disk is full; nothing was stored.")

    with monkeypatch.context() as patch:
        meet_rules(fleet.engine, patch, full)
        fleet.clock.follow_trio()
        nursery.start_soon(run_daily_work, fleet.engine)
        await fleet.settle()
    assert await fleet.seqs() == list(range(BATCH + 1, last + 1))
    assert f"Removed {BATCH} unneeded events" in caplog.text
    assert "The cleanup of events is postponed for a day: The disk is full" in caplog.text
    await trio.sleep(DAY_S + LOOK_S)
    assert await fleet.seqs() == [last]


async def test_keys_of_requests_that_nobody_repeats_go(fleet: Fleet) -> None:
    for number in range(2 * BATCH + 1):
        await fleet.do(EventAppend("file_read", idempotency_key=f"k{number}"))
    fleet.clock.pass_by(DAY - MINUTE)
    await fleet.do(EventAppend("file_read", idempotency_key="recent"))
    fleet.clock.pass_by(2 * MINUTE)
    await clean_up(fleet)
    assert fleet.sql("SELECT key FROM idempotency_keys") == [{"key": "recent"}]


async def test_a_run_of_which_nothing_is_left_goes_unless_its_agent_lives(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await fleet.do(AgentRegister("alice", "specialist"))
    await fleet.do(AgentRegister("bob", "specialist"))
    for run_id, agent_id in (("loose", None), ("alices", "alice"), ("bobs", "bob")):
        await fleet.do(SnapshotRecord(run_id, agent_id=agent_id))
    done = await fleet.do(SnapshotRecord("done", status="completed"))
    await fleet.settle()
    await fleet.do(AgentDeregister("bob"))
    stray = fleet.checkpoints / "bobs" / "notes.txt"
    stray.write_text("mine")

    fleet.clock.pass_by(15 * DAY)
    await fleet.do(AgentHeartbeat("alice"))
    await clean_up(fleet)
    await clean_up(fleet)

    assert [row["id"] for row in fleet.sql("SELECT id FROM runs ORDER BY id")] == ["alices", "done"]
    assert set(fleet.files()) == {
        "bobs/notes.txt",
        "done/latest.json",
        f"done/history/{done.snapshot_id}.json.gz",
    }
    assert sorted(path.name for path in fleet.checkpoints.iterdir()) == ["bobs", "done"]


async def test_an_empty_directory_of_a_spent_run_goes_and_files_without_rows_stay(
    fleet: Fleet,
) -> None:
    empty = await fleet.do(SnapshotRecord("empty"))
    full = await fleet.do(SnapshotRecord("full"))
    await fleet.settle()
    fleet.sql("DELETE FROM snapshots")
    for path in ("latest.json", f"history/{empty.snapshot_id}.json"):
        (fleet.checkpoints / "empty" / path).unlink()

    await clean_up(fleet)

    assert fleet.sql("SELECT id FROM runs") == []
    assert [path.name for path in fleet.checkpoints.iterdir()] == ["full"]
    assert (await fleet.do(SnapshotLatest("full"))).snapshot_id == full.snapshot_id


# Daily work goes by the wall time of the last round


class DailyRounds:
    """Counts the rounds of the daily work in daemons that come and go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.succeed = True

        async def counted(engine: Any) -> bool:
            self.number += 1
            return self.succeed

        monkeypatch.setattr(daily, "tidy", counted)

    async def of(self, fleet: Fleet, *, hours: float = 0.1) -> int:
        """Return how many rounds a daemon has in its first hours."""
        before = self.number
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_daily_work, fleet.engine)
            await trio.sleep(hours * 3_600)
            nursery.cancel_scope.cancel()
        return self.number - before


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> DailyRounds:
    return DailyRounds(monkeypatch)


async def test_daily_work_is_done_daily_on_a_laptop_that_sleeps_most_of_the_day(
    fleet: Fleet, rounds: DailyRounds, autojump_clock: trio.testing.MockClock
) -> None:
    fleet.clock.follow_trio()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_daily_work, fleet.engine)
        for _ in range(10):
            await trio.sleep(8 * 3_600 - 7)  # never at the moment of a look
            fleet.clock.suspend(16 * HOUR + 7 * SECOND)
        await trio.sleep(2 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert rounds.number == 11


async def test_daily_work_is_done_at_the_start_and_its_last_round_outlives_the_daemon(
    tmp_path: Path, rounds: DailyRounds, autojump_clock: trio.testing.MockClock
) -> None:
    clock, store = Clock(), tmp_path / "shared.db"
    clock.follow_trio()
    last: dict[str, int] = {}
    for machine in ("north", "south", "north"):
        at = tmp_path / machine
        async with opened(at, clock=clock, machine=machine, database=store) as fleet:
            before = (await fleet.engine.read(daily_rounds)).housekeeping
            assert (before and before.at_ms) == last.get(machine)
            last[machine] = clock()
            assert await rounds.of(fleet, hours=23.5) == 1
            after = (await fleet.engine.read(daily_rounds)).housekeeping
            assert after is not None
            assert after.at_ms == last[machine]


@pytest.mark.parametrize(
    ("machine", "days", "again"),
    [("north", 7, 0), ("north", 3, 1), ("south", 7, 1)],
    ids=["same settings", "other settings", "another machine"],
)
async def test_a_restart_in_a_fleet_brings_no_new_round_within_the_day(
    tmp_path: Path,
    rounds: DailyRounds,
    autojump_clock: trio.testing.MockClock,
    machine: str,
    days: int,
    again: int,
) -> None:
    clock, store = Clock(), tmp_path / "shared.db"
    clock.follow_trio()
    async with opened(tmp_path / "1", clock=clock, machine="north", database=store) as fleet:
        assert await rounds.of(fleet) == 1
    settings = {"retention": Retention(days=days)}
    async with opened(
        tmp_path / "2", clock=clock, machine=machine, database=store, **settings
    ) as fleet:
        assert await rounds.of(fleet, hours=23) == again
        # A day after the first round, less the time between two looks.
        assert await rounds.of(fleet, hours=0.9) == 1 - again


@pytest.mark.parametrize("succeed", [True, False])
async def test_a_restart_in_a_fleet_repeats_a_round_that_failed_in_part(
    tmp_path: Path,
    rounds: DailyRounds,
    autojump_clock: trio.testing.MockClock,
    succeed: bool,
) -> None:
    rounds.succeed = succeed
    async with opened(tmp_path, machine="north") as fleet:
        fleet.clock.follow_trio()
        assert [await rounds.of(fleet), await rounds.of(fleet)] == [1, 0 if succeed else 1]


@pytest.mark.parametrize("error", [Storage("no room"), ValueError("no JSON")])
async def test_a_round_begins_where_the_time_of_the_last_one_cannot_be_read(
    tmp_path: Path,
    rounds: DailyRounds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
    error: Exception,
) -> None:
    async def unreadable(rule: Any, *_: Any) -> None:
        if rule is daily_rounds:
            raise error

    async with opened(tmp_path, machine="north") as fleet:
        fleet.clock.follow_trio()
        with monkeypatch.context() as patch:
            meet_rules(fleet.engine, patch, unreadable)
            assert await rounds.of(fleet) == 1
    assert "The time of the last daily work could not be read" in caplog.text


async def test_tidy_returns_whether_all_succeeded(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await tidy(fleet.engine)

    async def refused(rule: Any, *_: Any) -> None:
        if rule is events_and_locks.find_old:
            raise Storage("no room")

    with monkeypatch.context() as patch:
        meet_rules(fleet.engine, patch, refused)
        assert not await tidy(fleet.engine)


@pytest.mark.sqlite_only("there every store is shared")
async def test_each_restart_has_a_round_in_a_store_of_its_own(
    fleet: Fleet, rounds: DailyRounds, autojump_clock: trio.testing.MockClock
) -> None:
    fleet.clock.follow_trio()
    assert [await rounds.of(fleet), await rounds.of(fleet)] == [1, 1]


async def test_daily_work_is_not_delayed_by_a_clock_that_was_set_back(
    fleet: Fleet,
    nursery: trio.Nursery,
    rounds: DailyRounds,
    autojump_clock: trio.testing.MockClock,
) -> None:
    fleet.clock.follow_trio()
    nursery.start_soon(run_daily_work, fleet.engine)
    await trio.sleep(HOUR / 1_000 + 7)
    assert rounds.number == 1
    fleet.clock.step(-STEPPED_BACK_S * SECOND)
    await trio.sleep(2 * LOOK_S)
    assert rounds.number == 1  # a correction; it has had its round
    fleet.clock.step(-300 * DAY)
    await trio.sleep(2 * LOOK_S)
    assert rounds.number == 2
    await trio.sleep(23 * 3_600)
    assert rounds.number == 2
    await trio.sleep(3_600)
    assert rounds.number == 3


async def test_daily_work_is_not_repeated_by_a_clock_that_was_set_forward(
    fleet: Fleet,
    nursery: trio.Nursery,
    rounds: DailyRounds,
    autojump_clock: trio.testing.MockClock,
) -> None:
    fleet.clock.follow_trio()
    nursery.start_soon(run_daily_work, fleet.engine)
    await trio.sleep(7)
    for number, step in ((2, 300 * DAY), (3, -300 * DAY)):
        fleet.clock.step(step)
        await trio.sleep(2 * LOOK_S)
        assert rounds.number == number
        await trio.sleep(23 * 3_600)
        assert rounds.number == number


async def test_daily_work_whose_time_cannot_be_stored_is_not_repeated_at_once(
    fleet: Fleet,
    rounds: DailyRounds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def full(*_: Any) -> Any:
        raise Storage("The disk is full; nothing was stored.")

    monkeypatch.setattr(fleet.engine, "write", full)
    fleet.clock.follow_trio()
    assert await rounds.of(fleet, hours=47) == 2
    assert "could not be stored: The disk is full" in caplog.text
