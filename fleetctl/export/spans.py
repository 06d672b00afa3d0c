"""Spans of a mission: a trace of the mission, its agents, and their sorties, tools, compactions.

IDs are derived from fleetd's IDs, and times from records and events, so the same mission always
has the same spans. A parent covers at least all its children. A span without an end yet ends with
the newest event, and is marked as running.
"""

import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetd.protocol.display import clean, clean_block
from fleetd.protocol.event_types import event_type
from fleetd.protocol.patterns import OPEN_MISSION
from fleetd.protocol.timestamps import iso, to_ms

from ..client.plain_json import dumps
from ..report.document import title_of

if TYPE_CHECKING:
    from ..client.models import Agent, Event, Mission, Sortie

# The default of the specification.
MOST_EVENTS = 128
NAME_CHARS, LINE_CHARS, PROMPT_CHARS = 200, 1_000, 16_384
# How many calls of one agent are remembered: open ones, and ended ones that may get more events.
REMEMBERED = 100
_BEGINS = ("command_started", "tool_started")
_ENDS = ("command_finished", "tool_finished", "tool_failed")
_COMPACTIONS = {"window_compacted": None, "window_briefed": "given", "briefing_missed": "off"}
_KEPT = (*_COMPACTIONS, "fleet_checkpointed", "fleet_recovered")
_END_OF_TURN = ("prompt_submitted", "agent_paused")
_MESSAGES = {
    "prompt_submitted": ("prompt", "user", "gen_ai.input.messages"),
    "agent_answered": ("message", "assistant", "gen_ai.output.messages"),
}

Value = str | int | bool


class SpanEvent(NamedTuple):
    """Something that happened inside a span."""

    at_ms: int
    name: str
    attributes: dict[str, Value]


class Span(NamedTuple):
    """One span; ``error`` is why it failed, perhaps empty, or None if no failure is known."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ms: int
    end_ms: int
    attributes: dict[str, Value]
    events: tuple[SpanEvent, ...] = ()
    dropped_events: int = 0
    error: str | None = None
    ok: bool = False

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        texts = [*self.attributes.values(), self.error]
        for event in self.events:
            texts += event.attributes.values()
        return 300 + sum(2 * len(text) for text in texts if isinstance(text, str))


def trace_id_of(mission_id: str) -> bytes:
    """Return the id of a mission's trace."""
    return sha256(f"fleetd mission {mission_id}".encode()).digest()[:16]


def span_id_of(mission_id: str, kind: str, name: object = "") -> bytes:
    """Return the id of a span of a mission."""
    return sha256(f"fleetd {kind} {mission_id} {name}".encode()).digest()[:8]


class _Call:
    """A tool call, as far as events have reported it."""

    def __init__(self, seq: int, at_ms: int, data: dict[str, Any]) -> None:
        self.seq, self.start_ms, self.end_ms = seq, at_ms, at_ms
        self.call_id = ""
        self.tool = self.command = self.file = self.task = ""
        self.error: str | None = None
        self.result = ""
        self.state = "running"
        self.add(data)

    def add(self, data: dict[str, Any]) -> None:
        """Add what another event reports about the call."""
        self.call_id = self.call_id or _text(data.get("call_id"), NAME_CHARS)
        self.tool = self.tool or _text(data.get("tool") or data.get("name"), NAME_CHARS)
        self.command = self.command or _text(data.get("command"), LINE_CHARS)
        self.file = self.file or _text(data.get("file"), LINE_CHARS)
        self.task = self.task or _text(data.get("task"), LINE_CHARS)
        self.error = self.error or _text(data.get("error"), LINE_CHARS) or None

    def end(self, kind: str, at_ms: int, data: dict[str, Any]) -> None:
        """Add an event that ends the call; a second one adds what the first left out."""
        if self.state == "running":
            self.end_ms, self.state = max(at_ms, self.start_ms), "ended"
        self.add(data)
        given = data.get("result")
        result = "FAIL" if kind == "tool_failed" else given if given in ("PASS", "FAIL") else ""
        self.result = self.result if self.result == "FAIL" else result or self.result


class _Agent:
    """What an agent did in the mission, so far."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.start_ms: int | None = None
        self.end_ms = 0
        self.open: OrderedDict[str, _Call] = OrderedDict()
        self.ended: OrderedDict[str, _Call] = OrderedDict()
        self.events: deque[SpanEvent] = deque(maxlen=MOST_EVENTS)
        self.dropped = 0
        self.compaction: Span | None = None
        self.failed_unnamed = False

    def cover(self, start_ms: int, end_ms: int) -> None:
        """Extend the agent's span to include a time."""
        self.start_ms = start_ms if self.start_ms is None else min(self.start_ms, start_ms)
        self.end_ms = max(self.end_ms, end_ms)


class MissionTrace:
    """The spans of one mission: ``add_event`` takes its events in order, ``finish`` ends them."""

    def __init__(
        self,
        mission: "Mission",
        sorties: "list[Sortie]",
        agent_of: "Callable[[str], Agent | None]",
        *,
        with_prompts: bool = False,
    ) -> None:
        self._mission, self._sorties, self._agent_of = mission, sorties, agent_of
        self._with_prompts = with_prompts
        self._trace_id = trace_id_of(mission.id)
        self._root = span_id_of(mission.id, "mission")
        self._agents: dict[str, _Agent] = {}
        self._events: deque[SpanEvent] = deque(maxlen=MOST_EVENTS)
        self._dropped = 0
        self._start_ms = to_ms(mission.started_at or mission.created_at)
        self._last_ms = self._start_ms

    def add_event(self, event: "Event") -> Iterator[Span]:
        """Add the next event; yields spans that can no longer change."""
        # Events that fleetd writes by itself, such as a checkpoint's file, do not extend spans.
        if not (event_type(event.type).activity or event.type in _KEPT):
            return
        at_ms = _moment(event)
        self._last_ms = max(self._last_ms, at_ms)
        self._start_ms = min(self._start_ms, at_ms)
        if event.type == "fleet_checkpointed":
            self._note(at_ms, "fleet.checkpoint", event.data, ("checkpoint_id", "trigger"))
        elif event.type == "fleet_recovered":
            self._note(at_ms, "fleet.recovery", event.data, ("checkpoint_id",))
        if event.agent_id is None:
            return
        agent = self._agents.setdefault(event.agent_id, _Agent(event.agent_id))
        agent.cover(at_ms, at_ms)
        yield from self._of_agent(agent, event, at_ms)

    def _note(self, at_ms: int, name: str, data: dict[str, Any], fields: tuple[str, ...]) -> None:
        texts = {field: _text(data.get(field), NAME_CHARS) for field in fields}
        attributes: dict[str, Value] = {
            f"fleet.{field}": texts[field] for field in fields if texts[field]
        }
        self._dropped += len(self._events) == MOST_EVENTS
        self._events.append(SpanEvent(at_ms, name, attributes))

    def _of_agent(self, agent: _Agent, event: "Event", at_ms: int) -> Iterator[Span]:
        kind, data = event.type, event.data
        if kind in _BEGINS:
            yield from self._began(agent, event.seq, at_ms, data)
        elif kind in _ENDS:
            yield from self._ended(agent, event, at_ms)
        elif kind in _COMPACTIONS and data.get("reason") != "reply_lost":
            self._compacted(agent, event, at_ms)
        elif kind == "error_reported":
            self._met_error(agent, data, at_ms)
        if kind in _END_OF_TURN:
            yield from self._turn_over(agent, at_ms)
        if kind in _MESSAGES and self._with_prompts:
            self._add_message(agent, kind, data, at_ms)

    def _began(self, agent: _Agent, seq: int, at_ms: int, data: dict[str, Any]) -> Iterator[Span]:
        yield from self._flush_compaction(agent)
        call = _Call(seq, at_ms, data)
        key = call.call_id or f"#{seq}"
        if (known := agent.ended.pop(key, None)) is not None:
            yield self._tool(agent, known)
        if (known := agent.open.pop(key, None)) is not None:
            yield self._unfinished(agent, known, at_ms)
        agent.open[key] = call
        if len(agent.open) > REMEMBERED:
            yield self._unfinished(agent, agent.open.popitem(last=False)[1], at_ms)

    def _ended(self, agent: _Agent, event: "Event", at_ms: int) -> Iterator[Span]:
        kind, data = event.type, event.data
        named = _text(data.get("call_id"), NAME_CHARS)
        again = not named and kind == "tool_failed" and agent.failed_unnamed
        agent.failed_unnamed = (
            not named and kind == "command_finished" and data.get("result") == "FAIL"
        )
        if again:
            return
        key = named or next((each for each in agent.open if each.startswith("#")), "")
        call = agent.open.pop(key, None)
        if call is None and named in agent.ended:
            agent.ended[named].end(kind, at_ms, data)
            return
        if call is None:
            yield from self._flush_compaction(agent)
            took = data.get("duration_ms")
            past = took if isinstance(took, int) and 0 < took <= 86_400_000 else 0
            call = _Call(event.seq, max(at_ms - past, 0), data)
        call.end(kind, at_ms, data)
        agent.ended[named or f"#{event.seq}"] = call
        if len(agent.ended) > REMEMBERED:
            yield self._tool(agent, agent.ended.popitem(last=False)[1])

    def _turn_over(self, agent: _Agent, at_ms: int) -> Iterator[Span]:
        """End the open calls: a finished turn has none."""
        while agent.open:
            yield self._unfinished(agent, agent.open.popitem(last=False)[1], at_ms)

    def _unfinished(self, agent: _Agent, call: _Call, at_ms: int) -> Span:
        """Return the span of a call whose end no event reported."""
        call.end_ms, call.state = max(at_ms, call.start_ms), "unfinished"
        return self._tool(agent, call)

    def _tool(self, agent: _Agent, call: _Call) -> Span:
        if call.state == "running":
            call.end_ms = max(self._last_ms, call.start_ms)
        agent.cover(call.start_ms, call.end_ms)
        tool = call.tool or ("command" if call.command else "tool")
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.agent.id": agent.agent_id,
        }
        arguments = {"command": call.command} if call.command else {}
        if call.task and self._with_prompts:
            arguments["task"] = call.task
        if arguments:
            attributes["gen_ai.tool.call.arguments"] = dumps(arguments)
        if call.call_id:
            attributes["gen_ai.tool.call.id"] = call.call_id
        if call.file:
            attributes["fleet.file"] = call.file
        if call.result:
            attributes["fleet.result"] = call.result
        if call.result == "FAIL":
            attributes["error.type"] = "tool_error"
        if call.state != "ended":
            attributes[f"fleet.{call.state}"] = True
        return Span(
            self._trace_id,
            span_id_of(self._mission.id, "tool", call.seq),
            self._agent_span_id(agent.agent_id),
            f"execute_tool {tool}",
            call.start_ms,
            call.end_ms,
            attributes,
            error=(call.error or "") if call.result == "FAIL" else None,
            ok=call.result == "PASS",
        )

    def _compacted(self, agent: _Agent, event: "Event", at_ms: int) -> None:
        """Add one of the events of a compaction, which have no tool call between them."""
        briefing = _COMPACTIONS[event.type]
        known = agent.compaction
        if known is None:
            attributes: dict[str, Value] = {"gen_ai.agent.id": agent.agent_id}
            known = Span(
                self._trace_id,
                span_id_of(self._mission.id, "compaction", event.seq),
                self._agent_span_id(agent.agent_id),
                "compaction",
                at_ms,
                at_ms,
                attributes,
            )
        if briefing:
            known.attributes["fleet.briefing"] = briefing
        summary = _text(event.data.get("summary"), PROMPT_CHARS)
        if summary and self._with_prompts:
            known.attributes["fleet.summary"] = summary
        agent.compaction = known._replace(
            start_ms=min(known.start_ms, at_ms), end_ms=max(known.end_ms, at_ms)
        )

    def _flush_compaction(self, agent: _Agent) -> Iterator[Span]:
        if agent.compaction is not None:
            agent.cover(agent.compaction.start_ms, agent.compaction.end_ms)
            yield agent.compaction
            agent.compaction = None

    def _met_error(self, agent: _Agent, data: dict[str, Any], at_ms: int) -> None:
        attributes: dict[str, Value] = {
            "exception.type": _text(data.get("name"), NAME_CHARS) or "error",
            "exception.message": _text(data.get("message"), LINE_CHARS),
        }
        self._add(agent, SpanEvent(at_ms, "exception", attributes))

    def _add_message(self, agent: _Agent, kind: str, data: dict[str, Any], at_ms: int) -> None:
        field, role, attribute = _MESSAGES[kind]
        if text := _text(data.get(field), PROMPT_CHARS, block=True):
            message = {"role": role, "parts": [{"type": "text", "content": text}]}
            attributes: dict[str, Value] = {attribute: dumps([message])}
            name = "gen_ai.client.inference.operation.details"
            self._add(agent, SpanEvent(at_ms, name, attributes))

    def _add(self, agent: _Agent, event: SpanEvent) -> None:
        agent.dropped += len(agent.events) == MOST_EVENTS
        agent.events.append(event)

    def _agent_span_id(self, agent_id: str) -> bytes:
        return span_id_of(self._mission.id, "agent", agent_id)

    def finish(self) -> Iterator[Span]:
        """Yield the remaining spans: open calls, sorties, agents, and the mission."""
        for sortie in self._sorties:
            self._last_ms = max(self._last_ms, *_times_of(sortie))
        if self._mission.completed_at:
            self._last_ms = max(self._last_ms, to_ms(self._mission.completed_at))
        for agent in list(self._agents.values()):
            yield from self._flush_compaction(agent)
            for call in [*agent.ended.values(), *agent.open.values()]:
                yield self._tool(agent, call)
        for sortie in self._sorties:
            if sortie.started_at:
                yield self._sortie(sortie)
        for agent_id in sorted(self._agents):
            yield self._agent(self._agents[agent_id])
        yield self._of_mission()

    def _sortie(self, sortie: "Sortie") -> Span:
        start_ms = to_ms(sortie.started_at or "")
        running = sortie.completed_at is None
        end_ms = max(self._last_ms if running else to_ms(sortie.completed_at or ""), start_ms)
        parent = self._root
        if sortie.assigned_to:
            agent = self._agents.setdefault(sortie.assigned_to, _Agent(sortie.assigned_to))
            agent.cover(start_ms, end_ms)
            parent = self._agent_span_id(sortie.assigned_to)
        self._start_ms = min(self._start_ms, start_ms)
        self._last_ms = max(self._last_ms, end_ms)
        title = _text(sortie.title, NAME_CHARS)
        attributes: dict[str, Value] = {
            "fleet.sortie.id": sortie.id,
            "fleet.sortie.title": title,
            "fleet.sortie.status": sortie.status,
            "fleet.sortie.progress": sortie.progress,
        }
        if sortie.assigned_to:
            attributes["gen_ai.agent.id"] = sortie.assigned_to
        if running:
            attributes["fleet.running"] = True
        return Span(
            self._trace_id,
            span_id_of(self._mission.id, "sortie", sortie.id),
            parent,
            f"sortie {title}",
            start_ms,
            end_ms,
            attributes,
            error="" if sortie.status == "failed" else None,
            ok=sortie.status == "completed",
        )

    def _agent(self, agent: _Agent) -> Span:
        known = self._agent_of(agent.agent_id)
        start_ms = self._start_ms if agent.start_ms is None else agent.start_ms
        self._start_ms = min(self._start_ms, start_ms)
        self._last_ms = max(self._last_ms, agent.end_ms)
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": agent.agent_id,
            "gen_ai.agent.name": agent.agent_id,
        }
        if known is not None:
            if known.session_id:
                attributes["gen_ai.conversation.id"] = _text(known.session_id, NAME_CHARS)
            if known.harness:
                attributes["fleet.harness"] = _text(known.harness, NAME_CHARS)
            attributes["fleet.role"] = known.role
        if self._running and known is not None and known.status in ("active", "waiting", "idle"):
            attributes["fleet.running"] = True
        return Span(
            self._trace_id,
            self._agent_span_id(agent.agent_id),
            self._root,
            f"invoke_agent {agent.agent_id}",
            start_ms,
            max(agent.end_ms, start_ms),
            attributes,
            tuple(agent.events),
            agent.dropped,
        )

    @property
    def _running(self) -> bool:
        return self._mission.status in OPEN_MISSION

    def _of_mission(self) -> Span:
        mission = self._mission
        named = mission.origin != "session" or self._with_prompts
        title = _text(title_of(mission, with_prompts=self._with_prompts), NAME_CHARS)
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_workflow",
            "fleet.mission.id": mission.id,
            "fleet.mission.status": mission.status,
            "fleet.mission.sorties": mission.total_sorties,
            "fleet.mission.completed_sorties": mission.completed_sorties,
        }
        if named:
            attributes["gen_ai.workflow.name"] = title
        if self._running:
            attributes["fleet.running"] = True
        return Span(
            self._trace_id,
            self._root,
            b"",
            f"invoke_workflow {title if named else mission.id}",
            self._start_ms,
            self._last_ms,
            attributes,
            tuple(self._events),
            self._dropped,
            error="" if mission.status == "failed" else None,
            ok=mission.status == "completed",
        )


def _times_of(sortie: "Sortie") -> Iterator[int]:
    yield 0
    for at in (sortie.started_at, sortie.completed_at):
        if at:
            yield to_ms(at)


def _moment(event: "Event") -> int:
    """Return when an event happened: before it was recorded, if it waited in the spool."""
    recorded = to_ms(event.timestamp)
    happened_at = event.data.get("happened_at")
    if isinstance(happened_at, str):
        with contextlib.suppress(ValueError, OverflowError):
            # A trace cannot contain times before the epoch.
            return max(min(to_ms(iso(to_ms(happened_at))), recorded), 0)
    return recorded


def _text(value: object, most: int, *, block: bool = False) -> str:
    """Return a text, cut and without control characters; empty for what is no text.

    Anybody may append an event, so its values may have any type.
    """
    if not isinstance(value, str):
        return ""
    text = clean_block(value) if block else clean(value)
    return text if len(text) <= most else text[: most - 1] + "…"
