"""Process identity: which agents a process has, and which of them asks."""

from ..core.context import Context
from ..core.sql import LIVING
from ..core.tx import Row, Tx

_OF_PROCESS = (
    f"a.status <> 'gone' AND a.status IN {LIVING} AND a.pid = :pid"
    " AND a.machine = :machine AND a.pid_started = :started"
)


def _process(ctx: Context) -> Row:
    """Return the parameters of ``_OF_PROCESS``."""
    facts = ctx.facts
    return {"pid": facts.agent_pid, "started": facts.pid_started, "machine": ctx.machine}


def agents_of_process(tx: Tx, ctx: Context) -> list[Row]:
    """Return the living agents of the process in the facts, most recently active session first.

    On another machine the same pid is another process. Subagents work inside their session and are
    left out. An agent without a session comes last.
    """
    if ctx.facts.agent_pid is None:
        return []
    return tx.all(
        "SELECT a.* FROM agents a LEFT JOIN sessions s"
        " ON s.agent_id = a.id AND s.ended_at IS NULL"
        f" WHERE {_OF_PROCESS} AND coalesce(s.subagent, '') = ''"
        " ORDER BY s.session_id IS NULL, s.last_event_at DESC, a.registered_at DESC, a.id",
        **_process(ctx),
    )


def agent_without_session(tx: Tx, ctx: Context) -> str | None:
    """Return the agent that this process registered last, and that no hook has reported yet.

    It is a separate query, so that many sessions of one process begin without reading each other.
    """
    if ctx.facts.agent_pid is None:
        return None
    row = tx.one(
        f"SELECT a.id FROM agents a WHERE {_OF_PROCESS} AND a.session_id IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.agent_id = a.id)"
        " ORDER BY a.registered_at DESC, a.id LIMIT 1",
        **_process(ctx),
    )
    return row["id"] if row else None


def who_asks(tx: Tx, ctx: Context, agent_id: str | None) -> str | None:
    """Return the agent that a request names, else that of the caller's process, else None."""
    if agent_id is not None:
        return agent_id
    here = agents_of_process(tx, ctx)
    return str(here[0]["id"]) if here else None
