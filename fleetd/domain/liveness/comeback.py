"""What an agent that comes back has missed; must not restore anything.

A mission can go on without one of its agents: others came back first, or were never silent.
"""

from ...protocol.records import RecoveryCandidate
from ...protocol.requests.agent import Detection
from ..core.context import Context
from ..core.tx import Row, Tx
from .silence import candidate_of, detect

# An agent that starts up is told of so many missions, the newest silences first.
TOLD = 20


def detect_for(
    tx: Tx, ctx: Context, agent: Row | None, threshold_ms: int | None = None
) -> Detection:
    """Return what waits for recovery when an agent registers; ``agent`` is its row from before."""
    found = detect(tx, ctx, threshold_ms=threshold_ms, most=TOLD)
    own = _own_part(tx, ctx, agent) if agent else None
    if own is None or any(each.mission_id == own.mission_id for each in found.candidates):
        return found
    return Detection(
        needed=found.needed or own.checkpoint_id is not None, candidates=[own, *found.candidates]
    )


def _own_part(tx: Tx, ctx: Context, agent: Row) -> RecoveryCandidate | None:
    """Return the agent's mission when the agent was lost or silent, and not briefed since.

    One whose work went to another has no part left to bring back.
    """
    mission = tx.one(
        "SELECT * FROM missions WHERE id = :id AND status = 'in_progress'", id=agent["mission_id"]
    )
    if mission is None or agent["succeeded_by"] is not None:
        return None
    last = tx.value(
        "SELECT max(seq) FROM events WHERE agent_id = :agent AND activity = 1"
        " AND type <> 'agent_registered'",
        agent=agent["id"],
    )
    silent = tx.one(
        "SELECT 1 AS missed FROM episodes WHERE mission_id = :mission AND last_seq >= :last",
        mission=mission["id"],
        last=last or 0,
    )
    briefed = tx.one(
        "SELECT 1 AS briefed FROM recoveries WHERE mission_id = :mission AND agent_id = :agent"
        " AND briefed_at IS NOT NULL AND seq >= :last",
        mission=mission["id"],
        agent=agent["id"],
        last=last or 0,
    )
    if briefed is not None or (silent is None and agent["status"] != "lost"):
        return None
    lost = [agent["id"]] if agent["status"] == "lost" else []
    return candidate_of(tx, ctx, mission, agent["id"], lost)
