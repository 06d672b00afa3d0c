"""Excerpts: one line of a hit's text, around the first match."""

from collections.abc import Iterable, Sequence

from .query_language import Phrase
from .words import fold, plain, tokens

# The maximum length of an excerpt, and how much of it precedes the first match.
EXCERPT_CHARS = 240
BEFORE_CHARS = 60
MARKS = 20
_CUT = "…"

Span = tuple[int, int]


def excerpt_of(
    text: str, phrases: Sequence[Phrase], names: Iterable[str]
) -> tuple[str, list[Span]]:
    """Return one line of a text, and the spans of it that match."""
    line = " ".join(plain(text).split())
    found = _merged([*_phrases_in(line, phrases), *_names_in(line, names)])
    first = found[0][0] if found else 0
    start = 0 if len(line) <= EXCERPT_CHARS else max(0, first - BEFORE_CHARS)
    if start:  # at the beginning of a word, if one begins near
        space = line.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(len(line), start + EXCERPT_CHARS)
    before, after = _CUT if start else "", _CUT if end < len(line) else ""
    shift = len(before) - start
    marks = [(a + shift, min(b, end) + shift) for a, b in found if start <= a < end]
    return before + line[start:end] + after, marks[:MARKS]


def _phrases_in(line: str, phrases: Sequence[Phrase]) -> list[Span]:
    words = [(word, token) for token in tokens(line) for word in token.words]
    found = []
    for phrase in dict.fromkeys(phrases):
        *whole, last = phrase.words
        for at in range(len(words) - len(whole)):
            final = words[at + len(whole)]
            ends = final[0].startswith(last) if phrase.begins else final[0] == last
            if ends and all(words[at + n][0] == word for n, word in enumerate(whole)):
                found.append((words[at][1].start, final[1].end))
    return found


def _names_in(line: str, names: Iterable[str]) -> list[Span]:
    folded = fold(line)
    if len(folded) != len(line):  # folding changed the length: the positions are lost
        return []
    found = list[Span]()
    for name in names:
        at = folded.find(name)
        while at >= 0 and len(found) < MARKS:
            found.append((at, at + len(name)))
            at = folded.find(name, at + len(name))
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; merge those that meet."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
