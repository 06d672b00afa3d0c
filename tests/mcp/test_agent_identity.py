"""Who the agent is: the one that its CLI's hooks tell of, or one of its own."""

import os
from functools import partial
from pathlib import Path

import mcp_types as types
import pytest
import trio

from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.mission import MissionList
from tests.mcp.conftest import Start


async def test_the_session_that_hooks_told_of_is_the_agent(agent: Start, connect) -> None:
    async with agent() as claude:
        await claude.hook("SessionStart", source="startup")
        await claude.hook("UserPromptSubmit", prompt="Add login")
        assert "You are claude-12f459b8 (dispatch)" in await claude.does("mission")
        # The mission that it got by itself becomes the agent's own, with its goal.
        begun = await claude.does("plan", goal="Login with a form", sorties=[{"title": "Form"}])
        assert "Goal: Login with a form" in begun
        [mission] = connect().call(MissionList()).missions
        assert (mission.title, mission.metadata) == ("Login with a form", {})
        [only] = connect().call(AgentList()).agents
        assert only.id == "claude-12f459b8"


async def test_a_session_after_a_clear_is_another_agent_of_the_same_server(
    agent: Start, connect
) -> None:
    async with agent() as claude:
        await claude.hook("SessionStart", source="startup")
        assert "claude-12f459b8 (you)" in await claude.does("agents")
        await claude.hook("SessionEnd", reason="clear")
        await claude.hook("SessionStart", session_id="99aa88bb-1111", source="clear")
        here = await claude.does("agents")
        assert "claude-99aa88bb (you)" in here
        assert "12f459b8" not in here


async def test_hooks_that_come_after_the_first_tool_make_no_second_agent(
    agent: Start, connect
) -> None:
    async with agent() as claude:
        await claude.does("lock", file="a.py")
        [early] = connect().call(AgentList()).agents
        await claude.hook("SessionStart", source="startup")
        await claude.hook("UserPromptSubmit", prompt="Go")
        [only] = connect().call(AgentList()).agents
        assert (only.id, only.session_id) == (early.id, "12f459b8-ddba")
        assert "held by you" in await claude.does("locks")
        assert f"You are {early.id}" in await claude.does("mission")


async def test_two_processes_are_two_agents(agent: Start, connect) -> None:
    async with agent(name="claude-code") as claude, agent(name="codex-mcp-client") as codex:
        await claude.does("lock", file="a.py")
        assert "is held by claude-" in await codex.fails("lock", file="a.py")
        names = [each.id.partition("-")[0] for each in connect().call(AgentList()).agents]
        assert sorted(names) == ["claude", "codex"]


async def test_a_name_in_the_environment_or_the_command_is_the_agents(
    agent: Start, connect
) -> None:
    async with agent(env={"FLEET_AGENT_ID": "alice"}) as alice:
        await alice.does("lock", file="a.py")
        assert "alice (you)" in await alice.does("agents")
    async with agent("--agent", "bob", env={"FLEET_AGENT_ID": "alice"}) as bob:
        await bob.does("lock", file="b.py")
        assert "bob (you)" in await bob.does("agents")


async def test_an_agent_whose_cli_ends_is_missed(agent: Start, daemon, connect) -> None:
    async with agent() as claude:
        await claude.does("lock", file="a.py")
    event = next(connect().events(since=0, types=["agent_lost"]))
    assert event.agent_id.startswith("claude-")


async def test_the_clients_directory_counts_where_the_server_was_started_elsewhere(
    agent: Start, home: Path, connect
) -> None:
    project = home / "somewhere else"
    project.mkdir()

    async def roots(_context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=project.as_uri())])

    async with agent(mode="legacy", cwd="/", list_roots_callback=roots) as claude:
        await claude.does("plan", goal="Add login")
    [mission] = connect().call(MissionList()).missions
    assert mission.project_dir == str(project)


async def test_the_servers_directory_counts_within_the_clients(
    agent: Start, home: Path, connect
) -> None:
    async def roots(_context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=home.as_uri())])

    async with agent(mode="legacy", list_roots_callback=roots) as claude:
        await claude.does("plan", goal="Add login")
    [mission] = connect().call(MissionList()).missions
    assert mission.project_dir == os.getcwd()


class AnyRoot(types.Root):
    """A root as a client may send it that checks nothing."""

    uri: str  # type: ignore[assignment]


class AnyRoots(types.ListRootsResult):
    """Such roots."""

    roots: list[AnyRoot]  # type: ignore[assignment]


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "http://evil",
            "file:///tmp/a%00b",
            "file://[",
            "file:relative",
            "file:///",
            "",
            "nothing",
        ),
        *("file:///not/there", "file:///" + "x" * 9_000, "file:///dev/null", "file:///%ff%fe"),
    ],
)
async def test_a_bad_root_takes_no_tool_away(agent: Start, connect, uri: str) -> None:
    async def roots(_context: object) -> types.ListRootsResult:
        return AnyRoots(roots=[AnyRoot(uri=uri)])

    async with agent(mode="legacy", list_roots_callback=roots) as claude:
        await claude.does("plan", goal="Add login")
        assert "Goal: Add login" in await claude.does("mission")
    [mission] = connect().call(MissionList()).missions
    assert mission.project_dir == os.getcwd()


async def test_a_good_root_counts_beside_one_that_is_not_there(
    agent: Start, home: Path, connect
) -> None:
    project = home / "project of the client"
    project.mkdir()

    async def roots(_context: object) -> types.ListRootsResult:
        uris = ("file:///tmp/a%00b", "file:///not/there", project.as_uri())
        return types.ListRootsResult(roots=[types.Root(uri=each) for each in uris])

    async with agent(mode="legacy", cwd="/", list_roots_callback=roots) as claude:
        await claude.does("plan", goal="Add login")
    [mission] = connect().call(MissionList()).missions
    assert mission.project_dir == str(project)


async def test_a_client_that_does_not_say_where_it_works_is_not_waited_for(
    agent: Start, connect
) -> None:
    asked = []

    async def roots(_context: object) -> types.ListRootsResult:
        asked.append(1)
        await trio.sleep_forever()

    async with agent(mode="legacy", list_roots_callback=roots) as claude:
        async with trio.open_nursery() as nursery:
            for file in ("a.py", "b.py"):
                nursery.start_soon(partial(claude.does, "lock", file=file))
        await claude.does("plan", goal="Add login")
    [mission] = connect().call(MissionList()).missions
    assert mission.project_dir == os.getcwd()
    assert asked == [1]


@pytest.mark.parametrize("name", ["", "../../etc", "Ünï code", "x" * 300])
async def test_any_client_name_makes_an_agent(agent: Start, connect, name: str) -> None:
    async with agent(name=name) as client:
        await client.does("lock", file="a.py")
    [only] = connect().call(AgentList()).agents
    assert len(only.id) <= 64
