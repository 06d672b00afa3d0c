"""Batches: what one bounded look through many rows finds, and how large each kind of them is."""

from typing import Generic, TypeVar

import msgspec

Found = TypeVar("Found")
Cursor = TypeVar("Cursor")


class Batch(msgspec.Struct, Generic[Found, Cursor], frozen=True):
    """``following`` is the cursor of the next batch, None behind the last one."""

    found: Found
    following: Cursor | None


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much one transaction looks at or changes, so that nobody waits long behind it.

    No user sets them; tests make them small, so that a few rows are many batches.
    """

    rows: int = 250
    """Rows of a large table, such as events, locks and missions."""
    looked_at: int = 1_000
    """Events of an agent that a page looks at for those of a type or a mission.

    An index for that would cost something with each event that is appended.
    """
    kept_answers: int = 500
    """Answers and deliveries that are kept for repeated requests."""
    records: int = 25
    """Checkpoints or snapshots that are judged, marked, removed or verified with their files."""
    owners: int = 20
    """Missions or runs whose records one batch of a pruning looks through."""
    surplus: int = 20
    """Records above a limit that one new record removes."""
    closed_missions: int = 10
    pulled: int = 100
    """Checkpoints whose names a pull learns."""
    compressed: int = 50
    verified_daily: int = 500
    """Files that a daily verification takes at most."""
    listed_cursors: int = 50
    """Cursors that the doctor names."""
