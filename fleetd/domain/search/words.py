"""Words and names of texts, as the index holds them: the same in every store.

A word is a run of letters and digits. Case and accents do not count. A name is a path or an
identifier: it is found by any part of it.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

# Only the beginning of a longer text is searched: a whole file in a prompt is no prompt.
TEXT_CHARS = 16_000
# A longer run of letters is no real word; it is found by its beginning.
WORD_CHARS = 64
NAME_CHARS = 300
NAMES_CHARS = 1_000
# Nearly every name contains a given part that is shorter than this.
PART_CHARS = 3
# More parts would not narrow the result, and take longer.
PARTS = 5

_WORD = re.compile(r"[^\W_]+")
# The same for ASCII, many times as fast: letters in lower case, and spaces between the words.
_ASCII_WORDS = "".join(each.lower() if each.isalnum() else " " for each in map(chr, range(128)))
_CHUNK = re.compile(r"[^\s\"'`()\[\]{}<>,;=|&$*?!]{3,}")
# A name differs from a word by a sign between its letters, camel case, or a digit among letters.
_NAMED = re.compile(
    r"\w[/\\._:@#-]+\w|[/\\.~]\w|[a-z0-9][A-Z]|[A-Za-z][0-9]|[0-9][A-Za-z]|[\u2e80-\uffff]"
)


class Token(NamedTuple):
    """A run of letters and digits, its position, and the words that it yields."""

    start: int
    end: int
    words: tuple[str, ...]


def plain(text: str) -> str:
    """Return a text with each accent composed with its letter, truncated at the index's limit."""
    text = text[:TEXT_CHARS]
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """Return a text without case and accents."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text)
    return "".join(each for each in parts if not unicodedata.combining(each)).casefold()


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a ``plain`` text in their order, with their positions."""
    for found in _WORD.finditer(text):
        word = fold(found[0])
        # A character may fold into several, such as a half, with something else between them.
        parts = [word] if word.isascii() and word.isalnum() else _WORD.findall(word)
        if kept := tuple(part[:WORD_CHARS] for part in parts):
            yield Token(found.start(), found.end(), kept)


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order."""
    text = plain(text)
    if text.isascii():
        return [word[:WORD_CHARS] for word in text.translate(_ASCII_WORDS).split()]
    return [word for token in tokens(text) for word in token.words]


def name_of(text: str) -> str:
    """Return a name, or a part of one, as the index stores it."""
    return re.sub(r"\s+", " ", fold(plain(text))).strip()


def names_in(text: str) -> Iterator[str]:
    """Yield the paths and identifiers that a text mentions."""
    for found in _CHUNK.finditer(plain(text)):
        chunk = found[0].strip(".:-")
        is_ascii = chunk.isascii()
        if is_ascii and chunk.isalpha() and chunk[1:].islower():
            continue  # a mere word, as most are
        if _NAMED.search(chunk):
            yield (chunk.lower() if is_ascii else name_of(chunk))[:NAME_CHARS]


def parts_of(name: str) -> list[str]:
    """Return some three-letter parts of a name, by which the index finds it.

    Parts without letters occur in few names, and the others in many. The caller compares whole
    names.
    """
    parts = {name[at : at + PART_CHARS] for at in range(len(name) - PART_CHARS + 1)}
    return sorted(parts, key=lambda part: (sum(map(str.isalpha, part)), part))[:PARTS]
