"""One history three ways: over SQLite, in the turn, and in one message with a writer in between.

The rows and the replies are the same. Ids are those of the request that draws them, and all three
go by one clock.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.domain.cluster import membership
from fleetd.domain.core.context import Context
from fleetd.engine.engine import Engine
from fleetd.protocol.errors import FleetError
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import CursorAdvance, EventAppend
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire, LockForceRelease, LockRelease, LockRenew
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.sortie import SortieProgress, SortieStart
from fleetd.store.postgres.speculation import Speculation
from tests.postgres.test_optimistic import commits, run_at_once
from tests.support.fleet import SECOND, Clock, Fleet, opened
from tests.support.postgres_server import LocalPostgres, run_sql

HERE = "a" * 16
AGENTS = ("a-1", "b-1", "c-1")
STARTED = "2026-01-01T00:00:00.000Z"
SESSIONS = ("a1" * 8, "b2" * 8)
ALIKE = (
    *("agent_history", "agents", "cursors", "deliveries", "edit_conflicts", "edit_history"),
    *("edits", "events", "hook_counts", "hook_deliveries", "idempotency_keys", "lock_history"),
    *("lock_waits", "locks", "machines", "messages", "missions", "recoveries", "sessions"),
    *("sorties",),
    *("tallies", "tool_calls", "counters"),
)
INDEX = "SELECT id, kind, source, mission_id, agent_id, words, names FROM search_documents"


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat of a daemon, which is no request of the wire."""

    name: str
    nonce: str
    earlier: tuple[str, ...] = ()


Told = Request[Any] | Beat


class Ids:
    """Draws the same ids for the same request, however often its rule runs."""

    def __init__(self) -> None:
        self.request = self._drawn = 0

    def __call__(self, prefix: str) -> str:
        self._drawn += 1
        return f"{prefix}-{self.request:05x}{self._drawn:03x}"

    def begin_with_each_rule(self, engine: Engine) -> None:
        """Draw from the first on whenever a rule begins."""
        context = engine.context

        def begun(*given: Any) -> Context:
            self._drawn = 0
            return context(*given)

        setattr(engine, "context", begun)  # noqa: B010


class Three:
    """The stores, of which the last two are servers'; ``other`` shares the last one."""

    def __init__(self, fleets: list[Fleet], other: Fleet, ids: Ids, clock: Clock) -> None:
        self.sqlite, self.turn, self.flush = fleets
        self.other = other
        self.ids = ids
        self.clock = clock
        _never_optimistic(self.turn)

    async def do(self, request: Told, between: Told | None = None) -> Any:
        """Make a request in all of them; ``between`` is made first, of the last by another daemon.

        It is made there once the request has read what it decides by.
        """
        self.clock.pass_by(SECOND)
        first, self.ids.request = self.ids.request + 1, self.ids.request + 2
        replies = []
        for fleet in (self.sqlite, self.turn):
            if between is not None:
                self.ids.request = first
                await answer(fleet, between)
            self.ids.request = first + 1
            replies.append(await answer(fleet, request))
            await fleet.settle()
        with self._in_between(between, first):
            self.ids.request = first + 1
            replies.append(await answer(self.flush, request))
            await self.flush.settle()
        assert replies[0] == replies[1] == replies[2], (request, between, replies)
        return replies[0]

    @contextmanager
    def _in_between(self, request: Told | None, number: int) -> Iterator[None]:
        real = Speculation.scripts
        done: list[Told] = []

        def scripts(speculation: Speculation, *given: Any, **named: Any) -> Any:
            made = real(speculation, *given, **named)
            if request is not None and not done and self._is_of_flush(speculation):
                done.append(request)
                before, self.ids.request = self.ids.request, number
                run_at_once(answer(self.other, request))
                self.ids.request = before
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Speculation, "scripts", scripts)
            yield
        if request is not None and not done:  # it was not read before its turn, or only refused
            self.ids.request = number
            run_at_once(answer(self.other, request))

    def _is_of_flush(self, speculation: Speculation) -> bool:
        return commits(self.flush)._speculation is speculation

    def rows(self) -> list[dict[str, Any]]:
        """Return what the tables of each hold."""
        found = []
        for fleet in (self.sqlite, self.turn, self.flush):
            tables: dict[str, Any] = {
                name: ordered(fleet.sql(f"SELECT * FROM {name}")) for name in ALIKE
            }
            tables["search"] = ordered(fleet.sql(INDEX))
            # They are in the same order, but what was rolled back has had numbers, too.
            tables["hook_deliveries"].sort(key=lambda row: row["seq"])
            for row in tables["hook_deliveries"]:
                del row["seq"]
            tables["tallies"] = [r for r in tables["tallies"] if r["number"]]
            tables["counters"] = [r for r in tables["counters"] if r["name"] == "fencing"]
            found.append(tables)
        return found


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


async def answer(fleet: Fleet, request: Told) -> Any:
    """Return what a request comes to, a refusal too."""
    if isinstance(request, Beat):
        write = fleet.engine.write
        renewed = await write(membership.renew, request.name, request.nonce)
        told = (request.name, STARTED, request.nonce, "boot", request.earlier)
        return msgspec.to_builtins(renewed or await write(membership.heartbeat, *told))
    try:
        found = msgspec.to_builtins(await fleet.do(request))
        if isinstance(found, dict):
            found.pop("epoch", None)  # each store has its own
        return found
    except FleetError as error:
        return {"refused": type(error).__name__, "message": error.message}


def _never_optimistic(fleet: Fleet) -> None:
    commit = fleet.engine.commit

    async def in_turn(rule: Any, kind: Any, **how: Any) -> Any:
        return await commit(getattr(rule, "_rule", rule), kind, **how)

    setattr(fleet.engine, "commit", in_turn)  # noqa: B010


class Story:
    """Requests that make sense by what was answered before, drawn one after the other."""

    def __init__(self, root: Path, number: int, mission: str, sorties: list[str]) -> None:
        self.root, self.number = root, number
        self.mission, self.sorties = mission, sorties
        self.locks: list[tuple[str, str]] = []
        self.mail: list[tuple[str, str]] = []
        self.seq = 0
        self._count = count()

    def request(self, draw: st.DataObject) -> Told:
        """Draw a request that is converted."""
        kind = draw.draw(st.sampled_from(sorted(self._makers())))
        return self._makers()[kind](draw)

    def _makers(self) -> dict[str, Callable[[st.DataObject], Told]]:
        agent = st.sampled_from(AGENTS)
        makers: dict[str, Callable[[st.DataObject], Told]] = {
            "beat": lambda d: Beat(
                d.draw(st.sampled_from(["laptop", "desk"])),
                d.draw(st.sampled_from(["n-1", "n-2"])),
                d.draw(st.sampled_from([(), ("n-1",)])),
            ),
            "append": lambda d: EventAppend(
                "file_read",
                mission_id=d.draw(st.sampled_from([self.mission, None])),
                agent_id=d.draw(st.sampled_from([*AGENTS, None])),
                data={"text": d.draw(st.text("a'\\\"é", max_size=4))},
                idempotency_key=d.draw(st.sampled_from([None, f"key-{self.number}"])),
            ),
            "acquire": lambda d: LockAcquire(
                d.draw(agent),
                str(self.root / d.draw(st.sampled_from(["x.py", "y.py"]))),
                mission_id=d.draw(st.sampled_from([self.mission, None])),
                mode=d.draw(st.sampled_from(["exclusive", "shared"])),
            ),
            "progress": lambda d: SortieProgress(
                d.draw(st.sampled_from(self.sorties)), d.draw(st.integers(0, 24)), "Working"
            ),
            "send": lambda d: MessageSend(
                d.draw(agent), [d.draw(agent)], "Review", mission_id=self.mission
            ),
            "inbox": lambda d: MessageInbox(d.draw(agent)),
            "advance": lambda d: CursorAdvance("me", f"mission:{self.mission}", self.seq),
            "hook": self._hook,
        }
        if self.locks:
            held = st.sampled_from(self.locks)
            makers["renew"] = lambda d: LockRenew(*d.draw(held))
            makers["release"] = lambda d: LockRelease(*d.draw(held))
        if self.mail:
            makers["ack"] = lambda d: MessageAck(*d.draw(st.sampled_from(self.mail)))
        return makers

    def _hook(self, draw: st.DataObject) -> Request[Any]:
        number = next(self._count)
        event = draw.draw(st.sampled_from(["PostToolUse", "UserPromptSubmit", "Stop"]))
        told: dict[str, Any] = {
            "session_id": draw.draw(st.sampled_from(SESSIONS)),
            "cwd": str(self.root),
            "hook_event_name": event,
        }
        if event == "PostToolUse":
            file = str(self.root / draw.draw(st.sampled_from(["x.py", "y.py", "z.py"])))
            told |= {"tool_name": "Write", "tool_use_id": f"t-{self.number}-{number}"}
            told["tool_input"] = {"file_path": file}
        if event == "UserPromptSubmit":
            told["prompt"] = draw.draw(st.sampled_from(["Go on.", "It's '; -- \\"]))
        name = f"d-{self.number:04}-{number:08}"
        return HookDeliver(name, "claude", json.dumps(told))

    def between(self, draw: st.DataObject) -> Told | None:
        """Draw what another daemon does meanwhile."""
        kind = draw.draw(st.sampled_from(["none", "none", "append", "beat", "force", "progress"]))
        if kind == "none":
            return None
        if kind == "beat":
            return Beat("desk", "n-2")
        if kind == "force" and self.locks:
            lock, _ = draw.draw(st.sampled_from(self.locks))
            return LockForceRelease(lock, "somebody", reason="Needed")
        if kind == "progress":
            return SortieProgress(draw.draw(st.sampled_from(self.sorties)), 7, "Elsewhere")
        return EventAppend("file_read", mission_id=self.mission, agent_id="b-1")

    def learn(self, request: Told, reply: Any) -> None:
        """Keep what later requests may name."""
        if not isinstance(reply, dict) or "refused" in reply:
            return
        if isinstance(request, LockAcquire):
            self.locks.append((reply["id"], request.agent_id))
        elif isinstance(request, MessageSend):
            self.mail.append((reply["id"], request.to[0]))
        elif isinstance(request, EventAppend):
            self.seq = reply["seq"]


@pytest.fixture(scope="module")
def template(postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a database with the tables of a store."""
    name = postgres.new_database()

    async def make() -> None:
        async with opened(tmp_path_factory.mktemp("template"), store=postgres.url(name)):
            pass

    trio.run(make)
    postgres.disconnect(name)
    return name


@settings(
    max_examples=12,
    derandomize=True,  # CI takes the same ones each time
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_rows_and_replies_are_the_same_whichever_way_a_request_is_committed(
    postgres: LocalPostgres,
    template: str,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    databases = [postgres.new_database(template) for _ in range(2)]
    urls = [postgres.url(each) for each in databases]
    try:
        trio.run(_example, urls, tmp_path_factory.mktemp("story"), data)
    finally:
        for each in databases:
            postgres.drop_database(each)


_number = count()


async def _example(urls: list[str], root: Path, data: st.DataObject) -> None:
    ids, clock = Ids(), Clock()
    project = root / "project"
    project.mkdir()
    async with AsyncExitStack() as stack:

        async def fleet(name: str, machine: str, **where: Any) -> Fleet:
            how: dict[str, Any] = {"clock": clock, "new_id": ids, "machine": machine, **where}
            return await stack.enter_async_context(opened(root / name, **how))

        fleets = [
            await fleet("sqlite", HERE),
            await fleet("turn", HERE, store=urls[0]),
            await fleet("flush", HERE, store=urls[1]),
        ]
        for server, url in zip(fleets[1:], urls, strict=True):
            setattr(server, "sql", partial(run_sql, url))  # noqa: B010
        # A daemon of its own, for whom the rules are to write what the others' write.
        other = await fleet("other", HERE, store=urls[1])
        for each in (*fleets, other):
            ids.begin_with_each_rule(each.engine)
        await _tell(Three(fleets, other, ids, clock), project, data)


async def _tell(three: Three, project: Path, data: st.DataObject) -> None:
    new = [NewSortie(f"S{number}") for number in range(2)]
    made = await three.do(MissionCreate("Story", project_dir=str(project), sorties=new))
    mission = made["id"]
    await three.do(MissionStart(mission))
    for name in AGENTS:
        await three.do(AgentRegister(name, "specialist", mission_id=mission))
    for session in SESSIONS:
        begun = {"session_id": session, "cwd": str(project), "hook_event_name": "SessionStart"}
        text = json.dumps(begun | {"source": "startup"})
        await three.do(HookDeliver(f"start-{session}", "claude", text))
    rows = three.sqlite.sql("SELECT id FROM sorties ORDER BY position")
    sorties = [row["id"] for row in rows]
    await three.do(SortieStart(sorties[0], "a-1"))
    # What each daemon noted of itself when it began is its own.
    for server in (three.sqlite, three.turn, three.flush):
        await server.engine.write(lambda tx, _: tx.run("DELETE FROM machines"))
    await three.do(Beat("laptop", "n-1"))
    story = Story(project, next(_number), mission, sorties)
    for _ in range(data.draw(st.integers(1, 12))):
        request = story.request(data)
        story.learn(request, await three.do(request, story.between(data)))
    sqlite, turn, flush = three.rows()
    for table in sqlite:
        assert sqlite[table] == turn[table] == flush[table], table
