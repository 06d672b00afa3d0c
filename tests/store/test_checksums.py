"""A page is what was written, or an error; and who cannot keep checksums keeps off."""

import random
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import pytest

from fleetd.protocol.errors import Corrupt
from fleetd.store.api import StoreFull, StoreRefused
from fleetd.store.sqlite import page_checksums
from fleetd.store.sqlite.connect import open_database

TITLE = b"The title of a mission that nobody may change"


def title(tx: Any) -> Any:
    return tx.value("SELECT value FROM store_meta WHERE key = 'title'")


def flip(database: Path, text: bytes = TITLE) -> None:
    data = bytearray(database.read_bytes())
    data[data.index(text) + 10] ^= 1
    database.write_bytes(data)


async def put_title(open_store: Any) -> None:
    async with open_store() as store:
        sql = "INSERT INTO store_meta VALUES ('title', :title)"
        await store.write(lambda tx: tx.run(sql, title=TITLE.decode()))


async def test_a_flipped_bit_in_a_text_is_never_served(open_store: Any, database: Path) -> None:
    await put_title(open_store)
    flip(database)
    async with open_store() as store:
        with pytest.raises(Corrupt, match="damaged"):
            await store.read(title)
        with pytest.raises(Corrupt, match="damaged"):
            await store.write(title)
        assert await store.check() == ["a page is not what was written"]
        # That a page is damaged leaves nothing in doubt: what needs it not is served as before.
        sql = "INSERT INTO counters VALUES ('one', 1)"
        await store.write(lambda tx: tx.run(sql))
        assert store.failure is None


async def test_neighbours_of_one_that_meets_damage_are_committed(
    open_store: Any, database: Path, tools: Any
) -> None:
    await put_title(open_store)
    flip(database)

    def count(tx: Any) -> str:
        tx.run("INSERT INTO counters VALUES ('one', 1)")
        return "done"

    async with open_store() as store:
        results = await tools.Batch(store).run({"a": count, "damaged": title})
        assert results["a"] == "done"
        assert isinstance(results["damaged"], Corrupt)
        assert await store.read(lambda tx: tx.value("SELECT value FROM counters")) == 1


def make_old(database: Path) -> None:
    """Make a database from before there were checksums."""
    database.parent.mkdir()
    with mock.patch.object(page_checksums, "available", return_value=False):
        connection = open_database(database, None)
        connection.execute("INSERT INTO store_meta VALUES ('title', ?)", (TITLE.decode(),))
        connection.close()
    assert not page_checksums.has_room(database)


def test_a_database_without_checksums_has_them_after_the_next_start(database: Path) -> None:
    make_old(database)
    open_database(database, None).close()
    assert page_checksums.has_room(database)
    connection = open_database(database, None)
    assert connection.execute("SELECT value FROM store_meta").get == TITLE.decode()
    connection.close()
    flip(database)
    connection = open_database(database, None)
    with pytest.raises(apsw.IOError) as damage:
        connection.execute("SELECT value FROM store_meta").fetchall()
    assert page_checksums.is_damage(damage.value)
    connection.close()


def test_a_disk_without_room_leaves_a_database_as_it_is(database: Path, faults: Any) -> None:
    make_old(database)
    faults.fail("write", "wal", apsw.FullError, times=10_000)
    connection = open_database(database, faults.name)
    faults.mend()
    assert connection.execute("SELECT value FROM store_meta").get == TITLE.decode()
    connection.close()
    assert not page_checksums.has_room(database)


async def test_a_rewritten_database_that_cannot_be_copied_back_is_not_written_to(
    open_store: Any, database: Path, tools: Any, faults: Any
) -> None:
    """Its pages ask for checksums then, and a connection that has not seen that adds none."""
    make_old(database)
    faults.fail("write", "db", apsw.FullError)
    with pytest.raises(StoreFull, match="brought up to date"):
        open_database(database, faults.name)
    faults.mend()
    async with open_store(vfs=faults.name) as store:
        for number in range(50):
            await store.write(tools.put(f"c{number}"))
    assert unchecked_pages(database) == []


async def test_a_database_without_checksums_stays_so_while_several_have_it_open(
    open_store: Any, database: Path, tools: Any, faults: Any
) -> None:
    """Else the thread that copies the WAL back would write pages without their checksums."""
    make_old(database)
    faults.fail("write", "wal", apsw.FullError, times=10_000)
    async with open_store(vfs=faults.name) as store:
        faults.mend()
        await store.write(tools.put("before"))
        await store.scrub()
        for number in range(50):
            await store.write(tools.put(f"c{number}"))
    assert not page_checksums.has_room(database)
    async with open_store() as store:
        assert await store.read(title) == TITLE.decode()
        assert await store.check() == []
    assert page_checksums.has_room(database)
    assert unchecked_pages(database) == []


def unchecked_pages(database: Path) -> list[int]:
    """Return the numbers of the pages that do not end in their checksum."""
    data, size = database.read_bytes(), 4_096
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    return [
        number
        for number, page in enumerate(pages, 1)
        if page_checksums.sum_of(page[: -page_checksums.RESERVED]) != page[-8:]
    ]


def test_who_cannot_keep_checksums_refuses_a_database_that_has_them(database: Path) -> None:
    open_database(database, None).close()
    with (
        mock.patch.object(page_checksums, "available", return_value=False),
        pytest.raises(StoreRefused, match="lacks the extension cksumvfs"),
    ):
        open_database(database, None)


@pytest.mark.parametrize("bit", range(8))
def test_damage_of_the_byte_that_asks_for_checksums_is_damage(database: Path, bit: int) -> None:
    open_database(database, None).close()
    data = bytearray(database.read_bytes())
    data[page_checksums.RESERVED_AT] ^= 1 << bit
    database.write_bytes(data)
    with pytest.raises(StoreRefused, match="is damaged"):
        open_database(database, None)


def test_an_error_of_the_disk_is_no_damage() -> None:
    assert not page_checksums.is_damage(apsw.IOError("the disk has a fault"))
    assert not page_checksums.is_damage(apsw.FullError("full"))
    assert page_checksums.is_damage(apsw.CorruptError("malformed"))


def flip_in_page(database: Path, chance: random.Random) -> tuple[int, int]:
    """Flip some bit of the page that holds the title."""
    start = database.read_bytes().index(TITLE) // 4_096 * 4_096
    bit = start + chance.randrange(4_096), 1 << chance.randrange(8)
    flip_back(database, *bit)
    return bit


def flip_back(database: Path, place: int, bit: int) -> None:
    data = bytearray(database.read_bytes())
    data[place] ^= bit
    database.write_bytes(data)


async def test_no_bit_of_a_page_that_is_read_goes_unnoticed(
    open_store: Any, database: Path
) -> None:
    await put_title(open_store)
    chance = random.Random(1)
    for _ in range(60):
        bit = flip_in_page(database, chance)
        async with open_store() as store:
            with pytest.raises(Corrupt):
                await store.read(title)
        flip_back(database, *bit)
