"""The retention policy of a pruning: the settings, or what its caller gave instead."""

from ...protocol.records import Record
from ..core.context import Context


class RetentionPolicy(Record, frozen=True, kw_only=True):
    """How old and how many records of a noun may be, and of whom; None for everybody."""

    days: int
    keep: int
    owner_id: str | None


def is_older(ctx: Context, timestamp: str, days: int) -> bool:
    """Whether a moment is more than so many days ago; 0 days ask for no age at all."""
    return days == 0 or timestamp < ctx.days_ago(days)
