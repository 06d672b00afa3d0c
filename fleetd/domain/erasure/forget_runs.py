"""Which runs a forgetting takes whole; must not change anything.

A run goes with its agent. One that several agents recorded stays, unless somebody names it, and
loses what those that go have recorded.
"""

from ..core.session_key import Key
from ..core.tx import Row, Tx
from ..snapshots.runs import run_of, run_of_row
from .clauses import inside_of, named_params


def runs_of(tx: Tx, agents: list[str]) -> list[str]:
    """Return the runs of agents in which nobody else recorded anything."""
    if not agents:
        return []
    names = _known(tx, agents) | {run_of_row(row) for row in _sessions(tx, agents)}
    return sorted(name for name in names if not _others_in(tx, name, agents))


def called_so(tx: Tx, name: str, agents: list[str]) -> list[str]:
    """Return the runs that a session's name stands for, if anything was recorded of them.

    Those are the run of that name, also of a tool that has no session, and those of its subagents.
    """
    rows = tx.all("SELECT * FROM sessions WHERE session_id = :name", name=name)
    names = {run_of(Key("", name)), *map(run_of_row, rows)}
    found = {name for name in names if _is_there(tx, name)}
    below = tx.all(
        "SELECT id, agent_id FROM runs WHERE substr(id, 1, length(:below)) = :below",
        below=f"{run_of(Key('', name))}.",
    )
    return sorted(found | {r["id"] for r in below if r["agent_id"] in (None, *agents)})


def _is_there(tx: Tx, run_id: str) -> bool:
    return tx.one("SELECT 1 AS there FROM runs WHERE id = :id", id=run_id) is not None


def _known(tx: Tx, agents: list[str]) -> set[str]:
    """Return the runs that were recorded of agents, and those they registered with."""
    a, params = inside_of("a", agents), named_params("a", agents)
    recorded = tx.all(
        f"SELECT id FROM runs WHERE agent_id IN ({a})"
        f" UNION SELECT run_id FROM snapshots WHERE agent_id IN ({a})",
        **params,
    )
    registered = tx.all(
        "SELECT harness, session_id FROM agents WHERE session_id IS NOT NULL"
        f" AND session_id <> '' AND id IN ({a})",
        **params,
    )
    own = {run_of(Key(row["harness"] or "", row["session_id"])) for row in registered}
    return own | {row["id"] for row in recorded}


def _sessions(tx: Tx, agents: list[str]) -> list[Row]:
    a = inside_of("a", agents)
    return tx.all(f"SELECT * FROM sessions WHERE agent_id IN ({a})", **named_params("a", agents))


def _others_in(tx: Tx, run_id: str, agents: list[str]) -> bool:
    """Whether anybody but these agents recorded something in a run, or is in it now."""
    a = inside_of("a", agents)
    found = tx.one(
        f"SELECT 1 AS other FROM runs WHERE id = :run AND agent_id NOT IN ({a})"
        f" UNION ALL SELECT 1 FROM snapshots WHERE run_id = :run AND agent_id NOT IN ({a}) LIMIT 1",
        run=run_id,
        **named_params("a", agents),
    )
    return found is not None
