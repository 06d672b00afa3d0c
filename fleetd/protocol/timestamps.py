"""Timestamps of the protocol and the store.

Every timestamp is ISO 8601 UTC with exactly three decimals and a ``Z``. The fixed width makes
text order equal time order, which SQL comparisons rely on: never store another format.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)


# A request renders its one moment again and again; a recovery some 300 times.
@lru_cache(maxsize=64)
def iso(ms: int) -> str:
    """Render milliseconds since the Unix epoch as ``2026-01-05T12:00:00.000Z``."""
    return (_NAIVE_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"


def to_ms(text: str) -> int:
    """Read an ISO 8601 timestamp as milliseconds since the epoch; without a zone it is UTC.

    Raises ValueError for text that is no timestamp.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
