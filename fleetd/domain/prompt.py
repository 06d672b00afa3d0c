"""The recovery prompt: a recovery context as text for an agent; pure, must not read the store.

It states facts and gives no orders beyond its closing sentence. Text that came from other agents
is quoted, so that it cannot pass for instructions, and control characters are removed. Headings
and their order are those of context-survival, Phase 3.
"""

import re
import unicodedata

import msgspec

from ..wire.model import RecoveryContext
from ..wire.times import duration

OPENING = "## Recovery Context\n\nYou are resuming a mission after context compaction."
CLOSING = "Please review the current state and continue the mission."
LINE_CHARS = 300
_SPACES = re.compile(r"\s+")


class Section(msgspec.Struct):
    """A heading with its items; ``command`` shows the items that had no room.

    ``always`` keeps the heading when there is nothing to say (``- None``). ``needed`` sections
    are shortened last.
    """

    heading: str
    items: list[str]
    command: str = ""
    always: bool = False
    needed: bool = False
    left_out: int = 0

    def text(self) -> str:
        """Return the section as Markdown, empty when there is nothing to say."""
        lines = list(self.items)
        if self.left_out:
            shown = f": {self.command}" if self.command else ""
            lines.append(f"- ({self.left_out} more{shown})")
        if not lines and not self.always:
            return ""
        return "\n".join([f"### {self.heading}", *(lines or ["- None"])])

    def drop_last(self) -> None:
        """Leave the last item out."""
        self.items.pop()
        self.left_out += 1


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a prompt may say."""

    context: RecoveryContext
    progress: str
    mission_id: str
    taken_over_from: str | None = None
    own_sorties: list[str] = []
    fleet: str = ""
    place: str = ""
    locks: list[str] = []
    messages: list[str] = []
    commands: list[str] = []
    prompts: list[str] = []
    repository: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []


def clean(text: str) -> str:
    """Return text on one line without control, escape or direction-changing characters."""
    flat = _SPACES.sub(" ", text)
    return "".join(c for c in flat if unicodedata.category(c)[0] != "C").strip()


def short(text: str, limit: int = LINE_CHARS) -> str:
    """Return cleaned text of at most ``limit`` characters."""
    line = clean(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def quote(text: str, limit: int = LINE_CHARS) -> str:
    """Return somebody else's words in quotation marks that they cannot close."""
    return "“" + short(text.replace("”", '"').replace("“", '"'), limit) + "”"


def verbatim(text: str, limit: int = 2_000) -> str:
    """Return somebody's words line by line as a quotation block below a list item."""
    lines = [kept for line in text.splitlines() if (kept := clean(line))]
    whole = "\n".join(f"  > {line}" for line in lines)
    return whole if len(whole) <= limit else whole[: limit - 1].rstrip() + "…"


def render(brief: Brief, max_chars: int) -> str:
    """Return the prompt, never longer than ``max_chars`` characters.

    What is needed most stays; the rest is shortened from the bottom, item by item, and each cut
    says how many items were left out and which command shows them.
    """
    sections = _sections(brief)
    text = _join(brief, sections)
    for section in _cutting_order(sections):
        while section.items and len(text) > max_chars:
            section.drop_last()
            text = _join(brief, sections)
    return text if len(text) <= max_chars else _bare(brief, sections, max_chars)


def _bare(brief: Brief, sections: list[Section], max_chars: int) -> str:
    """Return the head and where the rest is: below some 700 characters headings have no room."""
    left_out = sum(section.left_out for section in sections)
    rest = f"- ({left_out} items left out: fleetctl context --mission {brief.mission_id})"
    text = ""
    for limit in (100, 60, 30, 10):
        text = "\n\n".join([OPENING, _head(brief, limit), rest, CLOSING])
        if len(text) <= max_chars:
            break
    return text


def _cutting_order(sections: list[Section]) -> list[Section]:
    from_below = sections[::-1]
    return [s for s in from_below if not s.needed] + [s for s in from_below if s.needed]


def _join(brief: Brief, sections: list[Section]) -> str:
    parts = [OPENING, _head(brief, LINE_CHARS), *(text for s in sections if (text := s.text()))]
    return "\n\n".join([*parts, CLOSING])


def _head(brief: Brief, limit: int) -> str:
    context = brief.context
    lines = [
        f"**Mission**: {short(context.mission_summary, limit)}",
        f"**Progress**: {brief.progress}",
        f"**Last Action**: {short(context.last_action, limit) or 'Unknown'}",
    ]
    if brief.taken_over_from:
        lines.append(f"**Work Taken Over From**: {brief.taken_over_from}")
    return "\n".join(lines)


def _sections(brief: Brief) -> list[Section]:
    context, mission = brief.context, brief.mission_id
    show = f"fleetctl mission show {mission}"
    sorties = f"fleetctl sortie list --mission {mission}"
    time = [
        f"- Elapsed: {duration(context.elapsed_time_ms)}",
        f"- Last activity: {context.last_activity_at or 'unknown'}",
    ]
    own = list(brief.own_sorties)
    own += [f"- {line}" for line in (brief.fleet, brief.place) if line]
    return [
        Section("Next Steps", _items(context.next_steps), sorties, always=True, needed=True),
        Section("Current Blockers", _items(context.blockers), show, always=True, needed=True),
        Section("Files Modified", _items(context.files_modified), show, always=True),
        Section("Time Context", time, show, needed=True, always=True),
        Section("Your Sorties", own, sorties, needed=True),
        Section("Locks You Hold", brief.locks, f"fleetctl lock list --mission {mission}"),
        Section("Messages Awaiting You", brief.messages, "fleetctl mail inbox <agent>"),
        Section("Recent Commands", brief.commands, f"fleetctl events --mission {mission}"),
        Section("What Your User Said", brief.prompts, f"fleetctl events --mission {mission}"),
        Section("Repository", _items(brief.repository), "git status"),
        Section("Recovery Errors", _items(brief.errors), f"fleetctl lock list --mission {mission}"),
        Section("Recovery Warnings", _items(brief.warnings), show),
    ]


def _items(texts: list[str]) -> list[str]:
    return [f"- {line}" for text in texts if (line := short(text))]
