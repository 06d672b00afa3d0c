"""Coalescing: triggers that join a record instead of making one of their own."""

import msgspec

from ...protocol.records import SourceDetail
from ...protocol.timestamps import to_ms

# A trigger still joins exactly this long after the last one.
COALESCE_MS = 3_000
details_of = msgspec.json.Decoder(list[SourceDetail]).decode


def since_last(now_ms: int, timestamp: str, known: list[SourceDetail]) -> int:
    """Return the ms since a record was made or last joined; negative when the clock went back."""
    return now_ms - to_ms(max([timestamp, *(detail.last_at for detail in known)]))


def merged(
    known: list[SourceDetail], source: str, agent_id: str | None, now: str
) -> list[SourceDetail]:
    """Return the joined triggers with one more; a repeated one only increases its count."""
    for index, detail in enumerate(known):
        if (detail.source, detail.agent_id) == (source, agent_id):
            counted = msgspec.structs.replace(detail, count=detail.count + 1, last_at=now)
            return [*known[:index], counted, *known[index + 1 :]]
    new = SourceDetail(source=source, agent_id=agent_id, count=1, first_at=now, last_at=now)
    return [*known, new]
