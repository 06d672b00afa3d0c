"""A database whose files are taken away under the daemon: nothing is lost without a word."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.protocol.errors import Storage
from fleetd.store.api import CopyFailed, StoreFailed


def remove_all(database: Path) -> None:
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()


def replace(database: Path) -> None:
    old = database.with_name("aside.db")
    shutil.copy(database, old)
    os.replace(old, database)


def remove(database: Path, ending: str) -> None:
    Path(f"{database}{ending}").unlink()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("take", [Path.unlink, remove_all, replace])
async def test_a_database_that_was_taken_away_is_saved_beside_its_place(
    take: Callable[[Path], None], open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("before"))
        take(database)
        with pytest.raises(Storage, match="was removed or replaced while it was in use"):
            await store.write(tools.put("after"))
        assert store.failed.is_set()
        (saved,) = database.parent.glob(f"{database.name}.rescued-*")
        assert f"fleetctl restore {saved}" in str(store.failure)
        assert mode(saved) == 0o600
    assert tools.keys_in(saved) == {"before"}


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
async def test_without_its_wal_or_index_the_database_gets_what_they_held(
    ending: str, open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("before"))
        remove(database, ending)
        with pytest.raises(Storage, match=f"fleet.db{ending} was removed or replaced"):
            await store.write(tools.put("after"))
        assert "nothing that was acknowledged is lost" in str(store.failure)
    assert tools.keys_in(database) == {"before"}
    assert list(database.parent.glob("*.rescued-*")) == []


async def test_an_orderly_end_looks_too(open_store: Any, database: Path, tools: Any) -> None:
    async with open_store() as store:
        await store.write(tools.put("before"))
        remove_all(database)
        with pytest.raises(StoreFailed, match="rescued"):
            await store.last_look()


async def test_where_nothing_can_be_saved_it_is_said(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("before"))
        shutil.rmtree(database.parent)
        with pytest.raises(Storage):
            await store.write(tools.put("after"))
        assert "could not be saved" in str(store.failure)


async def test_check_copy_and_sizes_do_not_make_an_empty_database_in_its_place(
    open_store: Any, database: Path, tools: Any, tmp_path: Path
) -> None:
    async with open_store() as store:
        await store.write(tools.put("before"))
        remove_all(database)
        (trouble,) = await store.check()
        assert "was removed or replaced" in trouble
        with pytest.raises(CopyFailed, match="was removed or replaced"):
            await store.copy_to(tmp_path / "copy.db")
        assert store.sizes() == (0, 0)
    assert list(database.parent.glob("*")) == []
