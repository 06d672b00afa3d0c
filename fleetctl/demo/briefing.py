"""Reads a recovery prompt the way an agent would; must not know anything the prompt does not say.

The successor of a killed agent gets this text and its own name, and nothing else.
"""

import re
from typing import NamedTuple

_SECTION = re.compile(r"^### (.+)$", re.MULTILINE)
_SORTIE = re.compile(r"^- (srt-\w+) (.+?): (\w+), (\d+)%", re.MULTILINE)
_LOCK = re.compile(r"^- (\S+) \(.*?token (\d+),", re.MULTILINE)
_LETTER = re.compile(r"^- (msg-\w+) from (\S+): “(.*)”$", re.MULTILINE)
_CHANGED = re.compile(r"^- Changed: +\S+ (\S+)$", re.MULTILINE)


class Letter(NamedTuple):
    """A letter that waits."""

    id: str
    sender: str
    subject: str


class Facts(NamedTuple):
    """What a prompt says about the work that is to go on."""

    mission: str
    sorties: list[str]
    tokens: dict[str, int]
    letters: list[Letter]
    mail: str
    changed: list[str]


def read(prompt: str) -> Facts:
    """Return the facts of a recovery prompt; raises ValueError when it names no mission."""
    mission = re.search(r"^\*\*Mission\*\*: (.+)$", prompt, re.MULTILINE)
    if mission is None:
        raise ValueError("The prompt names no mission.")
    sections = _sections(prompt)
    mail = sections.get("Messages Awaiting You", "")
    return Facts(
        mission=mission[1],
        sorties=[found[1] for found in _SORTIE.finditer(sections.get("Your Sorties", ""))],
        tokens={
            found[1]: int(found[2]) for found in _LOCK.finditer(sections.get("Locks You Hold", ""))
        },
        letters=[Letter(*found.groups()) for found in _LETTER.finditer(mail)],
        mail=mail,
        changed=[found[1] for found in _CHANGED.finditer(sections.get("Repository", ""))],
    )


def _sections(prompt: str) -> dict[str, str]:
    parts = _SECTION.split(prompt)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
