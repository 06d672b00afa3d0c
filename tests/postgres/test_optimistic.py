"""Optimistic commits: few messages, none of them in the turn, and what the turn would have done."""

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import outcome
import psycopg
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from fleetd.domain.cluster.membership import HEARTBEAT_MS
from fleetd.domain.core import assigned
from fleetd.domain.core.assigned import Assigned, Unpredictable, encode_json
from fleetd.domain.core.text import SIGN_OF_NUL
from fleetd.domain.core.tx import Ring, Tx
from fleetd.engine.hooks.training import training_hooks
from fleetd.engine.jobs.cluster import heartbeat
from fleetd.protocol.errors import InvalidState, Unavailable
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.event import CursorAdvance, EventAppend
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockForceRelease, LockRelease, LockRenew
from fleetd.protocol.requests.message import MessageAck, MessageInbox
from fleetd.protocol.requests.mission import MissionCancel
from fleetd.protocol.requests.sortie import SortieProgress, SortieStart
from fleetd.protocol.requests.system import SystemMetrics, SystemStatus
from fleetd.protocol.status import OptimisticFigures
from fleetd.store.api import Optimistic
from fleetd.store.postgres import statements
from fleetd.store.postgres.connection import ServerConnection
from fleetd.store.postgres.optimistic import ROUNDS, OptimisticCommits
from fleetd.store.postgres.predictor import SURE
from fleetd.store.postgres.shape import shape_of
from fleetd.store.postgres.speculation import Speculation, Step
from fleetd.store.postgres.statements import Call, PreparedStatements, literal
from tests.postgres.proxy import Moment, Proxy
from tests.postgres.shared_stores import PATIENCE_S, appends, running
from tests.support.fleet import SECOND, Clock, Fleet, opened
from tests.support.postgres_server import LocalPostgres, run_sql

SESSION = "a1" * 8
Act = Callable[[], Awaitable[Any]]


class Trips:
    """How many messages were sent to the server, and how many of them in a transaction."""

    def __init__(self) -> None:
        self.sent = self.held = 0


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make a turn come too late."""
    monkeypatch.setattr("fleetd.store.postgres.optimistic.IN_TIME_MS", 60_000)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    counted, real = Trips(), ServerConnection.wait

    def wait(self: ServerConnection, *given: Any, **named: Any) -> Any:
        counted.sent += 1
        counted.held += self.pgconn.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )
        return real(self, *given, **named)

    monkeypatch.setattr(ServerConnection, "wait", wait)
    return counted


def commits(fleet: Fleet) -> OptimisticCommits:
    found = fleet.engine.store._committer.optimistic  # type: ignore[union-attr]
    assert isinstance(found, OptimisticCommits)
    return found


class Work:
    """What agents do all the time, each as one request; one that needs another makes it first."""

    def __init__(self, fleet: Fleet, mission: Mission, sortie_id: str) -> None:
        self.fleet, self.mission, self.sortie_id = fleet, mission, sortie_id
        self.number = 0
        self._locks: list[str] = []
        self._mail: list[str] = []

    async def hook(self, **fields: Any) -> Act:
        await self.fleet.settle()
        self.number += 1
        told = {
            "session_id": SESSION,
            "cwd": str(self.fleet.project),
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": str(self.fleet.project / f"{self.number % 3}.py")},
            "tool_use_id": f"t-{self.number}",
        }
        text = json.dumps(told | fields)
        return partial(self.fleet.do, HookDeliver(f"delivery-{self.number:08}", "claude", text))

    async def append(self) -> Act:
        where = {"mission_id": self.mission.id, "agent_id": "a-1"}
        return partial(self.fleet.do, EventAppend("file_read", **where))  # type: ignore[arg-type]

    async def append_with_key(self) -> Act:
        self.number += 1
        key = f"key-{self.number}"
        return partial(
            self.fleet.do,
            EventAppend("file_read", mission_id=self.mission.id, idempotency_key=key),
        )

    async def acquire(self) -> Act:
        self.number += 1
        file = str(self.fleet.project / f"l{self.number}.py")

        async def act() -> Any:
            lock = await self.fleet.lock(self.mission, file, "a-1")
            self._locks.append(lock.id)
            return lock

        return act

    async def renew(self) -> Act:
        await (await self.acquire())()
        return partial(self.fleet.do, LockRenew(self._locks[-1], "a-1"))

    async def release(self) -> Act:
        if not self._locks:  # it goes on with others
            await (await self.acquire())()
        await (await self.acquire())()
        return partial(self.fleet.do, LockRelease(self._locks.pop(), "a-1"))

    async def progress(self) -> Act:
        self.number += 1
        percent = self.number % 24
        return partial(self.fleet.do, SortieProgress(self.sortie_id, percent, "Working"))

    async def send(self) -> Act:
        async def act() -> Any:
            message = await self.fleet.write(self.mission, ["b-1"], sender="a-1")
            self._mail.append(message.id)
            return message

        return act

    async def inbox(self) -> Act:
        while self._mail:  # as many messages each time: the same statements
            await self.fleet.do(MessageAck(self._mail.pop(), "b-1"))
        await (await self.send())()
        return partial(self.fleet.do, MessageInbox("b-1"))

    async def ack(self) -> Act:
        await (await self.inbox())()
        return partial(self.fleet.do, MessageAck(self._mail.pop(), "b-1"))

    async def advance(self) -> Act:
        seq = (await self.fleet.seqs())[-1]
        return partial(self.fleet.do, CursorAdvance("me", f"mission:{self.mission.id}", seq))


REQUESTS = (
    *("hook", "append", "append_with_key", "acquire", "renew", "release", "progress", "send"),
    *("inbox", "ack", "advance"),
)
# Which deliveries an inbox has is known only when its messages are.
ASKS_AGAIN = {"inbox": 1, "ack": 1}


@asynccontextmanager
async def working(url: str, root: Path, **more: Any) -> AsyncIterator[Work]:
    async with opened(root, store=url, **more) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "a-1", "b-1")
        sortie = (await fleet.sorties(mission))[0]
        await fleet.do(SortieStart(sortie.id, "a-1"))
        work = Work(fleet, mission, sortie.id)
        await (await work.hook(hook_event_name="SessionStart", source="startup"))()
        yield work


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_warm_request_takes_two_messages_and_none_in_the_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path, trips: Trips, name: str
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        for _ in range(5):
            act = await getattr(work, name)()
            work.fleet.clock.pass_by(SECOND)
            trips.sent = trips.held = 0
            await act()
        assert (trips.sent, trips.held) == (2 + ASKS_AGAIN.get(name, 0), 0)


async def test_a_heartbeat_that_misses_nobody_is_one_message(
    postgres: LocalPostgres, database: str, tmp_path: Path, trips: Trips
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        engine, clock = work.fleet.engine, work.fleet.clock
        for _ in range(2 * SURE):
            await heartbeat(engine, thorough=False)
            clock.pass_by(HEARTBEAT_MS)
        trips.sent = trips.held = 0
        await heartbeat(engine, thorough=False)
        assert (trips.sent, trips.held) == (1, 0)
        run_sql(
            postgres.url(database),
            "INSERT INTO machines (id, name, status, started_at, heard_at, heard_awake_ms,"
            " since_awake_ms) VALUES ('x', 'x', 'here', '', '', 0, 0)",
        )
        await heartbeat(engine, thorough=False)
        found = run_sql(postgres.url(database), "SELECT status FROM machines WHERE id = 'x'")
        assert found == [{"status": "lost"}]


# The others read columns of activity that they do not write.
@pytest.mark.parametrize("name", ["hook", "advance"])
async def test_what_is_predicted_is_not_asked_for(
    postgres: LocalPostgres, database: str, tmp_path: Path, trips: Trips, name: str
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        for _ in range(SURE + 5):
            act = await getattr(work, name)()
            work.fleet.clock.pass_by(SECOND)
            trips.sent = trips.held = 0
            await act()
        assert (trips.sent, trips.held) == (1, 0)


async def test_sessions_begin_in_few_messages_and_none_in_the_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path, trips: Trips
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        for number in range(3):  # the first has its turn, from which the others are predicted
            file = {"file_path": str(work.fleet.project / f"own-{number}.py")}
            begin = await work.hook(session_id=f"{number}e" * 8, tool_input=file)
            work.fleet.clock.pass_by(SECOND)
            trips.sent = trips.held = 0
            await begin()
        assert trips.held == 0
        assert trips.sent <= 6
        found = await work.fleet.do(AgentList())
        assert {f"claude-{f'{number}e' * 4}" for number in range(3)} <= {a.id for a in found.agents}


async def test_the_first_session_of_a_daemon_is_predicted_after_training(
    postgres: LocalPostgres, database: str, tmp_path: Path, trips: Trips
) -> None:
    left = []
    for trained in (True, False):
        root = tmp_path / str(trained)
        async with opened(root, store=postgres.url(database)) as fleet:
            if trained:
                fleet.engine.store.train(training_hooks(fleet.engine))
            mission = await fleet.mission()
            file = {"file_path": str(fleet.project / "new.py")}
            work = Work(fleet, mission, "")
            work.number = 100 * trained  # no hook comes twice
            begin = await work.hook(session_id=f"{trained}-new", tool_input=file)
            trips.sent = trips.held = 0
            await begin()
            sent, held = trips.sent, trips.held
            left.append(commits(fleet).left)
            told = (await fleet.do(SystemStatus())).writer.optimistic
            done = commits(fleet)
            assert told == OptimisticFigures(
                tries=done.flushes, conflicts=done.conflicts, in_turn=done.left
            )
            text = (await fleet.do(SystemMetrics())).text
            assert f"fleetd_requests_in_turn_total {left[-1]}\n" in text
            if trained:
                assert (told.tries, told.conflicts, held) == (1, 0, 0)
                assert sent <= 8
    assert left == [0, 1]


async def test_training_leaves_nothing_and_a_failure_is_logged(
    postgres: LocalPostgres, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(tx: Tx) -> None:
        tx.all("SELECT * FROM nothing")

    async with opened(tmp_path, store=postgres.url(database)) as fleet:
        before = postgres.sql("SELECT max(seq) AS seq FROM events", database=database)
        fleet.engine.store.train([*training_hooks(fleet.engine), fails])
        assert caplog.text.count("The training failed") == 1
        after = postgres.sql("SELECT max(seq) AS seq FROM events", database=database)
        assert after == before
        assert postgres.sql("SELECT * FROM sessions", database=database) == []


async def test_those_that_depend_on_each_other_are_committed_one_after_the_other(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def rule(tx: Tx) -> int:
        number = int(tx.value("SELECT count(*) FROM store_meta WHERE key LIKE 'kept-%'"))
        tx.run("INSERT INTO store_meta (key, value) VALUES (:key, '')", key=f"kept-{number}")
        return number

    got: list[int] = []
    async with running(postgres.url(database), tmp_path) as one:

        async def write() -> None:
            got.append(await one.store.write(Optimistic(rule)))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(write)
        assert sorted(got) == [*range(10)]
        assert one.store._committer.optimistic.left == 0


async def test_one_whose_rows_change_all_the_time_keeps_nobody_else(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    moving = "SELECT value FROM store_meta WHERE key = 'moving'"
    url = postgres.url(database)
    got: list[str] = []
    real = Speculation.scripts

    def scripts(self: Speculation, *given: Any, **named: Any) -> Any:
        made = real(self, *given, **named)
        run_sql(url, "UPDATE store_meta SET value = value || '.' WHERE key = 'moving'")
        return made

    def reads(tx: Tx) -> str:
        return f"{tx.value(moving)}"

    async with running(url, tmp_path) as one:
        await one.store.write(
            lambda tx: tx.run("INSERT INTO store_meta (key, value) VALUES ('moving', '')")
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Speculation, "scripts", scripts)
            async with trio.open_nursery() as nursery:

                async def write(rule: Callable[[Tx], object]) -> None:
                    got.append(str(await one.store.write(Optimistic(rule))))

                nursery.start_soon(write, reads)
                for number in range(9):
                    nursery.start_soon(write, appends(f"n{number}"))
        assert len(got) == 10
        assert one.store._committer.optimistic.left == 1
        [moved] = [each for each in got if not each.isdigit()]
        assert len(moved) >= ROUNDS
        assert len(await one.kinds()) == 9


async def test_a_commit_without_events_knows_how_far_the_log_has_come(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def beats(tx: Tx) -> None:
        tx.run("INSERT INTO store_meta (key, value) VALUES ('beat', '')")

    url = postgres.url(database)
    async with running(url, tmp_path / "a") as one, running(url, tmp_path / "b") as other:
        await one.event()
        for _ in range(3):
            await other.event()
        await one.store.write(Optimistic(beats))
        known = one.store._server.lost_commits._known
        assert known is not None
        assert (known.own, known.end) == (4, 4)


async def _compared(work: Work, name: str) -> int:
    """Return how many statements of a warm request are compared."""
    for _ in range(4):
        await (await getattr(work, name)())()
    seen: list[int] = []
    act = await getattr(work, name)()
    real = Speculation.scripts

    def noted(self: Speculation, *given: Any, **named: Any) -> Any:
        scripts, others = real(self, *given, **named)
        seen.append(sum(step.expected is not None for each in scripts for step in each.steps))
        return scripts, others

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speculation, "scripts", noted)
        await act()
    [number] = seen
    return number


@pytest.mark.parametrize("name", REQUESTS)
async def test_rows_that_have_changed_are_noticed_at_every_check(
    postgres: LocalPostgres, database: str, tmp_path: Path, name: str
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        number = await _compared(work, name)
        assert number
        for wrong in range(number):
            act = await getattr(work, name)()
            done = commits(work.fleet)
            before = done.flushes, done.conflicts
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Speculation, "_call", _lying_at(wrong, times=1))
                await act()
            assert (done.flushes - before[0], done.conflicts - before[1]) == (2, 1), wrong


@pytest.mark.parametrize("name", REQUESTS)
async def test_who_is_refused_again_and_again_has_a_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path, name: str
) -> None:
    async with working(postgres.url(database), tmp_path) as work:
        await _compared(work, name)
        act = await getattr(work, name)()
        done, events = commits(work.fleet), len(await work.fleet.seqs())
        before = done.flushes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Speculation, "_call", _lying_at(0, times=100))
            await act()
        assert done.flushes - before <= ROUNDS
        if name != "advance":  # that is no event
            assert len(await work.fleet.seqs()) > events
        assert await work.fleet.seqs() == [*range(1, len(await work.fleet.seqs()) + 1)]


def _lying_at(wrong: int, times: int) -> Callable[[Speculation, Step], Call]:
    """Return what has a script expect other rows at its ``wrong``-th comparison, so many times."""
    real = Speculation._call
    told = {"at": 0, "lies": 0}

    def call(self: Speculation, step: Step) -> Call:
        if step.expected is None:
            return real(self, step)
        at, told["at"] = told["at"], told["at"] + 1
        if told["lies"] == times or at < wrong:
            return real(self, step)
        told["lies"] += 1
        told["at"] = 0 if times > 1 else told["at"]
        other = Step(step.sql, step.params, [[("nobody", "knows")]], step.key, ())
        return real(self, other)

    return call


async def test_what_another_daemon_did_in_between_decides(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    clock = Clock()
    async with (
        working(url, tmp_path / "one", machine="a" * 16, clock=clock) as work,
        opened(tmp_path / "two", store=url, machine="b" * 16, clock=clock) as other,
    ):
        act = await work.renew()
        lock = (await work.fleet.locks())[-1]
        taken = LockForceRelease(lock.id, "somebody", reason="Needed")
        with in_between(work.fleet, other, taken), pytest.raises(InvalidState, match="forced"):
            await act()
        act = await work.progress()
        ended = MissionCancel(work.mission.id, "Enough")
        with in_between(work.fleet, other, ended), pytest.raises(InvalidState, match="cancel"):
            await act()
        assert commits(work.fleet).conflicts >= 2


@contextmanager
def in_between(fleet: Fleet, other: Fleet, request: Any) -> Iterator[None]:
    """Have another daemon do something between what a request reads and what it writes."""
    real = Speculation.scripts
    done: list[Any] = []

    def scripts(self: Speculation, *given: Any, **named: Any) -> Any:
        made = real(self, *given, **named)
        if not done and self is commits(fleet)._speculation:
            done.append(request)
            run_at_once(other.do(request))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speculation, "scripts", scripts)
        yield
    assert done, "nothing was read before a turn"


def run_at_once(work: Any) -> Any:
    """Run what an engine of virtual time does, which never waits, from within a rule of another."""
    step = None
    try:
        while True:
            work.send(step)
            step = outcome.Value(None)  # of a checkpoint, as trio has it
    except StopIteration as end:
        return end.value


async def test_who_waits_together_is_committed_together(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    got: list[int] = []
    async with running(url, tmp_path) as one:
        assert await one.store.write(Optimistic(appends("first"))) == 1
        done = one.store._committer.optimistic
        before = done.flushes
        async with trio.open_nursery() as nursery:

            async def write(number: int) -> None:
                got.append(await one.store.write(Optimistic(appends(f"n{number}"))))

            for number in range(100):
                nursery.start_soon(write, number)
        assert sorted(got) == [*range(2, 102)]
        assert done.flushes - before <= 20
        assert (done.conflicts, done.left) == (0, 0)
        assert len(await one.kinds()) == 101


async def test_a_refusal_keeps_nothing_and_the_others_of_its_message_go_on(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def refuses(tx: Tx) -> None:
        appends("never")(tx)
        raise InvalidState("No.", hint="Do something else.")

    refused: list[InvalidState] = []
    async with running(postgres.url(database), tmp_path) as one, trio.open_nursery() as nursery:

        async def refuse() -> None:
            with pytest.raises(InvalidState) as caught:
                await one.store.write(Optimistic(refuses))
            refused.append(caught.value)

        for number in range(10):
            nursery.start_soon(one.store.write, Optimistic(appends(f"n{number}")))
            nursery.start_soon(refuse)
        with trio.fail_after(30):
            while len(refused) < 10 or len(await one.kinds()) < 10:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert "never" not in await one.kinds()
        assert one.store._committer.optimistic.left == 0


async def test_a_rule_that_counts_with_a_number_has_its_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def counts(tx: Tx) -> int:
        return appends("counted")(tx) + 1

    async with running(postgres.url(database), tmp_path) as one:
        assert await one.store.write(Optimistic(counts)) == 2
        assert one.store._committer.optimistic.left == 1


async def test_a_rule_that_looks_for_what_is_free_comes_to_an_end(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def rule(tx: Tx) -> int:
        names = (f"name-{number}" for number in count())
        taken = "SELECT value FROM store_meta WHERE key = :key"
        free = next(name for name in names if not tx.exists(taken, key=name))
        tx.run("INSERT INTO store_meta (key, value) VALUES (:key, '')", key=free)
        return int(free.partition("-")[2])

    async with running(postgres.url(database), tmp_path) as one:
        for number in range(40):
            with trio.fail_after(30):
                assert await one.store.write(Optimistic(rule)) == number


async def test_a_text_that_is_no_unicode_is_one_request_s_trouble(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def keep(name: str) -> Callable[[Tx], None]:
        def rule(tx: Tx) -> None:
            tx.exists("SELECT 1 AS there FROM store_meta WHERE key = :key", key=name)
            tx.run("INSERT INTO store_meta (key, value) VALUES (:key, '')", key=name)

        return rule

    failed: list[Exception] = []
    async with running(postgres.url(database), tmp_path) as one:

        async def write(name: str) -> None:
            try:
                await one.store.write(Optimistic(keep(name)))
            except UnicodeEncodeError as error:
                failed.append(error)

        for number in range(2):
            async with trio.open_nursery() as nursery:
                for name in ("bad\udce9", f"good-{number}", f"fine-{number}"):
                    nursery.start_soon(write, name)
        assert len(failed) == 2
        assert one.store.availability.away is None
        keys = "SELECT key FROM store_meta WHERE key LIKE 'good%' OR key LIKE 'fine%'"
        assert len(await one.store.read(lambda tx: tx.all(keys))) == 4


@pytest.mark.parametrize("when", ["before", "after", "unnoticed"])
async def test_a_message_that_is_lost_is_committed_once(
    postgres: LocalPostgres, database: str, tmp_path: Path, when: Moment
) -> None:
    def keep(name: str) -> Callable[[Tx], str]:
        def rule(tx: Tx) -> str:
            appends(name)(tx)
            return name

        return rule

    with Proxy(postgres.port) as proxy:
        url = f"postgresql://fleet@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
        async with running(url, tmp_path) as one:
            await one.store.write(Optimistic(keep("first")))
            proxy.cut(b"COMMIT\0", when)
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(one.store.write, Optimistic(keep(f"n{number}")))
            assert proxy.cuts == 1
            assert await one.store.write(Optimistic(keep("last"))) == "last"
            found = await one.kinds()
            assert len(found) == len(set(found)) == 12
            one.store.settle()
            assert one.effects == [Ring()] * 12


async def test_who_stops_in_the_middle_of_a_message_holds_nobody_up(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    with Proxy(postgres.port) as proxy:
        through = f"postgresql://fleet@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
        async with (
            running(through, tmp_path / "one", optimistic=True) as one,
            running(postgres.url(database), tmp_path / "two", optimistic=True) as two,
            trio.open_nursery() as nursery,
        ):
            await one.event("first")
            proxy.cut(b"COMMIT\0", "half")
            stopped = trio.Event()

            async def stops() -> None:
                assert await one.event("stopped") == 12
                stopped.set()

            nursery.start_soon(stops)
            with trio.fail_after(PATIENCE_S):
                while not proxy.cuts:  # noqa: ASYNC110 - nothing tells
                    await trio.sleep(0.01)
            with trio.fail_after(4):
                for number in range(2, 12):
                    assert await two.event("meanwhile") == number
            assert not stopped.is_set()
            proxy.hang_up()  # then it is sent again
            with trio.fail_after(PATIENCE_S):
                await stopped.wait()


async def test_a_number_that_went_with_its_connection_is_told_to_be_unknown(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    with Proxy(postgres.port) as proxy:
        url = f"postgresql://fleet@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
        async with running(url, tmp_path) as one:
            await one.store.write(Optimistic(appends("first")))
            proxy.cut(b"COMMIT\0", "after")
            with pytest.raises(Unavailable) as told:
                await one.store.write(Optimistic(appends("second")))
            assert told.value.data()["outcome"] == "unknown"
            one.store.settle()
            assert one.effects == [Ring()] * 2
            assert await one.store.write(Optimistic(appends("third"))) == 3


async def test_a_rule_runs_again_whose_turn_comes_too_late_and_is_not_late_twice(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.store.postgres.optimistic.IN_TIME_MS", -60_000)
    async with running(postgres.url(database), tmp_path) as one:
        done = one.store._committer.optimistic
        done._waited_ms = -60_000  # twice the last wait is allowed, too
        assert await one.store.write(Optimistic(appends("late"))) == 1
        assert (done.flushes, done.conflicts, done.left) == (2, 0, 0)


async def test_a_number_may_stand_in_json_and_in_other_rows(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    def rule(tx: Tx) -> dict[str, Any]:
        tx.after_commit(Ring())
        seq = appends("one")(tx)
        data = encode_json({"before": seq, "text": "it's"}).decode()
        again = tx.value(
            "INSERT INTO events (type, stream, timestamp, activity, data_json)"
            " VALUES ('two', 'fleet', '', 0, :data) RETURNING seq",
            data=data,
        )
        tx.run("INSERT INTO store_meta (key, value) VALUES ('k', :data)", data=data)
        return {"seqs": [seq, again]}

    async with running(postgres.url(database), tmp_path) as one:
        await one.event("before")
        assert await one.store.write(Optimistic(rule)) == {"seqs": [2, 3]}
        assert one.store._committer.optimistic.left == 0
        [(value,)] = await one.store.read(
            lambda tx: tx.tuples("SELECT value FROM store_meta WHERE key = 'k'")
        )
        assert json.loads(value) == {"before": 2, "text": "it's"}


VALUES = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=20),
    st.text(st.sampled_from("'\\\"$:;%\0\n()eE{}?/*- 1"), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
)


@pytest.fixture(scope="module")
def prepared(postgres: LocalPostgres) -> Iterator[PreparedStatements]:
    with ServerConnection.connect(postgres.url(user="postgres"), autocommit=True) as connection:
        yield PreparedStatements(connection)


@settings(max_examples=400, deadline=None)
@given(given=st.lists(VALUES, min_size=1, max_size=6))
def test_whatever_a_value_is_it_arrives_and_nothing_else(
    prepared: PreparedStatements, given: list[Any]
) -> None:
    columns = ", ".join(f":v{number}::text" for number in range(len(given)))
    params = {f"v{number}": value for number, value in enumerate(given)}
    call = prepared.call(f"SELECT {columns}", params)
    prepared.prepare()
    [result] = prepared._connection.simple_query(call.text().encode())
    for number, value in enumerate(given):
        found = result.get_value(0, number)
        text = None if found is None else found.decode()
        if isinstance(value, str):
            assert text == value.replace("\0", SIGN_OF_NUL)
        elif isinstance(value, float):
            assert text is not None
            assert math.isclose(float(text), value, rel_tol=1e-15)
        elif value is None:
            assert text is None
        else:
            assert text == str(int(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", object(), Assigned("events", 1)])
def test_what_has_no_literal_is_unpredictable(value: object) -> None:
    with pytest.raises(Unpredictable):
        literal(value)


def test_a_statement_that_the_server_does_not_take_by_name_is_unpredictable(
    prepared: PreparedStatements,
) -> None:
    good = {"a": 1}
    prepared.call("SELECT :a + 1", good)
    prepared.call("SELECT nothing FROM nowhere", {})
    with pytest.raises(Unpredictable):
        prepared.prepare()
    with pytest.raises(Unpredictable):
        prepared.call("SELECT nothing FROM nowhere", {})
    call = prepared.call("SELECT :a + 1", good)
    prepared.prepare()
    [result] = prepared._connection.simple_query(call.text().encode())
    assert result.get_value(0, 0) == b"2"


SUM = "SELECT :a + 1 AS sum, :b::text AS b, :c AS c"


def told(results: Sequence[PGresult]) -> list[list[bytes | None]]:
    """Return the first row of each result."""
    return [[each.get_value(0, at) for at in range(each.nfields)] for each in results]


def test_what_is_new_is_prepared_and_run_in_one_message(prepared: PreparedStatements) -> None:
    form = "SELECT q.*, EXPECTED AS expected FROM (SQL) q"
    calls = [
        prepared.call(SUM, {"a": 1, "b": None, "c": "it's"}, form, "[2]"),
        prepared.call(SUM, {"a": 2, "b": "b", "c": None}),
        prepared.call("SELECT '$1 :a' AS text", {}),
    ]
    rows = [[b"2", None, b"it's", b"[2]"], [b"3", b"b", None], [b"$1 :a"]]
    assert told(prepared.run(calls)) == rows
    assert told(prepared.run(reversed(calls))) == rows[::-1]


def test_what_fails_when_it_runs_stays_prepared(prepared: PreparedStatements) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        prepared.run([prepared.call("SELECT 6 / :a AS part", {"a": 0})])
    assert told(prepared.run([prepared.call("SELECT 6 / :a AS part", {"a": 2})])) == [[b"3"]]


@pytest.mark.parametrize("bad", ["SELECT nowhere.nothing", "SELECT WHERE FROM"])
def test_of_those_in_one_message_only_what_is_refused_is_unpredictable(
    prepared: PreparedStatements, bad: str
) -> None:
    def calls() -> Iterator[Call]:
        yield prepared.call(f"SELECT 7 AS seven /* {bad} */", {})
        yield prepared.call(bad, {})

    with pytest.raises(Unpredictable):
        prepared.run([*calls()])
    every = calls()
    assert told(prepared.run([next(every)])) == [[b"7"]]
    with pytest.raises(Unpredictable):
        next(every)


def test_of_many_statements_the_server_keeps_the_newest(
    prepared: PreparedStatements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_MOST", 3)
    for number in (*range(5), 0):
        call = prepared.call(f"SELECT {number} + :a AS sum", {"a": 1})
        assert told(prepared.run([call])) == [[str(number + 1).encode()]]
    kept = "SELECT count(*) FROM pg_prepared_statements"
    [[held]] = told(prepared._connection.simple_query(kept.encode()))
    assert held == b"3"


@pytest.mark.parametrize(
    ("sql", "kind", "question"),
    [
        ("SELECT 1 AS one", "read", "SELECT 1 AS one"),
        ("UPDATE a SET b = :b WHERE c = :c", "write", ""),
        (
            "UPDATE a SET b = (SELECT x WHERE z = 1), d = ' WHERE ' WHERE c = 1 RETURNING (2) AS e",
            "returning",
            "SELECT (2) AS e FROM a WHERE c = 1 ",
        ),
        ("DELETE FROM a WHERE b = :b RETURNING c", "returning", "SELECT c FROM a WHERE b = :b "),
        ("INSERT INTO a (b) VALUES (:b)", "write", ""),
        ("INSERT INTO a (b) VALUES (:b) ON CONFLICT DO NOTHING RETURNING b", "inserting", ""),
        ("INSERT INTO a (b) VALUES (:b) RETURNING c", "unpredictable", ""),
        ("INSERT INTO a (b) VALUES (1 + :b) RETURNING b", "unpredictable", ""),
        ("INSERT INTO a (b) SELECT c FROM d RETURNING b", "unpredictable", ""),
        (
            "INSERT INTO a (b) VALUES (:b) ON CONFLICT (b) DO UPDATE SET b = 1 RETURNING b",
            "unpredictable",
            "",
        ),
        ("INSERT INTO events (type) VALUES (:t)", "unpredictable", ""),
        ("INSERT INTO events (type) VALUES (:t) RETURNING seq", "counting", ""),
        ("INSERT INTO events (seq, type) VALUES (:s, :t) RETURNING seq", "unpredictable", ""),
        ("SAVEPOINT attempt", "unpredictable", ""),
    ],
)
def test_what_a_statement_returns_is_learned_beforehand(sql: str, kind: str, question: str) -> None:
    shape = shape_of(sql)
    assert (shape.kind, shape.question) == (kind, question)


def test_numbers_are_stored_and_answered_and_nothing_else() -> None:
    one, two = Assigned("events", 1), Assigned("events", 2)
    assert (one < two, one == two, bool(one), {one: 1}[Assigned("events", 1)]) == (
        *(True, False, True),
        1,
    )
    inside = {"text": encode_json({"seq": one}).decode()}
    with pytest.raises(Unpredictable):
        assigned.placeholders(encode_json(inside).decode())
    with pytest.raises(Unpredictable):
        literal(f"{[one]}")
    for use in (str, "{}".format, lambda each: each + 1, lambda each: each < 3, lambda e: e == 3):
        with pytest.raises((Unpredictable, TypeError)):
            use(one)  # type: ignore[operator]
    before: dict[assigned.Counter, int] = {"events": 10, "fencing": 5}
    told = {"a": [one, (two, "x")], "b": Assigned("fencing", 1), "c": None}
    assert assigned.with_numbers(told, before) == {"a": [11, (12, "x")], "b": 6, "c": None}
    plain = {"a": [1, {"b": ("c",)}]}
    assert assigned.with_numbers(plain, before) is plain
    assert not assigned.holds_assigned(plain)
    assert assigned.holds_assigned(told)
