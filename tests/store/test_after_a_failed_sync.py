"""A sync that failed is never trusted again: what it was to bring to the disk may be gone."""

import contextlib
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from fleetd.protocol.errors import Storage
from fleetd.store.sqlite.store import SqliteStore
from tests.support.disk_faults import Faults


async def leave(store: SqliteStore) -> None:
    """Close a store as a daemon does that ends."""
    with trio.CancelScope(shield=True):
        await store.aclose()


async def test_what_is_committed_after_a_failed_sync_survives_a_power_cut(
    database: Path, faults: Faults, tools: Any, open_store: Any
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("before"))
        faults.fail("sync", "wal", apsw.IOError)
        with pytest.raises(Storage, match="disk failed") as refusal:
            await store.write(tools.put("lost"))
        assert refusal.value.values["retry"] is True
    faults.mend()
    # The daemon comes back: the WAL still reads as if all of it were written.
    async with open_store(vfs=faults.name) as store:
        found = await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta"))
        assert found == 4
        await store.write(tools.put("after"))
        faults.disk.lose_power()
        store._committer.failure = apsw.IOError("no power")
    assert tools.keys_in(database) == {"before", "lost", "after"}


async def test_a_wal_that_cannot_be_written_anew_is_not_built_upon(
    database: Path, faults: Faults, tools: Any, open_store: Any
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("before"))
        faults.fail("sync", "wal", apsw.IOError, times=10_000)
        with pytest.raises(Storage):
            await store.write(tools.put("lost"))
    with pytest.raises(Exception, match=r"cannot be opened: .*the disk has a fault"):
        async with open_store(vfs=faults.name):
            pass
    faults.mend()
    assert "before" in tools.keys_in(database)


async def test_the_name_of_a_wal_that_is_written_anew_is_synced_as_well(
    database: Path, faults: Faults, tools: Any, open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its name ever came to the disk is no more known than what it holds."""
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("before"))
        faults.fail("sync", "wal", apsw.IOError)
        with pytest.raises(Storage):
            await store.write(tools.put("lost"))
    synced: list[Path] = []
    monkeypatch.setattr("fleetd.store.sqlite.connect.sync", synced.append)
    async with open_store(vfs=faults.name):
        assert synced == [database.parent]


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_wal_that_cannot_be_copied_back_stops_the_store_and_is_kept(
    database: Path, faults: Faults, tools: Any, open_store: Any, call: str
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("large", "x" * 1_000_000))
        faults.fail(call, "db", apsw.IOError)
        with contextlib.suppress(Storage):  # refused, when the error comes before the reply
            await store.write(tools.put("more", "x" * 3_000_000))
        with trio.fail_after(30):
            await store.failed.wait()
        assert isinstance(store.failure, apsw.IOError)
        # The disk is in order again, as far as anybody can tell; nobody may believe it.
        with pytest.raises(Storage, match="disk failed"):
            await store.write(tools.put("later"))
        store._wal._thread.join(30)
        assert not store.wal_is_kept_short, "it would ask the same disk again"
        writes = faults.seen["write", "any"]
        assert await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta")) == 4
    assert faults.seen["write", "any"] == writes
    faults.disk.lose_power()
    assert tools.keys_in(database) == {"large", "more"}


async def test_a_commit_under_way_while_the_store_stops_is_not_acknowledged(
    database: Path, tools: Any, open_store: Any
) -> None:
    async with open_store() as store:

        def stopped(tx: Any) -> str:
            store._fail(apsw.IOError("a sync failed beside the writer"))
            key: str = tools.put("doubtful")(tx)
            return key

        with pytest.raises(Storage, match="disk failed"):
            await store.write(stopped)
        await trio.testing.wait_all_tasks_blocked()
        assert store.failed.is_set()


@pytest.mark.parametrize("error", [apsw.FullError, apsw.BusyError])
async def test_a_wal_that_finds_no_room_or_no_turn_is_copied_back_later(
    database: Path, faults: Faults, tools: Any, open_store: Any, error: type[apsw.Error]
) -> None:
    async with open_store(vfs=faults.name) as store:
        synced = faults.seen["sync", "db"]
        faults.fail("write", "db", error)
        await store.write(tools.put("large", "x" * 5_000_000))
        with trio.fail_after(30):
            # One attempt would serve both writes if the second came first.
            while not faults.failed:  # noqa: ASYNC110 - it happens on a thread
                await trio.sleep(0.01)
            await store.write(tools.put("more", "x" * 5_000_000))
            while faults.seen["sync", "db"] == synced:  # noqa: ASYNC110 - it happens on a thread
                await trio.sleep(0.01)
        assert (store.failure, faults.failed) == (None, 1)
    assert tools.keys_in(database) == {"large", "more"}
