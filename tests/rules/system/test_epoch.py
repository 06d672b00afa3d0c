"""A database that came back counts on above everything seen, and tells subscribers so."""

import pytest

from fleetd.domain.rules import KINDS
from fleetd.domain.system.epoch import begin_epoch, extent, reset_backups
from fleetd.protocol.errors import Incompatible
from fleetd.protocol.requests.event import EventList, EventSubscribe
from fleetd.protocol.requests.lock import LockCheck
from fleetd.protocol.requests.snapshot import SnapshotRecord
from tests.support.fleet import Fleet


async def test_positions_and_tokens_start_above_everything_seen(fleet: Fleet) -> None:
    mission = await fleet.mission()
    end = (await fleet.do(EventList())).position
    await fleet.engine.write(begin_epoch, 900, 70, "files")
    (told,) = await fleet.events(kind="store_restored")
    assert (told.seq, told.data) == (901, {"source": "files", "end": end})
    assert (await fleet.lock(mission, "a.py", "specialist-1")).fencing_token == 71
    assert (await fleet.events())[-1].seq == 902


async def test_floors_below_what_the_store_counts_change_no_order(fleet: Fleet) -> None:
    mission = await fleet.mission()
    first = await fleet.lock(mission, "a.py", "specialist-1")
    end = (await fleet.do(EventList())).position
    await fleet.engine.write(begin_epoch, 1, 0, "copy")
    assert [event.seq for event in await fleet.events()][-1] == end + 1
    second = await fleet.lock(mission, "b.py", "specialist-1")
    assert second.fencing_token > first.fencing_token


async def test_a_subscriber_of_the_epoch_before_is_told(fleet: Fleet) -> None:
    before = (await fleet.do(EventList())).epoch
    await fleet.engine.write(begin_epoch, 9, 0, "copy")
    with pytest.raises(Incompatible, match=before):
        await fleet.do(EventSubscribe(since=0, epoch=before))
    again = await fleet.do(EventSubscribe())
    assert again.epoch != before
    assert again.position == 10


async def test_a_token_that_was_given_out_before_fits_no_more_and_the_lease_stays(
    fleet: Fleet,
) -> None:
    file = str(fleet.project / "a.py")
    lock = await fleet.lock(await fleet.mission(), file, "specialist-1")
    assert (await fleet.do(LockCheck(file, lock.fencing_token))).valid
    await fleet.engine.write(begin_epoch, 0, 0, "copy")
    (held,) = await fleet.locks()
    assert (held.held_by, held.expires_at) == (lock.held_by, lock.expires_at)
    assert held.fencing_token > lock.fencing_token
    assert not (await fleet.do(LockCheck(file, lock.fencing_token))).valid


async def test_files_that_are_gone_are_written_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    before = fleet.files()
    fleet.file_of(taken).unlink()
    await fleet.engine.write(reset_backups, "checkpoint", [taken.id])
    await fleet.engine.outbox.catch_up()
    await fleet.settle()
    assert fleet.files() == before


async def test_the_extent_names_what_a_database_holds(fleet: Fleet) -> None:
    mission = await fleet.mission()
    taken = [await fleet.checkpoint(mission, note) for note in ("one", "two")]
    lock = await fleet.lock(mission, "a.py", "specialist-1")
    snapshot = await fleet.do(SnapshotRecord("run-a"))
    seen = await fleet.engine.store.read(lambda tx: extent(tx, list(KINDS)))
    assert seen.end == (await fleet.do(EventList())).position
    assert (seen.token, seen.missions) == (lock.fencing_token, 1)
    assert [known.id for known in seen.records["checkpoint"]] == [taken[1].id, taken[0].id]
    assert [known.owner_id for known in seen.live("snapshot")] == [snapshot.run_id]
    before = await fleet.engine.store.read(lambda tx: extent(tx, ["checkpoint"]))
    assert before.records["snapshot"] == []
    assert seen.last_event_at == fleet.clock.now
