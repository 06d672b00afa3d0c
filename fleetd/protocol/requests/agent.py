"""Requests about agents."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Agent, Record, RecoveryCandidate
from ..request import Mutation, Query
from ..types import AgentId, AgentStatus, Limit, MissionId, Name, Path, Role, Text, ThresholdMs

Lines = Annotated[list[Text], Meta(max_length=200)]


class Detection(Record, frozen=True, kw_only=True):
    """Whether a mission waits for recovery, and the waiting ones; the longest silence last."""

    needed: bool
    candidates: list[RecoveryCandidate]


class Registration(Record, frozen=True, kw_only=True):
    """The registered agent, and the missions that wait for recovery."""

    agent: Agent
    recovery: Detection


class AgentRegister(Mutation[Registration], frozen=True):
    """Register an agent, or bring it back; reports missions that wait for recovery.

    ``threshold_ms`` is the shortest silence for this report; by default the daemon's setting.
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
    """Send a heartbeat: it keeps the agent alive, but is no activity of its mission."""

    method: ClassVar[str] = "agent.heartbeat"
    agent_id: AgentId


class AgentNote(Mutation[Agent], frozen=True):
    """Declare an agent's last action, next steps and blockers.

    Each given field replaces its previous value.
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
    """List agents by id; ``after`` is the last one of the previous page."""

    method: ClassVar[str] = "agent.list"
    mission_id: MissionId | None = None
    status: AgentStatus | None = None
    limit: Limit = 1_000
    after: AgentId | None = None


class AgentDeregister(Mutation[Agent], frozen=True):
    """Deregister an agent: its locks are released, and later mail to it fails."""

    method: ClassVar[str] = "agent.deregister"
    agent_id: AgentId
    reason: Text | None = None


class CurrentAgent(Record, frozen=True, kw_only=True):
    """The agent that the caller belongs to, or null."""

    agent: Agent | None


class AgentCurrent(Mutation[CurrentAgent], frozen=True):
    """Return the caller's agent: that of the nearest process above it that is no shell.

    With ``register`` a missing agent is registered as ``agent_id``, else under a name made from
    ``harness``. ``agent_id`` overrides the search by process.
    """

    method: ClassVar[str] = "agent.current"
    agent_id: AgentId | None = None
    register: bool = False
    harness: Name | None = None
    cwd: Path | None = None
