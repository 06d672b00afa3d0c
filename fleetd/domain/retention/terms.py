"""What a pruning goes by: the settings, or what its caller gave instead; finds nothing itself."""

from ...protocol.records import Record
from ..core.context import Context

DAY_MS = 86_400_000


class Terms(Record, frozen=True, kw_only=True):
    """How old and how many records of a noun may be, and of whom; None for everybody."""

    days: int
    keep: int
    owner_id: str | None


def is_older(ctx: Context, timestamp: str, days: int) -> bool:
    """Whether a moment is more than so many days ago; 0 days ask for no age at all."""
    return days == 0 or timestamp < ctx.at(-days * DAY_MS)
