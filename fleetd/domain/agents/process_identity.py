"""Which agent a process belongs to, and one for a process that has none; must not know events.

An agent CLI has a hook client and a server of its own tools below it. Both are the agent of the
session that is at work in that process, whichever comes first.
"""

import re

from ...protocol.request import Mutation, Query
from ...protocol.requests.agent import AgentRegister, CurrentAgent
from ...protocol.types import AgentId, Name, Path, Role
from ..core.context import Context
from ..core.mappers import agent_of
from ..core.registry import handler
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from ..missions.current import inherited, to_join
from . import agents
from .inhabitants import of_process

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 40


class AgentFind(Query[CurrentAgent], frozen=True):
    """Find the agent of the process in the facts; not on the wire."""

    agent_id: AgentId | None = None


class AgentJoin(Mutation[CurrentAgent], frozen=True):
    """Find the agent of the process in the facts, or register one; not on the wire."""

    agent_id: AgentId | None = None
    harness: Name | None = None
    cwd: Path | None = None


@handler
def find(tx: Tx, ctx: Context, request: AgentFind) -> CurrentAgent:
    """Return the living agent that a process belongs to."""
    row = _present(tx, ctx, request.agent_id)
    return CurrentAgent(agent=agent_of(row) if row else None)


@handler
def join(tx: Tx, ctx: Context, request: AgentJoin) -> CurrentAgent:
    """Return the agent that a process belongs to, registered just now if need be."""
    row = _present(tx, ctx, request.agent_id)
    if row is not None:
        return CurrentAgent(agent=agent_of(row))
    known = request.agent_id and tx.one("SELECT * FROM agents WHERE id = :id", id=request.agent_id)
    joined = None
    if not (known and known["mission_id"]):
        joined = inherited(tx, request.agent_id) or to_join(tx, ctx, request.cwd)
    first: Role = "specialist" if joined else "dispatch"
    registered = agents.register(
        tx,
        ctx,
        AgentRegister(
            request.agent_id or ctx.new_id(_named(request.harness)),
            known["role"] if known else first,
            harness=request.harness,
            pid=ctx.facts.agent_pid,
            mission_id=joined["id"] if joined else None,
            cwd=request.cwd,
        ),
    )
    return CurrentAgent(agent=registered.agent)


def _named(harness: str | None) -> str:
    name = _NOT_IN_IDS.sub("-", harness or "").strip("-._")[:LONGEST_NAME]
    return name or "agent"


def _present(tx: Tx, ctx: Context, agent_id: str | None) -> Row | None:
    """Return the living agent by a name, else that of the process.

    Of the sessions in the process that go by the name: a second one is ``<name>.2``.
    """
    here = of_process(tx, ctx)
    if agent_id is None:
        return here[0] if here else None
    for row in here:
        if row["id"] == agent_id or re.fullmatch(rf"{re.escape(agent_id)}\.\d+", row["id"]):
            return row
    return tx.one(f"SELECT * FROM agents WHERE id = :id AND status IN {LIVING}", id=agent_id)
