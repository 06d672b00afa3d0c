"""The WAL has its size from the start, so that no commit has to make it grow."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.store.sqlite import wal_checkpointer
from fleetd.store.sqlite.store import SqliteStore
from fleetd.store.sqlite.wal_checkpointer import PAGES
from tests.support.small_disk import fill, grow

FRAME = 4_096 + 24
FULL = 32 + 1_250 * FRAME
DEADLINE_S = 10


async def until(true: Any) -> None:
    """Wait for what a thread does beside us."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        await trio.sleep(0.01)


async def test_commits_do_not_make_the_wal_grow(open_store: Any, tools: Any) -> None:
    async with open_store() as store:
        # One write makes it this large, and may be seen half done.
        await until(lambda: store.sizes()[1] >= FULL)
        size = store.sizes()[1]
        for number in range(300):
            await store.write(tools.put(f"key {number}"))
        assert store.sizes()[1] == size
    assert len(tools.keys_in(store.path)) == 300
    assert store.sizes()[1] == 0


async def test_what_was_written_before_it_had_its_size_is_kept(open_store: Any, tools: Any) -> None:
    async with open_store() as store:
        for number in range(20):
            await store.write(tools.put(f"key {number}"))
        await until(lambda: store.sizes()[1] > PAGES * FRAME)
        await store.write(tools.put("last"))
        assert await store.check() == []
    assert len(tools.keys_in(store.path)) == 21


async def test_a_disk_without_room_for_it_keeps_what_room_it_has(
    small_disk: Path, tools: Any
) -> None:
    grow(small_disk, "8m")
    first = SqliteStore(small_disk / "fleet.db", lambda _: None, inline=True)
    first.start()
    await first.aclose()
    fill(small_disk / "filler", leave=2 * 1024 * 1024)
    store = SqliteStore(small_disk / "fleet.db", lambda _: None)
    store.start()
    try:
        assert await store.write(tools.put("first")) == "first"
        assert store.failure is None
        assert store.sizes()[1] < 1024 * 1024
    finally:
        await store.aclose()
    assert "first" in tools.keys_in(store.path)


async def test_when_its_sync_fails_nothing_is_known_of_the_disk(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(wal_checkpointer.os, "fdatasync", broken)
    async with open_store() as store:
        with trio.fail_after(DEADLINE_S):
            await store.failed.wait()
        assert "could not be synced" in str(store.failure)
