"""Command outcomes: how the commands and tools of a run ended, as declared or logged.

There is one outcome per call. Some harnesses report the end of a call in a second event, and the
newer event has more detail. Secrets are already replaced.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...protocol.display import short, short_ends
from ...protocol.requests.snapshot import DeclaredOutcome
from ...protocol.snapshots import MOST_OUTCOMES, SUMMARY_CHARS, CommandOutcome
from ...protocol.timestamps import to_ms
from ...protocol.types import OutcomeKind, Verdict
from ..core.event_log import data_of, happened_at, nth_newest_position
from ..core.sql import in_sql
from ..core.tx import Row, Tx
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL

NAME_CHARS = 200
# A call has three events at most.
MOST_EVENTS = 20 * MOST_OUTCOMES
# How many of an agent's last events are searched for calls from before the last snapshot, and how
# many events of calls among them.
LAST_EVENTS, _BEFORE = 1_000, 200
_SLASH_COMMANDS = ("slashcommand", "slash_command")
_LONGEST_MS = 2**53


class Outcomes(msgspec.Struct, frozen=True):
    """The last 50 outcomes in order; ``dropped`` counts those before them."""

    kept: list[CommandOutcome]
    dropped: int = 0


class Span(msgspec.Struct, frozen=True):
    """An agent's part of the log: after ``since``, and not before ``begun_at``."""

    agent_id: str
    since: int
    begun_at: str


def outcomes_declared(declared: Sequence[DeclaredOutcome]) -> Outcomes:
    """Return the outcomes that a caller declares, only the last if there are too many."""
    kept = declared[-MOST_OUTCOMES:]
    return Outcomes(
        [
            CommandOutcome(
                kind=each.kind,
                name=short(each.name, NAME_CHARS),
                result=each.result,
                duration_ms=each.duration_ms,
                reason_code=each.reason_code,
                summary=short(each.summary, SUMMARY_CHARS),
            )
            for each in kept
        ],
        len(declared) - len(kept),
    )


def outcomes_in_log(tx: Tx, span: Span) -> Outcomes:
    """Return the outcomes of the calls that an agent reports in a part of the log."""
    rows = _events(tx, span, BEGINS_A_CALL + ENDS_A_CALL, MOST_EVENTS)
    calls = _calls(rows, tx, span)
    kept = calls[-MOST_OUTCOMES:]
    dropped = len(calls) - len(kept)
    if len(rows) == MOST_EVENTS:
        dropped += tx.value(
            "SELECT count(*) FROM events WHERE agent_id = :agent AND seq > :since AND seq < :until"
            f" AND timestamp >= :begun AND type IN {in_sql(ENDS_A_CALL)}",
            agent=span.agent_id,
            since=span.since,
            until=rows[0]["seq"],
            begun=span.begun_at,
        )
    return Outcomes([call.outcome() for call in kept], dropped)


def newest_outcome(tx: Tx, span: Span) -> CommandOutcome | None:
    """Return the outcome of an agent's last call, even if a snapshot already has it."""
    since = nth_newest_position(tx, span.agent_id, LAST_EVENTS)
    rows = _events(tx, msgspec.structs.replace(span, since=since), ENDS_A_CALL, 3)
    calls = _calls(rows, tx, None)
    return calls[-1].outcome() if calls else None


def _events(tx: Tx, span: Span, kinds: Sequence[str], most: int) -> list[Row]:
    rows = tx.all(
        "SELECT seq, type, timestamp, data_json FROM events WHERE agent_id = :agent"
        f" AND seq > :since AND timestamp >= :begun AND type IN {in_sql(kinds)}"
        " ORDER BY seq DESC LIMIT :most",
        agent=span.agent_id,
        since=span.since,
        begun=span.begun_at,
        most=most,
    )
    return rows[::-1]


class _Call(msgspec.Struct):
    """One call as far as it was reported; ``begun_ms`` and ``ended_ms`` are of the wall clock."""

    shell: bool = False
    command: str = ""
    tool: str = ""
    result: str = ""
    error: str = ""
    reported_duration_ms: int | None = None
    begun_ms: int | None = None
    ended_ms: int | None = None

    def apply(self, kind: str, data: dict[str, Any], at_ms: int) -> None:
        """Apply an event; fields that it lacks stay unchanged."""
        self.shell = self.shell or kind.startswith("command")
        self.command = _text(data, "command") or self.command
        self.tool = _text(data, "tool", "name") or self.tool
        self.error = _text(data, "error") or self.error
        if kind in BEGINS_A_CALL:
            self.begun_ms = at_ms
            return
        self.ended_ms = at_ms if self.ended_ms is None else self.ended_ms
        self.result = _result(kind, data) or self.result
        duration_ms = data.get("duration_ms")
        if type(duration_ms) is int and 0 <= duration_ms <= _LONGEST_MS:
            self.reported_duration_ms = duration_ms

    def outcome(self) -> CommandOutcome:
        """Return the outcome of the call."""
        result, code = _VERDICTS.get(self.result, _UNKNOWN)
        kind: OutcomeKind = "shell" if self.shell else "tool_use"
        if self.tool.lower() in _SLASH_COMMANDS:
            kind = "slash_command"
        return CommandOutcome(
            kind=kind,
            name=short(self.command or self.tool, NAME_CHARS) or "unnamed",
            result=result,
            duration_ms=self._duration_ms(),
            reason_code=code if result != "FAIL" or self.shell else "tool_failed",
            summary=short_ends(self.error, SUMMARY_CHARS),
        )

    def _duration_ms(self) -> int:
        if self.reported_duration_ms is not None:
            return self.reported_duration_ms
        if self.begun_ms is None or self.ended_ms is None:
            return 0
        # The clock may have been set back in between.
        return max(0, self.ended_ms - self.begun_ms)


_VERDICTS: dict[str, tuple[Verdict, str | None]] = {
    "PASS": ("PASS", None),
    "WARN": ("WARN", None),
    "FAIL": ("FAIL", "command_failed"),
}
# The end of a command alone does not show its result.
_UNKNOWN: tuple[Verdict, str | None] = ("WARN", "outcome_unknown")


def _text(data: dict[str, Any], *names: str) -> str:
    """Return the first of these that is a text; clients may append events with any data."""
    found = (data.get(name) for name in names)
    return next((text for text in found if isinstance(text, str) and text), "")


def _result(kind: str, data: dict[str, Any]) -> str:
    if kind == "tool_failed":
        return "FAIL"
    verdict = _text(data, "result").upper()
    return "PASS" if kind == "tool_finished" and verdict not in _VERDICTS else verdict


def _at_ms(row: Row, data: dict[str, Any]) -> int:
    return to_ms(happened_at(row, data))


def _calls(rows: Sequence[Row], tx: Tx, span: Span | None) -> list[_Call]:
    """Return the calls that have ended, in the order of their last event."""
    open_calls: dict[str, _Call] = {}
    ended: dict[str, _Call] = {}
    for row in rows:
        data = data_of(row)
        call_id = _text(data, "call_id")
        name = call_id or f"\0{_text(data, 'command', 'tool', 'name')}"
        kind, at_ms = row["type"], _at_ms(row, data)
        if kind in BEGINS_A_CALL:
            open_calls[name] = call = _Call()
        else:
            known = ended.pop(name, None) if call_id else None
            call = known or open_calls.pop(name, None) or _Call()
            ended[name if call_id else f"\0{row['seq']}"] = call
        call.apply(kind, data, at_ms)
    if span is not None:
        _find_beginnings(tx, span, ended)
    return list(ended.values())


def _find_beginnings(tx: Tx, span: Span, ended: dict[str, _Call]) -> None:
    """Note the beginning of calls that were running when the last snapshot was taken.

    For a call that had ended by then, and of which more is known now, note its end as well.
    """
    lacking = {
        name: call
        for name, call in ended.items()
        if call.reported_duration_ms is None and call.begun_ms is None and not name.startswith("\0")
    }
    if not lacking or not span.since:
        return
    kinds = in_sql(BEGINS_A_CALL + ENDS_A_CALL)
    rows = tx.all(
        "SELECT type, timestamp, data_json FROM events WHERE agent_id = :agent"
        f" AND seq <= :since AND seq > :before AND type IN {kinds} ORDER BY seq DESC"
        " LIMIT :most",
        agent=span.agent_id,
        since=span.since,
        most=_BEFORE,
        before=nth_newest_position(tx, span.agent_id, LAST_EVENTS),
    )
    for row in rows:
        data = data_of(row)
        call = lacking.get(_text(data, "call_id"))
        if call is not None and row["type"] in ENDS_A_CALL:
            call.ended_ms = _at_ms(row, data)
        elif call is not None:
            call.begun_ms = _at_ms(row, data)
            lacking.pop(_text(data, "call_id"))
