"""The fleet at a moment is what its lists said then."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetd.config import Retention
from fleetd.domain.core.context import Context
from fleetd.domain.core.event_log import position
from fleetd.domain.core.tx import Tx
from fleetd.domain.liveness import needs
from fleetd.engine.jobs.daily import tidy
from fleetd.engine.jobs.liveness import scan
from fleetd.protocol.errors import FleetError, InvalidParams, InvalidState
from fleetd.protocol.records import Lock, Mission
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.attention import AttentionConflicts, AttentionList
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.handoff import HandoffAsk
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire, LockList, LockRelease, LockRenew
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionList,
    MissionStart,
)
from fleetd.protocol.requests.sortie import SortieStart
from fleetd.protocol.requests.system import SystemForget
from fleetd.protocol.requests.timeline import AgentMoment, FleetAt, FleetMoment, MissionAtMoment
from fleetd.protocol.timestamps import to_ms
from tests.rules.missions.test_moments import AGENTS, known_ids, random_request
from tests.rules.timeline.test_timeline import plan
from tests.support import shared_store
from tests.support.fleet import DAY, HOUR, MINUTE, SECOND, Fleet, opened
from tests.support.statements import noted

REQUESTS = 1_000
SESSIONS = tuple(name * 8 for name in ("a1", "b2", "c3", "d4"))
INNER = {"agent_id": "acb594f61d1631b05", "agent_type": "explore"}
TODOS = [
    {"content": "Read", "status": "completed", "activeForm": "Reading"},
    {"content": "Write", "status": "in_progress", "activeForm": "Writing"},
    {"content": "Test", "status": "pending", "activeForm": "Testing"},
]


class Saved(msgspec.Struct, frozen=True):
    """What the lists said after a request, and the end of the log then."""

    what: str
    time: str
    seq: int
    said: dict[str, list[Any]]


def _end(tx: Tx, ctx: Context) -> int:
    return position(tx)


async def save(fleet: Fleet, what: str = "") -> Saved:
    roles = {row["id"]: row["role"] for row in fleet.sql("SELECT id, role FROM agents")}
    states = (await fleet.do(AttentionList(limit=1_000))).agents
    fields = set(AgentMoment.__struct_fields__) - {"role"}
    agents = [
        AgentMoment(role=roles[each.agent_id], **{name: getattr(each, name) for name in fields})
        for each in states
    ]
    listed = (await fleet.do(MissionList(limit=1_000))).missions
    missions = [
        MissionAtMoment(**{name: getattr(each, name) for name in MissionAtMoment.__struct_fields__})
        for each in listed
        if each.status in ("pending", "in_progress")
    ]
    locks = (await fleet.do(LockList(limit=1_000))).locks
    conflicts = (await fleet.do(AttentionConflicts(limit=1_000))).conflicts
    said = {"agents": agents, "missions": missions, "locks": locks, "conflicts": conflicts}
    return Saved(what, fleet.clock.now, await fleet.engine.read(_end), said)


def said_by(moment: FleetMoment) -> dict[str, list[Any]]:
    return {name: getattr(moment, name) for name in ("agents", "missions", "locks", "conflicts")}


_ids = itertools.count()


async def hook(fleet: Fleet, session: str, event: str, **fields: Any) -> None:
    payload = {"session_id": session, "cwd": str(fleet.project), "hook_event_name": event}
    told = json.dumps(payload | fields)
    await fleet.do(HookDeliver(f"history-{next(_ids):08}", "claude", told))


def _random_hook(draw: random.Random, fleet: Fleet, number: int) -> tuple[str, dict[str, Any]]:
    """Return something that a session may tell."""
    file = str(fleet.project / draw.choice(("a.py", "b.py")))
    edit = {"file_path": file, "old_string": "a", "new_string": "b"}
    who = draw.choice(({}, {}, INNER))
    call = {"tool_use_id": f"t-{number}"} | who
    shell = {"tool_name": "Bash", "tool_input": {"command": "make"}} | call
    ask = {"questions": [{"question": "Which port?"}]}
    told: list[tuple[int, str, dict[str, Any]]] = [
        (6, "UserPromptSubmit", {"prompt": f"Do {number}"}),
        (4, "Stop", {"last_assistant_message": "Done"}),
        (8, "PreToolUse", shell),
        (8, "PostToolUse", shell),
        (8, "PostToolUse", {"tool_name": "Edit", "tool_input": edit} | call),
        (3, "PostToolUse", {"tool_name": "TodoWrite", "tool_input": {"todos": TODOS}}),
        (3, "PostToolUse", {"tool_name": "TodoWrite", "tool_input": {"todos": TODOS[:1]}}),
        (4, "PermissionRequest", shell),
        (2, "PreToolUse", {"tool_name": "AskUserQuestion", "tool_input": ask}),
        (2, "Notification", {"notification_type": "idle_prompt", "message": "Waiting"}),
        (2, "Notification", {"notification_type": "permission_prompt", "message": "May I?"}),
        (2, "StopFailure", {"error": "rate_limit"}),
        (2, "SessionStart", {"source": "startup"}),
        (2, "SessionStart", {"source": "resume", "cwd": str(fleet.project / "deep")}),
        (1, "PreCompact", {"trigger": "auto"}),
        (1, "SessionStart", {"source": "compact"}),
        (2, "SessionEnd", {"reason": "prompt_input_exit"}),
        (2, "SubagentStart", INNER),
        (2, "SubagentStop", INNER),
    ]
    _, event, fields = draw.choices(told, [weight for weight, _, _ in told])[0]
    return event, fields


def _of_the_fleet(draw: random.Random, fleet: Fleet, known: dict[str, Any]) -> Any:
    """Return a request about more than one mission."""
    agent = draw.choice((*AGENTS, "free-1", f"claude-{draw.choice(SESSIONS)[:8]}"))
    missions = [row["id"] for row in fleet.sql("SELECT id FROM missions ORDER BY id")]
    mission = draw.choice(missions)
    makers: list[tuple[int, Any]] = [
        (4, lambda: MissionCreate(f"Another {draw.random()}", project_dir=str(fleet.project))),
        (3, lambda: MissionStart(mission)),
        (1, lambda: MissionCancel(mission, "Enough")),
        (6, lambda: LockAcquire(agent, f"/srv/{draw.randint(1, 4)}.py", timeout_ms=5 * MINUTE)),
        (4, lambda: LockRelease(draw.choice(known["locks"] or ["lck-none0000"]), agent)),
        (2, lambda: AgentRegister(agent, "specialist", mission_id=mission)),
        (2, lambda: AgentRegister(agent, "dispatch", cwd=str(fleet.project))),
        (1, lambda: AgentDeregister(agent)),
        (1, lambda: HandoffAsk(agent, "codex")),
        (2, lambda: SortieStart(draw.choice(known["sorties"] or ["srt-none0000"]), agent)),
    ]
    return draw.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()


async def _act(draw: random.Random, fleet: Fleet, mission: Mission, number: int) -> str:
    """Do something at random; return what."""
    if draw.random() < 0.4:
        event, fields = _random_hook(draw, fleet, number)
        session = draw.choice(SESSIONS)
        await hook(fleet, session, event, **fields)
        return f"{event} of {session}"
    if draw.random() < 0.1:
        await fleet.engine.write(needs.confirm_asks)
        return "asks are confirmed"
    if draw.random() < 0.03:
        fleet.clock.pass_by(HOUR)
        await scan(fleet.engine)
        return "an hour later"
    known = await known_ids(fleet, mission)
    if draw.random() < 0.3:
        request = _of_the_fleet(draw, fleet, known)
    else:
        request = random_request(draw, fleet, mission, known)
    if isinstance(request, AgentHeartbeat):  # it leaves no event
        return "nothing"
    try:
        await fleet.do(request)
    except FleetError as refusal:
        return f"{request} was refused: {refusal.message}"
    return str(request)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_moment_is_what_the_lists_said_after_each_of_many_requests(
    fleet: Fleet, seed: int
) -> None:
    draw = random.Random(seed)
    mission = await fleet.mission(3)
    await fleet.agents(mission, *AGENTS)
    saved: list[Saved] = []
    number = REQUESTS // 10 if shared_store.SERVER else REQUESTS // 2
    for each in range(number):
        fleet.clock.pass_by(draw.choice((1, SECOND, 20 * SECOND, MINUTE, 5 * MINUTE)))
        what = await _act(draw, fleet, mission, each)
        saved.append(await save(fleet, what))
    met = dict.fromkeys(("agents", "missions", "locks", "conflicts"), 0)
    told = {row["seq"]: row["timestamp"] for row in fleet.sql("SELECT seq, timestamp FROM events")}
    before = 0
    for each in saved:
        asked = [FleetAt(time=each.time)]
        if each.seq > before and told[each.seq] == each.time:
            asked.append(FleetAt(seq=each.seq))
        before = each.seq
        for request in asked:
            for name, said in said_by(await fleet.do(request)).items():
                assert said == each.said[name], (name, each.what, request)
                met[name] += bool(said)
    assert min(met.values()) > number // 20, met


async def test_a_moment_of_before_the_history_is_refused_with_the_first_one(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    early = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    event = await fleet.do(EventAppend("file_modified", data={"file": "a"}, agent_id="spec-1"))
    fleet.sql("INSERT INTO store_meta (key, value) VALUES ('fleet_from', :seq)", seq=str(event.seq))
    with pytest.raises(InvalidState, match=f"known since {event.timestamp}") as refused:
        await fleet.do(FleetAt(time=early))
    assert refused.value.values["since"] == event.timestamp
    assert (await fleet.do(FleetAt(seq=event.seq))).agents[0].agent_id == "spec-1"
    for wrong in (FleetAt(), FleetAt(early, 3)):
        with pytest.raises(InvalidParams):
            await fleet.do(wrong)
    with pytest.raises(InvalidParams, match="in the future"):
        await fleet.do(FleetAt(time="2999-01-05T12:00:00.000Z"))


async def test_an_empty_store_had_an_empty_fleet(fleet: Fleet) -> None:
    moment = await fleet.do(FleetAt(time=fleet.clock.now))
    assert said_by(moment) == {"agents": [], "missions": [], "locks": [], "conflicts": []}
    assert moment.seq == 0


async def test_a_mission_that_was_deleted_is_in_no_moment(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    fleet.clock.pass_by(MINUTE)
    before = await save(fleet)
    fleet.clock.pass_by(MINUTE)
    await fleet.do(MissionCancel(mission.id, "Enough"))
    await fleet.do(MissionDelete(mission.id))
    fleet.clock.pass_by(MINUTE)
    after = await save(fleet)
    assert said_by(await fleet.do(FleetAt(time=after.time))) == after.said
    moment = await fleet.do(FleetAt(time=before.time))
    assert moment.missions == []
    assert [(each.agent_id, each.mission_id) for each in moment.agents] == [("spec-1", None)]


async def test_what_was_forgotten_is_in_no_moment(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.do(
        AgentRegister("spec-9", "specialist", session_id="forget-me", mission_id=mission.id)
    )
    await fleet.agents(mission, "spec-1")
    await fleet.do(LockAcquire("spec-9", "/srv/secret.py"))
    for agent in ("spec-1", "spec-9"):
        data = {"file": "/srv/secret.py"}
        await fleet.do(EventAppend("file_modified", data=data, agent_id=agent))
    fleet.clock.pass_by(MINUTE)
    then = fleet.clock.now
    moment = await fleet.do(FleetAt(time=then))
    assert (len(moment.agents), len(moment.locks), len(moment.conflicts)) == (2, 1, 1)
    await fleet.do(AgentDeregister("spec-9"))
    await fleet.do(SystemForget(session_id="forget-me"))
    moment = await fleet.do(FleetAt(time=then))
    assert [each.agent_id for each in moment.agents] == ["spec-1"]
    assert (moment.locks, moment.conflicts) == ([], [])


async def test_the_history_is_kept_as_long_as_events(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1", "spec-2")
    early = fleet.clock.now
    saved = []
    for _ in range(4):
        fleet.clock.pass_by(20 * DAY)
        await fleet.do(AgentDeregister("spec-1"))
        await fleet.agents(mission, "spec-1")
        await fleet.do(LockAcquire("spec-1", "/srv/a.py", timeout_ms=MINUTE))
        saved.append(await save(fleet))
    days = fleet.engine.config.retention.event_days
    kept = fleet.clock() - days * DAY
    before = fleet.sql("SELECT count(*) AS n FROM agent_history")[0]["n"]
    await tidy(fleet.engine)
    after = fleet.sql("SELECT count(*) AS n FROM agent_history")[0]["n"]
    assert 0 < after < before
    with pytest.raises(InvalidState, match="known since"):
        await fleet.do(FleetAt(time=early))
    young = [each for each in saved if to_ms(each.time) > kept]
    assert young
    for each in young:
        assert said_by(await fleet.do(FleetAt(time=each.time))) == each.said


async def test_of_moments_whose_events_are_gone_nothing_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path, retention=Retention(event_days=2)) as fleet:
        saved: list[Saved] = []
        for _ in range(8):
            await fleet.do(AgentRegister("spec-1", "specialist"))
            await fleet.do(AgentDeregister("spec-1"))
            fleet.clock.pass_by(12 * HOUR)
            saved.append(await save(fleet))
        fleet.clock.pass_by(SECOND)
        await fleet.do(AgentRegister("spec-1", "specialist"))
        saved.append(await save(fleet))
        await tidy(fleet.engine)
        kept = [row["timestamp"] for row in fleet.sql("SELECT timestamp FROM events ORDER BY seq")]
        assert fleet.sql("SELECT timestamp FROM events WHERE timestamp < :old", old=kept[0]) == []
        for each in saved:
            if each.time < kept[0]:
                with pytest.raises(InvalidState, match=f"known since {kept[0]}"):
                    await fleet.do(FleetAt(time=each.time))
            else:
                assert said_by(await fleet.do(FleetAt(time=each.time))) == each.said
        assert min(each.time for each in saved) < kept[0] < max(each.time for each in saved)


async def test_a_lock_held_for_longer_than_events_are_kept_is_in_each_moment(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, retention=Retention(event_days=2)) as fleet:
        locks: dict[str, Lock] = {}
        for agent in ("spec-1", "spec-2", "spec-3"):
            await fleet.do(AgentRegister(agent, "specialist"))
            asked = LockAcquire(agent, f"/srv/{agent}.py", timeout_ms=HOUR)
            locks[agent] = await fleet.do(asked)
        fleet.clock.pass_by(10 * MINUTE)
        await fleet.do(LockRenew(locks["spec-2"].id, "spec-2"))
        saved: list[Saved] = []
        for day in range(4):
            for each in range(48):
                fleet.clock.pass_by(30 * MINUTE)
                for agent in ("spec-1", "spec-2", "spec-3"):
                    if agent == "spec-3" and day == 3:
                        continue  # its lease runs out
                    await fleet.do(
                        EventAppend("file_modified", data={"file": "/srv/b"}, agent_id=agent)
                    )
                if each % 4 == 0:
                    saved.append(await save(fleet))
            await tidy(fleet.engine)
        known = [each for each in saved if to_ms(each.time) > fleet.clock() - 2 * DAY + HOUR]
        assert len(known) > 20
        assert {len(each.said["locks"]) for each in known} == {2, 3}
        for each in known:
            assert said_by(await fleet.do(FleetAt(time=each.time))) == each.said
        assert fleet.sql("SELECT count(*) AS n FROM lock_history")[0]["n"] <= 3


@pytest.mark.sqlite_only("it reads the query plans of SQLite")
async def test_no_statement_of_a_moment_reads_a_whole_log(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    await fleet.do(LockAcquire("spec-1", "/srv/a.py"))
    fleet.clock.pass_by(MINUTE)
    seen = noted(monkeypatch)
    await fleet.do(FleetAt(time=fleet.clock.now))
    scans = [
        (sql, line)
        for sql in {sql for sql in seen if sql.startswith("SELECT")}
        for line in plan(fleet, sql)
        if line.startswith("SCAN")
        and line.split()[1] in ("e", "events", "h", "x", "c")
        and "FROM handoffs" not in sql  # nearly always it has no rows
    ]
    assert scans == []
