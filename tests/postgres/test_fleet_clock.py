"""The clock of a fleet follows its server's, and never goes back."""

from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from fleetd.store.postgres import server_clock
from fleetd.store.postgres.connection import connect
from fleetd.store.postgres.server import PostgresServer as StoreServer
from fleetd.store.postgres.server_clock import ServerClock
from tests.support.postgres_server import LocalPostgres, run_sql


class Own:
    """A machine's own clock, which a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Own:
    own = Own()
    monkeypatch.setattr(server_clock, "_own_ms", own)
    return own


def test_it_is_the_servers_clock(postgres: LocalPostgres) -> None:
    clock = ServerClock()
    with connect(postgres.url(user="postgres"), "test") as line:
        clock.ask(line)
    told = run_sql(
        postgres.url(user="postgres"),
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float AS ms",
    )
    assert abs(told[0]["ms"] - clock.now_ms()) < 2_000
    assert clock.uptime().boot_id == "shared"


@pytest.mark.parametrize(
    ("took_ms", "asked", "ahead_ms"),
    [([4, 0, 0], 1, 102), ([9, 30, 2], 3, 101), ([9, 6, 30], 3, 103)],
)
def test_a_server_that_answers_quickly_is_asked_once(
    own: Own, monkeypatch: pytest.MonkeyPatch, took_ms: list[int], asked: int, ahead_ms: int
) -> None:
    """Here it answers when it has read its clock, 100 ms ahead of what ours was when it was asked.

    Half of the time that an answer took is taken for the time that the question took.
    """
    now_ns, took, asking = [0], iter(took_ms), 0

    class Line:
        def execute(self, _: bytes) -> "Line":
            nonlocal asking
            asking += 1
            self._read_ms = now_ns[0] // 1_000_000 + 100
            self._read_ms += (delay := next(took))
            now_ns[0] += delay * 1_000_000
            return self

        def fetchone(self) -> tuple[int]:
            return (self._read_ms,)

    monkeypatch.setattr(server_clock.time, "clock_gettime_ns", lambda _: now_ns[0])
    clock = ServerClock()

    clock.ask(Line())  # type: ignore[arg-type]

    assert (asking, clock.now_ms() - own.ms) == (asked, ahead_ms)


@pytest.mark.parametrize(
    ("took_ms", "ahead_ms", "fits", "then_ms"),
    [
        (1, 130, True, 130),  # quick: it is right
        (40, 122, True, 100),  # as slow as that it says nothing new
        (40, 78, True, 100),
        (40, 123, False, 100),
        (40, 77, False, 100),
        (100, 150, True, 100),
        (102, 150, False, 100),  # too slow to say anything
    ],
)
def test_a_slow_answer_that_fits_the_clock_changes_nothing(
    own: Own, took_ms: int, ahead_ms: int, fits: bool, then_ms: int
) -> None:
    clock = ServerClock()
    clock.set(100)
    asked_ns = 7_000_000_000
    told_ms = 7_000 + took_ms // 2 + ahead_ms

    found = server_clock.reading(asked_ns, told_ms, asked_ns + took_ms * 1_000_000)

    assert (found.took_ms, found.ahead_ms) == (took_ms, ahead_ms)
    assert clock.accept(found) is fits
    assert clock.now_ms() == own.ms + then_ms


def test_an_answer_that_is_slow_is_not_enough_for_a_clock_that_never_asked(own: Own) -> None:
    clock = ServerClock()
    assert not clock.accept(server_clock.ClockReading(40, clock.now_ms() - own.ms))


def test_a_heartbeat_asks_the_server_once(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = open_server(postgres.url(postgres.new_database(), user="postgres"))
    asked: list[str] = []
    monkeypatch.setattr(server_clock, "_QUICK_MS", 60_000)  # also on a busy computer

    def counted(*args: Any) -> Any:
        asked.append(args[0])
        return execute(*args)

    with closing(server.open("writer")), closing(server.open("listener")) as line:
        execute: Any = line.execute
        monkeypatch.setattr(line, "execute", counted)

        end = server.beat(line)

    assert end == 0
    assert len(asked) == 1
    assert "clock_timestamp()" in asked[0]


def test_it_runs_on_by_a_clock_that_nobody_steps(own: Own) -> None:
    clock = ServerClock()
    clock.set(5_000)
    own.ms += 3_600_000
    assert clock.now_ms() == 4_605_000


def test_it_goes_forward_with_the_server_at_once(own: Own) -> None:
    clock = ServerClock()
    clock.set(0)
    clock.set(60_000)
    assert clock.now_ms() == own.ms + 60_000


def test_it_goes_slower_until_a_server_that_was_set_back_has_caught_up(own: Own) -> None:
    clock = ServerClock()
    clock.set(0)
    clock.set(-10_000)
    told = [clock.now_ms()]
    for _ in range(30):
        own.ms += 1_000
        told.append(clock.now_ms())
        clock.set(-10_000)
    steps = [after - before for before, after in pairwise(told)]
    assert set(steps) == {500, 1_000}
    assert steps.count(500) == 20
    assert told[-1] == own.ms - 10_000


def test_what_is_told_before_the_server_was_asked_binds_nobody(own: Own) -> None:
    clock = ServerClock()
    clock.set(-(10**9))
    assert clock.now_ms() == own.ms - 10**9


def test_who_starts_keeps_with_those_that_are_ahead_of_a_server_that_was_set_back(own: Own) -> None:
    running, started = ServerClock(), ServerClock()
    running.set(0)
    own.ms += 1_000
    running.set(-300_000)
    started.set(-300_000)
    started.advance_to(running.now_ms() - 10_000)
    for _ in range(700):
        assert running.now_ms() - 10_000 <= started.now_ms() <= running.now_ms()
        own.ms += 1_000
    assert started.now_ms() == running.now_ms() == own.ms - 300_000


def test_a_clock_that_was_far_off_binds_nobody_who_starts(own: Own) -> None:
    clock = ServerClock()
    clock.set(0)
    clock.advance_to(own.ms + 86_400_000)
    assert clock.now_ms() == own.ms


def test_what_the_store_was_told_last_is_asked_at_each_connection(postgres: LocalPostgres) -> None:
    url = postgres.url(postgres.new_database(), user="postgres")
    server = open_server(url)
    with closing(server.open("writer")) as line:
        told = server.clock.now_ms() + 300_000
        line.execute(
            "INSERT INTO machines VALUES ('m', 'one', 'here', '', '', %s, %s)", (told, told)
        )
    started = open_server(url)
    started.open("writer").close()
    assert abs(started.clock.now_ms() - told) < 30_000


def open_server(url: str) -> StoreServer:
    """Return what a daemon that starts makes of a server."""
    return StoreServer(url, "ab" * 8)
