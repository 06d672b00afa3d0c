"""Rows: the lines of each pane.

A ``Row`` is a line with the key of its record, so that a cursor stays on it when it moves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from ..output import console, events, times
from . import cells, visible
from .cells import Line, bar, cut_front, fitted, mark, pad, shown, sign_of, style_of, width
from .state import WatchState, moment
from .visible import MissionSeen, View

NARROW, ROOMY = 60, 100
# A mission may have ten thousand sorties; no user goes through more than these row by row.
MOST = 1_000
_TONES = {"green": "good", "yellow": "warn", "red": "bad"}


@dataclass
class Row:
    """One line of a pane; ``key`` names its subject, ``record`` is the daemon's data about it.

    Only a few of hundreds are visible, so the line is formatted on demand.
    """

    key: str
    format_line: Callable[[], Line]
    record: Any = None

    @cached_property
    def line(self) -> Line:
        """The text of the row."""
        return self.format_line()


def _text(value: object, columns: int, style: str = "") -> Line:
    return [(pad(shown(value), columns), style)]


def _number(value: object, columns: int, style: str = "") -> Line:
    return [(pad(shown(value), columns, right=True), style)]


_GAP: Line = [("  ", "")]


def _mission(seen: MissionSeen, _state: WatchState, _view: View, columns: int) -> Line:
    sign = mark("waits" if seen.waits else seen.status)
    over = visible.over(seen)
    style = "warn" if seen.waits else "dim" if over else "good"
    wide = max(6, min(30, columns // 6))
    end: Line = [("  ", ""), *bar(seen.percent, wide, style)]
    end += _number(f"{seen.percent}%", 5) + _number(f"{seen.done}/{seen.total}", 8) + _GAP
    if columns >= ROOMY:
        end += _number(_counted(seen.agents, "agent"), 9, "dim")
        end += _number(_counted(seen.locks, "lock"), 8, "dim") + _GAP
    end += _silence(seen)
    room = columns - 2 - sum(width(text) for text, _ in end)
    return fitted([*sign, *_text(seen.title, room, "dim" if over else "strong"), *end], columns)


def _counted(count: int, noun: str) -> str:
    return console.plural(count, noun) if count else ""


def _silence(seen: MissionSeen) -> Line:
    if seen.silence_ms is None:
        return _text(seen.status.replace("_", " "), 13, "dim")
    style = "warn" if seen.waits else "" if seen.silence_ms >= 60_000 else "dim"
    return _text(cells.silence(seen.silence_ms, silent=seen.silent), 13, style)


def _sortie(sortie: Any, _state: WatchState, _view: View, columns: int) -> Line:
    name_columns = max(8, min(20, columns // 6))
    status = sortie.status.replace("_", " ")
    progress = f"{sortie.progress}%" if sortie.status in ("in_progress", "blocked") else ""
    end = _GAP + _text(sortie.assigned_to or "", name_columns) + _GAP
    end += _text(status, 11, style_of(sortie.status)) + _number(progress, 5)
    room = columns - 2 - sum(width(text) for text, _ in end)
    over = sortie.status in ("completed", "failed")
    line = fitted(_title_and_notes(sortie, "dim" if over else ""), room)
    return fitted([*mark(sortie.status), *line, *end], columns)


def _title_and_notes(sortie: Any, style: str) -> Line:
    line: Line = [(shown(sortie.title), style)]
    if sortie.status == "blocked" and sortie.blocked_reason:
        line.append((f": {shown(sortie.blocked_reason)}", "warn"))
    elif sortie.status == "in_progress" and sortie.progress_notes:
        line.append((f": {shown(sortie.progress_notes)}", "dim"))
    return line


def _agent(agent: Any, state: WatchState, view: View, columns: int) -> Line:
    age = cells.span(view.now_ms - moment(agent.last_seen_at))
    needs = (agent.needs or agent.status).replace("_", " ")
    roomy = columns >= NARROW
    end = [*_GAP]
    # Names are never cut: harness and time are shown only if they fit beside the longest name.
    longest = max(len(each.id) for each in (agent, *state.agents))
    # In a narrow pane, an ID that begins with the harness makes its column redundant.
    unnamed = not roomy and not all(map(_names_harness, state.agents))
    if columns >= ROOMY or (unnamed and columns - 23 >= longest):
        harness = 11 if roomy else 8
        end += _text(agent.harness or agent.role, harness, "dim" if not agent.harness else "")
        end += [(" ", "")]
    end += _text(needs, 13 if roomy else 10, style_of(agent.status))
    room = columns - 2 - sum(width(text) for text, _ in end)
    if room - 7 >= longest or room < longest:
        end += _number(age, 7, "dim")
        room -= 7
    style = "strong" if agent.role == "dispatch" else ""
    name = _text(agent.id, max(18, min(longest, room)) if roomy else room, style)
    if roomy:
        project, action = visible.work_of(agent)
        # No project column if no agent has a directory.
        if project or any(visible.work_of(each)[0] for each in state.agents):
            name += _GAP + _text(project, max(10, min(28, columns // 6)))
        name.append((f"  {shown(action or visible.title_of(state, agent.mission_id))}", "dim"))
    return fitted([*mark(agent.status), *fitted(name, room), *end], columns)


def _names_harness(agent: Any) -> bool:
    return bool(agent.harness) and str(agent.id).startswith(f"{agent.harness}-")


def _lock(lock: Any, _state: WatchState, view: View, columns: int) -> Line:
    ms = visible.lease_left(lock, view)
    name_columns = max(8, min(20, columns // 4))
    end = _GAP + _text(lock.held_by, name_columns)
    end += _number(cells.left(ms), 7, "warn" if ms < 60_000 else "dim")
    room = columns - sum(width(text) for text, _ in end)
    return fitted([(pad(cut_front(shown(console.path(lock.file)), room), room), ""), *end], columns)


def _message(message: Any, _state: WatchState, view: View, columns: int) -> Line:
    status = visible.message_state(message)
    to = shown(message.to[0]) if message.to else ""
    more = f" +{len(message.to) - 1}" if len(message.to) > 1 else ""
    line = [
        *mark(status),
        (f"{shown(message.sender)} → {to}{more}  ", "dim" if status == "acked" else ""),
    ]
    line.append((shown(message.subject), "dim" if status == "acked" else "strong"))
    if columns < 60:
        return fitted(line, columns)
    sent = cells.ago(view.now_ms - moment(message.sent_at))
    end = _GAP + _text(status, 10, style_of(status)) + _number(sent, 11, "dim")
    return fitted([*fitted(line, columns - 23), *end], columns)


def delivery_summary(messages: Sequence[Any], columns: int) -> str:
    """Return how many deliveries are in each state; with signs if there is little room."""
    counts = [(state, n) for state, n in visible.deliveries(list(messages)).items() if n]
    if columns < 50:
        return " ".join(f"{sign_of(state)} {n}" for state, n in counts)
    return ", ".join(f"{n} {state}" for state, n in counts)


def _event(event: Any, state: WatchState, _view: View, columns: int) -> Line:
    at = times.clock(moment(event.timestamp), seconds=columns >= 70)
    tone = _TONES.get(events.tone(event.type) or "", "")
    inside = visible.directory_of(state, event.mission_id)
    line: Line = [(f"{at}  ", "dim"), (shown(events.sentence(event, inside=inside)), tone)]
    if columns < ROOMY or not event.mission_id:
        return fitted(line, columns)
    where = shown(visible.title_of(state, event.mission_id))
    return fitted([*fitted(line, columns - 32), ("  ", ""), *_text(where, 30, "dim")], columns)


def _checkpoint(checkpoint: Any, _state: WatchState, view: View, columns: int) -> Line:
    ms = view.now_ms - moment(checkpoint.timestamp)
    sign = "◆ " if checkpoint.id == view.marked else "  "
    line: Line = [(sign, "key"), *_text(checkpoint.id, 14, "accent")]
    line += _number(f"{checkpoint.progress_percent}%", 4)
    line += _GAP + _text(checkpoint.trigger, 12)
    end = _number(cells.ago(ms), 12, "dim")
    details = checkpoint.trigger_details or ("before a recovery" if checkpoint.undo else "")
    held = [(checkpoint.sortie_count, "sortie"), (checkpoint.lock_count, "lock")]
    if columns >= ROOMY:
        contents = ", ".join(console.plural(count, noun) for count, noun in held if count)
        end = _GAP + _text(contents, 22, "dim") + end
    room = columns - sum(width(text) for text, _ in line + end)
    return fitted([*line, *_text(details, room, "dim"), *end], columns)


class PaneKind(NamedTuple):
    """A kind of pane: the records it shows, the line of each, and its text without any."""

    records: Callable[[WatchState, View], list[Any]]
    line: Callable[[Any, WatchState, View, int], Line]
    empty: str


KINDS = {
    "missions": PaneKind(visible.missions, _mission, "No missions yet: fleetctl mission create"),
    "sorties": PaneKind(visible.sorties, _sortie, "No sorties."),
    "agents": PaneKind(visible.agents, _agent, "Nobody works."),
    "locks": PaneKind(visible.locks, _lock, "Nothing is locked."),
    "mail": PaneKind(visible.messages, _message, "No messages."),
    "checkpoints": PaneKind(visible.checkpoints, _checkpoint, "No checkpoints yet."),
    "events": PaneKind(visible.events, _event, "Nothing happened yet."),
}


def rows_of(pane: str, state: WatchState, view: View, columns: int) -> list[Row]:
    """Return the rows of a pane."""
    kind = KINDS[pane]
    return [
        Row(
            str(each.seq if pane == "events" else each.id),
            partial(kind.line, each, state, view, columns),
            each,
        )
        for each in kind.records(state, view)[: MOST if pane == "sorties" else None]
    ]


def position_of(rows: Sequence[Row], key: str | None, before: int, *, follows: bool = False) -> int:
    """Return where the cursor is after the rows have changed: on the same row as before.

    If new rows come on top (``follows``), a cursor at the top stays there. If its row is gone, the
    cursor keeps its position.
    """
    last = max(0, len(rows) - 1)
    if key is None or (follows and before == 0):
        return min(before, last)
    found = next((at for at, row in enumerate(rows) if row.key == key), None)
    return min(before, last) if found is None else found
