"""The writer's and the reader's thread survive whatever a job, its batch or its effects raise."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.domain.core.tx import LogLine, Tx
from fleetd.store.worker_thread import JobFailed

pytestmark = pytest.mark.usefixtures("soon")


class Odd(BaseException):
    """What nobody catches by the name of Exception."""


UNEXPECTED = [ValueError("a bug"), MemoryError(), RecursionError(), SystemExit(3), Odd("odd")]


@pytest.fixture
async def soon() -> Any:
    """Whoever waits for a thread that has ended waits for ever, and cannot be cancelled."""
    with trio.fail_after(30):
        yield


class Framing:
    """A connection that fails once at one statement, before or after it was carried out.

    ``passed`` is how often the statement goes well first.
    """

    def __init__(
        self, connection: Any, sql: str, error: BaseException, *, done: bool, passed: int = 0
    ) -> None:
        self._connection = connection
        self._passed = passed
        self._sql, self._done = sql, done
        self._errors = [error]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *params: Any) -> Any:
        unlucky = sql == self._sql and self._passed == 0 and bool(self._errors)
        self._passed -= sql == self._sql and self._passed > 0
        if unlucky and not self._done:
            raise self._errors.pop()
        found = self._connection.execute(sql, *params)
        if unlucky:
            raise self._errors.pop()
        return found


def raising(rule: Callable[[Tx], Any], error: BaseException) -> Callable[[Tx], Any]:
    def unlucky(tx: Tx) -> None:
        rule(tx)
        raise error

    return unlucky


def told(results: dict[str, Any]) -> set[str]:
    """Return the requests that were told that they are done."""
    return {name for name, result in results.items() if result == name}


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_the_writer_thread_survives_an_unexpected_exception_of_a_job(
    open_store: Any, database: Path, tools: Any, error: BaseException
) -> None:
    put = tools.put
    async with open_store() as store:
        results = await tools.Batch(store).run(
            {"before": put("before"), "bad": raising(put("bad"), error), "after": put("after")}
        )
        assert isinstance(results["bad"], Exception), "its caller gets an internal error"
        assert results["bad"] is error or results["bad"].__cause__ is error
        assert await store.write(put("next")) == "next"
    assert tools.keys_in(database) == {"before", "after", "next"}


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_the_reader_thread_survives_an_unexpected_exception_of_a_job(
    open_store: Any, error: BaseException
) -> None:
    async with open_store() as store:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
            await store.read(raising(lambda _: None, error))
        assert caught.value is error or caught.value.__cause__ is error
        assert await store.read(lambda tx: tx.value("SELECT 1")) == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), Odd("odd")], ids=repr)
@pytest.mark.parametrize("sql", ["BEGIN", "ROLLBACK"])
async def test_the_reader_thread_survives_a_transaction_that_fails_unexpectedly(
    open_store: Any, monkeypatch: pytest.MonkeyPatch, sql: str, error: BaseException
) -> None:
    async with open_store() as store:
        unlucky = Framing(store._reader_connection, sql, error, done=False)
        monkeypatch.setattr(store._reads, "_connection", unlucky)
        with pytest.raises(Exception):  # noqa: B017, PT011 - of any kind
            await store.read(lambda tx: tx.value("SELECT 1"))
        assert await store.read(lambda tx: tx.value("SELECT 2")) == 2


@pytest.mark.parametrize("error", [ValueError("a bug"), Odd("odd")], ids=repr)
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(
    "sql", ["BEGIN IMMEDIATE", "SAVEPOINT request", "RELEASE request", "COMMIT"]
)
async def test_a_batch_whose_framing_fails_unexpectedly_is_never_half_committed(
    open_store: Any,
    database: Path,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
    sql: str,
    done: bool,
    error: BaseException,
) -> None:
    """Who is told so is stored, and nobody else: also where COMMIT raised after it was done."""
    put = tools.put
    async with open_store() as store:
        unlucky = Framing(store._writer_connection, sql, error, done=done, passed=1)
        monkeypatch.setattr(store._committer, "_connection", unlucky)
        results = await tools.Batch(store).run({name: put(name) for name in ("a", "b", "c")})
        assert await store.write(put("next")) == "next"
        assert store.failure is None
    assert tools.keys_in(database) == {*told(results), "next"}
    assert told(results) == {"a", "b", "c"}, "alone each of them succeeds"


async def test_a_request_alone_whose_commit_fails_unexpectedly_gets_the_error(
    open_store: Any, database: Path, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store() as store:
        unlucky = Framing(store._writer_connection, "COMMIT", Odd("odd"), done=False)
        monkeypatch.setattr(store._committer, "_connection", unlucky)
        with pytest.raises(JobFailed, match="odd"):
            await store.write(tools.put("lost"))
        assert await store.write(tools.put("next")) == "next"
    assert tools.keys_in(database) == {"next"}


@pytest.mark.parametrize("error", [ValueError("a bug"), Odd("odd")], ids=repr)
async def test_what_follows_a_commit_and_fails_takes_nothing_back(
    open_store: Any,
    database: Path,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    def unlucky(_: int) -> None:
        monkeypatch.undo()
        raise error

    async with open_store() as store:
        monkeypatch.setattr(store._mark, "note", unlucky)
        assert await store.write(tools.put("kept")) == "kept"
        assert await store.write(tools.put("next")) == "next"
    assert tools.keys_in(database) == {"kept", "next"}
    assert "a step after its COMMIT failed" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("error", [ValueError("a bug"), Odd("odd")], ids=repr)
@pytest.mark.parametrize("inline", [False, True])
async def test_a_batch_that_fails_as_a_whole_is_told_to_every_caller_and_logged(
    open_store: Any,
    database: Path,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    inline: bool,
    error: BaseException,
) -> None:
    caught: list[Exception] = []

    def unlucky(_: object) -> None:
        raise error

    async def ask(store: Any, name: str) -> None:
        try:
            await store.write(tools.put(name))
        except Exception as failed:  # noqa: BLE001 - of any kind
            caught.append(failed)

    async with open_store(inline=inline) as store:
        for lane, asks in ((store._writer, store.write), (store._reader, store.read)):
            monkeypatch.setattr(lane, "_work", unlucky)
            with pytest.raises(JobFailed) as failed:
                await asks(lambda _: None)
            assert failed.value.__cause__ is error
            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(ask, store, name)
            monkeypatch.undo()
        assert await store.write(tools.put("next")) == "next"
        assert await store.read(lambda tx: tx.value("SELECT 1")) == 1
    assert len({id(each) for each in caught}) == len(caught) >= 3, "each has an error of its own"
    assert "Traceback" in caplog.text
    assert "next" in tools.keys_in(database)


@pytest.mark.parametrize("inline", [False, True])
async def test_effects_that_fail_keep_no_caller_waiting(
    open_store: Any, tools: Any, caplog: pytest.LogCaptureFixture, inline: bool
) -> None:
    def unlucky(_: object) -> None:
        raise ValueError("an effect")

    def rule(tx: Tx) -> Any:
        tx.after_commit(LogLine("INFO", "said"))
        return tools.put(f"at {tx.value('SELECT count(*) FROM store_meta')}")(tx)

    async with open_store(on_commit=unlucky, inline=inline) as store:
        assert await store.write(rule)
        assert await store.write(rule)
    assert "an effect" in caplog.text
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR] * 2
