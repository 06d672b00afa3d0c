"""Lines of the log name who asked, wherever and whenever the work is done."""

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fleetd.domain.core.tx import LogLine, Tx
from fleetd.host import trace
from fleetd.host.trace import TraceContext
from fleetd.protocol.requests.checkpoint import CheckpointDelete
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.store.files import record_files
from fleetd.store.sqlite.store import SqliteStore
from tests.support.fleet import Fleet

SEVEN = TraceContext(12, "checkpoint.create", 7)
SHOWN = "(connection 12, request 7 checkpoint.create)"


def lines(out: io.StringIO) -> list[str]:
    return [line.split("] ", 1)[1] for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("who", "shown"),
    [
        (SEVEN, "connection 12, request 7 checkpoint.create"),
        (TraceContext(3), "connection 3"),
        (
            TraceContext(3, "event.append", notification=True),
            "connection 3, notification event.append",
        ),
        (TraceContext(3, "mission.get", 1, about="so"), "connection 3, request 1 mission.get, so"),
        (TraceContext(about='delivery "d"'), 'delivery "d"'),
    ],
)
def test_an_origin_is_told_in_a_few_words(who: TraceContext, shown: str) -> None:
    assert str(who) == shown


async def test_jobs_of_both_threads_and_their_effects_are_done_on_behalf_of_who_asked(
    tmp_path: Path,
) -> None:
    seen: list[tuple[str, TraceContext | None, str]] = []

    def work(name: str) -> Any:
        def rule(tx: Tx) -> None:
            seen.append((name, trace.current(), threading.current_thread().name))
            tx.after_commit(LogLine("INFO", name))

        return rule

    def committed(effects: list[Any]) -> None:
        seen.extend((f"after {each.text}", trace.current(), "") for each in effects)

    async def ask(use: Any, who: TraceContext | None, name: str) -> None:
        with trace.on_behalf_of(who):
            await use(work(name))
            assert trace.current() is who

    store = SqliteStore(tmp_path / "db", committed)
    store.start()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, store.write, TraceContext(number), f"write {number}")
        nursery.start_soon(ask, store.read, SEVEN, "read")
        nursery.start_soon(ask, store.write, None, "nobody")
    await store.aclose()
    found = {name: who for name, who, _ in seen}
    assert found["read"] == SEVEN
    assert found["nobody"] is found["after nobody"] is None
    for number in range(20):
        assert found[f"write {number}"] == found[f"after write {number}"] == TraceContext(number)
    assert {thread for name, _, thread in seen if name == "write 3"} == {"writer"}


async def test_the_file_that_is_written_afterwards_names_the_request(
    fleet: Fleet, out: io.StringIO
) -> None:
    mission = await fleet.mission()
    with trace.on_behalf_of(SEVEN):
        made = await fleet.checkpoint(mission, wait_for_backup=False)
    await fleet.settle()
    about = [line for line in lines(out) if made.id in line]
    assert len(about) == 2
    assert about[1].startswith("[INFO] Written to ")
    assert all(line.endswith(SHOWN) for line in about)
    assert all(line.endswith(SHOWN) == (made.id in line) for line in lines(out))


async def test_so_does_a_file_that_could_only_be_written_later(
    fleet: Fleet,
    out: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    mission = await fleet.mission()
    with monkeypatch.context() as broken:
        broken.setattr(record_files.RecordFiles, "write", refuse)
        with trace.on_behalf_of(SEVEN):
            made = await fleet.checkpoint(mission, wait_for_backup=False)
        await trio.sleep(10)
    await trio.sleep(600)
    about = [line for line in lines(out) if made.id in line]
    assert sum("Failed to write" in line for line in about) > 1
    assert "Written to" in about[-1]
    assert all(line.endswith(SHOWN) for line in about)


async def test_files_removed_together_for_several_are_nobody_s(
    fleet: Fleet, out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(self: Any, owner: str, ids: list[str], *_: Any) -> dict[str, OSError]:
        return dict.fromkeys(ids, OSError("stuck"))

    mission = await fleet.mission()
    made = [await fleet.checkpoint(mission, f"{number}") for number in range(3)]
    monkeypatch.setattr(record_files.RecordFiles, "remove", stuck)

    async def delete(number: int) -> None:
        with trace.on_behalf_of(TraceContext(number + 1)):
            await fleet.do(CheckpointDelete(made[number].id))

    async with trio.open_nursery() as nursery, fleet.engine.outbox.file_lock:
        for number in range(3):
            nursery.start_soon(delete, number)
        await fleet.settle()
    await fleet.settle()
    (failed,) = [line for line in lines(out) if "Failed to remove" in line]
    assert failed.endswith(" and of 2 more: stuck")


async def test_what_a_hook_delivered_names_its_delivery_and_session(
    fleet: Fleet, out: io.StringIO
) -> None:
    payload = {"session_id": "s) 1\n", "cwd": str(fleet.project), "hook_event_name": "Nonsense"}
    for number, text in enumerate((json.dumps(payload), "{")):
        with trace.on_behalf_of(TraceContext(4, "hook.deliver", number)):
            await fleet.do(
                HookDeliver(harness="claude", payload=text, delivery_id=f"delivery-{number}")
            )
    found = lines(out)
    assert found[-1].endswith('(connection 4, request 1 hook.deliver, delivery "delivery-1")')
