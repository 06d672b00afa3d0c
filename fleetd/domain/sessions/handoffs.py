"""Hand-offs as hooks see them: which one a session completes, and what its agent learns."""

import re

from ...protocol.records import Handoff
from ..core.context import Context
from ..core.ids import find
from ..core.mappers import handoff_of
from ..core.tx import Row, Tx
from . import notices

# How the first prompt of a successor begins: the rest of it is the briefing.
_OPENING = re.compile(r"\s*Hand-off (hnd-[0-9a-f]+)\b")


def opening(handoff_id: str) -> str:
    """Return the words that the first prompt of a successor begins with."""
    return f"Hand-off {handoff_id}"


def awaited(tx: Tx, agent_id: str | None) -> Row | None:
    """Return the hand-off that awaits a session with this agent id, however long ago it began."""
    if agent_id is None:
        return None
    return tx.one(
        "SELECT * FROM handoffs WHERE successor_id = :id AND state = 'pending'", id=agent_id
    )


def end(tx: Tx, ctx: Context, row: Row, state: str, reason: str | None = None) -> None:
    """End a hand-off that moved nothing; its row stays, as it is read later."""
    tx.run(
        "UPDATE handoffs SET state = :state, reason = :reason, ended_at = :now WHERE id = :id",
        state=state,
        reason=reason,
        now=ctx.now,
        id=row["id"],
    )


def fail(tx: Tx, ctx: Context, row: Row, state: str, reason: str) -> None:
    """End a hand-off whose session is there, and notify its agent that nothing moved."""
    end(tx, ctx, row, state, reason)
    notices.add_handover(
        tx, row["successor_id"], notices.HandoverNotice("kept", row["agent_id"], row["mission_id"])
    )


def in_short(tx: Tx, agent_id: str, prompt: str) -> str:
    """Return the prompt to store: without the briefing if it begins a hand-off."""
    found = _OPENING.match(prompt)
    if found is None:
        return prompt
    row = tx.one(
        "SELECT agent_id FROM handoffs WHERE id = :id AND successor_id = :agent",
        id=found.group(1),
        agent=agent_id,
    )
    return prompt if row is None else f"Continue the work of {row['agent_id']}."


def record_of(tx: Tx, ctx: Context, handoff_id: str) -> Handoff:
    """Return a hand-off; raises NotFound."""
    return handoff_of(tx, find(tx, "handoff", handoff_id), ctx.now)
