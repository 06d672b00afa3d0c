"""Requests about full-text search."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Record
from ..request import Query
from ..types import AgentId, Limit, MissionId, Path, SearchKind, SearchPlace, Timestamp

SearchText = Annotated[str, Meta(max_length=1_000)]


class SearchMark(Record, frozen=True, kw_only=True):
    """A part of an excerpt that matches, from ``start`` up to ``end``, in characters."""

    start: int
    end: int


class SearchHit(Record, frozen=True, kw_only=True):
    """One record that a search found.

    ``seq`` is its place in the log. ``id`` is the message or the note; null for an event, which is
    named by ``seq`` and has a ``type``. ``excerpt`` is one line of what it says, and ``marks``
    are its parts that match.
    """

    seq: int
    kind: SearchKind
    timestamp: str
    agent_id: str | None
    mission_id: str | None
    excerpt: str
    marks: list[SearchMark] = []
    id: str | None = None
    type: str | None = None


class SearchPage(Record, frozen=True, kw_only=True):
    """Hits, the newest first; ``more`` older ones follow, at least so many if it is 1,000.

    ``indexing`` is null, or the percentage of the log that is searchable so far: after an upgrade
    the index is built from the newest record to the oldest.
    """

    hits: list[SearchHit]
    more: int
    indexing: int | None = None


class SearchQuery(Query[SearchPage], frozen=True):
    """Find events, messages, notes, prompts, answers, commands and files by their words.

    Each word of ``query`` has to be there, without regard to case and accents;
    ``begin*`` finds words that begin so. A path or identifier is also found by any part of it, from
    three characters on.
    """

    method: ClassVar[str] = "search.query"
    query: SearchText = ""
    mission_id: MissionId | None = None
    agent_id: AgentId | None = None
    kind: SearchKind | None = None
    path: Path | None = None
    since_time: Timestamp | None = None
    limit: Limit = 20
    before: SearchPlace | None = None
    raw: bool = False
