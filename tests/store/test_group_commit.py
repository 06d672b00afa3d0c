"""Requests that wait together are committed together, and none of them hurts another."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from fleetd.domain.core.tx import LogLine, Tx
from fleetd.protocol.errors import InvalidState


def refusing(rule: Callable[[Tx], Any], error: Exception) -> Callable[[Tx], Any]:
    def refuse(tx: Tx) -> None:
        rule(tx)
        raise error

    return refuse


def saying(rule: Callable[[Tx], Any], text: str) -> Callable[[Tx], Any]:
    def say(tx: Tx) -> Any:
        tx.after_commit(LogLine("INFO", text))
        return rule(tx)

    return say


@pytest.mark.parametrize("writers", [2, 20, 200])
async def test_requests_that_wait_together_cost_one_sync(
    open_store: Any, database: Path, faults: Any, tools: Any, writers: int
) -> None:
    wanted = {f"w{number}": tools.put(f"w{number}") for number in range(writers)}
    async with open_store(vfs=faults.name) as store:
        before = faults.seen["sync", "wal"]
        results = await tools.Batch(store).run(wanted)
        # One for what held the writer up (it changed nothing), one for all that waited behind it.
        assert faults.seen["sync", "wal"] - before == 1
    assert results == {name: name for name in wanted}
    assert tools.keys_in(database) == set(wanted)


async def test_more_requests_than_a_batch_takes_are_all_committed(
    open_store: Any, database: Path, tools: Any
) -> None:
    wanted = {f"w{number}": tools.put(f"w{number}") for number in range(300)}
    async with open_store() as store:
        await tools.Batch(store).run(wanted)
    assert tools.keys_in(database) == set(wanted)


@pytest.mark.parametrize(
    "error", [InvalidState("not now"), ValueError("a bug"), apsw.ConstraintError("twice")]
)
async def test_a_request_that_raises_undoes_itself_alone(
    open_store: Any, database: Path, tools: Any, error: Exception
) -> None:
    put = tools.put
    async with open_store() as store:
        results = await tools.Batch(store).run(
            {"before": put("before"), "bad": refusing(put("bad"), error), "after": put("after")}
        )
    assert results == {"before": "before", "bad": error, "after": "after"}
    assert tools.keys_in(database) == {"before", "after"}


async def test_a_request_that_breaks_a_constraint_undoes_itself_alone(
    open_store: Any, database: Path, tools: Any
) -> None:
    put = tools.put
    async with open_store() as store:
        results = await tools.Batch(store).run(
            {"one": put("one"), "again": put("one"), "two": put("two")}
        )
    assert isinstance(results["again"], apsw.ConstraintError)
    assert tools.keys_in(database) == {"one", "two"}


async def test_a_request_that_ends_the_whole_transaction_hurts_no_neighbour(
    open_store: Any, database: Path, tools: Any
) -> None:
    def ruinous(tx: Tx) -> None:
        tools.put("ruin")(tx)
        tx.run("INSERT OR ROLLBACK INTO store_meta (key, value) VALUES ('ruin/first', 'x')")

    put, said = tools.put, []
    async with open_store(on_commit=said.extend) as store:
        results = await tools.Batch(store).run(
            {
                "before": saying(put("before"), "before"),
                "ruin": saying(ruinous, "ruin"),
                "after": saying(put("after"), "after"),
            }
        )
    assert isinstance(results["ruin"], apsw.ConstraintError)
    assert (results["before"], results["after"]) == ("before", "after")
    assert tools.keys_in(database) == {"before", "after"}
    assert [line.text for line in said] == ["before", "after"]


async def test_effects_come_after_the_commit_and_in_its_order(
    open_store: Any, database: Path, tools: Any
) -> None:
    seen: list[str] = []

    def on_commit(effects: list[Any]) -> None:
        for effect in effects:
            assert effect.text in tools.keys_in(database)
            seen.append(effect.text)

    names = [f"w{number}" for number in range(10)]
    wanted = {name: saying(tools.put(name), name) for name in names}
    wanted["w3"] = refusing(wanted["w3"], InvalidState("no"))
    async with open_store(on_commit=on_commit) as store:
        await store.write(saying(tools.put("early"), "early"))
        await tools.Batch(store).run(wanted)
    assert seen == ["early", *(name for name in names if name != "w3")]


async def test_a_rehearsal_leaves_nothing_also_inside_another(
    open_store: Any, database: Path, tools: Any
) -> None:
    def rule(tx: Tx) -> list[int]:
        count = "SELECT count(*) FROM store_meta"
        counts = []
        tools.put("real")(tx)
        with tx.rehearsal():
            saying(tools.put("outer"), "outer")(tx)
            with tx.rehearsal():
                saying(tools.put("inner"), "inner")(tx)
                counts.append(tx.value(count))
            counts.append(tx.value(count))
        counts.append(tx.value(count))
        saying(tools.put("later"), "later")(tx)
        return counts

    said: list[Any] = []
    async with open_store(on_commit=said.extend) as store:
        assert await store.write(rule) == [6, 4, 2]
    assert tools.keys_in(database) == {"real", "later"}
    assert [line.text for line in said] == ["later"]


async def test_a_rehearsal_that_raises_is_undone_and_the_rest_goes_on(
    open_store: Any, database: Path, tools: Any
) -> None:
    def rule(tx: Tx) -> str:
        with contextlib.suppress(InvalidState), tx.rehearsal():
            refusing(tools.put("tried"), InvalidState("no"))(tx)
        return str(tools.put("done")(tx))

    async with open_store() as store:
        assert await store.write(rule) == "done"
    assert tools.keys_in(database) == {"done"}


async def test_the_reader_sees_all_that_was_acknowledged_before_it_asked(
    open_store: Any, tools: Any
) -> None:
    async with open_store() as store:

        async def writing(name: str) -> None:
            for number in range(20):
                key = await store.write(tools.put(f"{name}{number}"))
                found = await store.read(
                    lambda tx, key=key: tx.value(
                        "SELECT count(*) FROM store_meta WHERE key = :key", key=f"{key}/second"
                    )
                )
                assert found == 1

        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(writing, name)
        assert await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta")) == 160


async def test_one_read_sees_one_moment(open_store: Any, database: Path, tools: Any) -> None:
    def twice(tx: Tx) -> tuple[int, int]:
        count = "SELECT count(*) FROM store_meta"
        before = tx.value(count)
        other = apsw.Connection(str(database))
        other.set_busy_timeout(5_000)  # the thread that copies the WAL back may be at it
        other.execute("INSERT INTO store_meta (key, value) VALUES ('between', 'x')")
        other.close()
        return before, tx.value(count)

    async with open_store() as store:
        await store.write(tools.put("one"))
        assert await store.read(twice) == (2, 2)
        assert await store.read(lambda tx: tx.value("SELECT count(*) FROM store_meta")) == 3


async def test_without_threads_the_same_holds(open_store: Any, database: Path, tools: Any) -> None:
    said: list[Any] = []
    async with open_store(inline=True, on_commit=said.extend) as store:
        await store.write(saying(tools.put("one"), "one"))
        with pytest.raises(InvalidState):
            await store.write(refusing(saying(tools.put("bad"), "bad"), InvalidState("no")))
        await store.write(saying(tools.put("two"), "two"))
    assert tools.keys_in(database) == {"one", "two"}
    assert [line.text for line in said] == ["one", "two"]


async def test_batches_queue_and_syncs_are_counted(open_store: Any, tools: Any) -> None:
    async with open_store() as store:
        before = store.load.commits.count
        await tools.Batch(store).run(
            {f"w{number}": tools.put(f"w{number}") for number in range(300)}
        )
        load = store.load
        # What held the writer up changed nothing; then come a full batch and the rest.
        assert load.commits.count - before == 2
        assert (load.batches.max, load.batches.total) == (256, 301)
        assert (load.waiting, load.most_waiting) == (0, 300)
        await store.write(lambda tx: tx.value("SELECT 1"))
        assert store.load.commits.count - before == 2
        assert store.load.commits.max > 0
