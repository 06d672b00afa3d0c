"""Payloads of agent CLIs, delivered to an engine as their hooks deliver them."""

import itertools
import json
from typing import Any

from fleetd.protocol.requests.agent import AgentGet
from fleetd.protocol.requests.attention import AgentState, AttentionList
from fleetd.protocol.requests.hook import HookDeliver
from tests.support.fleet import Fleet

_numbers = itertools.count()
# How each CLI names its session.
_SESSION = {"copilot": "sessionId", "cursor": "conversation_id"}
# Copilot's hooks get the event as a word of the command line; OpenCode's plugin names it so.
_EVENT = {"opencode": "event"}


class Cli:
    """One session of an agent CLI, represented by its payloads."""

    def __init__(self, fleet: Fleet, harness: str = "claude", session: str = "12f459b8") -> None:
        self.fleet = fleet
        self.harness = harness
        self.session = session

    async def tell(self, event: str, **fields: Any) -> None:
        """Deliver one event."""
        payload = {
            _SESSION.get(self.harness, "session_id"): self.session,
            "cwd": str(self.fleet.project),
        }
        args = [event] if self.harness == "copilot" else []
        if not args:
            payload[_EVENT.get(self.harness, "hook_event_name")] = event
        # Two deliveries of the same event within a few seconds count once.
        self.fleet.clock.pass_by(1)
        await self.fleet.do(
            HookDeliver(
                f"delivery-{next(_numbers):08}",
                self.harness,
                json.dumps(payload | fields),
                args=args,
            )
        )

    @property
    def agent_id(self) -> str:
        """Return the agent of the session."""
        return f"{self.harness}-{self.session}"

    async def needs(self) -> str | None:
        """Return the need that the agent's row records."""
        agent = await self.fleet.do(AgentGet(self.agent_id))
        assert (agent.needs is None) == (agent.needs_since is None)
        assert agent.needs is None or agent.status != "active"
        return agent.needs

    async def state(self) -> AgentState:
        """Return the state that the attention list shows for the agent."""
        [found] = (await self.fleet.do(AttentionList(agent_id=self.agent_id))).agents
        return found


async def told_needs(fleet: Fleet) -> list[str]:
    """Return the needs in the events, in order."""
    return [event.data["needs"] for event in await fleet.events(kind="agent_needs")]
