"""A connection that is lost at any step: nothing is done twice, and nothing told that is not so."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import trio

from fleetd.domain.core.tx import Ring
from fleetd.protocol.errors import Unavailable
from fleetd.store.postgres import connection, group_commit
from fleetd.store.postgres.batch import LOCK
from fleetd.store.postgres.server import _END
from tests.postgres.proxy import Moment, Proxy
from tests.postgres.shared_stores import Opened, running
from tests.support.postgres_server import LocalPostgres


@pytest.fixture
def proxy(postgres: LocalPostgres) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


def url(proxy: Proxy, database: str) -> str:
    return f"postgresql://fleet@127.0.0.1:{proxy.port}/{database}?sslmode=disable"


def test_only_the_process_that_was_left_is_ended(postgres: LocalPostgres) -> None:
    with (
        closing(connection.connect(postgres.url(), "one")) as one,
        closing(connection.connect(postgres.url(), "other")) as other,
    ):
        pid, was_there, server_started = other.backend
        for wrong in (
            (pid, was_there - 3_600, server_started),  # it began later: the pid is another one's
            (pid, was_there, server_started + 1),  # and so it is on another server
        ):
            assert one.execute(_END, wrong).fetchall() == []
        assert other.execute("SELECT 1").fetchone() == (1,)
        assert one.execute(_END, other.backend).fetchall() == [(True,)]
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")


STEPS = [b"BEGIN ISOLATION LEVEL READ COMMITTED", b"INSERT INTO events", b"COMMIT\0"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_what_is_written_when_a_connection_is_lost_is_written_once(
    step: bytes, when: Moment, proxy: Proxy, database: str, tmp_path: Path
) -> None:
    async with running(url(proxy, database), tmp_path) as opened:
        await opened.event("first")
        proxy.cut(step, when)
        assert await opened.event("second") == 2
        assert proxy.cuts == 1
        assert await opened.event("third") == 3
        assert await opened.kinds() == ["first", "second", "third"]
        assert opened.effects == [Ring()] * 3


async def test_what_the_server_takes_for_under_way_is_ended(
    proxy: Proxy, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = connection._SETTINGS.replace(b"_timeout = 4000", b"_timeout = 60000")
    assert settings != connection._SETTINGS
    monkeypatch.setattr(connection, "_SETTINGS", settings)
    async with running(url(proxy, database), tmp_path) as opened:
        for step in STEPS[1:]:
            proxy.cut(step, "unnoticed")
            await opened.event("once")
        assert proxy.cuts == 2
        assert await opened.kinds() == ["once", "once"]


async def test_a_whole_batch_is_written_once(proxy: Proxy, database: str, tmp_path: Path) -> None:
    async with running(url(proxy, database), tmp_path) as opened:
        for when in ("before", "after"):
            proxy.cut(b"COMMIT\0", when)  # type: ignore[arg-type]
            async with trio.open_nursery() as nursery:
                for number in range(30):
                    nursery.start_soon(opened.event, f"{when}{number}")
        assert proxy.cuts == 2
        found = await opened.kinds()
        assert len(found) == len(set(found)) == 60


async def lost_in_commit(opened: Opened, proxy: Proxy, when: Moment) -> Unavailable:
    """Write while the connection is lost at COMMIT, and none can be made after."""
    proxy.cut(b"COMMIT\0", when)
    proxy.refusing = True
    with pytest.raises(Unavailable) as raised:
        await opened.event("doubtful")
    proxy.refusing = False
    return raised.value


@pytest.mark.parametrize(("when", "there"), [("before", []), ("after", ["doubtful"])])
async def test_who_cannot_be_told_is_told_so(
    when: Moment,
    there: list[str],
    proxy: Proxy,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "_DOUBT_S", 0.3)
    async with running(url(proxy, database), tmp_path) as opened:
        told = await lost_in_commit(opened, proxy, when)
        assert told.values["outcome"] == "unknown"
        assert told.values["retry"] is True
        assert "idempotency key" in told.hint
        await opened.until(away=False)
        assert await opened.kinds() == there
        assert await opened.event("next") == len(there) + 1


@pytest.mark.parametrize(("heartbeat_s", "keeps"), [(connection.HEARTBEAT_S, True), (0, False)])
async def test_who_waits_for_the_turn_keeps_its_place_though_it_asks_nothing_else(
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat_s: float,
    *,
    keeps: bool,
) -> None:
    monkeypatch.setattr(connection.ServerConnection, "timeout_s", 0.5)
    monkeypatch.setattr(connection, "HEARTBEAT_S", heartbeat_s)
    lock = LOCK.replace("_xact_", "_").replace("current_schema()", "'public'")
    refused: list[str] = []

    async def write() -> None:
        try:
            await opened.event("waited")
        except Unavailable as error:
            refused.append(error.message)

    async with running(postgres.url(database), tmp_path) as opened:
        with psycopg.connect(postgres.url(database), autocommit=True) as other:
            other.execute(lock.encode())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                # Three times as long as an answer may take.
                with trio.move_on_after(1.5):
                    await opened.until(away=True)
                other.execute(lock.replace("_lock(", "_unlock(").encode())
        await opened.until(away=False)
        assert await opened.kinds() == (["waited"] if keeps else [])
        assert len(refused) == (0 if keeps else 1)


async def test_a_network_that_swallows_everything_is_noticed(
    proxy: Proxy, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.ServerConnection, "timeout_s", 0.5)
    monkeypatch.setattr(connection, "HEARTBEAT_S", 0)
    async with running(url(proxy, database) + "&connect_timeout=2", tmp_path) as opened:
        await opened.event("first")
        proxy.hold()
        with pytest.raises(Unavailable, match="no answer"):
            await opened.event("second")
        with pytest.raises(Unavailable):
            await opened.kinds()
        assert opened.store.availability.away is not None
        proxy.hang_up()
        proxy.go_on()
        await opened.until(away=False)
        assert await opened.event("third") == 2
