"""Detail pages: what they ask the daemon, and what they show.

A checkpoint and a difference read as ``fleetctl checkpoint show`` and ``diff`` print them: the same
code formats them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Any, NamedTuple

from fleetd.protocol import endings
from fleetd.protocol.errors import FleetError
from fleetd.protocol.request import Request

from ..client import Fleet
from ..client.models import CheckpointCompare, CheckpointGet, RecoveryContextGet
from ..output import console, events, times
from ..output.views.agent_state import action_label, action_of, standing_of
from ..output.views.checkpoint import show_checkpoint
from ..output.views.checkpoint_diff import show_difference
from . import cells, visible
from .state import WatchState, moment
from .visible import MissionSeen, View


def _fields(*pairs: tuple[str, Any]) -> Iterator[str]:
    present = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    wide = max((len(name) for name, _ in present), default=0) + 2
    for name, value in present:
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{name + ':':<{wide}}{console.clean(text)}"


def _section(title: str, text: str | None) -> Iterator[str]:
    if text:
        yield from ("", f"{title}:", *(f"  {line}" for line in text.split("\n")))


def mission(seen: MissionSeen, _state: WatchState, view: View) -> str:
    """Return what is known about a mission."""
    record = seen.record or {}
    fields = [
        ("Mission", seen.id),
        ("Status", _standing(seen)),
        ("Progress", f"{seen.percent}% ({seen.done} of {seen.total} sorties)"),
        ("Last activity", _last_activity(seen)),
        ("Agents", seen.agents or None),
        ("Locks", seen.locks or None),
        ("Priority", record.get("priority")),
        ("Directory", record.get("project_dir")),
        *((name.capitalize(), _when(record.get(f"{name}_at"), view)) for name in _MOMENTS),
    ]
    lines = [*_fields(*fields), *_section("Description", record.get("description"))]
    if seen.waits:
        lines += ["", "It waits for recovery:", f"  fleetctl resume --mission {seen.id}"]
    return "\n".join([seen.title, "", *lines])


def _last_activity(seen: MissionSeen) -> str | None:
    if seen.silence_ms is None:
        return None
    return cells.silence(seen.silence_ms, silent=seen.silent)


def _standing(seen: MissionSeen) -> str | None:
    record = seen.record
    if seen.silence_ms is not None or record is None:
        return "in progress" if seen.silence_ms is not None else None
    return endings.standing(
        record.status, record.closed_reason, seen.total, seen.left, record.merged_into
    )


_MOMENTS = ("created", "started", "completed")


def _when(timestamp: str | None, view: View) -> str | None:
    if not timestamp:
        return None
    return f"{times.ago(timestamp, view.now_ms)}  ({timestamp})"


def sortie(record: Any, _state: WatchState, view: View) -> str:
    """Return what is known about a sortie."""
    lines = [
        record.title,
        "",
        *_fields(
            ("Sortie", record.id),
            ("Status", record.status.replace("_", " ")),
            ("Agent", record.assigned_to),
            ("Progress", f"{record.progress}%"),
            ("Priority", record.priority),
            ("Files", [console.path(each) for each in record.files or ()]),
            ("Started", _when(record.started_at, view)),
            ("Completed", _when(record.completed_at, view)),
        ),
        *_section("Description", record.description),
        *_section("Notes", record.progress_notes),
        *_section("Blocked", record.blocked_reason),
        *_section("Result", record.result),
    ]
    return "\n".join(lines)


def agent(record: Any, state: WatchState, view: View) -> str:
    """Return what is known about an agent, and what it declared about itself."""
    lines = [
        *_fields(
            ("Agent", record.id),
            ("Role", record.role),
            ("Harness", record.harness),
            *standing_of(
                record.status,
                record.needs,
                record.get("needs_text"),
                _when(record.needs_since, view),
            ),
            ("Project", visible.work_of(record)[0]),
            *_action(record),
            ("Mission", visible.title_of(state, record.mission_id)),
            ("Session", record.session_id),
            ("Process", record.pid),
            ("Directory", console.path(record.cwd or "")),
            ("Registered", _when(record.registered_at, view)),
            ("Last seen", _when(record.last_seen_at, view)),
        )
    ]
    if note := record.note:
        lines += _section("Noted last action", note.last_action)
        lines += _section("Next steps", "\n".join(f"- {each}" for each in note.next_steps))
        lines += _section("Blockers", "\n".join(f"- {each}" for each in note.blockers))
    held = [console.path(lock.file) for lock in state.locks if lock.held_by == record.id]
    lines += _section("Holds", "\n".join(held))
    lines += _section("Running", "\n".join(_running(record.get("state"), view)))
    return "\n".join(lines)


def _action(record: Any) -> list[tuple[str, str]]:
    agent_state = record.get("state")
    return (
        []
        if agent_state is None
        else [(action_label(agent_state, record.status), action_of(agent_state))]
    )


def _running(agent_state: Any, view: View) -> list[str]:
    """Return what runs for an agent, each with when it was last seen."""
    if agent_state is None:
        return []
    lines = [
        f"{each.kind} {each.id}: {each.told or ''} (last seen {cells.ago(ms)})"
        for each, ms in ((each, view.now_ms - moment(each.seen_at)) for each in agent_state.running)
    ]
    return [*lines, *([f"and {agent_state.running_more} more"] if agent_state.running_more else [])]


def lock(record: Any, state: WatchState, view: View) -> str:
    """Return what is known about a lock."""
    return "\n".join(
        _fields(
            ("File", console.path(record.file or "")),
            ("Path", console.path(record.normalized_path or "")),
            ("Held by", record.held_by),
            ("Purpose", record.purpose),
            ("Mission", visible.title_of(state, record.mission_id)),
            ("Taken", _when(record.acquired_at, view)),
            ("Runs for", cells.left(visible.lease_left(record, view))),
            ("Token", record.fencing_token),
            ("Lock", record.id),
        )
    )


def message(record: Any, _state: WatchState, view: View) -> str:
    """Return a message and the state of its deliveries; it does not count as read by this."""
    fields = [
        ("From", record.sender),
        ("To", record.to),
        ("Subject", record.subject),
        ("Sent", _when(record.sent_at, view)),
        ("Priority", record.priority),
        ("Message", record.id),
    ]
    states = [
        (each.agent_id, f"{each.status} {_when(each.acked_at or each.delivered_at, view) or ''}")
        for each in record.deliveries
    ]
    return "\n".join([*_fields(*fields), "", record.body or "(no text)", "", *_fields(*states)])


def event(record: Any, state: WatchState, view: View) -> str:
    """Return an event with all its data."""
    fields = [
        ("Event", record.seq),
        ("Type", record.type),
        ("When", _when(record.timestamp, view)),
        ("Agent", record.agent_id),
        ("Mission", visible.title_of(state, record.mission_id)),
    ]
    data = console.to_json(record.data)
    return "\n".join([events.sentence(record), "", *_fields(*fields), *_section("Data", data)])


_STATES = {
    "pending": "no agent is briefed yet",
    "briefed": "briefed, not active again yet",
    "unconfirmed": "briefed, silent since",
}


def waiting(state: WatchState, view: View) -> str:
    """Return what waits for recovery, and how a user continues it."""
    passed = max(0, view.tick_ms - state.status_at)
    lines = []
    for each in visible.candidates(state):
        silent = cells.silence(each.inactivity_duration_ms + passed)
        point = (
            f"{each.checkpoint_id} ({each.checkpoint_progress}%)" if each.checkpoint_id else None
        )
        lines += ["", f"{each.mission_title}:", f"  {each.mission_id}, {silent}"]
        lines += [f"  {console.lost_agents(each)}"] * bool(each.lost_agents)
        lines += [f"  only the part of {each.agent_id} waits"] * bool(each.agent_id)
        lines += [f"  newest checkpoint: {point or 'none'}"]
        if point:
            for command in console.resume_commands(each):
                # Each on its own line: there is more room, and it is easier to copy.
                lines += ["  To see what it would do:", f"  {command} --dry-run"]
                lines += ["  To restore the work:", f"  {command}"]
    for each in visible.under_way(state):
        title = visible.title_of(state, each.mission_id)
        suffix = f", {each.agent_id}" if each.agent_id else ""
        lines += ["", f"{title}:", f"  {each.id}{suffix}: {_STATES.get(each.state, each.state)}"]
    return "\n".join(lines[1:]) or "Nothing waits for recovery."


_PAGES: dict[str, tuple[str, Callable[[Any, WatchState, View], str]]] = {
    "missions": ("Mission", mission),
    "sorties": ("Sortie", sortie),
    "agents": ("Agent", agent),
    "locks": ("Lock", lock),
    "mail": ("Message", message),
    "events": ("Event", event),
}


def known(name: str, record: Any, state: WatchState, view: View) -> tuple[str, str]:
    """Return title and text of a page that needs no answer from the daemon."""
    title, page = _PAGES[name]
    return title, page(record, state, view)


class Question(NamedTuple):
    """A page that needs an answer from the daemon: title, request, and text of the answer."""

    title: str
    request: Request[Any]
    text: Callable[[Any], str]

    def answer(self) -> Any:
        """Return the daemon's answer, or the error that it or its absence causes."""
        try:
            with Fleet() as client:
                return client.call(self.request)
        except FleetError as error:
            return error

    def page(self, answer: Any) -> str:
        """Return the text of the page; an error reads as in any command."""
        if isinstance(answer, FleetError):
            hint = f"\nHint: {answer.hint}" if answer.hint else ""
            return f"Error: {answer.message}{hint}"
        warnings = "".join(f"Warning: {warning}\n" for warning in answer.warnings)
        return warnings + self.text(answer)


_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _printed(show: Callable[[Any], None], record: Any) -> str:
    """Return what a command would print for a record, with times relative to now."""
    with redirect_stdout(StringIO()) as out:
        show(record)
    now_ms = console.now_ms()
    text = out.getvalue().rstrip("\n")
    return _TIMESTAMP.sub(lambda found: times.ago(found[0], now_ms), text)


def a_checkpoint(checkpoint_id: str) -> Question:
    """Return the question for a checkpoint."""
    request = CheckpointGet(checkpoint_id=checkpoint_id)
    return Question(f"Checkpoint {checkpoint_id}", request, partial(_printed, show_checkpoint))


def a_prompt(title: str, **named: str | None) -> Question:
    """Return the question for a briefing as an agent gets it."""
    request = RecoveryContextGet(**named)  # type: ignore[arg-type]
    return Question(
        f"Briefing of {title}", request, lambda answer: console.clean_block(answer.prompt)
    )


def a_difference(before: str, after: str | None) -> Question:
    """Return the question for the difference between two checkpoints, or one and now."""
    request = CheckpointCompare(before=before, after=after)
    title = f"From {before} to {after or 'now'}"
    return Question(title, request, partial(_printed, show_difference))
