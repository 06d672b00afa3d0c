"""The shape of a statement of a rule: what it returns, and how that is learned beforehand."""

import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ...domain.core.assigned import Counter
from ...domain.core.tx import Row
from .statements import numbered


class Shape(msgspec.Struct, frozen=True):
    """What a statement is: whether its rows are wanted, and how they are learned beforehand.

    ``question`` reads the rows that a statement will return; ``names`` are its parameters. Of an
    INSERT, ``columns`` names the parameters of each row that it returns. ``counter`` is what it
    counts up, of which it returns the numbers as ``column``.
    """

    kind: Literal["read", "write", "returning", "inserting", "counting", "unpredictable"]
    question: str = ""
    names: tuple[str, ...] = ()
    columns: tuple[tuple[tuple[str, str], ...], ...] = ()
    counter: Counter | None = None
    column: str = ""
    numbers: int = 0
    sent: str = ""
    """What is sent instead, as its rows are known; its numbers are ``:number0`` and so on."""
    writes: str = ""
    """The table that a statement writes."""
    reads: frozenset[str] = frozenset()
    """The words of ``question``: tables that it reads are among them."""
    changed: bool = False
    """Whether it returns changed rows: only an empty result can be predicted."""

    def key(self, params: Row) -> tuple[str, tuple[Any, ...]]:
        """Return what is asked, with the parameters by the order of their names."""
        return self.question, tuple([params[name] for name in self.names])


_PART = re.compile(r"'(?:[^']|'')*'|[()]|[^'()]+")
_CLAUSE = re.compile(r"\b(?:SELECT|WHERE|RETURNING|FROM|SET|VALUES|ON)\b", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:EXISTS|AND|OR|NOT|IS|IN|LIKE|BETWEEN)\b|[<>=]")
_WORD = re.compile(r"\w+")
_WRITES = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")


@lru_cache(maxsize=4_000)
def shape_of(sql: str) -> Shape:
    """Return what a statement of a rule is."""
    word = sql.lstrip().partition(" ")[0].upper()
    if word in ("SELECT", "WITH"):
        return Shape("read", sql, numbered(sql)[1], reads=frozenset(_WORD.findall(sql)))
    written = _WRITES.match(sql)
    if written is None:
        return Shape("unpredictable")
    return msgspec.structs.replace(_written(sql, word), writes=written[1])


def _written(sql: str, word: str) -> Shape:
    at = _clauses(sql)
    if "RETURNING" not in at:
        counts = word == "INSERT" and re.match(r"INSERT INTO (events|counters)\b", sql)
        return Shape("unpredictable" if counts else "write")
    returned = sql[at["RETURNING"] + len("RETURNING") :].strip()
    if word == "INSERT":
        return _inserting(sql, at, returned)
    where = sql[at["WHERE"] : at["RETURNING"]] if "WHERE" in at else ""
    table = sql[at["FROM"] + 4 : at["WHERE"]] if word == "DELETE" else sql[6 : at["SET"]]
    if word == "UPDATE" and "FROM" in at:
        return Shape("unpredictable")
    question = f"SELECT {returned} FROM {table.strip()} {where}"
    changed = word == "UPDATE" and "*" in returned
    reads = frozenset(_WORD.findall(question))
    return Shape("returning", question, numbered(question)[1], reads=reads, changed=changed)


def _masked(sql: str) -> str:
    """Return a statement with blanks for its texts and for what stands in parentheses."""
    shown, depth = [], 0
    for part in _PART.findall(sql):
        depth -= part == ")"
        shown.append(" " * len(part) if depth or part[0] == "'" else part)
        depth += part == "("
    return "".join(shown)


def _clauses(sql: str) -> dict[str, int]:
    """Return where the clauses of a statement begin, the first of each outside of parentheses."""
    found: dict[str, int] = {}
    for clause in _CLAUSE.finditer(_masked(sql)):
        found.setdefault(clause[0].upper(), clause.start())
    return found


@lru_cache(maxsize=1_000)
def boolean_columns(sql: str) -> frozenset[str]:
    """Return the columns that are conditions, as far as they have names.

    SQLite tells them as numbers, and PostgreSQL does not.
    """
    at, shown = _clauses(sql), _masked(sql)
    if "RETURNING" in at:
        column_list = shown[at["RETURNING"] + len("RETURNING") :]
    else:
        column_list = shown[at["SELECT"] + len("SELECT") : at.get("FROM")] if "SELECT" in at else ""
    items = (item.strip().rpartition(" AS ") for item in column_list.split(","))
    return frozenset(
        name for text, _, name in items if _CONDITION.search(text) and not text.startswith("CASE ")
    )


def _inserting(sql: str, at: dict[str, int], returned: str) -> Shape:
    """Return what an INSERT is whose rows tell what they will be."""
    head = re.match(r"INSERT INTO (\w+) \(([^)]*)\) ", sql)
    if head is None or "VALUES" not in at:
        return Shape("unpredictable")
    table, columns = head[1], [each.strip() for each in head[2].split(",")]
    if table == "counters" and "'fencing'" in sql and returned == "value":
        return Shape("counting", counter="fencing", column="value", numbers=1)
    end = at.get("ON", at["RETURNING"])
    if "ON" in at and "DO NOTHING" not in sql[at["ON"] :]:
        return Shape("unpredictable")
    rows = _rows(sql[at["VALUES"] + len("VALUES") : end])
    if table == "events":
        if returned != "seq" or "seq" in columns:
            return Shape("unpredictable")
        counted = (f"({', '.join([f':number{n}', *row])})" for n, row in enumerate(rows))
        sent = f"INSERT INTO events (seq, {head[2]}) VALUES {', '.join(counted)}"
        return Shape("counting", counter="events", column="seq", numbers=len(rows), sent=sent)
    wanted = [each.strip() for each in returned.split(",")]
    returned_columns = []
    for row in rows:
        values = dict(zip(columns, row, strict=True)) if len(row) == len(columns) else {}
        if any(not re.fullmatch(r":\w+", values.get(each, "")) for each in wanted):
            return Shape("unpredictable")
        returned_columns.append(tuple((each, values[each][1:]) for each in wanted))
    sent = "" if "ON" in at else sql[: at["RETURNING"]].rstrip()
    return Shape("inserting", columns=tuple(returned_columns), sent=sent)


def _rows(values: str) -> list[list[str]]:
    """Return the values of each row of a VALUES list, as they are written."""
    rows: list[list[str]] = []
    depth, begin = 0, 0
    for at, sign in enumerate(values):
        if sign == "(":
            depth += 1
            if depth == 1:
                rows.append([])
                begin = at + 1
        elif sign in ",)" and depth == 1:
            rows[-1].append(values[begin:at].strip())
            begin = at + 1
        if sign == ")":
            depth -= 1
    return rows
