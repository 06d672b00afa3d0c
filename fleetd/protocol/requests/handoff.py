"""Requests about hand-offs: a person gives an agent's work to a new session of an agent CLI."""

from typing import ClassVar

from ..records import Change, Handoff, Record
from ..request import Mutation, Query
from ..types import AgentId, HandoffId, Name


class HandoffBegun(Record, frozen=True, kw_only=True):
    """A hand-off that waits for its session.

    ``prompt`` is the first prompt of that session. ``changes`` is what will move, and ``warnings``
    is what a person should know before that.
    """

    handoff: Handoff
    prompt: str
    changes: list[Change]
    warnings: list[str] = []


class HandoffBegin(Mutation[HandoffBegun], frozen=True):
    """Take a checkpoint, and await the session that the work of an agent goes to.

    The work moves when a session with the agent id ``successor_id`` begins within 30 s. Until then,
    and without it, everything stays as it is. An agent at work is refused without ``force``.
    """

    method: ClassVar[str] = "handoff.begin"
    agent_id: AgentId
    to: Name
    successor_id: AgentId | None = None
    force: bool = False
    dry_run: bool = False


class HandoffGet(Query[Handoff], frozen=True):
    """Return one hand-off."""

    method: ClassVar[str] = "handoff.get"
    handoff_id: HandoffId


class HandoffCancel(Mutation[Handoff], frozen=True):
    """Stop awaiting the session of a hand-off; one that is over stays as it is."""

    method: ClassVar[str] = "handoff.cancel"
    handoff_id: HandoffId


class HandoffAsk(Mutation[Handoff], frozen=True):
    """Ask a person to hand an agent's work to another agent CLI; nothing moves.

    ``attention.list`` shows it, until the person hands the work over or writes to the agent.
    """

    method: ClassVar[str] = "handoff.ask"
    agent_id: AgentId
    to: Name
