"""The run with a daemon that misbehaves: what is waited for, and what ends it."""

from collections.abc import Callable
from typing import Any, Self

import pytest
import trio

from fleetctl.client import Link, StoreReplaced
from fleetctl.client.models import AgentState
from fleetctl.notify import run
from fleetctl.notify.due import DEFAULT_REASONS, DueStates
from fleetctl.notify.run import Notifier
from fleetd.protocol.errors import (
    Denied,
    FleetError,
    Incompatible,
    LimitExceeded,
    MethodNotFound,
    Storage,
    Unavailable,
)
from fleetd.protocol.requests.attention import AttentionList, AttentionPage
from fleetd.protocol.timestamps import iso
from tests.support.notify import state, until


class Events:
    """A subscription that gives the events that a test puts into it."""

    def __init__(self, source: "trio.MemoryReceiveChannel[str | FleetError]") -> None:
        self._source = source

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        found = await self._source.receive()
        if isinstance(found, FleetError):
            raise found
        return type("Event", (), {"agent_id": found})


class Daemon:
    """What stands in for the client; ``answers`` are states, or errors that are raised."""

    def __init__(self) -> None:
        self.asked: list[AttentionList] = []
        self.errors: list[FleetError] = []
        self.states: list[AgentState] = []
        self.happened, self._source = trio.open_memory_channel[str | FleetError](1_000)
        self.on_link: Callable[[Link], None] = lambda _: None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def events(self, on_link: Callable[[Link], None], **_: Any) -> Events:
        self.on_link = on_link
        return Events(self._source)

    async def call(self, request: AttentionList) -> AttentionPage:
        self.asked.append(request)
        if self.errors:
            raise self.errors.pop(0)
        found = [each for each in self.states if request.agent_id in (None, each.agent_id)]
        return AttentionPage(agents=found, more=0)  # type: ignore[arg-type]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    found = Daemon()
    monkeypatch.setattr(run, "AsyncFleet", lambda: found)
    return found


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def notifier(said: list[str], told: list[str]) -> Notifier:
    return Notifier(
        DueStates(DEFAULT_REASONS),
        [],
        log=said.append,
        on_message=lambda message: told.append(message.id),
        keep=lambda _: None,
    )


def now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("error", [Denied("no"), Incompatible("no"), MethodNotFound("no")])
async def test_what_the_daemon_refuses_for_good_ends_it(
    autojump_clock: Any, daemon: Daemon, notifier: Notifier, error: FleetError
) -> None:
    daemon.errors = [error]
    with pytest.raises(type(error)):
        await notifier.run()


async def test_an_old_daemon_is_named(
    autojump_clock: Any, daemon: Daemon, notifier: Notifier
) -> None:
    daemon.errors = [MethodNotFound("attention.list")]
    with pytest.raises(MethodNotFound, match="too old"):
        await notifier.run()


async def test_what_passes_is_waited_for_and_said_once(
    autojump_clock: Any,
    daemon: Daemon,
    notifier: Notifier,
    nursery: trio.Nursery,
    said: list[str],
    told: list[str],
) -> None:
    daemon.states = [state("permission", since=now_ms())]
    daemon.errors = [Unavailable("no"), Storage("full"), LimitExceeded("many"), Unavailable("no")]
    nursery.start_soon(notifier.run)
    await trio.sleep(30)
    await until(lambda: len(told) == 1)
    assert said == ["fleetd is not running; retrying: no", "fleetd answers again."]


async def test_after_another_store_all_is_read_again(
    autojump_clock: Any,
    daemon: Daemon,
    notifier: Notifier,
    nursery: trio.Nursery,
    told: list[str],
) -> None:
    nursery.start_soon(notifier.run)
    await trio.sleep(5)
    daemon.states = [state("question", since=now_ms())]
    daemon.happened.send_nowait(StoreReplaced("another epoch"))
    await until(lambda: len(told) == 1)
    assert [each.agent_id for each in daemon.asked] == [None, None]


async def test_events_that_come_together_are_one_look(
    autojump_clock: Any,
    daemon: Daemon,
    notifier: Notifier,
    nursery: trio.Nursery,
    told: list[str],
) -> None:
    """1,000 events of a moment are one request, and one message for each state."""
    nursery.start_soon(notifier.run)
    await trio.sleep(5)
    daemon.states = [state("limit", agent=f"a{n}", since=now_ms()) for n in range(5)]
    for number in range(1_000):
        daemon.happened.send_nowait(f"a{number % 5}")
    await until(lambda: len(told) == 5)
    daemon.happened.send_nowait("a3")
    await trio.sleep(5)
    assert [each.agent_id for each in daemon.asked] == [None, None, "a3"]
    assert all(each.waiting for each in daemon.asked)
    assert len(told) == len(set(told)) == 5


async def test_a_full_page_says_nothing_of_those_that_it_leaves_out(
    autojump_clock: Any,
    daemon: Daemon,
    notifier: Notifier,
    nursery: trio.Nursery,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "MOST_AGENTS", 1)
    nursery.start_soon(notifier.run)
    await trio.sleep(5)
    begun = now_ms()
    daemon.states = [state("permission", since=begun)]
    daemon.happened.send_nowait("alice")
    await trio.sleep(0.5)
    daemon.states = [state("permission", agent="bob", since=begun)]
    daemon.on_link(Link("back", 0.0))
    # Virtual time does not wait for the thread that keeps what was told.
    await until(lambda: len(told) == 2)
    assert sorted(told) == [f"{each}/permission/{iso(begun)}" for each in ("alice", "bob")]
