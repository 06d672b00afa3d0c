"""The recovery prompt: a recovery context as text for an agent; pure, must not read the store.

It states facts and gives no orders beyond its closing sentence. Text that came from other agents
is quoted, so that it cannot pass for instructions, and control characters are removed. Headings
and their order are those of context-survival, Phase 3.
"""

import msgspec

from ...protocol.display import LINE_CHARS, path, short
from ...protocol.durations import duration
from ...protocol.records import RecoveryContext

OPENING = "## Recovery Context\n\nYou are resuming a mission after context compaction."
SAID = "What Your User Said"
# Into how many parts a prompt is divided of which no section may have more than one.
SHARE = 4
LEAST_SAID = 80
CLOSING = "Please review the current state and continue the mission."


class Section(msgspec.Struct):
    """A heading with its items; ``command`` shows the items that had no room.

    ``always`` keeps the heading when there is nothing to say (``- None``). ``needed`` sections
    are shortened last. ``least`` items are never left out.
    """

    heading: str
    items: list[str]
    command: str = ""
    always: bool = False
    needed: bool = False
    left_out: int = 0
    least: int = 0
    chars: int = 0
    """How many characters the items have: counted anew at each cut, a long list would take long."""

    def __post_init__(self) -> None:
        """Count the items' characters."""
        self.chars = sum(map(len, self.items))

    def text(self) -> str:
        """Return the section as Markdown, empty when there is nothing to say."""
        lines = [*self.items, *self._end()]
        return "\n".join([f"### {self.heading}", *lines]) if lines else ""

    @property
    def length(self) -> int:
        """Return how long ``text`` is, of a section that has something to say."""
        end = self._end()
        return (
            len(f"### {self.heading}") + self.chars + len(self.items) + sum(len(e) + 1 for e in end)
        )

    def _end(self) -> list[str]:
        """Return the line behind the items, if there is one."""
        if self.left_out:
            shown = f": {self.command}" if self.command else ""
            return [f"- ({self.left_out} more{shown})"]
        return ["- None"] if self.always and not self.items else []

    @property
    def spare(self) -> bool:
        """Whether an item can be left out."""
        return len(self.items) > self.least

    def drop_last(self) -> None:
        """Leave the last item out."""
        self.chars -= len(self.items.pop())
        self.left_out += 1


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a prompt may say."""

    context: RecoveryContext
    progress: str
    mission_id: str
    taken_over_from: str | None = None
    run: str = ""
    own_sorties: list[str] = []
    own_left_out: int = 0
    fleet: str = ""
    place: str = ""
    locks: list[str] = []
    messages: list[str] = []
    messages_left_out: int = 0
    commands: list[str] = []
    prompts: list[str] = []
    repository: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []


def render(brief: Brief, max_chars: int) -> str:
    """Return the prompt, never longer than ``max_chars`` characters.

    What is needed most stays, and what the user said last; the rest is shortened from the bottom,
    item by item, and each cut says how many items were left out and which command shows them. No
    section keeps more than its share while others are cut: nobody fills a prompt by talking much.
    """
    sections = _sections(brief, max_chars)
    excess = len(_join(brief, sections)) - max_chars
    while excess > 0 and (section := _next_to_cut(sections, max_chars // SHARE)):
        excess -= section.length
        section.drop_last()
        excess += section.length
    text = _join(brief, sections)
    return text if len(text) <= max_chars else _bare(brief, sections, max_chars)


def _bare(brief: Brief, sections: list[Section], max_chars: int) -> str:
    """Return the head and where the rest is: below some 700 characters headings have no room."""
    left_out = sum(section.left_out for section in sections)
    rest = f"- ({left_out} items left out: fleetctl context --mission {brief.mission_id})"
    newest = next((s.items[0] for s in sections if s.heading == SAID and s.items), "")
    text = ""
    for said, limit in ((newest, 100), (newest, 60), (newest, 30), ("", 100), ("", 30), ("", 10)):
        head = [OPENING, _head(brief, limit)]
        text = "\n\n".join([*head, rest, CLOSING])
        room = max_chars - len(text) - len(f"\n\n### {SAID}\n")
        if said and room >= min(len(said), LEAST_SAID):
            return "\n\n".join([*head, f"### {SAID}\n{_cut(said, room)}", rest, CLOSING])
        if not said and len(text) <= max_chars:
            break
    return text


def _next_to_cut(sections: list[Section], share: int) -> Section | None:
    """Return what loses its last item next: what has more than its share, the longest first.

    Then the lowest that can go, else the longest needed one. So a long list of steps never pushes a
    blocker out.
    """
    spare = [s for s in sections if s.spare]
    longest = max(spare, key=lambda s: s.chars, default=None)
    if longest is not None and longest.chars > share:
        return longest
    lowest = next((s for s in spare[::-1] if not s.needed), None)
    return lowest or longest


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


def _sections(brief: Brief, max_chars: int) -> list[Section]:
    context, mission = brief.context, brief.mission_id
    show = f"fleetctl mission show {mission}"
    sorties = f"fleetctl sortie list --mission {mission}"
    time = [
        f"- Elapsed: {duration(context.elapsed_time_ms)}",
        f"- Last activity: {context.last_activity_at or 'unknown'}",
    ]
    own = [f"- {brief.run}"] if brief.run else []
    own += brief.own_sorties
    own += [f"- {line}" for line in (brief.fleet, brief.place) if line]
    return [
        Section("Next Steps", _items(context.next_steps), sorties, always=True, needed=True),
        Section("Current Blockers", _items(context.blockers), show, always=True, needed=True),
        Section(
            "Files Modified",
            [f"- {path(each)}" for each in context.files_modified],
            show,
            always=True,
        ),
        Section("Time Context", time, show, needed=True, always=True),
        Section("Your Sorties", own, sorties, needed=True, left_out=brief.own_left_out),
        Section("Locks You Hold", brief.locks, f"fleetctl lock list --mission {mission}"),
        Section(
            "Messages Awaiting You",
            brief.messages,
            "fleetctl mail inbox <agent>",
            left_out=brief.messages_left_out,
        ),
        Section("Recent Commands", brief.commands, f"fleetctl events --mission {mission}"),
        Section(
            SAID,
            [_cut(text, max(max_chars // SHARE, LEAST_SAID)) for text in brief.prompts],
            f"fleetctl events --mission {mission}",
            least=1,
        ),
        Section("Repository", _items(brief.repository), "git status"),
        Section("Recovery Errors", _items(brief.errors), f"fleetctl lock list --mission {mission}"),
        Section("Recovery Warnings", _items(brief.warnings), show),
    ]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _items(texts: list[str]) -> list[str]:
    return [f"- {line}" for text in texts if (line := short(text))]
