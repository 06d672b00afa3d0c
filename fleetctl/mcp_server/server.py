"""The MCP server: tools, resources, prompts and notifications, on stdin and stdout.

stdout carries nothing but the protocol: the log goes to stderr.
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
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from fleetd import __version__
from fleetd.protocol.errors import FleetError

from ..client import AsyncFleet
from . import formatting, resources
from .formatting import fit
from .schema import schema
from .session import DaemonClient, Session
from .tools import TOOLS, Tool

log = logging.getLogger("fleetctl.mcp")
NAME = "fleet"
_TEXT = "text/markdown"
INSTRUCTIONS = (
    "fleetd remembers for you and the other agents on this machine. Report your sorties as you"
    " work, note what is decided or ruled out, lock a file before you edit it, and read the"
    " briefing after you lost your context."
)
ROOTS_S = 2
# Events within this time cause one notification.
TOGETHER_S = 0.5
AWAY_S = 2.0


def serve(agent_id: str | None) -> int:
    """Serve until stdin is closed; ``agent_id`` is the agent, None to find out."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    # There is nothing to save, so an interrupt of the CLI ends this, even while it reads stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve, agent_id, backend="trio")
    except* (BrokenPipeError, anyio.BrokenResourceError):
        pass  # nobody reads any more
    return 0


async def _serve(agent_id: str | None) -> None:
    session = Session(DaemonClient(), agent_id)
    notices = Notifications(session)
    server = McpServer(session, notices).server
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


class Notifications:
    """The subscriptions, and what has happened since the last notification."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._bus = InMemorySubscriptionBus()
        self._stream = ListenHandler(self._bus)
        self._legacy_sessions: dict[str, Any] = {}
        self._wanted = anyio.Event()
        self._missions: set[str] = set()
        self._happened = anyio.Event()

    async def listen(
        self, ctx: Any, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of a newer client, until the client ends it."""
        self._wanted.set()
        return await self._stream(ctx, params)

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Notify an older client about one resource from now on."""
        self._legacy_sessions[params.uri] = ctx.session
        self._wanted.set()
        return types.EmptyResult()

    async def unsubscribe(
        self, _ctx: Any, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Stop notifying an older client about one resource."""
        self._legacy_sessions.pop(params.uri, None)
        return types.EmptyResult()

    async def follow(self) -> None:
        """Follow the event log forever, once a client listens."""
        await self._wanted.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish_changes)
            while True:
                try:
                    async with AsyncFleet() as fleet, fleet.events() as events:
                        async for event in events:
                            if event.mission_id is not None:
                                self._missions.add(event.mission_id)
                                self._happened.set()
                except FleetError as error:
                    log.info("The event log cannot be followed now: %s", error.message)
                await anyio.sleep(AWAY_S)

    async def _publish_changes(self) -> None:
        while True:
            await self._happened.wait()
            await anyio.sleep(TOGETHER_S)
            missions, self._missions = self._missions, set()
            self._happened = anyio.Event()
            for uri in await self._changed(missions):
                await self._bus.publish(ResourceUpdated(uri=uri))
                if (session := self._legacy_sessions.get(uri)) is not None:
                    await session.send_resource_updated(uri)

    async def _changed(self, missions: set[str]) -> list[str]:
        """Return the URIs whose content has changed."""
        changed = [f"{resources.MISSION}/{each}" for each in sorted(missions)]
        try:
            own = await self._session.mission(await self._session.known())
        except FleetError:
            own = None
        # A mission that has just ended is no agent's any more, but its resources are outdated, too.
        if own is None or own.id in missions:
            changed += [resources.MISSION, resources.CHECKPOINTS, resources.BRIEFING]
        return changed


class McpServer:
    """Answers one client."""

    def __init__(self, session: Session, notices: Notifications) -> None:
        self._session = session
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
        """Call a tool; the agent reads its errors, which never end the server."""
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:80]}.")
        await self._meet(ctx)
        try:
            return _text_result(await tool.call(self._session, params.arguments))
        except FleetError as error:
            return _text_result(formatting.error_line(error), wrong=True)
        except Exception:
            log.exception("%s failed", tool.name)
            return _text_result(
                f"{tool.name} failed: a bug in fleetctl mcp. Its log has the details.", wrong=True
            )

    async def _list_resources(self, ctx: Any, _params: Any) -> types.ListResourcesResult:
        await self._meet(ctx)
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=name, description=about, mime_type=_TEXT)
                for uri, name, about in await resources.readables(self._session)
            ]
        )

    async def _list_templates(self, _ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=uri, name=name, description=about, mime_type=_TEXT
                )
                for name, (uri, about) in resources.TEMPLATES.items()
            ]
        )

    async def _read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        text = await self._read(ctx, params.uri)
        contents = types.TextResourceContents(uri=params.uri, mime_type=_TEXT, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(self, _ctx: Any, _params: Any) -> types.ListPromptsResult:
        about = "Read the briefing of your mission and continue your work"
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=resources.RECOVER, description=about)]
        )

    async def _get_prompt(
        self, ctx: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if params.name != resources.RECOVER:
            raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:80]}.")
        text = await self._read(ctx, resources.BRIEFING)
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])

    async def _read(self, ctx: Any, uri: str) -> str:
        """Return the text of a resource; raises MCPError."""
        await self._meet(ctx)
        try:
            return fit(await resources.read(self._session, uri))
        except FleetError as error:
            code = INVALID_PARAMS if error.kind == "not_found" else INTERNAL_ERROR
            raise MCPError(code, formatting.error_line(error), {"kind": error.kind}) from error

    async def _meet(self, ctx: Any) -> None:
        """Learn who the client is and, the first time, where it works."""
        session = ctx.session
        if session.client_params is not None:
            self._session.client_name = session.client_params.client_info.name
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
        except (MCPError, ValueError) as error:  # a ValueError: the client sent an invalid root
            log.warning("The client did not list its roots: %s", error)
            return
        self._session.place([str(root.uri) for root in roots.roots])


def _text_result(text: str, *, wrong: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=fit(text))], is_error=wrong)


def listing() -> bytes:
    """Return the answer to ``tools/list`` as sent; its size is what the tools cost an agent."""
    tools = [described(tool) for tool in TOOLS.values()]
    plain = [each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in tools]
    return json.dumps({"tools": plain}, separators=(",", ":")).encode()
