"""How far a mission is, and which milestones that passes; must not import other rules."""

from ...protocol.records import percent
from ..core.tx import Row, Tx

MILESTONES = (25, 50, 75)


def passed(progress: int) -> int:
    """Return the highest milestone that a progress in percent has reached, or 0."""
    return max((mark for mark in MILESTONES if mark <= progress), default=0)


def recount(tx: Tx, mission_id: str) -> Row:
    """Bring a mission's sortie counts up to date and return its row."""
    row = tx.one(
        "UPDATE missions SET"
        " total_sorties = (SELECT count(*) FROM sorties WHERE mission_id = :id),"
        " completed_sorties = (SELECT count(*) FROM sorties"
        " WHERE mission_id = :id AND status = 'completed')"
        " WHERE id = :id RETURNING *",
        id=mission_id,
    )
    if row is None:
        raise AssertionError(f"sorties of a mission that is gone: {mission_id}")
    return row


def rearm(tx: Tx, mission_id: str) -> int:
    """Set the milestones to the present progress, and return it.

    A recovery calls this: what it took back will be passed again, what it brought back was passed.
    """
    row = recount(tx, mission_id)
    progress = percent(row["completed_sorties"], row["total_sorties"])
    tx.run(
        "UPDATE missions SET milestone = :mark WHERE id = :id",
        mark=passed(progress),
        id=mission_id,
    )
    return progress
