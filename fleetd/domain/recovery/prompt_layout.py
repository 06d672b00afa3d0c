"""Briefing layout: the sections of a briefing, and how they are shortened to a length.

The most important items and the user's last words stay. The rest is shortened item by item, and
each cut tells how many items were left out and which command shows them.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from ...protocol.display import LINE_CHARS

Head = Callable[[int], str]
"""Returns the head of a prompt, its lines cut to so many characters."""
OPENING = "## Recovery Context\n\nYou are resuming a mission after context compaction."
CLOSING = "Please review the current state and continue the mission."
# A prompt is divided into this many parts; no section may have more than one.
SHARE = 4
# No text is cut to fewer characters.
LEAST_CHARS = 80
# A shorter prompt tells how much it leaves out, but not which command shows it.
COMMANDS_FROM = 2_500


class Section(msgspec.Struct):
    """A heading with its items; ``command`` shows the items that had no room.

    A section without a heading is its items alone. ``always`` keeps the heading of an empty section
    (``- None``). ``needed`` sections are shortened last. ``least`` items are never left out.
    """

    heading: str
    items: list[str]
    command: str = ""
    always: bool = False
    needed: bool = False
    left_out: int = 0
    least: int = 0
    chars: int = 0
    """The characters of all items: to count them at each cut of a long list takes long."""
    dropped: list[str] = []

    def __post_init__(self) -> None:
        """Count the items' characters."""
        self.chars = sum(map(len, self.items))

    def text(self) -> str:
        """Return the section as Markdown, empty when there is nothing to say."""
        lines = [*self.items, *self._end()]
        return "\n".join([*self._top(), *lines]) if lines else ""

    @property
    def length(self) -> int:
        """Return the length of ``text``, with one more line break if there is no heading."""
        ends = chain(self._top(), self._end())
        return self.chars + len(self.items) + sum(len(each) + 1 for each in ends)

    def _top(self) -> list[str]:
        return [f"### {self.heading}"] if self.heading else []

    def _end(self) -> list[str]:
        """Return the line after the items, if there is one."""
        if self.left_out:
            shown = f": {self.command}" if self.command else ""
            return [f"- ({self.left_out} more{shown})"]
        return ["- None"] if self.always and not self.items else []

    @property
    def spare(self) -> bool:
        """Return whether an item can be left out."""
        return len(self.items) > self.least

    def drop_last(self) -> None:
        """Leave the last item out; a section without a heading does not report it."""
        self.dropped.append(self.items.pop())
        self.chars -= len(self.dropped[-1])
        self.left_out += 1 if self.heading else 0

    def put_back(self) -> None:
        """Put the item back that was left out last."""
        self.items.append(self.dropped.pop())
        self.chars += len(self.items[-1])
        self.left_out -= 1 if self.heading else 0


def render(
    head: Head, sections: Sequence[Section], newest_task: str, max_chars: int, mission_id: str
) -> str:
    """Return the prompt, never longer than ``max_chars`` characters.

    ``newest_task`` is what the user said last, for a prompt that has room for little else. While
    others are cut, no section keeps more than its share: nobody fills a prompt by talking much.
    """
    if max_chars < COMMANDS_FROM:
        for section in sections:
            section.command = ""
    excess = len(_join(head, sections)) - max_chars
    shortened: list[Section] = []
    while excess > 0 and (longest := _next_to_cut(sections, max_chars // SHARE)):
        excess -= longest.length
        longest.drop_last()
        excess += longest.length
        shortened.append(longest)
    _fill(shortened, -excess)
    text = _join(head, sections)
    if len(text) <= max_chars:
        return text
    if lower := next((s for s in sections if s.least > 1), None):
        lower.least -= 1
        return render(head, sections, newest_task, max_chars, mission_id)
    return _bare(head, sections, newest_task, max_chars, mission_id)


def _fill(shortened: Sequence[Section], room: int) -> None:
    """Put back items that still fit, the last cut first: a long item may have freed much room."""
    full: set[int] = set()
    for section in reversed(shortened):
        before = section.length
        if id(section) in full:
            continue
        section.put_back()
        if section.length - before > room:
            section.drop_last()
            full.add(id(section))
        room -= section.length - before


def _bare(
    head: Head, sections: Sequence[Section], newest_task: str, max_chars: int, mission_id: str
) -> str:
    """Return the head and how to see the rest: below some 700 characters headings do not fit."""
    left_out = sum(section.left_out + len(section.items) for section in sections)
    rest = f"- ({left_out} items left out: fleetctl context --mission {mission_id})"
    text = ""
    with_task = [(newest_task, limit) for limit in (100, 60, 30)]
    for task, limit in (*with_task, ("", 100), ("", 30), ("", 10)):
        top = [OPENING, head(limit)]
        text = "\n\n".join([*top, rest, CLOSING])
        room = max_chars - len(text) - len("\n\n")
        if task and room >= min(len(task), LEAST_CHARS):
            return "\n\n".join([*top, cut(task, room), rest, CLOSING])
        if not task and len(text) <= max_chars:
            break
    return text


def _next_to_cut(sections: Sequence[Section], share: int) -> Section | None:
    """Return the section that loses its last item next: the longest of those above their share.

    Without one it is the last optional section, else the longest needed one. So a long list of
    steps never pushes a blocker out.
    """
    spare = [s for s in sections if s.spare]
    longest = max(spare, key=lambda s: s.chars, default=None)
    if longest is not None and longest.chars > share:
        return longest
    return next((s for s in spare[::-1] if not s.needed), None) or longest


def _join(head: Head, sections: Sequence[Section]) -> str:
    parts = [OPENING, head(LINE_CHARS), *(text for s in sections if (text := s.text()))]
    return "\n\n".join([*parts, CLOSING])


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
