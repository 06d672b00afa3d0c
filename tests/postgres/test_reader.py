"""Reading jobs: one message for one statement, and one snapshot for several."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.tx import TookTooLong, Tx
from fleetd.protocol.errors import InvalidParams, Unavailable
from fleetd.store.postgres.connection import ServerConnection
from fleetd.store.postgres.reader import SINGLES
from tests.postgres.shared_stores import Opened, kinds, running
from tests.support.postgres_server import LocalPostgres, run_sql

ADDED = (
    "INSERT INTO events (type, stream, timestamp, activity, data_json)"
    " VALUES ('meanwhile', 'fleet', '', 0, '{}')"
)


@pytest.fixture
async def opened(postgres: LocalPostgres, database: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with running(postgres.url(database), tmp_path) as opened:
        await opened.event("first")
        yield opened


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by an entry for each answer that the reader waits for."""
    counted: list[int] = []
    real = ServerConnection.wait

    def wait(self: ServerConnection, *given: Any, **named: Any) -> Any:
        if threading.current_thread().name == "reader":
            counted.append(1)
        return real(self, *given, **named)

    monkeypatch.setattr(ServerConnection, "wait", wait)
    return counted


def number(tx: Tx) -> int:
    return int(tx.value("SELECT count(*) FROM events"))


def between(meanwhile: Callable[[], object]) -> Callable[[Tx], tuple[int, int]]:
    """Return a rule that counts the events before and after something else happens."""

    def rule(tx: Tx) -> tuple[int, int]:
        first = number(tx)
        meanwhile()
        return first, number(tx)

    return rule


def read_by(statements: int) -> Callable[[Tx], int]:
    """Return a rule that counts the events so many times."""
    return lambda tx: [number(tx) for _ in range(statements)][-1]


async def test_a_job_of_one_statement_is_one_message(opened: Opened, sent: list[int]) -> None:
    assert await opened.store.read(number, "counting") == 1
    assert len(sent) == 1


async def test_a_job_that_has_one_statement_again_and_again_is_one_message_again(
    opened: Opened, sent: list[int]
) -> None:
    assert await opened.store.read(read_by(1), "varies") == 1
    assert len(sent) == 1
    sent.clear()
    assert await opened.store.read(read_by(2), "varies") == 1
    assert len(sent) == 1 + 4  # one statement alone, then a transaction
    for _ in range(SINGLES):
        sent.clear()
        assert await opened.store.read(read_by(1), "varies") == 1
        assert len(sent) == 3
    sent.clear()
    assert await opened.store.read(read_by(1), "varies") == 1
    assert len(sent) == 1


async def test_a_job_of_several_statements_reads_one_snapshot_from_the_first_time_on(
    postgres: LocalPostgres, database: str, opened: Opened, sent: list[int]
) -> None:
    runs: list[int] = []

    def meanwhile() -> None:
        runs.append(1)
        run_sql(postgres.url(database), ADDED)

    rule = between(meanwhile)
    # The first run starts without a transaction, and starts again with one.
    assert await opened.store.read(rule, "twice") == (2, 2)
    assert len(runs) == 2
    sent.clear()
    assert await opened.store.read(rule, "twice") == (3, 3)
    assert len(runs) == 3
    assert len(sent) == 4


async def test_a_job_that_catches_the_refusal_of_its_second_statement_runs_again(
    opened: Opened,
) -> None:
    def careless(tx: Tx) -> list[int]:
        found = [number(tx)]
        with suppress(Exception):
            found.append(number(tx))
        return found

    assert await opened.store.read(careless, "careless") == [1, 1]


async def test_a_job_with_a_limit_has_a_transaction(opened: Opened, sent: list[int]) -> None:
    def slow(tx: Tx) -> None:
        with tx.limited(10):
            tx.all("SELECT pg_sleep(20)")

    for _ in range(2):
        sent.clear()
        with pytest.raises(TookTooLong):
            await opened.store.read(slow, "slow")
        assert len(sent) == 4  # BEGIN, the limit, the statement, ROLLBACK


@pytest.mark.parametrize("before", [0, 1], ids=["alone", "in a transaction"])
async def test_nothing_is_written_by_a_reading_job(opened: Opened, before: int) -> None:
    def writes(tx: Tx) -> None:
        for _ in range(before):
            number(tx)
        tx.run(ADDED)

    with pytest.raises(Unavailable, match="is read-only"):
        await opened.store.read(writes, "writes")
    assert await opened.store.read(kinds, "kinds") == ["first"]


async def test_a_job_that_fails_takes_nobody_with_it(opened: Opened) -> None:
    def broken(tx: Tx) -> None:
        tx.all("SELECT 1 / 0")

    for _ in range(2):
        with pytest.raises(InvalidParams, match="division by zero"):
            await opened.store.read(broken, "broken")
        assert await opened.store.read(number, "counting") == 1
