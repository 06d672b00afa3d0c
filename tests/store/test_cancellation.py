"""A caller that goes away while its write waits: the write is there or it is not, never half."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import Unavailable
from fleetd.store.sqlite.store import SqliteStore


class Admission:
    """Holds the writer up until it is opened."""

    def __init__(self) -> None:
        self._entered, self._open = threading.Event(), threading.Event()

    def rule(self, _tx: Tx) -> bool:
        self._entered.set()
        return self._open.wait(30)

    async def entered(self) -> None:
        assert await trio.to_thread.run_sync(self._entered.wait, 30)

    def open(self) -> None:
        self._open.set()


class Caller:
    """A task that writes, can be cancelled, and remembers how that went."""

    def __init__(self, store: SqliteStore, rule: Callable[[Tx], Any]) -> None:
        self.scope = trio.CancelScope()
        self.result: Any = None
        self._store, self._rule = store, rule

    async def run(self) -> None:
        with self.scope:
            self.result = await self._store.write(self._rule)


async def test_a_cancelled_write_that_was_queued_is_done_and_its_caller_goes_on(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store, trio.open_nursery() as nursery:
        gate = Admission()
        nursery.start_soon(store.write, gate.rule)
        await gate.entered()
        callers = {name: Caller(store, tools.put(name)) for name in ("a", "b", "c")}
        for caller in callers.values():
            nursery.start_soon(caller.run)
        await trio.testing.wait_all_tasks_blocked()
        callers["b"].scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert callers["b"].result is None
        gate.open()
    assert [caller.result for caller in callers.values()] == ["a", "b", "c"]
    assert tools.keys_in(database) == {"a", "b", "c"}


async def test_a_write_that_is_cancelled_before_it_is_queued_leaves_no_trace(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        caller = Caller(store, tools.put("never"))
        caller.scope.cancel()
        await caller.run()
        assert caller.scope.cancelled_caught
        await store.write(tools.put("other"))
    assert tools.keys_in(database) == {"other"}


async def test_writers_that_are_cancelled_at_any_moment_never_leave_half_a_write(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        callers = [Caller(store, tools.put(f"w{number}", "x" * 2_000)) for number in range(150)]
        async with trio.open_nursery() as nursery:
            for number, caller in enumerate(callers):
                nursery.start_soon(caller.run)
                if number % 3 == 0:
                    await trio.lowlevel.checkpoint()
                if number % 5 == 0:
                    callers[number // 2].scope.cancel()
    answered = {caller.result for caller in callers if caller.result is not None}
    assert tools.keys_in(database) == answered
    assert len(answered) > 100


async def test_closing_finishes_what_is_queued(open_store: Any, database: Path, tools: Any) -> None:
    wanted = {f"w{number}" for number in range(10)}
    async with trio.open_nursery() as nursery, open_store() as store:
        gate = Admission()
        nursery.start_soon(store.write, gate.rule)
        await gate.entered()
        callers = [Caller(store, tools.put(name)) for name in sorted(wanted)]
        for caller in callers:
            nursery.start_soon(caller.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(_open_soon, gate)
    assert {caller.result for caller in callers} == wanted
    assert tools.keys_in(database) == wanted


async def _open_soon(gate: Admission) -> None:
    await trio.testing.wait_all_tasks_blocked()
    gate.open()


@pytest.mark.parametrize("inline", [False, True])
async def test_nobody_waits_for_a_store_that_is_closed(
    open_store: Any, tools: Any, inline: bool
) -> None:
    async with open_store(inline=inline) as store:
        await store.write(tools.put("in time"))
    with trio.fail_after(5):
        with pytest.raises(Unavailable, match="shutting down") as refusal:
            await store.write(tools.put("late"))
        assert refusal.value.values["retry"] is True
        with pytest.raises(Unavailable, match="shutting down"):
            await store.read(lambda tx: tx.value("SELECT 1"))


async def test_a_store_leaves_no_thread_behind(open_store: Any, tools: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}
    async with open_store() as store:
        await store.write(tools.put("x"))
        running = {thread.name for thread in threading.enumerate()}
        assert {"writer", "reader", "wal"} <= running
    assert not {"writer", "reader", "wal"} & {thread.name for thread in threading.enumerate()}
    assert "writer" not in before
