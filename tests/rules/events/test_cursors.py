"""Cursors that nobody moves keep nothing for ever; whoever comes back is told what he missed."""

from pathlib import Path

import pytest

from fleetd.domain.core.context import BatchSizes
from fleetd.engine.jobs.daily import tidy
from fleetd.protocol.errors import Storage
from fleetd.protocol.records import Finding, Mission
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import CursorAdvance, CursorGap, CursorGet
from fleetd.protocol.requests.mission import MissionCancel
from fleetd.protocol.requests.system import SystemDoctor
from tests.support.fleet import DAY, HOUR, Clock, Fleet, opened
from tests.support.legacy_store import beside, event


async def finished(fleet: Fleet) -> Mission:
    mission = await fleet.mission(0)
    await fleet.do(MissionCancel(mission.id, "enough"))
    return mission


async def listed(fleet: Fleet) -> list[Finding]:
    found = (await fleet.do(SystemDoctor())).findings
    return [each for each in found if each.check.startswith("cursor")]


async def test_cursors_that_nobody_moves_keep_no_events_and_their_owner_gets_a_gap(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    over = await finished(fleet)
    stream = f"mission:{over.id}"
    mine = await fleet.happen(6, mission_id=over.id)
    assert (await fleet.do(CursorAdvance("reader", stream, mine[1]))).gap is None
    fleet.clock.pass_by(30 * DAY)
    (later,) = await fleet.happen(1, mission_id=over.id)
    await tidy(fleet.engine)
    assert {*mine[2:]} <= {*await fleet.seqs()}  # exactly 30 days: it keeps them
    fleet.clock.pass_by(1)
    await tidy(fleet.engine)
    assert not {*mine} & {*await fleet.seqs()}
    told = f"Events of {stream} were deleted before reader read them"
    assert caplog.text.count(told) == 1

    gap = CursorGap(first_available=later, missed_until=mine[-1])
    for _ in range(2):
        found = await fleet.do(CursorGet("reader", stream))
        assert (found.position, found.gap) == (mine[1], gap)
    assert (await fleet.do(CursorAdvance("reader", stream, mine[1]))).gap == gap
    assert (await fleet.do(CursorAdvance("reader", stream, later))).gap == gap
    assert (await fleet.do(CursorGet("reader", stream))).gap is None


async def test_the_first_available_is_the_next_of_the_log_when_nothing_is_left(
    fleet: Fleet,
) -> None:
    await fleet.do(AgentRegister("spec-1", "specialist"))
    await fleet.do(CursorAdvance("reader", "agent:spec-1", 0))
    theirs = await fleet.happen(2, agent_id="spec-1")
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await tidy(fleet.engine)
    found = await fleet.do(CursorGet("reader", "agent:spec-1"))
    assert found.gap == CursorGap(first_available=last + 1, missed_until=theirs[-1])


@pytest.mark.parametrize("use", ["moved", "read"])
async def test_a_cursor_that_is_used_keeps_what_it_has_not_come_to(fleet: Fleet, use: str) -> None:
    over = await finished(fleet)
    stream = f"mission:{over.id}"
    mine = await fleet.happen(6, mission_id=over.id)
    await fleet.do(CursorAdvance("reader", stream, mine[0]))
    for n in range(1, 4):
        fleet.clock.pass_by(29 * DAY)
        if use == "moved":
            await fleet.do(CursorAdvance("reader", stream, mine[n]))
        else:
            await fleet.do(CursorGet("reader", stream))
        await tidy(fleet.engine)
    left = mine[4:] if use == "moved" else mine[1:]
    assert [seq for seq in await fleet.seqs() if seq in mine] == left
    assert (await fleet.do(CursorGet("reader", stream))).gap is None


async def test_whoever_comes_back_keeps_what_is_left(fleet: Fleet) -> None:
    over = await finished(fleet)
    stream = f"mission:{over.id}"
    await fleet.do(CursorAdvance("reader", stream, 0))
    early = await fleet.happen(3, mission_id=over.id)
    fleet.clock.pass_by(20 * DAY)
    late = await fleet.happen(3, mission_id=over.id)
    fleet.clock.pass_by(11 * DAY)
    await tidy(fleet.engine)
    found = await fleet.do(CursorGet("reader", stream))
    assert found.gap == CursorGap(first_available=late[0], missed_until=early[-1])
    fleet.clock.pass_by(20 * DAY)
    await tidy(fleet.engine)
    assert {*late} <= {*await fleet.seqs()}


async def test_whoever_follows_the_whole_log_is_told_of_every_stream(fleet: Fleet) -> None:
    over = await finished(fleet)
    await fleet.do(CursorAdvance("tool", "fleet", 1))
    mine = await fleet.happen(2, mission_id=over.id)
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await tidy(fleet.engine)
    found = await fleet.do(CursorGet("tool", "fleet"))
    assert found.gap == CursorGap(first_available=last, missed_until=mine[-1])


async def test_the_cursors_of_a_legacy_import_keep_nothing_for_ever(tmp_path: Path) -> None:
    events = {"a": [event("one", 1), event("two", 2), event("three", 3)]}
    beside(tmp_path, {"events": events, "cursors": {"a": {"position": 1}}})
    async with opened(tmp_path) as fleet:
        one, *unread = [each.seq for each in await fleet.events() if each.agent_id == "a"]
        fleet.clock.pass_by(30 * DAY)
        await tidy(fleet.engine)
        assert {*unread} <= {*await fleet.seqs()}
        fleet.clock.pass_by(1)
        (last,) = await fleet.happen(1)
        await tidy(fleet.engine)
        assert await fleet.seqs() == [last]
        found = await fleet.do(CursorGet("legacy", "agent:a"))
        assert found.position == one
        assert found.gap == CursorGap(first_available=last + 1, missed_until=unread[-1])


async def test_reading_a_cursor_writes_once_an_hour_at_most(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await fleet.do(CursorAdvance("reader", "fleet", 0))

    def used_at() -> str:
        (row,) = fleet.sql("SELECT updated_at FROM cursors")
        return str(row["updated_at"])

    begun = used_at()
    fleet.clock.pass_by(HOUR)
    await fleet.do(CursorGet("reader", "fleet"))
    assert used_at() == begun
    fleet.clock.pass_by(1)
    await fleet.do(CursorGet("reader", "fleet"))
    assert used_at() == fleet.clock.now
    fleet.clock.step(-2 * DAY)  # a clock that was ahead must not keep it in use for ever
    await fleet.do(CursorGet("reader", "fleet"))
    assert used_at() == fleet.clock.now
    await fleet.do(CursorGet("nobody", "fleet"))
    assert len(fleet.sql("SELECT * FROM cursors")) == 1

    async def full(*_: object) -> None:
        raise Storage("The disk is full; nothing was stored.")

    fleet.clock.pass_by(DAY)
    monkeypatch.setattr(fleet.engine.store, "write", full)
    assert (await fleet.do(CursorGet("reader", "fleet"))).position == 0
    assert "could not be recorded: The disk is full" in caplog.text


async def test_the_doctor_lists_cursors(fleet: Fleet) -> None:
    (none,) = await listed(fleet)
    assert (none.check, none.detail) == ("cursors", "no consumer has a cursor")
    over = await finished(fleet)
    stream = f"mission:{over.id}"
    mine = await fleet.happen(3, mission_id=over.id)
    await fleet.do(CursorAdvance("old", stream, mine[0]))
    then = fleet.clock.now
    fleet.clock.pass_by(31 * DAY)
    (last,) = await fleet.happen(1)
    await fleet.do(CursorAdvance("new", "fleet", last))
    await tidy(fleet.engine)
    found = await listed(fleet)
    assert [(each.subject, each.ok) for each in found] == [
        (f"old on {stream}", True),
        ("new on fleet", True),
    ]
    end = (await fleet.seqs())[-1]
    assert found[0].detail == (
        f"at {mine[0]} of {end}, last used at {then}: it no longer keeps events;"
        f" events up to {mine[-1]} were deleted unread"
    )
    assert found[1].detail == f"at {last} of {end}, last used at {fleet.clock.now}"
    fleet.engine.batches = BatchSizes(listed_cursors=1)
    assert [each.detail for each in await listed(fleet)][1:] == ["and 1 more"]


async def test_a_cursor_that_is_used_on_one_machine_keeps_events_from_all(tmp_path: Path) -> None:
    clock, store = Clock(), tmp_path / "shared.db"
    async with (
        opened(tmp_path / "a", clock=clock, machine="machine-a", database=store) as a,
        opened(tmp_path / "b", clock=clock, machine="machine-b", database=store) as b,
    ):
        over = await finished(a)
        stream = f"mission:{over.id}"
        mine = await a.happen(3, mission_id=over.id)
        await a.do(CursorAdvance("reader", stream, mine[0]))
        clock.pass_by(20 * DAY)
        await b.do(CursorGet("reader", stream))
        clock.pass_by(20 * DAY)
        await tidy(a.engine)
        assert {*mine[1:]} <= {*await a.seqs()}
        clock.pass_by(11 * DAY)
        await b.happen(1)
        await tidy(b.engine)
        gap = (await a.do(CursorGet("reader", stream))).gap
        assert gap is not None
        assert gap.missed_until == mine[-1]
