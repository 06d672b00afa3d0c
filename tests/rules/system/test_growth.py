"""What is asked all day costs the same in a large store as in a small one, counted in steps."""

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import apsw
import pytest

from benchmarks.growth.filling import fill, mission_id
from fleetd.domain.core.event_log import emit
from fleetd.domain.core.tx import Tx
from fleetd.domain.events.streams import tail
from fleetd.domain.liveness import needs
from fleetd.engine.jobs import daily
from fleetd.engine.jobs.liveness import scan
from fleetd.protocol.events import WindowCompacted
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentList, AgentRegister
from fleetd.protocol.requests.attention import AttentionConflicts, AttentionList
from fleetd.protocol.requests.checkpoint import CheckpointCreate, CheckpointList, ErrorReport
from fleetd.protocol.requests.event import (
    CursorAdvance,
    EventAppend,
    EventList,
    EventSubscribe,
)
from fleetd.protocol.requests.hook import HookDeliver, HookStatusGet
from fleetd.protocol.requests.lock import LockAcquire, LockList, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageList, MessageSend
from fleetd.protocol.requests.mission import (
    MissionComplete,
    MissionCreate,
    MissionCurrent,
    MissionDelete,
    MissionFail,
    MissionGet,
    MissionList,
    MissionSelect,
    MissionStart,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.note import NoteAdd, NoteList
from fleetd.protocol.requests.recovery import (
    RecoveryContextGet,
    RecoveryDetect,
    RecoveryList,
    RecoveryRestore,
)
from fleetd.protocol.requests.snapshot import SnapshotList, SnapshotRecord
from fleetd.protocol.requests.sortie import SortieList, SortieProgress, SortieStart
from fleetd.protocol.requests.stats import StatsRecovery
from fleetd.protocol.requests.system import SystemHealth, SystemMetrics, SystemStatus
from fleetd.protocol.types import SelectionPurpose
from tests.support.fleet import Fleet, opened

# Missions and events of the two stores: the second has twenty times as much of everything.
SMALL, LARGE = (100, 3_000), (2_000, 60_000)
# A deeper tree, or the events of a second look, cost a few steps more.
SPREAD, SLACK = 1.25, 300


class StatementSteps:
    """Counts what SQLite does, on every connection that is opened from now on."""

    def __init__(self) -> None:
        self.taken = 0
        self._counted: dict[int, int] = {}

    def watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, told: dict[str, Any]) -> None:
        steps = told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        if "'main'." in told["sql"]:
            # FTS5 keeps its own statements, and what they tell is the sum since they were made.
            steps -= self._counted.get(told["id"], 0)
            self._counted[told["id"]] = self._counted.get(told["id"], 0) + steps
        self.taken += steps


class GrownStore:
    """One of the two stores, with a mission of its own in it."""

    def __init__(self, fleet: Fleet, steps: StatementSteps, own: str, sortie: str) -> None:
        self.fleet = fleet
        self.own = own
        self.sortie = sortie
        self._steps = steps
        self._numbers = itertools.count(1)

    async def steps_of(self, ask: "Ask") -> int:
        """Return what asking takes; the first time may find something to do."""
        await ask(self)
        self._steps.taken = 0
        await ask(self)
        return self._steps.taken

    async def do(self, request: Request[Any]) -> Any:
        return await self.fleet.do(request)

    def number(self) -> int:
        return next(self._numbers)


Ask = Callable[[GrownStore], Awaitable[object]]
ASKED: dict[str, Ask] = {}


def asked(ask: Ask) -> Ask:
    ASKED[ask.__name__.strip("_")] = ask
    return ask


def simply(name: str, request: Callable[[GrownStore], Request[Any]]) -> None:
    async def ask(store: GrownStore) -> None:
        await store.do(request(store))

    ASKED[name] = ask


simply("event.append", lambda s: EventAppend("file_read", s.own, "worker", {"n": s.number()}))
simply("event.list, of a mission", lambda s: EventList(mission_id(0), limit=50))
simply("event.list, of a type", lambda s: EventList(type="build_failed", limit=50))
simply("event.list, of both", lambda s: EventList(mission_id(0), "build_failed", limit=50))
simply("event.list, of no type that was", lambda s: EventList(type="never_was"))
simply("event.list, newest of a mission", lambda s: EventList(mission_id(0), newest=True))
simply("event.list, newest of a type", lambda s: EventList(type="test_run", newest=True))
simply("event.list, of two types", lambda s: EventList(types=["file_read", "x_x"], newest=True))
simply("event.list, of an agent", lambda s: EventList(agent_id="agent-1", newest=True))
simply(
    "event.list, of an agent in a mission",
    lambda s: EventList(s.own, agent_id="veteran", newest=True),
)
simply(
    "event.list, of an agent and a type",
    lambda s: EventList(type="test_run", agent_id="veteran", newest=True),
)
simply(
    "event.list, since a time",
    lambda s: EventList(since_time="2026-01-01T00:00:00.000Z", newest=True),
)
simply("note.add", lambda s: NoteAdd("finding", f"N{s.number()}", mission_id=s.own))
simply("note.list", lambda _: NoteList(limit=50))
simply("note.list, newest", lambda _: NoteList(newest=True, limit=50))
simply("note.list, of a mission", lambda _: NoteList(mission_id(3), withdrawn=True))
simply("note.list, of an agent", lambda _: NoteList(agent_id="agent-1"))
simply("attention.list", lambda _: AttentionList())
simply("attention.list, waiting", lambda _: AttentionList(waiting=True))
simply("attention.list, of an agent", lambda _: AttentionList(agent_id="worker"))
simply("attention.list, of a mission", lambda s: AttentionList(mission_id=s.own))
simply("attention.conflicts", lambda _: AttentionConflicts())
simply("event.list, from the middle", lambda s: EventList(since=1_500, limit=50))


@asked
async def _event_tail_of_two_types(store: GrownStore) -> None:
    await store.fleet.engine.read(tail, 0, 200, types=["file_read", "test_run"])


@asked
async def _event_tail_of_two_types_of_a_mission(store: GrownStore) -> None:
    types = ["a", "test_run"]
    await store.fleet.engine.read(tail, 0, 200, types=types, mission_id=mission_id(20))


@asked
async def _stats_recovery(store: GrownStore) -> None:
    told = WindowCompacted(summary=None)
    await store.fleet.engine.write(emit, told, agent_id="worker")
    await store.do(StatsRecovery())


simply("event.subscribe", lambda s: EventSubscribe())
simply("cursor.advance", lambda s: CursorAdvance("c", "fleet", s.number()))
simply("sortie.progress", lambda s: SortieProgress(s.sortie, 1 + s.number() % 20, "Working"))
simply("sortie.list", lambda s: SortieList(mission_id(3)))
simply("checkpoint.create", lambda s: CheckpointCreate(s.own))
simply("checkpoint.list", lambda s: CheckpointList(limit=10))
simply("recovery.restore", lambda s: RecoveryRestore(mission_id=s.own, agent_id="worker"))
simply("recovery.context", lambda s: RecoveryContextGet(mission_id=s.own, agent_id="worker"))
simply(
    "recovery.context, of one who did much elsewhere",
    lambda s: RecoveryContextGet(mission_id=s.own, agent_id="veteran"),
)
simply("recovery.detect", lambda s: RecoveryDetect())
simply("recovery.list", lambda s: RecoveryList(limit=10))
simply("recovery.list, of a mission", lambda s: RecoveryList(mission_id(12)))
simply("mission.get", lambda s: MissionGet(mission_id(3)))
simply("mission.get, by a prefix", lambda s: MissionGet(mission_id(3)[:11]))
simply("mission.create", lambda s: MissionCreate("Port", sorties=[NewSortie("Do")]))
simply("mission.update", lambda s: MissionUpdate(s.own, title=f"Port {s.number()}"))
simply("mission.current", lambda s: MissionCurrent("/srv/project-3/src"))
for purpose in get_args(SelectionPurpose):
    simply(
        f"mission.select, for {purpose}",
        lambda s, purpose=purpose: MissionSelect(purpose, "/srv/project-3/src"),
    )
simply("mission.list", lambda s: MissionList(limit=10))
simply("mission.list, of a status", lambda s: MissionList("completed", limit=10))
simply("mission.list, of a project", lambda s: MissionList(project_dir="/srv/project-3"))
simply("mission.list, further on", lambda s: MissionList(limit=10, after=mission_id(50)))
simply("agent.register", lambda s: AgentRegister("worker", "dispatch", mission_id=s.own))
simply("agent.list, of a mission", lambda s: AgentList(mission_id(3)))
simply("agent.list, of a status", lambda s: AgentList(status="idle"))
simply("lock.list", lambda s: LockList())
simply("lock.list, of a mission's past", lambda s: LockList(mission_id(12), active=False))
simply("lock.list, of an agent's past", lambda s: LockList(held_by="agent-12", active=False))
simply("message.list, pending", lambda s: MessageList(pending=True))
simply("message.list, of a mission", lambda s: MessageList(mission_id(12)))
simply("message.list", lambda s: MessageList(limit=10))
simply("message.inbox, all of it", lambda s: MessageInbox("agent-1", 10, include_acked=True))
simply("error.report", lambda s: ErrorReport("worker", "tool_failure", "make", "It broke", s.own))
simply("snapshot.record", lambda s: SnapshotRecord("run-1", agent_id="worker"))
simply("snapshot.list", lambda s: SnapshotList())
simply("system.status", lambda s: SystemStatus())
simply("system.health", lambda s: SystemHealth())
simply("system.metrics", lambda s: SystemMetrics())
simply("hook.status", lambda s: HookStatusGet())


@asked
async def _lock(store: GrownStore) -> None:
    held = await store.do(
        LockAcquire("worker", "/srv/project-3/src/module_1.py", mission_id=store.own)
    )
    await store.do(LockRelease(held.id, "worker"))


@asked
async def _letter(store: GrownStore) -> None:
    sent = await store.do(MessageSend("worker", ["agent-1"], "Ready?", mission_id=store.own))
    await store.do(MessageInbox("agent-1"))
    await store.do(MessageAck(sent.id, "agent-1"))


@asked
async def _hook(store: GrownStore) -> None:
    number = store.number()
    payload = {
        "session_id": "grown",
        "cwd": "/srv/project-3",
        "hook_event_name": "PostToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": "/srv/project-3/a.py", "content": "x"},
        "tool_use_id": f"toolu_{number}",
    }
    await store.do(HookDeliver(f"delivery-{number}", "claude", json.dumps(payload)))


@asked
async def _deleting_a_mission(store: GrownStore) -> None:
    made = await store.do(MissionCreate("Port"))
    await store.do(MissionFail(made.id, "Given up"))
    await store.do(MissionDelete(made.id))


@asked
async def _completing_a_mission(store: GrownStore) -> None:
    made = await store.do(MissionCreate("Port"))
    await store.do(MissionStart(made.id))
    await store.do(MissionComplete(made.id))


@asked
async def _confirming_what_an_agent_asks(store: GrownStore) -> None:
    now = store.fleet.clock.now
    await store.fleet.engine.write(needs.ask, "worker", "Bash: make", now, store.number())
    await store.fleet.engine.read(needs.next_ask_ms)
    await store.fleet.engine.write(needs.confirm_asks)


@asked
async def _looking_for_silence(store: GrownStore) -> None:
    await scan(store.fleet.engine)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> StatementSteps:
    counter = StatementSteps()
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, counter.watch])
    return counter


def _all_by_one(tx: Tx) -> None:
    """Let one agent have done everything, elsewhere."""
    tx.run("UPDATE events SET agent_id = 'veteran' WHERE agent_id <> 'worker'")


@asynccontextmanager
async def filled(
    root: Path, steps: StatementSteps, size: tuple[int, int]
) -> AsyncIterator[GrownStore]:
    """Open a store of a size."""
    (root / "data").mkdir(mode=0o700, parents=True)
    fill(root / "data", *size)
    async with opened(root) as fleet:
        mission = await fleet.mission(4)
        await fleet.agents(mission, "worker", "veteran")
        await fleet.engine.store.write(_all_by_one)
        sortie = (await fleet.sorties(mission))[0].id
        await fleet.do(SortieStart(sortie, "worker"))
        await fleet.checkpoint(mission)
        yield GrownStore(fleet, steps, mission.id, sortie)


@pytest.mark.sqlite_only("SQLite tells how it asks")
async def test_nothing_that_is_asked_grows_with_the_rest(
    tmp_path: Path, steps: StatementSteps
) -> None:
    taken: dict[str, list[int]] = {name: [] for name in ASKED}
    for name, size in (("small", SMALL), ("large", LARGE)):
        async with filled(tmp_path / name, steps, size) as store:
            for what, ask in ASKED.items():
                taken[what].append(await store.steps_of(ask))
    grown = {
        what: (small, large)
        for what, (small, large) in taken.items()
        if large > small * SPREAD + SLACK
    }
    assert grown == {}


async def test_a_mission_with_many_sorties_costs_no_more_for_each_of_them(
    fleet: Fleet, steps: StatementSteps
) -> None:
    taken = []
    async with opened(fleet.project, clock=fleet.clock) as counted:
        for number in (50, 1_000):
            steps.taken = 0
            mission = await counted.mission(number)
            await counted.restore(await counted.checkpoint(mission))
            taken.append(steps.taken / number)
    few, many = taken
    assert many <= few


@pytest.mark.sqlite_only("SQLite tells how it asks")
async def test_the_daily_work_looks_at_each_row_once_at_most(
    tmp_path: Path, steps: StatementSteps
) -> None:
    taken = []
    for name, size in (("small", SMALL), ("large", LARGE)):
        async with filled(tmp_path / name, steps, size) as store:
            steps.taken = 0
            await daily.tidy(store.fleet.engine)
            taken.append(steps.taken)
    small, large = taken
    assert large < small * 25


async def test_starting_again_costs_the_same_whatever_was_done_before(
    tmp_path: Path, steps: StatementSteps
) -> None:
    taken = []
    for name, size in (("small", SMALL), ("large", LARGE)):
        async with filled(tmp_path / name, steps, size):
            pass
        steps.taken = 0
        async with opened(tmp_path / name):
            taken.append(steps.taken)
    small, large = taken
    assert large <= small * SPREAD + SLACK
