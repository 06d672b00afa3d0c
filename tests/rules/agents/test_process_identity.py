"""Which agent a process belongs to: a hook and a server of tools of one CLI are the same agent."""

import os

import pytest

from fleetd.domain.agents import agents
from fleetd.domain.core.context import Caller, Facts
from fleetd.harness.report import PromptSubmitted, SessionEnded, SessionStarted, SubagentStarted
from fleetd.host import processes
from fleetd.protocol.records import Agent
from fleetd.protocol.requests.agent import (
    AgentCurrent,
    AgentDeregister,
    AgentList,
    AgentRegister,
)
from fleetd.protocol.requests.mission import MissionCreate
from tests.support.fleet import Fleet
from tests.support.hook_sessions import PROJECT, SOMEBODY, Window

CLI = (4_711, "12345")


def window(fleet: Fleet, session_id: str = "12f459b8-ddba", **report: str) -> Window:
    made = Window(fleet, session_id, **report)
    made.process = CLI
    return made


async def found(fleet: Fleet, agent_id: str | None = None) -> str | None:
    pid, started = CLI
    facts = Facts(agent_pid=pid, pid_started=started)
    asked = fleet.engine.on_behalf_of(SOMEBODY, facts).read(agents.find_current, agent_id)
    agent = (await asked).agent
    return agent.id if agent else None


async def joined(fleet: Fleet, agent_id: str | None = None, harness: str = "claude") -> Agent:
    pid, started = CLI
    facts = Facts(agent_pid=pid, pid_started=started)
    request = AgentCurrent(agent_id, harness=harness, cwd=PROJECT)
    asked = fleet.engine.on_behalf_of(SOMEBODY, facts).write(agents.find_or_register, request)
    agent = (await asked).agent
    assert agent is not None
    return agent


async def names(fleet: Fleet) -> list[str]:
    return [agent.id for agent in (await fleet.do(AgentList())).agents]


async def test_a_process_without_an_agent_belongs_to_nobody(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("alice", "dispatch"))
    await Window(fleet).tell(SessionStarted("startup"))
    assert await found(fleet) is None


async def test_the_session_in_a_process_is_its_agent(fleet: Fleet) -> None:
    await window(fleet).tell(SessionStarted("startup"))
    assert await found(fleet) == "claude-12f459b8"
    assert (await joined(fleet)).id == "claude-12f459b8"
    assert await names(fleet) == ["claude-12f459b8"]


async def test_the_same_number_of_another_process_is_not_enough(fleet: Fleet) -> None:
    other = window(fleet)
    other.process = (CLI[0], "99999")
    await other.tell(SessionStarted("startup"))
    assert await found(fleet) is None


async def test_after_a_clear_the_new_session_is_the_agent(fleet: Fleet) -> None:
    before = window(fleet)
    await before.tell(SessionStarted("startup"), PromptSubmitted("Go"))
    await before.tell(SessionEnded("clear"))
    assert await found(fleet) is None
    await window(fleet, "99aa88bb-1111").tell(SessionStarted("clear"))
    assert await found(fleet) == "claude-99aa88bb"


async def test_of_several_sessions_in_a_process_the_one_heard_of_last_is_meant(
    fleet: Fleet,
) -> None:
    first, second = window(fleet), window(fleet, "99aa88bb-1111")
    await first.tell(SessionStarted("startup"))
    fleet.clock.pass_by(1_000)
    await second.tell(SessionStarted("startup"))
    assert await found(fleet) == "claude-99aa88bb"
    fleet.clock.pass_by(1_000)
    await first.tell(PromptSubmitted("Go on"))
    assert await found(fleet) == "claude-12f459b8"


async def test_a_subagent_is_never_meant(fleet: Fleet) -> None:
    main = window(fleet)
    await main.tell(SessionStarted("startup"))
    fleet.clock.pass_by(1_000)
    await window(fleet, subagent="a1b2c3d4").tell(SubagentStarted("explorer"))
    assert len(await names(fleet)) == 2
    assert await found(fleet) == "claude-12f459b8"


async def test_without_hooks_an_agent_is_registered_once(fleet: Fleet) -> None:
    mission = await fleet.do(MissionCreate("Add login", project_dir=PROJECT))
    agent = await joined(fleet)
    assert agent.id.startswith("claude-")
    assert (agent.pid, agent.harness, agent.cwd) == (CLI[0], "claude", PROJECT)
    assert (agent.role, agent.mission_id) == ("specialist", mission.id)
    assert await joined(fleet) == agent
    assert await names(fleet) == [agent.id]


async def test_a_hook_that_comes_later_goes_on_as_the_agent_that_is_there(fleet: Fleet) -> None:
    early = await joined(fleet)
    recorded = await window(fleet).tell(SessionStarted("startup"))
    assert recorded.agent_id == early.id
    await window(fleet).tell(PromptSubmitted("Add login"))
    assert await names(fleet) == [early.id] == [await found(fleet)]
    # Whoever comes after that is somebody else.
    second = await window(fleet, "99aa88bb-1111").tell(SessionStarted("startup"))
    assert second.agent_id == "claude-99aa88bb"


async def test_a_name_that_was_asked_for_wins_over_the_one_that_was_made(fleet: Fleet) -> None:
    named = await joined(fleet, "alice")
    assert named.id == "alice"
    hook = window(fleet)
    hook.env = {"wanted_agent_id": "alice"}
    assert (await hook.tell(SessionStarted("startup"))).agent_id == "alice"
    assert await names(fleet) == ["alice"]


async def test_of_two_sessions_by_one_name_each_process_has_its_own(fleet: Fleet) -> None:
    outer = Window(fleet)
    outer.process = (17, "1")
    outer.env = {"wanted_agent_id": "alice"}
    await outer.tell(SessionStarted("startup"))
    nested = window(fleet, "99aa88bb-1111")
    nested.env = {"wanted_agent_id": "alice"}
    assert (await nested.tell(SessionStarted("startup"))).agent_id == "alice.2"
    assert await found(fleet, "alice") == "alice.2"


async def test_an_agent_that_left_is_registered_again_under_its_name(fleet: Fleet) -> None:
    await joined(fleet, "alice")
    await fleet.do(AgentDeregister("alice"))
    assert await found(fleet, "alice") is None
    assert (await joined(fleet, "alice")).status == "active"


@pytest.mark.parametrize(
    ("harness", "begins"), [("Visual Studio Code!", "Visual-Studio-Code-"), ("--", "agent-")]
)
async def test_any_client_gives_a_name(fleet: Fleet, harness: str, begins: str) -> None:
    assert (await joined(fleet, harness=harness)).id.startswith(begins)


async def test_the_process_above_the_caller_is_the_agents(fleet: Fleet) -> None:
    caller = Caller(kind="client", uid=os.getuid(), pid=os.getpid())
    ask = AgentCurrent(register=True, harness="codex", cwd=PROJECT)
    agent = (await fleet.engine.handle(ask, caller)).agent
    assert agent is not None
    above = processes.agent_behind(os.getpid())
    assert agent.pid == (above[0] if above else None)
    assert (await fleet.engine.handle(AgentCurrent(), caller)).agent == agent


async def test_a_caller_whose_process_nobody_knows_is_found_by_name_only(fleet: Fleet) -> None:
    ask = AgentCurrent(register=True, harness="codex")
    agent = (await fleet.engine.handle(ask, SOMEBODY)).agent
    assert agent is not None
    assert agent.pid is None
    assert (await fleet.engine.handle(AgentCurrent(), SOMEBODY)).agent is None
    named = AgentCurrent(agent_id=agent.id)
    assert (await fleet.engine.handle(named, SOMEBODY)).agent == agent


@pytest.mark.sqlite_only("SQLite tells how it asks")
async def test_looking_for_a_process_reads_the_agents_that_are_here_only(fleet: Fleet) -> None:
    await window(fleet).tell(SessionStarted("startup"))
    steps = fleet.sql(
        "EXPLAIN QUERY PLAN SELECT a.* FROM agents a LEFT JOIN sessions s"
        " ON s.agent_id = a.id AND s.ended_at IS NULL WHERE a.status <> 'gone'"
        " AND a.status IN ('active', 'waiting', 'idle') AND a.pid = 1"
    )
    told = [step["detail"] for step in steps]
    assert told[0].startswith("SEARCH a USING INDEX idx_agents_here")
    assert told[1].startswith("SEARCH s USING INDEX idx_sessions_agent")
