"""Automatic leases: an edit takes one for its agent, and the end of its turn gives it back.

They last for ``locks.automatic_ms``. Only further edits of the file renew them.
"""

from collections.abc import Sequence

from ..core.context import Context
from ..core.ids import find
from ..core.tx import Row, Tx
from . import leases

PURPOSE = "edit under way"


def take(
    tx: Tx, ctx: Context, agent_id: str, mission_id: str | None, files: Sequence[str]
) -> leases.Blocker | None:
    """Take or renew leases on files that an agent changes: on none if one is not free.

    The facts have the files' keys. Locks that the agent took itself stay unchanged. Returns what
    blocks one of the files, None if nothing does.
    """
    mission = find(tx, "mission", mission_id) if mission_id else None
    wanted: list[tuple[leases.LeaseRequest, Row | None]] = []
    for request in _requests(ctx, agent_id, mission, files):
        near, _ = leases.settle(tx, ctx, request.target)
        if (found := leases.blocker(tx, ctx, request, near)) is not None:
            return found
        if not any(row["held_by"] == agent_id and not row["automatic"] for row in near.held):
            wanted.append((request, near.own(request)))
    for request, own in wanted:
        leases.take(tx, ctx, request, own, activity=False)
    return None


def _requests(
    ctx: Context, agent_id: str, mission: Row | None, files: Sequence[str]
) -> list[leases.LeaseRequest]:
    scope = leases.key_scope(ctx, mission).scope
    found = {}
    for file in files:
        if (edited := ctx.facts.edited.get(file)) is not None:  # other files are not recorded
            key = edited.place if scope == "project" else edited.path
            found[key] = leases.LeaseRequest(
                path=key,
                file=file,
                agent_id=agent_id,
                mission_id=mission["id"] if mission else None,
                purpose=PURPOSE,
                timeout_ms=ctx.config.locks.automatic_ms,
                automatic=1,
            )
    return [*found.values()]


def give_back(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Release the leases that edits of an agent took: its turn or its process is over."""
    for row in tx.all(
        "SELECT * FROM locks WHERE held_by = :agent AND status = 'active' AND automatic = 1"
        " ORDER BY fencing_token",
        agent=agent_id,
    ):
        leases.end_held(tx, ctx, row, activity=False)
