"""Requests about agents."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Agent, Record, RecoveryCandidate
from ..request import Mutation, Query
from ..types import AgentId, AgentStatus, Limit, MissionId, Name, Path, Role, Text, ThresholdMs

Lines = Annotated[list[Text], Meta(max_length=200)]


class Detection(Record, frozen=True, kw_only=True):
    """Whether a mission waits for recovery, and which ones do; the longest silence last."""

    needed: bool
    candidates: list[RecoveryCandidate]


class Registration(Record, frozen=True, kw_only=True):
    """The registered agent and what waits for recovery."""

    agent: Agent
    recovery: Detection


class AgentRegister(Mutation[Registration], frozen=True):
    """Start an agent, or bring it back; reports missions that wait for recovery.

    ``threshold_ms`` is what counts as silence for this report; the daemon's own by default.
    """

    method: ClassVar[str] = "agent.register"
    agent_id: AgentId
    role: Role
    harness: Name | None = None
    session_id: Name | None = None
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    mission_id: MissionId | None = None
    cwd: Path | None = None
    threshold_ms: ThresholdMs | None = None


class AgentHeartbeat(Mutation[Agent], frozen=True):
    """Say that an agent lives; keeps the agent alive, not its mission active."""

    method: ClassVar[str] = "agent.heartbeat"
    agent_id: AgentId


class AgentNote(Mutation[Agent], frozen=True):
    """Declare what an agent did last, what comes next, what blocks it.

    Each field that is given replaces the one before.
    """

    method: ClassVar[str] = "agent.note"
    agent_id: AgentId
    last_action: Text | None = None
    next_steps: Lines | None = None
    blockers: Lines | None = None


class AgentGet(Query[Agent], frozen=True):
    """Return one agent."""

    method: ClassVar[str] = "agent.get"
    agent_id: AgentId


class AgentPage(Record, frozen=True, kw_only=True):
    """Agents by id."""

    agents: list[Agent]


class AgentList(Query[AgentPage], frozen=True):
    """List agents by id; ``after`` is the last one of the page before."""

    method: ClassVar[str] = "agent.list"
    mission_id: MissionId | None = None
    status: AgentStatus | None = None
    limit: Limit = 1_000
    after: AgentId | None = None


class AgentDeregister(Mutation[Agent], frozen=True):
    """Leave in good order: the agent's locks are released, later mail to it fails."""

    method: ClassVar[str] = "agent.deregister"
    agent_id: AgentId
    reason: Text | None = None


class CurrentAgent(Record, frozen=True, kw_only=True):
    """The agent that the caller belongs to, or null."""

    agent: Agent | None


class AgentCurrent(Mutation[CurrentAgent], frozen=True):
    """Which agent the caller belongs to: that of the nearest process above it that is no shell.

    With ``register`` one is registered where there is none: under ``agent_id``, else under a name
    made of ``harness``. ``agent_id`` says who the caller is whatever its process.
    """

    method: ClassVar[str] = "agent.current"
    agent_id: AgentId | None = None
    register: bool = False
    harness: Name | None = None
    cwd: Path | None = None
