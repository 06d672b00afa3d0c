"""Query language: turns what a person types into a condition that both stores understand.

Usually every word is taken literally, and a hit contains all of them. A raw query has ``AND``,
``OR``, ``NOT``, parentheses and phrases in quotes. Both have ``begin*``.
"""

import re
from functools import partial
from typing import NamedTuple

from ...protocol.errors import InvalidParams
from .words import PART_CHARS, name_of, words_of

# No person writes an expression that is deeper than this.
DEPTH = 50
TERMS = 100
# Fewer letters before a star would match nearly every word.
BEGINNING_CHARS = 3


class Phrase(NamedTuple):
    """Words that follow each other; the last may be the beginning of one."""

    words: tuple[str, ...]
    begins: bool = False


class Both(NamedTuple):
    """Both sides have to be found."""

    left: "Expression"
    right: "Expression"


class Either(NamedTuple):
    """One of two sides has to be found."""

    left: "Expression"
    right: "Expression"


class Without(NamedTuple):
    """The left side has to be found, and not the right one."""

    left: "Expression"
    right: "Expression"


Expression = Phrase | Both | Either | Without


class Query(NamedTuple):
    """A query: an expression over words, and parts of names that a hit must all contain.

    ``names`` is another way to match: each word as typed is a part of a path or an identifier.
    """

    expression: Expression | None
    names: tuple[str, ...] = ()


def plain_query(text: str) -> Query:
    """Return the query for a text whose words are taken literally.

    Raises InvalidParams for one without any word.
    """
    typed = text.split()
    phrases = [phrase for each in typed if (phrase := _phrase(each)) is not None]
    if not phrases:
        raise InvalidParams(
            "The query has no words.",
            hint="Give a word with a character of an alphabet or a digit, or give --path.",
            field="query",
        )
    _check_size(len(phrases))
    expression: Expression = phrases[0]
    for phrase in phrases[1:]:
        expression = Both(expression, phrase)
    names = tuple(dict.fromkeys(map(name_of, typed)))
    whole = all(len(each) >= PART_CHARS and "*" not in each for each in names)
    return Query(expression, names if whole else ())


def _phrase(typed: str) -> Phrase | None:
    words = tuple(words_of(typed))
    if not words:
        return None
    begins = typed.endswith("*") and len(words[-1]) >= BEGINNING_CHARS
    return Phrase(words, begins)


_PART = re.compile(
    r'\s*(?:(?P<open>\()|(?P<close>\))|"(?P<quoted>[^"]*)(?P<ends>"?)|(?P<word>[^\s()"]+))(?P<star>\*?)'
)


class _Part(NamedTuple):
    at: int
    kind: str
    text: str
    begins: bool


def raw_query(text: str) -> Query:
    """Return what a raw query means; raises InvalidParams with the position of an error."""
    return Query(_Parser(text).parse())


class _Parser:
    """Reads a raw query from left to right: OR binds least, then AND, then NOT."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = list(self._split())
        self._next = 0
        self._terms = 0

    def parse(self) -> Expression:
        found = self._either(0)
        if (part := self._look()) is not None:
            raise self._error(part.at, f"{part.text!r} is not expected")
        return found

    def _split(self) -> list[_Part]:
        parts, at, text = [], 0, self._text
        while at < len(text) and (found := _PART.match(text, at)) is not None:
            kind = str(found.lastgroup if found.lastgroup != "star" else "")
            kind = next(k for k in ("open", "close", "quoted", "word") if found[k] is not None)
            begin = found.start(kind) - (kind == "quoted")
            if kind == "quoted" and not found["ends"]:
                raise self._error(begin, "the quotation mark is not closed")
            word, star = found[kind], bool(found["star"])
            if kind == "word":
                star, word = word.endswith("*"), word.rstrip("*")
                if word in ("AND", "OR", "NOT") and not star:
                    kind = word
            elif kind in ("open", "close") and star:
                raise self._error(found.start("star"), "a star needs a word before it")
            parts.append(_Part(begin, kind, word, star))
            at = found.end()
        return parts

    def _look(self) -> _Part | None:
        return self._parts[self._next] if self._next < len(self._parts) else None

    def _take(self, kind: str) -> bool:
        part = self._look()
        if part is None or part.kind != kind:
            return False
        self._next += 1
        return True

    def _either(self, depth: int) -> Expression:
        left = self._both(depth)
        while self._take("OR"):
            left = Either(left, self._both(depth))
        return left

    def _both(self, depth: int) -> Expression:
        left = self._without(depth)
        while (part := self._look()) is not None and part.kind in ("AND", "open", "quoted", "word"):
            self._take("AND")
            left = Both(left, self._without(depth))
        return left

    def _without(self, depth: int) -> Expression:
        left = self._one(depth)
        while self._take("NOT"):
            left = Without(left, self._one(depth))
        return left

    def _one(self, depth: int) -> Expression:
        part = self._look()
        if part is None:
            raise self._error(len(self._text), "a word is missing")
        if depth > DEPTH:
            raise self._error(part.at, f"more than {DEPTH} parentheses stand in each other")
        if self._take("open"):
            found = self._either(depth + 1)
            if not self._take("close"):
                raise self._error(len(self._text), "a closing parenthesis is missing", part.at)
            return found
        if part.kind not in ("quoted", "word"):
            raise self._error(part.at, f"a word is missing before {part.text or part.kind!r}")
        self._next += 1
        words = tuple(words_of(part.text))
        if not words:
            raise self._error(part.at, "it has no word")
        if part.begins and len(words[-1]) < BEGINNING_CHARS:
            raise self._error(part.at, "a star needs three characters before it")
        self._terms += 1
        _check_size(self._terms)
        return Phrase(words, part.begins)

    def _error(self, at: int, what: str, opened: int | None = None) -> InvalidParams:
        opening = "" if opened is None else f" for the one at character {opened + 1}"
        return InvalidParams(
            f"The query cannot be read at character {at + 1}: {what}{opening}.",
            hint='A raw query has words, "phrases", begin*, AND, OR, NOT and parentheses.',
            field="query",
            position=at,
        )


def _check_size(terms: int) -> None:
    if terms > TERMS:
        raise InvalidParams(
            f"The query has more than {TERMS} words.", hint="Give fewer.", field="query"
        )


def as_fts5(expression: Expression) -> str:
    """Return an expression in the syntax of SQLite's full-text search."""
    if isinstance(expression, Phrase):
        return f'"{" ".join(expression.words)}"' + (" *" if expression.begins else "")
    joined = {Both: "AND", Either: "OR", Without: "NOT"}[type(expression)]
    return f"({as_fts5(expression.left)} {joined} {as_fts5(expression.right)})"


def as_tsquery(expression: Expression) -> str:
    """Return an expression in the syntax of PostgreSQL's full-text search."""
    if isinstance(expression, Phrase):
        words = [f"'{word}'" for word in expression.words]
        words[-1] += ":*" if expression.begins else ""
        return f"({' <-> '.join(words)})"
    joined = {Both: "&", Either: "|", Without: "& !"}[type(expression)]
    return f"({as_tsquery(expression.left)} {joined} {as_tsquery(expression.right)})"


def is_in(expression: Expression, words: str) -> bool:
    """Whether an expression matches words that are separated by spaces."""
    if isinstance(expression, Phrase):
        return f" {' '.join(expression.words)}{'' if expression.begins else ' '}" in f" {words} "
    left, right = (partial(is_in, side, words) for side in (expression.left, expression.right))
    if isinstance(expression, Either):
        return left() or right()
    return left() and (not right() if isinstance(expression, Without) else right())


def phrases_of(expression: Expression) -> list[Phrase]:
    """Return the phrases to mark in a hit."""
    if isinstance(expression, Phrase):
        return [expression]
    if isinstance(expression, Without):
        return phrases_of(expression.left)
    return [*phrases_of(expression.left), *phrases_of(expression.right)]
