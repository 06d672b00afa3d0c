"""Search: the documents that match, the newest first, and what a hit shows of each."""

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct

from ...protocol.errors import InvalidParams, LimitExceeded, NotFound
from ...protocol.requests.search import SearchHit, SearchMark, SearchPage, SearchQuery
from ...protocol.types import StoreKind
from ..core.context import Context
from ..core.event_log import data_of, position, position_before
from ..core.ids import find
from ..core.sql import Where, contains_any, inside_of, named_params
from ..core.tx import Row, TookTooLong, Tx
from . import index
from .documents import Document, of_event, of_message, of_note
from .excerpts import excerpt_of
from .query_language import (
    Both,
    Phrase,
    Query,
    as_fts5,
    as_tsquery,
    is_in,
    phrases_of,
    plain_query,
    raw_query,
)
from .words import PART_CHARS, name_of, parts_of

# How many hits are counted beyond those that are shown.
COUNTED = 1_000
# Up to this many documents with a path are read for their words.
FEW = 500
_SEPARATOR = "\x1f"
_FOUND = "SELECT d.id, d.kind, d.source, d.at, d.mission_id, d.agent_id"


class Wanted(Struct, frozen=True):
    """What to search for, in the syntax of a store."""

    query: Query
    path: str
    store: StoreKind
    facets: list[str]

    @property
    def words(self) -> str | None:
        """Return the condition on words; None where only names count."""
        found = self.query.expression
        if found is None:
            return None
        for each in self.facets:
            found = Both(found, Phrase((each,)))
        return as_fts5(found) if self.store == "sqlite" else as_tsquery(found)

    def parts(self, names: Sequence[str]) -> str:
        """Return the condition that names contain all parts of some names."""
        parts = sorted(set(chain.from_iterable(map(parts_of, names))))
        if self.store == "sqlite":
            return " AND ".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in parts)
        return _SEPARATOR.join(parts)


def search(tx: Tx, ctx: Context, request: SearchQuery, store: StoreKind) -> SearchPage:
    """Return the newest documents that match; raises LimitExceeded when it takes too long."""
    wanted = _wanted(request, store)
    where = _where(tx, request, wanted)
    try:
        with tx.limited(ctx.batches.search_ms):
            found = _matches(tx, wanted, where, request.limit + COUNTED)
    except TookTooLong:
        raise LimitExceeded(
            f"The search took longer than {ctx.batches.search_ms / 1_000:g} s and was ended.",
            hint="Give a rarer word, or less to search: --since, --kind, or a longer --path.",
            milliseconds=ctx.batches.search_ms,
        ) from None
    shown = found[: request.limit]
    return SearchPage(
        hits=_hits(tx, wanted, shown),
        more=len(found) - len(shown),
        indexing=_indexed_percent(tx),
    )


def _wanted(request: SearchQuery, store: StoreKind) -> Wanted:
    path = name_of(request.path) if request.path else ""
    if request.path and len(path) < PART_CHARS:
        raise InvalidParams(
            f"A path is searched by {PART_CHARS} characters or more of it.",
            hint="Give more of the path.",
            field="path",
        )
    if request.query.strip():
        query = raw_query(request.query) if request.raw else plain_query(request.query)
    elif path:
        query = Query(None)
    else:
        raise InvalidParams("The query is empty.", hint="Give a word, or --path.", field="query")
    return Wanted(query, path, store, [])


def _where(tx: Tx, request: SearchQuery, wanted: Wanted) -> Where:
    where = Where()
    if request.mission_id is not None:
        mission_id = find(tx, "mission", request.mission_id)["id"]
        where.add("d.mission_id = :mission_id", mission_id=mission_id)
        wanted.facets.append(index.facet("m", mission_id))
    if request.agent_id is not None:
        _check_agent(tx, request.agent_id)
        where.add("d.agent_id = :agent_id", agent_id=request.agent_id)
        wanted.facets.append(index.facet("a", request.agent_id))
    if request.kind is not None:
        where.add("d.kind = :kind", kind=request.kind)
        wanted.facets.append(index.facet("k", request.kind))
    if request.since_time is not None:
        floor = position_before(tx, request.since_time, position(tx))
        where.add("s.rowid > :floor AND d.at >= :since", floor=floor, since=request.since_time)
    if request.before is not None:
        where.add("s.rowid < :before", before=request.before)
    if wanted.path:
        where.add(f"({contains_any('d.names', ['path'])})", path=wanted.path)
    return where


def _check_agent(tx: Tx, agent_id: str) -> None:
    """Raise NotFound for an unknown agent that the log does not name either."""
    known = "SELECT 1 AS known FROM agents WHERE id = :id"
    acted = "SELECT 1 AS acted FROM events WHERE agent_id = :id LIMIT 1"
    if not tx.exists(known, id=agent_id) and not tx.exists(acted, id=agent_id):
        raise NotFound(
            f"Agent not found: {agent_id}",
            hint="fleetctl agent list shows the agents.",
            noun="agent",
            id=agent_id,
        )


def _matches(tx: Tx, wanted: Wanted, where: Where, limit: int) -> list[Row]:
    """Return the newest documents that match by their words or by their names."""
    if wanted.path and wanted.query.expression is not None:
        few = _with_path(tx, wanted, where)
        if few is not None:
            return few[:limit]
        parts = wanted.parts([wanted.path])
        where.add("d.id IN (SELECT n.rowid FROM search_names(:path_parts) n)", path_parts=parts)
    found: dict[int, Row] = {}
    if (words := wanted.words) is not None:
        found |= _found(tx, "search_words(:words)", where, limit, words=words)
    if names := wanted.query.names or ((wanted.path,) if words is None else ()):
        params = named_params("name", names)
        inside = Where()
        for name in params:
            inside.add(contains_any("d.names", [name]))
        inside.add(str(where), **where.params)
        found |= _found(
            tx, "search_names(:parts)", inside, limit, parts=wanted.parts(names), **params
        )
    return [found[place] for place in sorted(found, reverse=True)][:limit]


def _with_path(tx: Tx, wanted: Wanted, where: Where) -> list[Row] | None:
    """Return the matching documents with a path, newest first; None when too many have it.

    They are read directly: an index would search all documents with a common word.
    """
    rows = _found(tx, "search_names(:parts)", where, FEW + 1, parts=wanted.parts([wanted.path]))
    if len(rows) > FEW:
        return None
    query, places = wanted.query, sorted(rows)
    documents = tx.all(
        f"SELECT id, words, names FROM search_documents WHERE id IN ({inside_of('p', places)})",
        **named_params("p", places),
    )
    matching = {
        row["id"]
        for row in documents
        if (query.expression is not None and is_in(query.expression, row["words"]))
        or (query.names and all(name in row["names"] for name in query.names))
    }
    return [rows[place] for place in reversed(places) if place in matching]


def _found(tx: Tx, source: str, where: Where, limit: int, **params: str) -> dict[int, Row]:
    rows = tx.all(
        f"{_FOUND} FROM {source} s JOIN search_documents d ON d.id = s.rowid WHERE {where}"
        " ORDER BY s.rowid DESC LIMIT :most",
        most=limit,
        **where.params,
        **params,
    )
    return {row["id"]: row for row in rows}


def _hits(tx: Tx, wanted: Wanted, rows: Sequence[Row]) -> list[SearchHit]:
    documents = _documents(tx, rows)
    query = wanted.query
    phrases = phrases_of(query.expression) if query.expression is not None else []
    names = [*query.names, *([wanted.path] if wanted.path else [])]
    hits = []
    for row in rows:
        known = documents.get(row["source"] or row["id"])
        if known is None:
            continue
        kind, document = known
        excerpt, marks = excerpt_of(document.text, phrases, names)
        hits.append(
            SearchHit(
                seq=row["id"],
                kind=row["kind"],
                timestamp=row["at"],
                agent_id=row["agent_id"],
                mission_id=row["mission_id"],
                excerpt=excerpt,
                marks=[SearchMark(start=start, end=end) for start, end in marks],
                id=row["source"],
                type=kind,
            )
        )
    return hits


def _documents(tx: Tx, rows: Sequence[Row]) -> dict[int | str, tuple[str | None, Document]]:
    """Return the documents of hits, by their ids or positions, with types of events."""
    found: dict[int | str, tuple[str | None, Document]] = {}
    events = [row["id"] for row in rows if row["source"] is None]
    for row in tx.all(
        f"SELECT seq, type, data_json FROM events WHERE seq IN ({inside_of('e', events)})",
        **named_params("e", events),
    ):
        if (document := of_event(row["type"], data_of(row))) is not None:
            found[row["seq"]] = row["type"], document
    mail = [row["source"] for row in rows if row["kind"] == "mail"]
    for row in tx.all(
        f"SELECT id, subject, body FROM messages WHERE id IN ({inside_of('m', mail)})",
        **named_params("m", mail),
    ):
        found[row["id"]] = None, of_message(row)
    notes = [row["source"] for row in rows if row["kind"] == "note"]
    for row in tx.all(
        f"SELECT id, text, because, path FROM notes WHERE id IN ({inside_of('n', notes)})",
        **named_params("n", notes),
    ):
        found[row["id"]] = None, of_note(row)
    return found


def _indexed_percent(tx: Tx) -> int | None:
    """Return how much of the log is searchable; None when all of it is."""
    left = index.backlog(tx)
    if left is None:
        return None
    end = max(position(tx), 1)
    return max(0, min(99, 100 - 100 * left // end))
