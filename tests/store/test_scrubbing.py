"""Scrubbing: no byte of what was deleted stays, and nothing else is harmed, whatever happens."""

from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import Storage, Unavailable

SECRET = "sentinel-7f3a"
# As a disk reports them.
FULL, BROKEN = apsw.FullError, apsw.IOError


def drop(key: str) -> Any:
    def rule(tx: Tx) -> str:
        tx.run("DELETE FROM store_meta WHERE key LIKE :key", key=f"{key}/%")
        return key

    return rule


def still_there(database: Path) -> list[str]:
    files = [database, Path(f"{database}-wal"), Path(f"{database}-shm")]
    return [path.name for path in files if path.exists() and SECRET.encode() in path.read_bytes()]


async def test_what_was_deleted_leaves_no_byte_in_database_and_wal(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("kept"))
        await store.write(tools.put("gone", SECRET * 5_000))
        await store.write(drop("gone"))
        assert still_there(database)
        await store.scrub()
        assert still_there(database) == []
        assert store.sizes()[1] == 0
        await store.write(tools.put("later"))
    assert tools.keys_in(database) == {"kept", "later"}


async def test_requests_around_a_scrubbing_keep_their_order_and_their_results(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store, trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(store.write, tools.put(f"w{number}"))
            if number % 10 == 5:
                nursery.start_soon(store.scrub)
    assert tools.keys_in(database) == {f"w{number}" for number in range(50)}


@pytest.mark.parametrize("nth", range(1, 12, 2))
async def test_a_full_disk_refuses_the_scrubbing_and_nothing_else(
    open_store: Any, database: Path, faults: Any, tools: Any, nth: int
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("kept", "x" * 50_000))
        faults.fail("write", "wal", FULL, nth=nth, times=10_000)
        with pytest.raises(Storage, match="disk is full"):
            await store.scrub()
        faults.mend()
        await store.write(tools.put("later"))
        await store.scrub()
    assert tools.keys_in(database) == {"kept", "later"}


async def test_a_disk_that_breaks_under_it_stops_the_store_and_loses_nothing(
    open_store: Any, database: Path, faults: Any, tools: Any
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("kept", "x" * 50_000))
        faults.fail("write", "wal", BROKEN, nth=3, times=10_000)
        with pytest.raises(Storage):
            await store.scrub()
        assert store.failed.is_set()
        faults.mend()
    assert tools.keys_in(database) == {"kept"}


async def test_a_reader_that_stays_is_named_and_the_store_goes_on(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("kept"))
        reader = apsw.Connection(str(database))
        reader.execute("BEGIN").execute("SELECT count(*) FROM store_meta").fetchall()
        store._writer_connection.set_busy_timeout(1)
        with pytest.raises(Unavailable, match="holds a lock on the database"):
            await store.scrub()
        await store.write(tools.put("later"))
        reader.close()
        await store.scrub()
    assert tools.keys_in(database) == {"kept", "later"}


async def test_a_wal_that_is_being_copied_back_meanwhile_is_waited_for(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        for number in range(8):
            # Each longer than what makes the upkeep begin.
            await store.write(tools.put(f"gone{number}", SECRET * 300_000))
            await store.write(drop(f"gone{number}"))
            await store.scrub()
            assert still_there(database) == []
