"""Agents with tools: whole ones, each with a process for its CLI and the server below it, and near
ones, whose server is in the test's own process and speaks to the engine.

What the tools say is tested with the near ones, who take a fiftieth of the time; who the agent is,
what stdin and stdout carry, and what becomes of it all without a daemon, with the whole ones.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest
import trio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from fleetctl.mcp_server.server import McpServer as Server
from fleetctl.mcp_server.server import Notifications
from fleetctl.mcp_server.session import Session
from fleetd.protocol.errors import FleetError
from fleetd.protocol.request import Request
from tests.mcp import agent_cli
from tests.support import fleet as engines
from tests.support.processes import Daemon

LONGEST_S = 120


class AgentWithTools:
    """An agent that works with its fleet by tools."""

    def __init__(self, client: Client, place: Path = Path()) -> None:
        self.client = client
        self._place = place

    async def answer(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Call a tool; return its text, and whether that is an error."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, types.CallToolResult)
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        assert result.structured_content is None
        return content.text, result.is_error

    async def does(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must do what was asked."""
        text, wrong = await self.answer(tool, **arguments)
        assert not wrong, text
        return text

    async def fails(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must refuse; return what it says."""
        text, wrong = await self.answer(tool, **arguments)
        assert wrong, text
        return text

    async def hook(self, event: str, session_id: str = "12f459b8-ddba", **more: str) -> str:
        """Let the CLI run a hook, as it does at certain moments; return what that printed."""
        payload = {"hook_event_name": event, "session_id": session_id, "cwd": os.getcwd()} | more
        (self._place / "hook").write_text(json.dumps(payload) + "\n")
        return await trio.to_thread.run_sync((self._place / "done").read_text)


Start = Callable[..., AbstractAsyncContextManager[AgentWithTools]]


@pytest.fixture
def agent(daemon: Daemon, home: Path) -> Start:
    """Return a function that starts one more agent."""
    number = 0

    @asynccontextmanager
    async def start(
        *options: str, mode: Any = "auto", **more: Any
    ) -> AsyncIterator[AgentWithTools]:
        nonlocal number
        number += 1
        place = home / f"cli{number}"
        place.mkdir()
        env = dict(os.environ) | more.pop("env", {})
        server = [sys.executable, "-P", "-m", "fleetctl", "mcp", *options]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[agent_cli.__file__, str(place), *server],
            env=env,
            cwd=more.pop("cwd", None),
        )
        info = types.Implementation(name=more.pop("name", "claude-code"), version="1")
        log = (place / "log").open("w+")
        with trio.fail_after(LONGEST_S), log:
            transport = stdio_client(parameters, errlog=log)
            async with Client(transport, mode=mode, client_info=info, **more) as client:
                yield AgentWithTools(client, place)
            log.seek(0)
            said = log.read()
        assert "Traceback" not in said, said

    return start


class Near:
    """What takes a server's requests to an engine in the same process."""

    def __init__(self, fleet: engines.Fleet) -> None:
        self._fleet = fleet

    async def call(self, request: Request[Any], *, once: bool = False) -> Any:
        try:
            return await self._fleet.do(request)
        except FleetError as error:  # a client has its values from JSON
            error.values = msgspec.to_builtins(error.values)
            raise


@pytest.fixture
def near(fleet: engines.Fleet, home: Path) -> Start:
    """Return a function that lets one more agent work within this process."""

    @asynccontextmanager
    async def start(name: str = "alice", **more: Any) -> AsyncIterator[AgentWithTools]:
        near_client: Any = Near(fleet)
        session = Session(near_client, name)
        info = types.Implementation(name="claude-code", version="1")
        server = Server(session, Notifications(session)).server
        with trio.fail_after(LONGEST_S):
            async with Client(server, client_info=info, **more) as client:
                yield AgentWithTools(client)

    return start
