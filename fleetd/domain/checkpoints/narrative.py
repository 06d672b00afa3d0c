"""Narration: titles, events and open work, as sentences for one reader.

A title without a known author counts as a person's, and a person speaks for everybody.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...protocol.display import LINE_CHARS, attributed, path, quote, short
from ...protocol.records import Event, SortieState
from ..core.tx import Row, Tx

TITLE_CHARS = 120
# A step names this many of the sorties that it waits for, each in so many characters.
AWAITED, AWAITED_CHARS = 2, 60


class Titles(msgspec.Struct, frozen=True, kw_only=True):
    """A mission's titles as one reader may see them; ``reader`` is None for nobody in particular.

    ``authors`` maps the ids of sorties to the agents that worded them.
    """

    reader: str | None
    goal: str
    authors: dict[str, str]

    def of(self, sortie: SortieState) -> str:
        """Return a sortie's title: the reader's own words unchanged, another agent's quoted."""
        title = sortie.title or sortie.id
        author = self.other(sortie)
        return attributed(title, author, self.reader, TITLE_CHARS) if author else title

    def other(self, sortie: SortieState) -> str | None:
        """Return the agent that made a sortie; None if the reader or a person made it."""
        author = self.authors.get(sortie.id)
        return None if author == self.reader else author


def titles_for(tx: Tx, mission: Row, reader: str | None) -> Titles:
    """Return a mission's titles as a reader may see them."""
    rows = tx.all(
        "SELECT id, author FROM sorties WHERE mission_id = :id AND author IS NOT NULL",
        id=mission["id"],
    )
    return Titles(
        reader=reader,
        goal=goal_for(mission, reader),
        authors={row["id"]: row["author"] for row in rows},
    )


def goal_for(mission: Row, reader: str | None, limit: int = LINE_CHARS) -> str:
    """Return the title of a mission on one line, quoted where another agent worded it."""
    author = mission["author"]
    room = limit - len(f"{author}: “”") if author not in (None, reader) else limit
    return attributed(mission["title"], author, reader, max(room, 10))


def shares(
    sorties: Sequence[SortieState], titles: Titles, most: int
) -> tuple[list[SortieState], dict[str, int]]:
    """Return the sorties to list, and how many more each other agent made.

    The list has at most ``most`` of each other agent: one agent cannot fill a recovery context.
    """
    if not titles.authors:
        return list(sorties), {}
    kept: list[SortieState] = []
    made: dict[str, int] = {}
    for sortie in sorties:
        author = titles.other(sortie)
        if author is not None:
            made[author] = made.get(author, 0) + 1
        if author is None or made[author] <= most:
            kept.append(sortie)
    return kept, {author: n - most for author, n in made.items() if n > most}


_Sentence = Callable[[str, dict[str, Any]], str]

_STEP_WORDS = {
    "in_progress": "in progress",
    "blocked": "blocked",
    "assigned": "to do",
    "pending": "pending",
}


def _title(data: dict[str, Any]) -> str:
    """Return a title in quotes: the actor of an event need not have worded it."""
    return quote(str(data.get("title") or ""), TITLE_CHARS)


def _quoted(data: dict[str, Any], name: str) -> str:
    """Return a text of an event in quotes, empty ones where it has none."""
    return quote(data.get(name) or "")


def _file(data: dict[str, Any]) -> str:
    return path(str(data.get("file")))


def _lock_acquired(actor: str, data: dict[str, Any]) -> str:
    purpose = data.get("purpose", "edit")
    if purpose == "edit":
        return f"{actor} was editing {_file(data)}"
    return f"{actor} locked {_file(data)} ({purpose})"


def _progressed(actor: str, data: dict[str, Any]) -> str:
    done = f"{actor} reached {data.get('percent')}% of {_title(data)}"
    return f"{done}: {quote(data['notes'])}" if data.get("notes") else done


def _command(actor: str, data: dict[str, Any]) -> str:
    result = f" ({data['result']})" if data.get("result") else ""
    name = data.get("command") or data.get("name") or "a command"
    return f"{actor} ran {name}{result}"


_SENTENCES: dict[str, _Sentence] = {
    "mission_created": lambda actor, data: f"{actor} created the mission",
    "mission_started": lambda actor, data: f"{actor} started the mission",
    "mission_completed": lambda actor, data: f"{actor} completed the mission",
    "mission_failed": lambda actor, data: f"{actor} gave the mission up: {_quoted(data, 'reason')}",
    "mission_cancelled": lambda actor, data: (
        f"{actor} called the mission off: {_quoted(data, 'reason')}"
    ),
    "mission_updated": lambda actor, data: f"{actor} changed {', '.join(data.get('fields', []))}",
    "sortie_created": lambda actor, data: f"{actor} added {_title(data)}",
    "sortie_assigned": lambda actor, data: f"{_title(data)} went to {data.get('assigned_to')}",
    "sortie_started": lambda actor, data: f"{actor} started {_title(data)}",
    "sortie_progressed": _progressed,
    "sortie_blocked": lambda actor, data: (
        f"{actor} is blocked on {_title(data)}: {_quoted(data, 'reason')}"
    ),
    "sortie_unblocked": lambda actor, data: f"{actor} can go on with {_title(data)}",
    "sortie_completed": lambda actor, data: f"{actor} completed {_title(data)}",
    "sortie_failed": lambda actor, data: (
        f"{actor} gave up {_title(data)}: {_quoted(data, 'reason')}"
    ),
    "sortie_reopened": lambda actor, data: f"{actor} has {_title(data)} to do again",
    "sortie_updated": lambda actor, data: f"{actor} reworded {_title(data)}",
    "sortie_removed": lambda actor, data: f"{actor} removed {_title(data)}",
    "agent_registered": lambda actor, data: f"{actor} registered as {data.get('role')}",
    "agent_deregistered": lambda actor, data: f"{actor} left",
    "agent_noted": lambda actor, data: (
        f"{actor}: {quote(data['last_action'])}"
        if data.get("last_action")
        else f"{actor} left a note"
    ),
    "lock_acquired": _lock_acquired,
    "lock_renewed": lambda actor, data: f"{actor} was still editing {_file(data)}",
    "lock_released": lambda actor, data: f"{actor} finished with {_file(data)}",
    "lock_force_released": lambda actor, data: (
        f"{actor} took the lock of {data.get('held_by')} on {_file(data)}"
    ),
    "message_sent": lambda actor, data: (
        f"{actor} wrote to {', '.join(data.get('to', []))}: {_quoted(data, 'subject')}"
    ),
    "message_acked": lambda actor, data: f"{actor} acknowledged a message",
    "file_modified": lambda actor, data: f"{actor} edited {_file(data)}",
    "agent_answered": lambda actor, data: f"{actor} said: {_quoted(data, 'message')}",
    "command_started": lambda actor, data: (
        f"{actor} was running {data.get('command') or 'a command'}"
    ),
    "command_finished": _command,
    "tool_failed": lambda actor, data: f"{actor} saw {data.get('name', 'a tool')} fail",
    "tool_finished": lambda actor, data: f"{actor} used {data.get('tool', 'a tool')}",
    "prompt_submitted": lambda actor, data: f"{actor} was given a prompt by its user",
    "error_reported": lambda actor, data: (
        f"{actor} met {data.get('name')}: {_quoted(data, 'message')}"
    ),
    "fleet_checkpointed": lambda actor, data: (
        f"{actor} took checkpoint {data.get('checkpoint_id')}"
    ),
}


def sentence(event: Event) -> str:
    """Return one sentence about an event: ``specialist-2 was editing src/auth.ts``."""
    actor = event.agent_id or "The operator"
    describe = _SENTENCES.get(event.type)
    if describe is None:
        return f"{actor}: {event.type.replace('_', ' ')}"
    return describe(actor, event.data)


Waits = Mapping[str, Sequence[SortieState]]


def waits_in(sorties: Sequence[SortieState]) -> Waits:
    """Return the open sorties that each open sortie waits for, by the id of the waiting one."""
    if not any(sortie.depends_on for sortie in sorties):
        return {}
    open_ones = {each.id: each for each in sorties if each.status != "completed"}
    return {
        sortie.id: awaited
        for sortie in open_ones.values()
        if (awaited := [open_ones[each] for each in sortie.depends_on if each in open_ones])
    }


def step(
    sortie: SortieState, titles: Titles | None = None, awaited: Sequence[SortieState] = ()
) -> str:
    """Describe an open sortie as a next step for any agent.

    ``titles`` are as the reader may see them; the reader's own name is left out. Without them all
    texts keep their wording. ``awaited`` are the sorties that it waits for.
    """
    title = titles.of(sortie) if titles else ""
    other = sortie.assigned_to if titles is None or sortie.assigned_to != titles.reader else None
    suffix = f" by {other}" if other else ""
    reached = f", {sortie.progress}%" if sortie.progress else ""
    waits = f"; waits for {_awaited(awaited, titles)}" if awaited else ""
    state = f"{_STEP_WORDS[sortie.status]}{suffix}{reached}{waits}"
    text = f"{title or sortie.title or sortie.id} ({state})"
    return f"{text}: {quote(sortie.progress_notes)}" if sortie.progress_notes else text


def _awaited(sorties: Sequence[SortieState], titles: Titles | None) -> str:
    """Name the first awaited sorties, and the number of the others."""
    named = [
        short((titles.of(each) if titles else "") or each.title or each.id, AWAITED_CHARS)
        for each in sorties[:AWAITED]
    ]
    more = len(sorties) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def obstacle(sortie: SortieState, title: str = "") -> str:
    """Describe why a blocked sortie does not continue."""
    reason = quote(sortie.blocked_reason) if sortie.blocked_reason else "blocked"
    return f"{title or sortie.title or sortie.id}: {reason}"
