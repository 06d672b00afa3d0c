"""A store on a real file, on a file system that fails on request."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from fleetd.config import Loaded, load
from fleetd.domain.core.tx import Effect, Tx
from fleetd.host.trace import TraceContext, on_behalf_of
from fleetd.store.sqlite.store import SqliteStore
from tests.support.disk_faults import Faults, faults
from tests.support.small_disk import CannotMount, small_disk


@pytest.fixture(name="faults")
def _faults() -> Iterator[Faults]:
    with faults() as found:
        yield found


@pytest.fixture(name="asked")
def _asked() -> Iterator[None]:
    """Have a test be the request of a client: only such jobs may run on the event loop."""
    with on_behalf_of(TraceContext(1, "event.append", 1)):
        yield


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MB."""
    try:
        with small_disk(tmp_path / "small") as place:
            yield place
    except CannotMount as reason:
        pytest.skip(str(reason))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "fleet.db"


OpenStore = Callable[..., AbstractAsyncContextManager[SqliteStore]]


@pytest.fixture
def open_store(database: Path) -> OpenStore:
    """Return ``open_store(vfs=..., on_commit=..., inline=...)``, for ``async with``."""

    @asynccontextmanager
    async def opened(
        *,
        vfs: str | None = None,
        on_commit: Callable[[list[Effect]], None] = lambda _: None,
        inline: bool = False,
    ) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(database, on_commit, vfs=vfs, inline=inline)
        store.start()
        try:
            yield store
        finally:
            with trio.CancelScope(shield=True):
                await store.aclose()

    return opened


def put(key: str, value: str = "x") -> Callable[[Tx], str]:
    """A rule that writes two rows, of which one alone would be half a request."""

    def rule(tx: Tx) -> str:
        for part in ("first", "second"):
            tx.run(
                "INSERT INTO store_meta (key, value) VALUES (:key, :value)",
                key=f"{key}/{part}",
                value=value,
            )
        return key

    return rule


def keys_in(database: Path) -> set[str]:
    """What a fresh connection finds; a request of which only one half is there is an error."""
    connection = apsw.Connection(str(database))
    rows = {str(row[0]) for row in connection.execute("SELECT key FROM store_meta")}
    intact = connection.pragma("integrity_check")
    connection.close()
    assert intact == "ok"
    keys = {row.rpartition("/")[0] for row in rows}
    assert rows == {f"{key}/{part}" for key in keys for part in ("first", "second")}
    return keys


class Batch:
    """Requests that the writer finds waiting all at once, because it was held up before."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.results: dict[str, Any] = {}

    async def run(self, rules: dict[str, Callable[[Tx], Any]]) -> dict[str, Any]:
        """Return what each request got, an exception where it failed."""
        entered, release = threading.Event(), threading.Event()

        def gate(_tx: Tx) -> bool:
            entered.set()
            return release.wait(30)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._one, "gate", gate)
            assert await trio.to_thread.run_sync(entered.wait, 30)
            for name, rule in rules.items():
                nursery.start_soon(self._one, name, rule)
                await trio.testing.wait_all_tasks_blocked()
            release.set()
        assert self.results.pop("gate") is True
        return self.results

    async def _one(self, name: str, rule: Callable[[Tx], Any]) -> None:
        try:
            self.results[name] = await self._store.write(rule)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.results[name] = error


@pytest.fixture
def loaded(tmp_path: Path, database: Path) -> Loaded:
    return load(
        {
            "FLEET_DB_PATH": str(database),
            "FLIGHTLINE_DIR": str(tmp_path / "flightline"),
            "FLEET_SOCKET": str(tmp_path / "s.sock"),
            "FLEET_CONFIG": str(tmp_path / "config.toml"),
        }
    )


@pytest.fixture
def tools() -> Any:
    """The functions above, which a test module cannot import from here."""

    class Tools:
        put = staticmethod(put)
        keys_in = staticmethod(keys_in)
        Batch = Batch

    return Tools
