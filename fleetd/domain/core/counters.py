"""Row counters, which triggers of the store maintain."""

from typing import Literal

from .event_log import position
from .tx import Tx

What = Literal[
    "missions", "sorties", "agents", "recoveries", "checkpoints", "snapshots", "sessions"
]
_GONE = "events gone"


def tally(tx: Tx, what: What, part: str | None = None) -> int:
    """Return how many there are, or only those of one part: a status, a trigger, a harness."""
    if part is None:
        return tx.value("SELECT sum(number) FROM tallies WHERE what = :what", what=what) or 0
    known = "SELECT number FROM tallies WHERE what = :what AND part = :part"
    return tx.value(known, what=what, part=part) or 0


def by_part(tx: Tx, what: What) -> dict[str, int]:
    """Return the count of each part that has any."""
    rows = tx.all(
        "SELECT part, number FROM tallies WHERE what = :what AND number > 0 ORDER BY part",
        what=what,
    )
    return {row["part"]: row["number"] for row in rows}


def tally_of_events(tx: Tx) -> int:
    """Return how many events the log holds: its highest number, minus the missing ones."""
    gone = tx.value("SELECT number FROM tallies WHERE what = :what", what=_GONE) or 0
    return position(tx) - gone


def skip_events(tx: Tx, number: int) -> None:
    """Note a gap in the log's numbers, such as the one before a new epoch."""
    tx.run(
        "INSERT INTO tallies (what, part, number) VALUES (:what, '', :number)"
        " ON CONFLICT (what, part) DO UPDATE SET number = tallies.number + :number",
        what=_GONE,
        number=number,
    )
