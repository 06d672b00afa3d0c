"""What a failing disk does: a full one is answered and passes, a broken one stops the store."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.config import load
from fleetd.domain.core.tx import LogLine, Tx
from fleetd.engine.engine import DAEMON
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.errors import FleetError, Storage
from fleetd.protocol.requests.mission import MissionCreate, MissionList
from fleetd.protocol.requests.system import SystemHealth
from fleetd.store.api import StoreFailed, StoreRefused
from fleetd.store.sqlite.store import SqliteStore
from tests.support.small_disk import fill, grow

NAMES = ("a", "b", "c", "d", "e")
BROKEN = apsw.IOError
FULL = apsw.FullError


def batch_of(tools: Any) -> dict[str, Any]:
    return {name: tools.put(name, name * 3_000) for name in NAMES}


async def test_a_request_that_does_not_fit_is_refused_and_its_neighbours_are_kept(
    open_store: Any, database: Path, faults: Any, tools: Any
) -> None:
    said: list[LogLine] = []

    def large(tx: Tx) -> Any:
        tx.after_commit(LogLine("INFO", "large"))
        # More than the WAL has room for, whether it was laid out already or not.
        return tools.put("large", "x" * 8_000_000)(tx)

    async with open_store(vfs=faults.name, on_commit=said.extend) as store:
        faults.space = store.sizes()[1] + 200_000
        results = await tools.Batch(store).run(
            {"a": tools.put("a"), "large": large, "b": tools.put("b")}
        )
        assert (results["a"], results["b"]) == ("a", "b")
        assert isinstance(results["large"], Storage)
        assert "disk is full" in results["large"].message
        assert store.failure is None
        assert await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta")) == 4
        faults.mend()
        await store.write(tools.put("large again", "x" * 1_000_000))
    assert said == []
    assert tools.keys_in(database) == {"a", "b", "large again"}


@pytest.mark.parametrize("nth", range(1, 16))
async def test_a_full_disk_at_the_nth_write_fails_all_that_needed_it_and_passes(
    open_store: Any, database: Path, faults: Any, tools: Any, nth: int
) -> None:
    async with open_store(vfs=faults.name) as store:
        faults.fail("write", "wal", FULL, nth=nth, times=10_000)
        results = await tools.Batch(store).run(batch_of(tools))
        kept = {name for name, result in results.items() if result == name}
        refused = {name for name, result in results.items() if isinstance(result, Storage)}
        assert kept | refused == set(NAMES)
        assert refused
        assert (store.failure, store.failed.is_set()) == (None, False)
        with pytest.raises(Storage, match="disk is full"):
            await store.write(tools.put("meanwhile"))
        found = await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta"))
        assert found == 2 * len(kept)
        faults.mend()
        assert await store.write(tools.put("later")) == "later"
    assert tools.keys_in(database) == kept | {"later"}


@pytest.mark.parametrize("nth", range(1, 16))
async def test_a_disk_that_is_full_for_one_write_costs_nobody_anything(
    open_store: Any, database: Path, faults: Any, tools: Any, nth: int
) -> None:
    async with open_store(vfs=faults.name) as store:
        faults.fail("write", "wal", FULL, nth=nth)
        results = await tools.Batch(store).run(batch_of(tools))
    assert results == {name: name for name in NAMES}
    assert tools.keys_in(database) == set(NAMES)


@pytest.mark.parametrize(
    ("call", "nth"), [("write", n) for n in range(1, 24)] + [("sync", n) for n in range(1, 4)]
)
async def test_an_io_error_fails_the_whole_batch_and_nothing_is_accepted_after_it(
    open_store: Any, database: Path, faults: Any, tools: Any, call: str, nth: int
) -> None:
    acknowledged: set[str] = set()
    said: list[LogLine] = []

    def telling(name: str) -> Any:
        def rule(tx: Tx) -> Any:
            tx.after_commit(LogLine("INFO", name))
            return tools.put(name, name * 300)(tx)

        return rule

    async with open_store(vfs=faults.name, on_commit=said.extend) as store:
        faults.fail(call, "wal", BROKEN, nth=nth, times=10_000)
        results: dict[str, Any] = {}
        for turn in range(20):
            results = await tools.Batch(store).run(
                {f"{n}{turn}": telling(f"{n}{turn}") for n in NAMES}
            )
            if not all(isinstance(result, str) for result in results.values()):
                break
            acknowledged |= results.keys()
        assert len(results) == len(NAMES)
        assert all(isinstance(result, Storage) for result in results.values())
        assert store.failed.is_set()
        assert isinstance(store.failure, BROKEN)
        faults.mend()
        with pytest.raises(Storage, match="disk failed"):
            await store.write(tools.put("later"))
    assert {line.text for line in said} == acknowledged
    # What was not acknowledged may be there or not, but whole: keys_in looks.
    found = tools.keys_in(database)
    assert acknowledged <= found <= acknowledged | results.keys()
    async with open_store() as store:
        assert await store.write(tools.put("later")) == "later"


async def test_an_io_error_in_the_middle_of_a_request_fails_its_whole_batch(
    open_store: Any, database: Path, tools: Any
) -> None:
    def unlucky(tx: Tx) -> None:
        tools.put("unlucky")(tx)
        raise BROKEN("a page could not be read")

    async with open_store() as store:
        await store.write(tools.put("before"))
        results = await tools.Batch(store).run(
            {"a": tools.put("a"), "unlucky": unlucky, "b": tools.put("b")}
        )
        assert [type(result) for result in results.values()] == [Storage, Storage, Storage]
        assert store.failed.is_set()
    assert tools.keys_in(database) == {"before"}


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["full", "broken"])
@pytest.mark.parametrize("kind", ["db", "wal"])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_disk_that_fails_while_the_store_is_opened_is_a_refusal(
    database: Path, faults: Any, tools: Any, call: str, kind: str, error: type[apsw.Error]
) -> None:
    refusals: list[str] = []
    # The first writes one by one, the hundreds of the migrations ever further apart.
    nth = 0
    while True:
        nth += 1 + nth // 8
        faults.fail(call, kind, error, nth=nth, times=10_000)
        try:
            store = SqliteStore(database, lambda _: None, vfs=faults.name)
        except StoreRefused as refusal:
            refusals.append(str(refusal))
        else:
            faults.mend()
            store._writer_connection.close()
            store._reader_connection.close()
            store._wal.stop()
            break
        finally:
            faults.mend()
    assert refusals
    assert all(str(database) in text for text in refusals)
    assert tools.keys_in(database) == set()


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["full", "broken"])
async def test_a_disk_that_fails_at_the_close_loses_nothing_and_is_no_error(
    open_store: Any, database: Path, faults: Any, tools: Any, error: type[apsw.Error]
) -> None:
    async with open_store(vfs=faults.name) as store:
        await store.write(tools.put("kept"))
        faults.fail("write", "db", error, times=10_000)
    assert tools.keys_in(database) == {"kept"}


async def test_an_engine_whose_disk_fails_ends_with_that_error(loaded: Any, faults: Any) -> None:
    refusals: list[Exception] = []

    async def serve() -> None:
        async with open_engine(loaded, vfs=faults.name) as engine:
            await engine.handle(MissionCreate("before"), DAEMON)
            faults.fail("sync", "wal", BROKEN)
            try:
                await engine.handle(MissionCreate("lost"), DAEMON)
            except FleetError as error:
                refusals.append(error)
            await trio.sleep_forever()

    with pytest.raises(StoreFailed, match="the disk has a fault"):
        await serve()
    assert [error.kind for error in refusals] == ["storage"]  # type: ignore[attr-defined]
    async with open_engine(loaded) as engine:
        titles = [m.title for m in (await engine.handle(MissionList(), DAEMON)).missions]
    assert "before" in titles


async def test_a_really_full_disk_is_answered_and_reading_goes_on(small_disk: Path) -> None:
    loaded = load(
        {
            "FLEET_DB_PATH": str(small_disk / "data" / "fleet.db"),
            "FLIGHTLINE_DIR": str(small_disk / "flightline"),
            "FLEET_SOCKET": str(small_disk / "s.sock"),
            "FLEET_CONFIG": str(small_disk / "config.toml"),
            "XDG_STATE_HOME": str(small_disk / "state"),
        }
    )
    created = 0
    async with open_engine(loaded) as engine:

        async def create_for_ever() -> None:
            nonlocal created
            while True:
                await engine.handle(MissionCreate("m", description="x" * 50_000), DAEMON)
                created += 1

        with pytest.raises(Storage, match="disk is full") as refusal:
            await create_for_ever()
        assert refusal.value.hint.startswith("Free some space")
        filler = small_disk / "filler"
        fill(filler)
        with pytest.raises(Storage):
            await engine.handle(MissionCreate("more", description="x" * 50_000), DAEMON)
        assert (await engine.handle(MissionList(limit=1), DAEMON)).total == created
        grow(small_disk)
        assert (await engine.handle(SystemHealth(), DAEMON)).ok
        await engine.handle(MissionCreate("fits", description="x" * 50_000), DAEMON)
        assert (await engine.handle(MissionList(limit=1), DAEMON)).total == created + 1
    assert created > 5
    assert apsw.Connection(str(loaded.config.database)).pragma("integrity_check") == "ok"


async def test_a_disk_that_has_no_room_for_the_index_of_the_wal_is_a_full_one(
    small_disk: Path, tools: Any
) -> None:
    grow(small_disk, "24m")
    store = SqliteStore(small_disk / "fleet.db", lambda _: None)
    store.start()
    try:
        reader = apsw.Connection(str(store.path))  # so that the WAL does not begin anew
        reader.execute("BEGIN; SELECT * FROM store_meta LIMIT 1").fetchall()
        frames = 4_062  # one more needs another part of the index, of eight pages
        keys = itertools.count()
        for size, short_of in ((20_000, 50), (1, 6)):
            while store.sizes()[1] < (frames - short_of) * 4_120:
                await store.write(tools.put(f"key {next(keys)}", "x" * size))
        fill(small_disk / "filler", leave=12 * 4_096)

        async def write_on() -> None:
            for number in range(100):
                await store.write(tools.put(f"small {number}"))

        with pytest.raises(Storage, match="disk is full"):
            await write_on()
        assert store.sizes()[1] > frames * 4_120
        reader.close()
        (small_disk / "filler").unlink()
        assert await store.write(tools.put("later")) == "later"
        assert store.failure is None
    finally:
        await store.aclose()
    assert "later" in tools.keys_in(store.path)


def test_a_limit_on_the_size_of_files_is_a_full_disk(database: Path, tools: Any) -> None:
    """In a process of its own: such a limit cannot be taken back."""
    program = f"""
import resource, trio
from pathlib import Path
from fleetd.store.sqlite.store import SqliteStore
from fleetd.protocol.errors import Storage

async def main():
    store = SqliteStore(Path({str(database)!r}), lambda _: None)
    store.start()
    limit = store.sizes()[1] + 100_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    # More than the WAL has room for, whether it was laid out already or not.
    def rule(tx):
        tx.run("INSERT INTO store_meta (key, value) VALUES ('k', :v)", v="x" * 8_000_000)
    try:
        await store.write(rule)
    except Storage as error:
        print(error.message, store.failure)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await store.write(rule)
    finally:
        await store.aclose()

trio.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "The disk is full; nothing was stored. None\n"
