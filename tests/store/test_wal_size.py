"""The WAL has its size from the start, so that no commit has to make it grow."""

import errno
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.store.sqlite import wal_checkpointer
from fleetd.store.sqlite.connect import connect
from fleetd.store.sqlite.store import SqliteStore
from fleetd.store.sqlite.wal_checkpointer import PAGES, WalCheckpointer
from tests.support.disk_faults import Faults
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
    small_disk: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    write = wal_checkpointer._write
    monkeypatch.setattr(wal_checkpointer, "_write", lambda *call: written.append(write(*call)))
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
        await until(lambda: written)  # before, the file may be seen half written
        assert written == [False]
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


class BusyDisk(Faults):
    """A disk on which somebody commits while the WAL is copied back."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced = 0
        """Writes to the database that no sync has followed."""
        self.commit: Any = None
        """What is called with the next write to the database."""

    def meet(self, call: str, kind: str, end: int = 0) -> None:
        super().meet(call, kind, end)
        if kind != "db":
            return
        self.unsynced = 0 if call == "sync" else self.unsynced + 1
        if call == "write" and (commit := self.commit):
            self.commit = None
            commit()


class Watched:
    """A connection that notes how much waits for a sync when the writer has to wait.

    During each of the first passes somebody commits.
    """

    def __init__(self, connection: apsw.Connection, disk: BusyDisk, commits: list[Any]) -> None:
        self._connection = connection
        self._disk = disk
        self._commits = commits
        self.ends: list[int] = []

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        if mode == apsw.SQLITE_CHECKPOINT_FULL:
            self.ends.append(self._disk.unsynced)
        elif self._commits:
            self._disk.commit = self._commits.pop()
        return self._connection.wal_checkpoint(mode=mode)

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("commits", [0, 1, 2, 6])
async def test_the_writer_waits_for_no_sync_of_what_was_copied_beside_it(
    open_store: Any, tools: Any, commits: int
) -> None:
    disk = BusyDisk()
    async with open_store(inline=True) as store:
        await store.write(tools.put("first"))
        path = str(store.path)
        writer = connect(path, vfs=disk.name)
        wal = WalCheckpointer(path, disk.name, lambda error: pytest.fail(str(error)))

        def commit(name: int) -> None:
            with writer:
                for number in range(200):
                    writer.execute(
                        "INSERT INTO store_meta (key, value) VALUES (?, ?)",
                        (f"{name} {number}", "x" * 3_000),
                    )

        commit(0)
        more = [partial(commit, number + 1) for number in range(commits)]
        watched = Watched(wal._connection, disk, more)
        wal._connection = watched  # type: ignore[assignment]
        wal._copy_back()

        assert watched.ends == [0]
        # All of it is in the database, so that the WAL begins anew.
        done = writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        assert done[0] == done[1]
        wal.stop()
        writer.close()
        disk.unregister()
        assert await store.check() == []
