"""Scores a text: the facts that it states, its errors, and how much of it carries a fact."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from .session import Fact, Facts, Spelling, Wrong

_HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)


class Score(msgspec.Struct, frozen=True):
    """The score of one text, given the facts of one session."""

    present: tuple[Fact, ...]
    missing: tuple[Fact, ...]
    wrong: tuple[Wrong, ...]
    characters: int
    carrying: int
    """Characters that are part of a fact's spelling."""

    @property
    def total(self) -> int:
        """Return how many facts there are."""
        return len(self.present) + len(self.missing)


def score(text: str, facts: Facts) -> Score:
    """Search for every fact, and for every error."""
    found = [(fact, list(_places(fact.accepts, text))) for fact in facts.facts]
    return Score(
        present=tuple(fact for fact, places in found if places),
        missing=tuple(fact for fact, places in found if not places),
        wrong=tuple(wrong for wrong in facts.wrong if _is_stated(wrong, text)),
        characters=len(text),
        carrying=_covered([place for _, places in found for place in places]),
    )


def sections(text: str) -> list[tuple[str, str]]:
    """Return the headings of a text, each with its section; the first part has no heading."""
    parts = _HEADING.split(text)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def without(text: str, heading: str) -> str:
    """Return a text without the section of a heading."""
    return re.sub(rf"(?ms)^### {re.escape(heading)}\n.*?(?=^### |^\S[^\n]*\Z|\Z)", "", text)


def _is_stated(wrong: Wrong, text: str) -> bool:
    if wrong.under is None:
        return any(True for _ in _places(wrong.accepts, text))
    return any(
        True
        for heading, below in sections(text)
        if heading and re.search(wrong.under, heading)
        for _ in _places(wrong.accepts, below)
    )


def _places(accepts: Sequence[str | Spelling], text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the spellings in a text; of a pattern, its group ``fact`` if any."""
    for spelling in accepts:
        pattern = _compiled(
            spelling.pattern if isinstance(spelling, Spelling) else _literal(spelling)
        )
        group = "fact" if "fact" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            yield match.span(group)


def _literal(spelling: str) -> str:
    return r"\s+".join(map(re.escape, spelling.split()))


_compiled = cache(re.compile)


def _covered(places: list[tuple[int, int]]) -> int:
    """Return how many characters these places have together."""
    covered, reached = 0, 0
    for begin, end in sorted(places):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
