"""Says on which machine something is that is not on this one; must not change anything."""

from .context import Context
from .tx import Tx


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
