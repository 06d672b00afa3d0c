"""Compactions: what each agent did until the next one, for an hour at most.

The log contains tool calls, but no requests to a model. Events of a compaction without a tool call
between them are one compaction: some harnesses report it after the briefing, or not at all.
"""

from collections import deque
from collections.abc import Iterable
from statistics import fmean, median
from typing import Any, Literal

import msgspec

from ...protocol.requests.stats import (
    CompactionEffect,
    RecoveryGroup,
    RecoveryStats,
    StatsRecovery,
)
from ...protocol.timestamps import iso, to_ms
from ..core.context import Context
from ..core.event_log import data_of, happened_at, position, position_before
from ..core.sql import in_sql
from ..core.tx import Row, Tx
from ..liveness.needs import one_line
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL

HOUR_MS = 3_600_000
# A smaller group proves nothing.
FEWEST = 20
# How many calls of one agent are remembered.
REMEMBERED = 10_000
_Briefing = Literal["given", "off"] | None
_BRIEFINGS: dict[str, _Briefing] = {
    "window_compacted": None,
    "window_briefed": "given",
    "briefing_missed": "off",
}
_MARKS = tuple(_BRIEFINGS)
EVALUATED_TYPES = (*_MARKS, "recovery_briefed", "file_modified", *BEGINS_A_CALL, *ENDS_A_CALL)
_NEVER = float("inf")

# What a call does: a word for its kind, and a command, a file or a task.
_Deed = tuple[Literal["command", "file", "subagent"], str]


class Span(msgspec.Struct, frozen=True):
    """The part of an agent's log that contains compactions, from the first to the last."""

    agent_id: str
    first_seq: int
    last_seq: int


def find_spans(tx: Tx, ctx: Context, since_time: str | None) -> list[Span]:
    """Return the agents whose windows were compacted, and where in the log."""
    floor = position_before(tx, since_time, position(tx)) if since_time else 0
    rows = tx.all(
        "SELECT agent_id, min(seq) AS first_seq, max(seq) AS last_seq FROM events"
        f" WHERE type IN {in_sql(_MARKS)} AND seq > :floor AND agent_id IS NOT NULL"
        " GROUP BY agent_id",
        floor=floor,
    )
    return [Span(**row) for row in rows]


def start_of(tx: Tx, ctx: Context, span: Span) -> int:
    """Return the position after which a span begins: an hour before its first compaction.

    A limit keeps a clock that was set back from turning the hour into the whole log.
    """
    first = tx.value("SELECT timestamp FROM events WHERE seq = :seq", seq=span.first_seq)
    if first is None:
        return span.first_seq
    place: Row = {"agent": span.agent_id, "first": span.first_seq}
    floor: int | None = tx.value(
        "SELECT seq FROM events WHERE agent_id = :agent AND seq < :first"
        " ORDER BY seq DESC LIMIT 1 OFFSET :most",
        **place,
        most=REMEMBERED,
    )
    found: int | None = tx.value(
        "SELECT seq FROM events WHERE agent_id = :agent AND seq < :first AND seq > :floor"
        " AND timestamp < :hour ORDER BY seq DESC LIMIT 1",
        **place,
        floor=floor or 0,
        hour=iso(to_ms(first) - HOUR_MS),
    )
    return found or floor or 0


def next_events(tx: Tx, ctx: Context, span: Span, since: int) -> list[Row]:
    """Return the next events of a span after a position; empty when there are no more."""
    last = tx.value("SELECT timestamp FROM events WHERE seq = :seq", seq=span.last_seq)
    rows = tx.all(
        # What a harness kept of a window can be long, and is not needed here.
        "SELECT seq, type, timestamp, mission_id,"
        " CASE WHEN type = 'window_compacted' THEN '{}' ELSE data_json END AS data_json"
        " FROM events WHERE agent_id = :agent AND seq > :since"
        f" AND type IN {in_sql(EVALUATED_TYPES)}"
        " ORDER BY seq LIMIT :most",
        agent=span.agent_id,
        since=since,
        most=ctx.batches.looked_at,
    )
    end = iso(to_ms(last) + HOUR_MS) if last is not None else ""
    return [row for row in rows if row["seq"] <= span.last_seq or row["timestamp"] <= end]


class _Compaction(msgspec.Struct):
    """The reported part of a compaction; ``known`` is what the agent did in the hour before."""

    seq: int
    at: str
    until: str
    mission_id: str | None
    known: frozenset[_Deed]
    briefing: _Briefing = None
    calls: int = 0
    calls_until_edit: int | None = None
    again: set[_Deed] = msgspec.field(default_factory=set)
    followed: bool = False

    def effect(self, agent_id: str, now: str) -> CompactionEffect:
        """Return what came after it, as it is known now."""
        kinds = [kind for kind, _ in self.again]
        return CompactionEffect(
            seq=self.seq,
            at=self.at,
            agent_id=agent_id,
            mission_id=self.mission_id,
            briefing=self.briefing,
            calls=self.calls,
            calls_until_edit=self.calls_until_edit,
            commands_again=kinds.count("command"),
            files_again=kinds.count("file"),
            subagents_again=kinds.count("subagent"),
            over=self.followed or self.until < now,
        )


class Story:
    """One agent's compactions, collected from its events in their order."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id
        self._compactions: list[_Compaction] = []
        self._deeds: deque[tuple[str, _Deed]] = deque(maxlen=REMEMBERED)
        # For each reported call, after how many compactions it began; and the calls that are open.
        self._calls: dict[str, int] = {}
        self._open: set[str] = set()
        self._unnamed = 0
        self._since_mark = 0

    def effects(self, span: Span, now: str) -> list[CompactionEffect]:
        """Return the compactions of a span, oldest first."""
        found = (each for each in self._compactions if each.seq >= span.first_seq)
        return [each.effect(self._agent_id, now) for each in found]

    def process(self, row: Row) -> None:
        """Process the next event."""
        kind, data = row["type"], data_of(row)
        if kind == "file_modified":
            self._edited(happened_at(row, data))
        elif kind in BEGINS_A_CALL or kind in ENDS_A_CALL:
            self._called(kind, data, happened_at(row, data))
        elif kind == "recovery_briefed":
            self._recovered(row)
        elif data.get("reason") == "reply_lost":
            self._reply_lost()
        else:
            self._marked(row, _BRIEFINGS[kind])

    @property
    def _current(self) -> _Compaction | None:
        return self._compactions[-1] if self._compactions else None

    def _open_at(self, at: str) -> _Compaction | None:
        """Return the compaction that a time comes after, if it is not over."""
        last = self._current
        return last if last is not None and at <= last.until else None

    def _marked(self, row: Row, briefing: _Briefing) -> None:
        """Process a mark: a compaction of the window, or a briefing that was given or missed."""
        last, again = self._open_at(row["timestamp"]), self._since_mark == 0
        if last is None or not (
            (briefing is not None and last.briefing is None)
            or (again and briefing in (None, last.briefing))
        ):
            last = self._compacted(row)
        last.briefing = briefing or last.briefing
        self._since_mark = 0

    def _compacted(self, row: Row) -> _Compaction:
        at, moment = row["timestamp"], to_ms(row["timestamp"])
        if self._current is not None:
            self._current.followed, self._current.known = True, frozenset()
        before = iso(moment - HOUR_MS)
        begun = _Compaction(
            seq=row["seq"],
            at=at,
            until=iso(moment + HOUR_MS),
            mission_id=row["mission_id"],
            known=frozenset(deed for when, deed in self._deeds if when >= before),
        )
        self._compactions.append(begun)
        return begun

    def _reply_lost(self) -> None:
        if self._current is not None and self._current.briefing == "given":
            self._current.briefing = None

    def _recovered(self, row: Row) -> None:
        """Process a briefing by a recovery for an agent without one: it is in no group."""
        last = self._open_at(row["timestamp"])
        if last is not None and last.briefing == "off":
            last.briefing = None

    def _edited(self, at: str) -> None:
        last = self._open_at(at)
        if last is not None and last.calls_until_edit is None:
            last.calls_until_edit = max(last.calls, 1)

    def _called(self, kind: str, data: dict[str, Any], at: str) -> None:
        """Process the start or the end of a call; what it does counts once."""
        last, number = self._open_at(at), len(self._compactions)
        name = data.get("call_id")
        named = name if isinstance(name, str) else None
        began = self._began(kind, named)
        if began is None:
            began = number
            self._since_mark += 1
            if last is not None:
                last.calls += 1
            self._note(last, _asked(data), at)
        if named is not None:
            self._remember(named, began, opens=kind in BEGINS_A_CALL)
        if kind == "tool_finished" and isinstance(file := data.get("file"), str):
            self._note(last if began == number else None, ("file", file), at)

    def _began(self, kind: str, named: str | None) -> int | None:
        """Return after how many compactions a call began, None for one that begins now.

        Some harnesses have no ids for calls, and some events report only an end.
        """
        if named is not None:
            known = kind in ENDS_A_CALL or named in self._open
            return self._calls.get(named) if known else None
        if kind in BEGINS_A_CALL:
            self._unnamed += 1
            return None
        if self._unnamed:
            self._unnamed -= 1
            return len(self._compactions)
        # The end of a command that failed is reported twice.
        return len(self._compactions) if kind == "tool_failed" else None

    def _remember(self, named: str, began: int, *, opens: bool) -> None:
        self._calls[named] = began
        if opens:
            self._open.add(named)
        else:
            self._open.discard(named)
        if len(self._calls) > REMEMBERED:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            self._open.discard(oldest)

    def _note(self, last: _Compaction | None, deed: _Deed | None, at: str) -> None:
        """Note what a call does; it is done again if it was done before the last compaction."""
        if deed is None:
            return
        if last is not None and deed in last.known:
            last.again.add(deed)
        self._deeds.append((at, deed))


def _asked(data: dict[str, Any]) -> _Deed | None:
    """Return what a call is to do: a command, or the task of a subagent."""
    command, task = data.get("command"), data.get("task")
    if isinstance(command, str) and command.strip():
        return "command", " ".join(command.split())
    if isinstance(task, str) and (text := one_line(task)):
        return "subagent", text
    return None


class Tally:
    """The figures of all compactions, agent by agent, and the newest of them."""

    def __init__(self, request: StatsRecovery) -> None:
        self._limit = request.limit
        self._newest: list[CompactionEffect] = []
        self._groups: dict[str | None, list[CompactionEffect]] = {"given": [], "off": [], None: []}
        self._not_over = 0
        self._all = 0

    def add(self, effects: list[CompactionEffect]) -> None:
        """Count the compactions of one more agent."""
        self._all += len(effects)
        newest = sorted([*self._newest, *effects], key=lambda each: each.seq, reverse=True)
        self._newest = newest[: self._limit]
        for each in effects:
            if each.over:
                self._groups[each.briefing].append(each)
            else:
                self._not_over += 1

    def stats(self) -> RecoveryStats:
        """Return the figures."""
        return RecoveryStats(
            with_briefing=_group(self._groups["given"]),
            without_briefing=_group(self._groups["off"]),
            unknown=len(self._groups[None]),
            not_over=self._not_over,
            fewest=FEWEST,
            compactions=self._newest,
            more=self._all - len(self._newest),
        )


def _group(effects: list[CompactionEffect]) -> RecoveryGroup:
    edited = [each.calls_until_edit for each in effects if each.calls_until_edit is not None]
    enough = len(effects) >= FEWEST
    calls: list[float] = [*edited, *[_NEVER] * (len(effects) - len(edited))]
    middle = median(calls) if enough else _NEVER

    def mean(values: Iterable[int]) -> float | None:
        return round(fmean(values), 2) if enough else None

    return RecoveryGroup(
        compactions=len(effects),
        edited=len(edited),
        calls_until_edit=None if middle == _NEVER else middle,
        commands_again=mean(each.commands_again for each in effects),
        files_again=mean(each.files_again for each in effects),
        subagents_again=mean(each.subagents_again for each in effects),
    )
