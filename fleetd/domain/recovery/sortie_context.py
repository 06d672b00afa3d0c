"""What a recovery leaves for sorties: their agent's part of the context; must not derive it.

Agents have many sorties and one part, so it stands once: with each of a thousand sorties stood the
steps of all of them.
"""

import msgspec

from ...protocol.records import RecoveryContext
from ..core.tx import Tx

_encode = msgspec.json.Encoder().encode


def leave(tx: Tx, mission_id: str, agent_id: str, part: RecoveryContext) -> None:
    """Let an agent's open sorties carry its part of the context, until their next progress."""
    briefing_id = tx.value(
        "INSERT INTO briefings (mission_id, context_json) VALUES (:mission, :context) RETURNING id",
        mission=mission_id,
        context=_encode(part).decode(),
    )
    tx.run(
        "UPDATE sorties SET briefing_id = :briefing WHERE mission_id = :mission"
        " AND assigned_to = :agent AND status NOT IN ('completed', 'failed')",
        briefing=briefing_id,
        mission=mission_id,
        agent=agent_id,
    )


def drop_old(tx: Tx, mission_id: str) -> None:
    """Remove what no sortie of a mission carries any more."""
    tx.run(
        "DELETE FROM briefings WHERE mission_id = :mission AND id NOT IN (SELECT briefing_id"
        " FROM sorties WHERE mission_id = :mission AND briefing_id IS NOT NULL)",
        mission=mission_id,
    )
