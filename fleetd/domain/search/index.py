"""Index: documents are written together with their records, and compared with them on request.

Triggers of the store delete the document of a deleted record. Records from before the index existed
are indexed afterwards, the newest first.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ...protocol.records import Record
from ..core.context import Context
from ..core.event_log import data_of
from ..core.observers import events_appended
from ..core.sql import Batch, inside_of, named_params
from ..core.tx import Row, Tx
from .documents import Document, of_event, of_message, of_note

BACKLOG = "search_backlog"
# Documents of one INSERT.
AT_ONCE = 32
_COLUMNS = ("id", "kind", "source", "at", "mission_id", "agent_id", "words", "names")
_EVENT = "seq, type, timestamp, mission_id, agent_id, data_json"


# Signs between the letters and digits of an id would split it into several words.
_ID_SIGNS = str.maketrans("-_.:@", "¤¦¶§¬")


def facet(what: str, value: str) -> str:
    """Return the word by which the index knows a kind, an agent or a mission.

    No text contains such a word. A search for one agent thus reads little of what others said. When
    notes move to another mission, a trigger of the store writes it too.
    """
    return f"¤{what}{value.translate(_ID_SIGNS)}"


def row_of(
    document: Document,
    place: int,
    at: str,
    mission_id: str | None,
    agent_id: str | None,
    source: str | None = None,
) -> Row:
    """Return the row of a document at a position in the log."""
    facets = [facet("k", document.kind)]
    facets += [facet("a", agent_id)] if agent_id else []
    facets += [facet("m", mission_id)] if mission_id else []
    return {
        "id": place,
        "kind": document.kind,
        "source": source,
        "at": at,
        "mission_id": mission_id,
        "agent_id": agent_id,
        "words": " ".join([document.words, *facets]),
        "names": document.names,
    }


@events_appended.subscribe
def _note_events(
    tx: Tx,
    ctx: Context,
    mission_id: str | None,
    events: Iterable[tuple[int, tuple[str, str | None, Mapping[str, Any]]]],
) -> None:
    """Index what events say, as they are appended."""
    rows = [
        row_of(document, seq, ctx.now, mission_id, agent_id)
        for seq, (kind, agent_id, data) in events
        if (document := of_event(kind, data)) is not None
    ]
    if rows:
        _insert(tx, rows)


def add_message(tx: Tx, row: Row) -> None:
    """Index a message."""
    _add(tx, _message_row(row))


def add_note(tx: Tx, row: Row) -> None:
    """Index a note."""
    _add(tx, _note_row(row))


def _event_row(row: Row) -> Row | None:
    document = of_event(row["type"], data_of(row))
    if document is None:
        return None
    return row_of(document, row["seq"], row["timestamp"], row["mission_id"], row["agent_id"])


def _message_row(row: Row) -> Row:
    document = of_message(row)
    return row_of(document, row["seq"], row["sent_at"], row["mission_id"], row["sender"], row["id"])


def _note_row(row: Row) -> Row:
    document = of_note(row)
    return row_of(
        document, row["seq"], row["created_at"], row["mission_id"], row["agent_id"], row["id"]
    )


def _add(tx: Tx, row: Row) -> None:
    """Index a message or a note at its position in the log.

    Records restored from a checkpoint share one position. The further ones come before all others.
    """
    if not tx.tuples(f"{_statement(1)} RETURNING id", **_params([row])):
        digest = hashlib.sha256(row["source"].encode()).digest()
        _insert(tx, [row | {"id": -int.from_bytes(digest[:6], "big") - 1}])


def _insert(tx: Tx, rows: Sequence[Row]) -> None:
    """Write documents that are missing."""
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        tx.run(_statement(len(some)), **_params(some))


def _params(rows: Sequence[Row]) -> Row:
    """Return the parameters of the statement that writes some documents."""
    return {f"{name}{number}": row[name] for number, row in enumerate(rows) for name in _COLUMNS}


@cache
def _statement(number: int) -> str:
    """Return the statement that writes ``number`` documents."""
    rows = ", ".join(
        f"({', '.join(f':{name}{each}' for name in _COLUMNS)})" for each in range(number)
    )
    return (
        "INSERT INTO search_documents (id, kind, source, at, mission_id, agent_id, words, names)"
        f" VALUES {rows} ON CONFLICT DO NOTHING"
    )


def owe(tx: Tx, end: int) -> None:
    """Note that records up to a position are still to be indexed."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES (:key, :value)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=BACKLOG,
        value=str(end),
    )


def backlog(tx: Tx) -> int | None:
    """Return the position up to which no older record is indexed; None when all are."""
    value = tx.value("SELECT value FROM store_meta WHERE key = :key", key=BACKLOG)
    return None if value is None else int(value)


def is_behind(tx: Tx, ctx: Context) -> bool:
    """Whether older records are still to be indexed."""
    return backlog(tx) is not None


def catch_up(tx: Tx, ctx: Context) -> bool:
    """Index the next batch of the backlog, the newest first; return False when nothing is left."""
    until = backlog(tx)
    if until is None:
        return False
    floor = max(
        tx.value(sql, until=until, others=ctx.batches.rows - 1) or 0
        for sql in (
            "SELECT seq FROM events WHERE seq <= :until ORDER BY seq DESC LIMIT 1 OFFSET :others",
            "SELECT seq FROM messages WHERE seq <= :until ORDER BY seq DESC LIMIT 1 OFFSET :others",
            "SELECT seq FROM notes WHERE seq <= :until ORDER BY seq DESC LIMIT 1 OFFSET :others",
        )
    )
    events, records = _expected(tx, floor - 1, until)
    _insert(tx, events)
    for row in records:
        _add(tx, row)
    if floor > 0:
        owe(tx, floor - 1)
        return True
    tx.run("DELETE FROM store_meta WHERE key = :key", key=BACKLOG)
    return False


def _expected(tx: Tx, since: int, until: int) -> tuple[list[Row], list[Row]]:
    """Return the documents of a part of the log: those of events, and of messages and notes."""
    bounds = {"since": since, "until": until}
    events = tx.all(
        f"SELECT {_EVENT} FROM events WHERE seq > :since AND seq <= :until ORDER BY seq", **bounds
    )
    messages = tx.all(
        "SELECT * FROM messages WHERE seq > :since AND seq <= :until ORDER BY seq, id", **bounds
    )
    notes = tx.all(
        "SELECT * FROM notes WHERE seq > :since AND seq <= :until ORDER BY seq, id", **bounds
    )
    found = [document for row in events if (document := _event_row(row)) is not None]
    return found, [*map(_message_row, messages), *map(_note_row, notes)]


class IndexDamage(Record, frozen=True, kw_only=True):
    """Damage of the index: how many documents are missing, wrong or surplus."""

    documents: int = 0
    missing: int = 0
    wrong: int = 0
    surplus: int = 0

    @property
    def total(self) -> int:
        """Return how many documents are damaged."""
        return self.missing + self.wrong + self.surplus

    def plus(self, other: "IndexDamage") -> "IndexDamage":
        """Return the sum of both."""
        names = self.__struct_fields__
        return IndexDamage(**{name: getattr(self, name) + getattr(other, name) for name in names})


FIRST = -(2**62)


def compare(tx: Tx, ctx: Context, since: int, *, fix: bool = False) -> Batch[IndexDamage, int]:
    """Compare the next documents after a position with their records; ``fix`` repairs them.

    Records that are still to be indexed are skipped.
    """
    owed = backlog(tx)
    if owed is not None:
        since = max(since, owed)
    until = _end_of_batch(tx, since, ctx.batches.rows)
    events, records = _expected(tx, since, 2**62 if until is None else until)
    bounds = {"since": since, "until": 2**62 if until is None else until}
    there = tx.all(
        "SELECT * FROM search_documents WHERE id > :since AND id <= :until ORDER BY id", **bounds
    )
    known = {row["id"] for row in there}
    sources = [row["source"] for row in records]
    elsewhere = [row for row in _by_source(tx, sources) if row["id"] not in known]
    # Documents of messages and notes whose record has another position, or is gone.
    strangers = [row["source"] for row in there if row["source"] and row["source"] not in sources]
    wanted = {_key(row): row for row in [*events, *records, *_of_sources(tx, strangers)]}
    return Batch(_settle(tx, wanted, [*there, *elsewhere], fix=fix), until)


def _end_of_batch(tx: Tx, since: int, rows: int) -> int | None:
    """Return where the next batch ends; None for the last one."""
    ends = [
        tx.value(sql, since=since, others=rows - 1)
        for sql in (
            "SELECT seq FROM events WHERE seq > :since ORDER BY seq LIMIT 1 OFFSET :others",
            "SELECT seq FROM messages WHERE seq > :since ORDER BY seq LIMIT 1 OFFSET :others",
            "SELECT seq FROM notes WHERE seq > :since ORDER BY seq LIMIT 1 OFFSET :others",
            "SELECT id FROM search_documents WHERE id > :since ORDER BY id LIMIT 1 OFFSET :others",
        )
    ]
    return min((end for end in ends if end is not None), default=None)


def _key(row: Row) -> int | str:
    return int(row["id"]) if row["source"] is None else str(row["source"])


def _by_source(tx: Tx, sources: Sequence[str]) -> list[Row]:
    return tx.all(
        f"SELECT * FROM search_documents WHERE source IN ({inside_of('s', sources)})",
        **named_params("s", sources),
    )


def _of_sources(tx: Tx, sources: Sequence[str]) -> list[Row]:
    """Return the documents of messages and notes by their ids, as they should be."""
    params, inside = named_params("s", sources), inside_of("s", sources)
    messages = tx.all(f"SELECT * FROM messages WHERE id IN ({inside})", **params)
    notes = tx.all(f"SELECT * FROM notes WHERE id IN ({inside})", **params)
    return [*map(_message_row, messages), *map(_note_row, notes)]


def _settle(
    tx: Tx, wanted: Mapping[int | str, Row], there: Iterable[Row], *, fix: bool
) -> IndexDamage:
    missing, wrong, surplus, right = dict(wanted), list[Row](), list[Row](), 0
    for row in there:
        expected = missing.pop(_key(row), None)
        if expected is None:
            surplus.append(row)
        elif any(row[name] != expected[name] for name in _COLUMNS if name != "id"):
            wrong.append(row)
        else:
            right += 1
    if fix:
        for row in (*surplus, *wrong):
            tx.run("DELETE FROM search_documents WHERE id = :id", id=row["id"])
        for row in (*missing.values(), *(wanted[_key(row)] for row in wrong)):
            if row["source"] is None:
                _insert(tx, [row])
            else:
                _add(tx, row)
    return IndexDamage(
        documents=right, missing=len(missing), wrong=len(wrong), surplus=len(surplus)
    )


__all__ = [
    "FIRST",
    "IndexDamage",
    "add_message",
    "add_note",
    "backlog",
    "catch_up",
    "compare",
    "owe",
]
