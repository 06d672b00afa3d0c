"""What the last recoveries left for sorties: their agent's part of the context."""

import msgspec

from ...protocol.records import RecoveryContext
from ..core.tx import Tx

_context = msgspec.json.Decoder(RecoveryContext).decode


def briefing_of(tx: Tx, briefing_id: int | None) -> RecoveryContext | None:
    """Return what a recovery left under a number, None without one."""
    if briefing_id is None:
        return None
    context = tx.value("SELECT context_json FROM briefings WHERE id = :id", id=briefing_id)
    return _context(context) if context else None


def briefings_of(tx: Tx, mission_id: str) -> dict[int, RecoveryContext]:
    """Return what the last recoveries left for the sorties of a mission."""
    rows = tx.all(
        "SELECT id, context_json FROM briefings WHERE mission_id = :mission", mission=mission_id
    )
    return {row["id"]: _context(row["context_json"]) for row in rows}
