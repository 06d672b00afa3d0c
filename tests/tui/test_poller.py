"""The threads that fetch: coalesced, and honest about a daemon that hangs."""

import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest

from fleetctl.client import TooSlow
from fleetctl.tui import poller
from fleetctl.tui.poller import Poller
from fleetctl.tui.state import EVERYTHING, UpdateQueue, WatchState
from fleetd.protocol.errors import FleetError, Unavailable


class FakeLog:
    """The events of a daemon, as long as it lives."""

    epoch = "epoch"

    def __init__(self) -> None:
        self.coming: Queue[Any] = Queue()

    def __iter__(self) -> Iterator[Any]:
        while (told := self.coming.get()) is not None:
            yield told


class Stage:
    """A feed with a daemon that is played, and the state it fills."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.asked = FakeLog(), []  # type: ignore[var-annotated]
        self.hangs = threading.Event()
        self.trouble: FleetError = TooSlow()
        self.failed: list[BaseException] = []
        self.state = WatchState()
        self._notified = threading.Event()
        self._queue = UpdateQueue(self._notified.set, lambda: 0)
        stage = self

        class FakeFleet:
            def __enter__(self) -> "FakeFleet":
                return self

            def __exit__(self, *_: object) -> None: ...

            def close(self) -> None: ...

            def events(self, *, away_s: float) -> FakeLog:
                return stage.log

        monkeypatch.setattr(poller, "Fleet", FakeFleet)
        monkeypatch.setattr(poller, "read", self._read)
        monkeypatch.setattr(poller, "PAUSE_S", 0.05)
        self.feed = Poller(self._queue, self.failed.append)

    def _read(self, client: Any, part: Any, mission_id: str | None) -> Any:
        self.asked.append((part, mission_id))
        if self.hangs.is_set():
            raise self.trouble
        return []

    def until(self, seen: Callable[[], bool]) -> None:
        """Take what comes until something is so."""
        for _ in range(1_000):
            if seen():
                return
            self._notified.wait(0.02)
            self._notified.clear()
            self._queue.take(self.state)
        raise AssertionError(f"never seen; asked: {self.asked}, link: {self.state.connection}")

    def parts(self) -> set[str]:
        return {part for part, _ in self.asked}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    played = Stage(monkeypatch)
    played.feed.start()
    yield played
    played.feed.stop()
    played.log.coming.put(None)


def test_everything_is_read_when_the_daemon_is_there(stage: Stage) -> None:
    stage.until(lambda: stage.parts() == EVERYTHING and stage.state.connection == "connected")
    assert len(stage.asked) == len(EVERYTHING)


def test_a_storm_of_events_is_read_once_for_many(stage: Stage) -> None:
    stage.until(lambda: len(stage.asked) == len(EVERYTHING))
    stage.asked.clear()
    for seq in range(5_000):
        stage.log.coming.put(_Told(seq))
    stage.until(lambda: len(stage.state.events) > 0 and stage.log.coming.empty())
    stage.until(lambda: "sorties" in stage.parts())
    assert len(stage.asked) < 200
    assert "mail" not in stage.parts()


class _Told:
    type = "sortie_progressed"

    def __init__(self, seq: int) -> None:
        self.seq = seq


def test_another_mission_is_read_at_once(stage: Stage) -> None:
    stage.until(lambda: len(stage.asked) == len(EVERYTHING))
    stage.asked.clear()
    stage.feed.look_at("msn-00000001")
    stage.until(lambda: ("sorties", "msn-00000001") in stage.asked)
    assert stage.parts() == {"sorties", "checkpoints"}


@pytest.mark.parametrize(
    "trouble", [TooSlow(), Unavailable("The store is away: no answer", retry=True, away_ms=10)]
)
def test_a_daemon_that_tells_nothing_is_away_and_back_when_it_answers(
    stage: Stage, trouble: FleetError
) -> None:
    stage.until(lambda: stage.state.connection == "connected")
    stage.trouble = trouble
    stage.hangs.set()
    stage.feed.look_at("msn-00000001")
    stage.until(lambda: stage.state.connection == "away")
    assert stage.state.trouble == trouble.message
    stage.hangs.clear()
    stage.asked.clear()
    stage.until(lambda: stage.state.connection == "connected")
    stage.until(lambda: stage.parts() == EVERYTHING)


def test_a_defect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def defective(*_: Any) -> None:
        raise ZeroDivisionError

    stage = Stage(monkeypatch)
    monkeypatch.setattr(poller, "read", defective)
    stage.feed.start()
    stage.until(lambda: bool(stage.failed))
    stage.feed.stop()
    stage.log.coming.put(None)
    assert isinstance(stage.failed[0], ZeroDivisionError)
