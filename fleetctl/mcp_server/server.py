"""The server itself: tools, resources and prompts on stdin and stdout, until stdin is closed.

The one module beside ``notices`` that knows the Model Context Protocol. stdout carries nothing but
the protocol: the log goes to stderr.
"""

import json
import logging
import signal
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from fleetd import __version__
from fleetd.protocol.errors import FleetError

from . import error_messages, resources
from .daemon_client import Link
from .formatting import fit
from .notifications import Notices
from .schema import schema
from .session import Desk
from .tools import TOOLS, Tool

log = logging.getLogger("fleetctl.mcp")
NAME = "fleet"
_TEXT = "text/markdown"
INSTRUCTIONS = (
    "fleetd remembers for you and the other agents on this machine. Say how your sorties stand as"
    " you work, lock a file before you edit it, and read the briefing when you lost your context."
)
ROOTS_S = 2


def serve(agent_id: str | None) -> int:
    """Serve until stdin is closed; ``agent_id`` is who the agent is, None to find out."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    # There is nothing to save: whoever ends the CLI ends this, also while stdin is being read.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve, agent_id, backend="trio")
    except* (BrokenPipeError, anyio.BrokenResourceError):
        pass  # nobody reads any more
    return 0


async def _serve(agent_id: str | None) -> None:
    link = Link()
    desk = Desk(link, agent_id)
    notices = Notices(link, desk)
    server = Fleet(desk, notices).server
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        tasks.start_soon(notices.follow)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def described(tool: Tool) -> types.Tool:
    """Return a tool as it is listed."""
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads,
        destructive_hint=None if tool.reads else tool.destroys,
        idempotent_hint=True if tool.repeats else None,
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema(tool.arguments),
        annotations=hints,
    )


class Fleet:
    """Answers one client."""

    def __init__(self, desk: Desk, notices: Notices) -> None:
        self._desk = desk
        self._placed = False
        self._meeting = anyio.Lock()
        self.server: Server[Any] = Server(
            NAME,
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=notices.subscribe,
            on_unsubscribe_resource=notices.unsubscribe,
            on_subscriptions_listen=notices.listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _list_tools(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in TOOLS.values()])

    async def _call_tool(
        self, ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool; what it refuses is for the agent to read, and never ends the server."""
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:80]}.")
        await self._meet(ctx)
        try:
            return _says(await tool.call(self._desk, params.arguments))
        except FleetError as error:
            return _says(error_messages.told(error), wrong=True)
        except Exception:
            log.exception("%s failed", tool.name)
            return _says(
                f"{tool.name} failed: a bug in fleetctl mcp; its log has more.", wrong=True
            )

    async def _list_resources(self, ctx: Any, _params: Any) -> types.ListResourcesResult:
        await self._meet(ctx)
        found = await resources.readables(self._desk)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=each.uri, name=each.name, description=each.description, mime_type=_TEXT
                )
                for each in found
            ]
        )

    async def _list_templates(self, _ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=uri, name=name, description=description, mime_type=_TEXT
                )
                for name, (uri, description) in resources.TEMPLATES.items()
            ]
        )

    async def _read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        await self._meet(ctx)
        try:
            text = await resources.read(self._desk, params.uri)
        except FleetError as error:
            raise _refused(error) from error
        contents = types.TextResourceContents(uri=params.uri, mime_type=_TEXT, text=fit(text))
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(self, _ctx: Any, _params: Any) -> types.ListPromptsResult:
        about = "Read the briefing of your mission and go on where you were"
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=resources.RECOVER, description=about)]
        )

    async def _get_prompt(
        self, ctx: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if params.name != resources.RECOVER:
            raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:80]}.")
        await self._meet(ctx)
        try:
            text = await resources.read(self._desk, resources.BRIEFING)
        except FleetError as error:
            raise _refused(error) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=fit(text)))
        return types.GetPromptResult(messages=[message])

    async def _meet(self, ctx: Any) -> None:
        """Learn who the client is, and the first time where it works."""
        session = ctx.session
        if session.client_params is not None:
            self._desk.client = session.client_params.client_info.name
        async with self._meeting:
            if not self._placed:
                await self._find_place(session)
                self._placed = True

    async def _find_place(self, session: Any) -> None:
        capable = session.client_capabilities
        if capable is None or capable.roots is None or not session.can_send_request:
            return
        try:
            roots = await session.send_request(
                types.ListRootsRequest(),
                types.ListRootsResult,
                request_read_timeout_seconds=ROOTS_S,
            )
        except (MCPError, ValueError) as error:  # a ValueError: it says what is no root
            log.warning("The client does not say where it works: %s", error)
            return
        self._desk.place([str(root.uri) for root in roots.roots])


def _says(text: str, *, wrong: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=fit(text))], is_error=wrong)


def _refused(error: FleetError) -> MCPError:
    code = INVALID_PARAMS if error.kind == "not_found" else INTERNAL_ERROR
    return MCPError(code, error_messages.told(error), {"kind": error.kind})


def listing() -> bytes:
    """Return the answer to ``tools/list`` as it is sent: what the tools cost an agent."""
    tools = [described(tool) for tool in TOOLS.values()]
    plain = [each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in tools]
    return json.dumps({"tools": plain}, separators=(",", ":")).encode()
