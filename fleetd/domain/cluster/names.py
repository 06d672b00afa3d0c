"""Says on which machine something is that is not on this one; must not change anything."""

from ...protocol.records import Record
from ...protocol.request import Query
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx


class AgentNamed(Record, frozen=True, kw_only=True):
    """An agent as people are told of it."""

    name: str


class AgentNameGet(Query[AgentNamed], frozen=True):
    """Ask what to call an agent, with its machine where that is another one; not on the wire."""

    agent_id: str


@handler
def agent_name(tx: Tx, ctx: Context, request: AgentNameGet) -> AgentNamed:
    """Return an agent's id, and behind it its machine where that is another one."""
    return AgentNamed(name=agent_on(tx, ctx, request.agent_id))


def on_another(tx: Tx, ctx: Context, machine: str) -> str:
    """Return `` on <name>`` for another machine, nothing for this one or none."""
    if machine in ("", ctx.machine):
        return ""
    name = tx.value("SELECT name FROM machines WHERE id = :id", id=machine)
    return f" on {name or machine}"


def agent_on(tx: Tx, ctx: Context, agent_id: str) -> str:
    """Return an agent's id, and behind it its machine where that is another one."""
    if not ctx.shared:
        return agent_id
    machine = tx.value("SELECT machine FROM agents WHERE id = :id", id=agent_id)
    return agent_id + on_another(tx, ctx, machine or "")
