"""Effects follow their commit in its order, after the reply, whatever became of the client."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.core.tx import LogLine, Tx
from fleetd.engine.engine import DAEMON
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.mission import MissionCreate
from fleetd.store.sqlite import group_commit
from fleetd.store.sqlite.store import SqliteStore
from fleetd.store.worker_thread import CALM
from tests.support.fleet import settings

pytestmark = pytest.mark.usefixtures("asked")


def saying(tools: Any, name: str) -> Any:
    def rule(tx: Tx) -> Any:
        tx.after_commit(LogLine("INFO", name))
        return tools.put(name)(tx)

    return rule


async def calm_down(store: SqliteStore) -> None:
    for _ in range(CALM + 2):
        await store.write(lambda _: None, "short")
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("fast", [False, True], ids=["thread", "loop"])
async def test_effects_come_after_the_reply_and_soon(
    open_store: Any, tools: Any, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr(group_commit.CommitPace, "is_fast", property(lambda _: fast))
    seen: list[Any] = []

    async with open_store(on_commit=seen.extend) as store:
        await calm_down(store)
        for name in ("a", "b", "c"):
            await store.write(saying(tools, name), "short")
            seen.append(f"reply to {name}")
            await trio.testing.wait_all_tasks_blocked()
    assert [getattr(each, "text", each) for each in seen] == [
        *("reply to a", "a"),
        *("reply to b", "b"),
        *("reply to c", "c"),
    ]


async def test_who_needs_them_has_them_at_once(open_store: Any, tools: Any) -> None:
    seen: list[Any] = []
    async with open_store(on_commit=seen.extend) as store:
        for number in range(5):
            await store.write(saying(tools, f"w{number}"))
            store.settle()
            assert [line.text for line in seen] == [f"w{each}" for each in range(number + 1)]
        store.settle()
    assert len(seen) == 5


async def test_one_that_fails_takes_no_other_with_it(open_store: Any, tools: Any) -> None:
    seen: list[str] = []

    def on_commit(effects: list[Any]) -> None:
        seen.append(effects[0].text)
        if effects[0].text == "w1":
            raise ValueError("a bug")

    async with open_store(on_commit=on_commit) as store:
        for number in range(3):
            await store.write(saying(tools, f"w{number}"))
    assert seen == ["w0", "w1", "w2"]


async def test_they_happen_for_callers_that_are_gone_and_before_the_end(
    open_store: Any, tools: Any
) -> None:
    seen: list[Any] = []
    async with open_store(on_commit=seen.extend) as store, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(store.write, saying(tools, f"w{number:02}"))
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    done = [line.text for line in seen]
    assert done == sorted(done) or len(set(done)) == len(done)
    async with open_store() as again:
        stored = await again.read(lambda tx: tx.tuples("SELECT key FROM store_meta"))
    assert {key.partition("/")[0] for (key,) in stored if "/" in key} == set(done)


async def test_a_file_that_a_commit_asked_for_is_waited_for(tmp_path: Path) -> None:
    """Also when the caller goes on before the effects, and when the daemon ends at once."""
    (tmp_path / "project").mkdir()
    loaded = settings(tmp_path)
    async with open_engine(loaded) as engine:
        made = await engine.handle(MissionCreate("m", project_dir=str(tmp_path)), DAEMON)
        files = []
        for _ in range(5):
            taken = await engine.handle(CheckpointCreate(made.id), DAEMON)
            await engine.outbox.attempted(taken.id)
            path = engine.backups["checkpoint"].path_of(made.id, taken.id)
            assert path.exists()
            files.append(path)
        last = await engine.handle(CheckpointCreate(made.id), DAEMON)
    assert engine.backups["checkpoint"].path_of(made.id, last.id).exists()
