"""Sorties as records: their rows with the part of a recovery context that was left for them.

Agents have many sorties and one part, so it stands once and the sorties refer to it.
"""

import msgspec

from ...protocol.records import RecoveryContext, Sortie
from ..core.tx import Row, Tx

_strings = msgspec.json.Decoder(list[str]).decode
_context = msgspec.json.Decoder(RecoveryContext).decode


def sortie_of(tx: Tx, row: Row) -> Sortie:
    """Build a Sortie, with what a recovery left for it, from its row."""
    return _sortie_of(row, _context_left(tx, row["briefing_id"]))


def _sortie_of(row: Row, context: RecoveryContext | None) -> Sortie:
    return Sortie(
        id=row["id"],
        mission_id=row["mission_id"],
        position=row["position"],
        title=row["title"],
        description=row["description"],
        status=row["status"],
        priority=row["priority"],
        assigned_to=row["assigned_to"],
        files=_strings(row["files_json"]),
        progress=row["progress"],
        progress_notes=row["progress_notes"],
        blocked_reason=row["blocked_reason"],
        result=row["result"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        recovery_context=context,
        author=row["author"],
    )


def sorties_of(tx: Tx, mission_id: str) -> list[Sortie]:
    """Return every sortie of a mission in order."""
    rows = tx.all("SELECT * FROM sorties WHERE mission_id = :id ORDER BY position", id=mission_id)
    left = {
        found["id"]: _context(found["context_json"])
        for found in tx.all(
            "SELECT id, context_json FROM briefings WHERE mission_id = :mission", mission=mission_id
        )
    }
    return [_sortie_of(row, left.get(row["briefing_id"])) for row in rows]


def _context_left(tx: Tx, briefing_id: int | None) -> RecoveryContext | None:
    if briefing_id is None:
        return None
    context = tx.value("SELECT context_json FROM briefings WHERE id = :id", id=briefing_id)
    return _context(context) if context else None
