"""The story of a report: what was asked, done and met, from its events, within bounds."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ...protocol.requests.report import (
    ReportCommand,
    ReportCommit,
    ReportError,
    ReportFile,
    ReportPrompt,
)
from ...protocol.requests.stats import CompactionEffect
from ...protocol.timestamps import to_ms
from ..core.event_log import data_of, happened_at
from ..core.tx import Row
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL, LONGEST_CALL_MS
from ..stats import compactions
from .command_kinds import commits, runs_tests

# The limit of each list of a report.
LISTED = 200
# How many different files, commands and agents are remembered while the log is read.
REMEMBERED = 5_000
TEXT_CHARS, COMMAND_CHARS, ERROR_CHARS = 2_000, 1_000, 1_000
# An agent that does nothing for longer is not at work, unless a call is open.
PAUSE_MS = 300_000
_CALLS = 1_000
_NAMED = 20
_SPOKEN = ("prompt_submitted", "agent_answered", "agent_paused")
# The events whose data is read; of the others only their time and agent count.
DATA_TYPES = (*_SPOKEN, "file_modified", "error_reported", *BEGINS_A_CALL, *ENDS_A_CALL)
K = TypeVar("K")
V = TypeVar("V")
_Result = Literal["PASS", "FAIL"] | None


class Newest(Generic[K, V]):
    """The newest items by key, up to a limit; ``dropped`` counts the removed ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self.dropped = 0

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the item of a key, created if it is missing, and make it the newest."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._kept[key] = make()
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
            self.dropped += 1
        return found

    def pop(self, key: K) -> V | None:
        """Remove the item of a key, and return it."""
        return self._kept.pop(key, None)

    def keys(self) -> list[K]:
        """Return the keys, the newest last."""
        return list(self._kept)

    def values(self) -> list[V]:
        """Return the items, the newest last."""
        return list(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: K) -> bool:
        return key in self._kept


class _Tail(Generic[V]):
    """The newest items; ``dropped`` counts the others."""

    def __init__(self) -> None:
        self.kept: deque[V] = deque(maxlen=LISTED)
        self.dropped = 0

    def add(self, thing: V) -> None:
        """Add the next item."""
        self.dropped += len(self.kept) == self.kept.maxlen
        self.kept.append(thing)


class _Command(msgspec.Struct):
    """A command that was run, so far."""

    command: str
    test: bool
    runs: int = 0
    passed: int = 0
    failed: int = 0
    result: _Result = None
    error: str | None = None
    last_at: str = ""
    agents: list[str] = msgspec.field(default_factory=list)


class _File(msgspec.Struct):
    """A file that was changed, so far."""

    file: str
    changes: int = 0
    last_at: str = ""
    agents: list[str] = msgspec.field(default_factory=list)


class _Run(msgspec.Struct):
    """One run of a command: some harnesses report its end in two events."""

    command: _Command
    commit: int | None
    result: _Result = None


class Part(msgspec.Struct):
    """What one agent did, so far."""

    agent_id: str
    compactions: compactions.Story
    first_at: str = ""
    last_at: str = ""
    calls: int = 0
    failed: int = 0
    changes: int = 0
    active_ms: int = 0
    last_answer: str | None = None
    last_active_ms: int | None = None
    waits: bool = False
    failed_unnamed: bool = False
    """Whether the last event is the end of a failed command without a call id."""
    # The calls that are open, with the command of each.
    open: Newest[str, str | None] = msgspec.field(default_factory=lambda: Newest(_CALLS))
    runs: Newest[str, _Run] = msgspec.field(default_factory=lambda: Newest(_CALLS))
    ended: Newest[str, list[bool]] = msgspec.field(default_factory=lambda: Newest(_CALLS))


class Story:
    """What the events of a report say, in their order."""

    def __init__(self) -> None:
        self.first_at, self.last_at = "", ""
        self.parts: Newest[str, Part] = Newest(REMEMBERED)
        self.missions: Newest[str, None] = Newest(LISTED)
        self.asked: _Tail[ReportPrompt] = _Tail()
        self.errors: _Tail[ReportError] = _Tail()
        self._commands: Newest[str, _Command] = Newest(REMEMBERED)
        self._files: Newest[str, _File] = Newest(REMEMBERED)
        self._commits: OrderedDict[int, ReportCommit] = OrderedDict()
        self._commits_dropped = 0

    def process(self, row: Row) -> None:
        """Process the next event."""
        data = data_of(row)
        at = happened_at(row, data)
        self.first_at = min(self.first_at or at, at)
        self.last_at = max(self.last_at, at)
        if row["mission_id"] is not None:
            self.missions.get(row["mission_id"], lambda: None)
        part = self._part(row["agent_id"]) if row["agent_id"] is not None else None
        if part is not None:
            _pass_time(part, row, at)
        if row["type"] in DATA_TYPES:
            self._take_in(row, data, at, part)
        if part is not None and row["type"] in compactions.EVALUATED_TYPES:
            part.compactions.process(row)

    def _part(self, agent_id: str) -> Part:
        return self.parts.get(agent_id, lambda: Part(agent_id, compactions.Story(agent_id)))

    def _take_in(self, row: Row, data: dict[str, Any], at: str, part: Part | None) -> None:
        kind, agent_id = row["type"], row["agent_id"]
        if kind == "prompt_submitted":
            text = _text(data.get("prompt"), TEXT_CHARS)
            if text:
                self.asked.add(ReportPrompt(at=at, agent_id=agent_id, text=text))
        elif kind == "error_reported":
            name, message = _text(data.get("name"), 200), _text(data.get("message"), ERROR_CHARS)
            self.errors.add(ReportError(at=at, agent_id=agent_id, name=name, message=message))
        elif part is None:
            return
        elif kind == "agent_answered":
            part.last_answer = _text(data.get("message"), TEXT_CHARS) or part.last_answer
        elif kind == "file_modified":
            self._edited(data, at, part)
        elif kind in BEGINS_A_CALL:
            _began(data, part)
        elif kind in ENDS_A_CALL:
            self._ended(row, data, at, part)
        if part is not None:
            failed = kind == "command_finished" and data.get("result") == "FAIL"
            part.failed_unnamed = failed and not data.get("call_id")

    def _edited(self, data: dict[str, Any], at: str, part: Part) -> None:
        part.changes += 1
        if file := _text(data.get("file"), 4_096):
            found = self._files.get(file, lambda: _File(file))
            found.changes += 1
            found.last_at = at
            _add(found.agents, part.agent_id)

    def _ended(self, row: Row, data: dict[str, Any], at: str, part: Part) -> None:
        """Process the end of a call; the second event of one call adds what the first left out."""
        named = _text(data.get("call_id"), 200)
        if not named and row["type"] == "tool_failed" and part.failed_unnamed:
            return
        call_id = named or f"seq {row['seq']}"
        began = part.open.pop(call_id)
        result = _result(row["type"], data)
        if began is None and (ended := part.ended.get(call_id, list)):
            part.failed += result == "FAIL" and not ended[0]
            ended[0] = ended[0] or result == "FAIL"
        else:
            part.calls += 1
            part.failed += result == "FAIL"
            part.ended.get(call_id, list).append(result == "FAIL")
        command = _text(data.get("command"), COMMAND_CHARS) or began
        known = call_id in part.runs
        if known or command:
            run = part.runs.get(call_id, lambda: self._run(row, command or "", at, part))
            self._settle(run, result, data, at)

    def _run(self, row: Row, command: str, at: str, part: Part) -> _Run:
        words = " ".join(command.split())
        found = self._commands.get(words, lambda: _Command(words, runs_tests(command)))
        found.runs += 1
        found.result = found.error = None
        _add(found.agents, part.agent_id)
        commit = row["seq"] if commits(command) else None
        if commit is not None:
            self._commits[commit] = ReportCommit(
                at=at, agent_id=part.agent_id, command=words, result=None
            )
            if len(self._commits) > LISTED:
                self._commits.popitem(last=False)
                self._commits_dropped += 1
        return _Run(found, commit)

    def _settle(self, run: _Run, result: _Result, data: dict[str, Any], at: str) -> None:
        """Note how a run ended; it failed if either of its two events reports a failure."""
        command = run.command
        command.last_at = max(command.last_at, at)
        if result is not None and run.result != "FAIL" and result != run.result:
            command.passed += (result == "PASS") - (run.result == "PASS")
            command.failed += result == "FAIL"
            run.result = result
            if run.commit is not None and run.commit in self._commits:
                known = self._commits[run.commit]
                self._commits[run.commit] = msgspec.structs.replace(known, result=result)
        command.result = run.result
        error = _text(data.get("error"), ERROR_CHARS)
        command.error = None if run.result == "PASS" else error or command.error

    def files(self) -> tuple[list[ReportFile], int]:
        """Return the files that were changed, the newest first, and how many more there are."""
        kept = [
            ReportFile(**msgspec.structs.asdict(each)) for each in reversed(self._files.values())
        ]
        return kept[:LISTED], len(kept[LISTED:]) + self._files.dropped

    def commands(self) -> tuple[list[ReportCommand], int]:
        """Return the newest commands, further ones that run tests, and how many more there are."""
        kept = [
            ReportCommand(**msgspec.structs.asdict(each))
            for each in reversed(self._commands.values())
        ]
        shown = [
            each for n, each in enumerate(kept) if n < LISTED or (each.test and n < 5 * LISTED)
        ]
        return shown, len(kept) - len(shown) + self._commands.dropped

    def commits(self) -> tuple[list[ReportCommit], int]:
        """Return the commits, the oldest first, and how many more there are."""
        return list(self._commits.values()), self._commits_dropped

    def compactions(self, now: str) -> tuple[list[CompactionEffect], int]:
        """Return the compactions of all agents, the oldest first, and how many more there are."""
        found = [
            effect
            for part in self.parts.values()
            for effect in part.compactions.effects(compactions.Span(part.agent_id, 0, 0), now)
        ]
        found.sort(key=lambda effect: effect.seq)
        return found[-LISTED:], len(found[:-LISTED])


def _pass_time(part: Part, row: Row, at: str) -> None:
    """Count the time up to an activity as work, unless the agent paused for long before it."""
    part.first_at = min(part.first_at or at, at)
    part.last_at = max(part.last_at, at)
    if not row["activity"]:
        return
    now_ms = to_ms(at)
    if part.last_active_ms is not None and not part.waits:
        longest = LONGEST_CALL_MS if len(part.open) else PAUSE_MS
        passed = now_ms - part.last_active_ms
        part.active_ms += passed if 0 < passed <= longest else 0
    part.last_active_ms = max(part.last_active_ms or 0, now_ms)
    part.waits = row["type"] == "agent_paused"
    if row["type"] in ("agent_paused", "prompt_submitted"):
        part.open = Newest(_CALLS)


def _began(data: dict[str, Any], part: Part) -> None:
    if call_id := _text(data.get("call_id"), 200):
        command = _text(data.get("command"), COMMAND_CHARS) or None
        part.open.get(call_id, lambda: command)
        part.ended.pop(call_id)
        part.runs.pop(call_id)


def _result(kind: str, data: dict[str, Any]) -> _Result:
    if kind == "tool_failed":
        return "FAIL"
    result = data.get("result")
    return result if result in ("PASS", "FAIL") else None


def _add(names: list[str], name: str) -> None:
    if name not in names and len(names) < _NAMED:
        names.append(name)


def _text(value: object, most: int) -> str:
    """Return a text of an event, truncated; any client may append an event without one."""
    text = value if isinstance(value, str) else ""
    return text if len(text) <= most else text[: most - 1] + "…"
