"""Report of usage: records are read a page at a time, and summed up as requested."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec

from ...harness.usage.readers import KNOWN
from ...protocol.requests.usage import ModelUsage, UnknownUsage, UsageBy, UsageGroup
from ..core.context import Context
from ..core.sql import Where, chunks, in_sql, inside_of, named_params
from ..core.tx import Tx
from .records import FIGURES

# Input sizes of a request from which the price may be another one.
INPUT_LIMITS = (0, 32_001, 100_001, 128_001, 200_001, 256_001, 272_001, 512_001, 524_289)
NOT_KNOWN = 100
_COLUMNS = ("at", "key", "harness", "agent_id", "mission_id", "sortie_id", "model", *FIGURES)
_OF: dict[UsageBy, int] = {"agent": 3, "mission": 4, "sortie": 5, "model": 6}
_FIRST_FIGURE = _COLUMNS.index(FIGURES[0])
Cursor = tuple[str, str]
UsageRow = tuple[Any, ...]
# Requests with one price: the agent CLI, the model, the size of the input, and the day in UTC.
_Priced = tuple[str, str | None, int, str]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The records to report; times are ISO 8601 UTC."""

    since_time: str | None = None
    until_time: str | None = None
    agent_id: str | None = None
    mission_id: str | None = None


def page(tx: Tx, ctx: Context, wanted: Filter, after: Cursor) -> list[UsageRow]:
    """Return the next records after a cursor, in the order of time."""
    where = Where()
    where.equal(agent_id=wanted.agent_id, mission_id=wanted.mission_id)
    where.until("at", wanted.until_time)
    return tx.tuples(
        f"SELECT {', '.join(_COLUMNS)} FROM usage_records WHERE {where}"
        " AND (at, key) > (:after_at, :after_key) ORDER BY at, key LIMIT :most",
        **where.params,
        after_at=max(after[0], wanted.since_time or ""),
        after_key=after[1] if after[0] >= (wanted.since_time or "") else "",
        most=ctx.batches.looked_at,
    )


def is_agent(tx: Tx, ctx: Context, agent_id: str) -> bool:
    """Whether an agent has usage records; the agent may be deleted since."""
    return tx.exists(
        "SELECT 1 AS took FROM usage_records WHERE agent_id = :agent LIMIT 1", agent=agent_id
    )


def cursor_of(row: UsageRow) -> Cursor:
    """Return the cursor after a record."""
    return row[0], row[1]


class _Sums:
    """The sums of requests to one model that have one price."""

    def __init__(self, at: str) -> None:
        self.first_at = self.last_at = at
        self.requests = 0
        self.figures = [0] * len(FIGURES)

    def add(self, row: UsageRow) -> None:
        """Add a record; they come in the order of time."""
        self.last_at = row[0]
        self.requests += 1
        for place, figure in enumerate(row[_FIRST_FIGURE:]):
            self.figures[place] += figure


class Tally:
    """Sums by agent, sortie, mission, model or day; ``day_of`` names the day of a time."""

    def __init__(self, by: UsageBy, day_of: Callable[[str], str] = lambda at: at[:10]) -> None:
        self._by = by
        self._day_of = day_of
        self._groups: dict[str | None, dict[_Priced, _Sums]] = {}

    def add(self, row: UsageRow) -> None:
        """Add a record."""
        name = self._day_of(row[0]) if self._by == "day" else row[_OF[self._by]]
        given = row[_FIRST_FIGURE] + row[_FIRST_FIGURE + 2] + row[_FIRST_FIGURE + 3]
        size = INPUT_LIMITS[bisect_right(INPUT_LIMITS, given) - 1]
        sums = self._groups.setdefault(name, {})
        place = (row[2], row[6], size, row[0][:10])
        if place not in sums:
            sums[place] = _Sums(row[0])
        sums[place].add(row)

    @property
    def names(self) -> list[str]:
        """Return the names of the groups."""
        return [name for name in self._groups if name is not None]

    def models(self) -> list[ModelUsage]:
        """Return the sums of all groups, which must be one."""
        return [each for sums in self._groups.values() for each in _models(sums)]

    def groups(self, titles: dict[str, str]) -> list[UsageGroup]:
        """Return the groups: days in their order, else the largest usage first."""
        found = [
            UsageGroup(name=name, title=titles.get(name or ""), models=_models(sums))
            for name, sums in self._groups.items()
        ]
        if self._by == "day":
            return sorted(found, key=lambda group: group.name or "")
        return sorted(found, key=lambda group: (-total(group.models), group.name or ""))


def total(models: list[ModelUsage]) -> int:
    """Return all tokens of some models."""
    return sum(
        each.input_tokens + each.output_tokens + each.cache_read_tokens + each.cache_write_tokens
        for each in models
    )


def _models(sums: dict[_Priced, _Sums]) -> list[ModelUsage]:
    found = [
        ModelUsage(
            harness=harness,
            model=model,
            from_input_tokens=size,
            requests=each.requests,
            first_at=each.first_at,
            last_at=each.last_at,
            **{f"{name}_tokens": each.figures[n] for n, name in enumerate(FIGURES)},
        )
        for (harness, model, size, _), each in sums.items()
    ]
    return sorted(
        found,
        key=lambda each: (each.harness, each.model or "", each.from_input_tokens, each.first_at),
    )


def titles(tx: Tx, ctx: Context, by: UsageBy, ids: list[str]) -> dict[str, str]:
    """Return the titles of missions or sorties."""
    found: dict[str, str] = {}
    for some in chunks(ids):
        named, inside = named_params("i", some), inside_of("i", some)
        if by == "mission":
            rows = tx.all(f"SELECT id, title FROM missions WHERE id IN ({inside})", **named)
        else:
            rows = tx.all(f"SELECT id, title FROM sorties WHERE id IN ({inside})", **named)
        found |= {row["id"]: row["title"] for row in rows}
    return found


def not_known(tx: Tx, ctx: Context, wanted: Filter) -> tuple[list[UnknownUsage], int]:
    """Return agents of sessions whose tokens are unknown, and how many more there are."""
    where = Where()
    where.add("s.subagent = ''")
    where.add(
        f"(s.harness NOT IN {in_sql(sorted(KNOWN))} OR NOT EXISTS (SELECT 1 FROM transcripts t"
        " WHERE t.harness = s.harness AND t.session_id = s.session_id"
        " AND NOT (t.missing = 1 AND t.position = 0)))"
    )
    where.since("s.last_event_at", wanted.since_time)
    where.until("s.started_at", wanted.until_time)
    if wanted.agent_id:
        where.add("s.agent_id = :agent_id", agent_id=wanted.agent_id)
    if wanted.mission_id:
        where.add("a.mission_id = :mission_id", mission_id=wanted.mission_id)
    rows = tx.all(
        "SELECT DISTINCT s.agent_id, s.harness FROM sessions s"
        f" LEFT JOIN agents a ON a.id = s.agent_id WHERE {where} ORDER BY s.agent_id, s.harness",
        **where.params,
    )
    return [UnknownUsage(**row) for row in rows[:NOT_KNOWN]], max(len(rows) - NOT_KNOWN, 0)
