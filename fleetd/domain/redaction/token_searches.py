"""The searches for what has a known shape, tokens and private keys; must not replace anything."""

import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .key_names import BEFORE
from .tokens import CHARACTERS, DISCORD, DISCORD_BEFORE, LEAST, SHAPES, Shape

Found = tuple[int, int, str]
_KEY_MAX = 65_536


class Search(NamedTuple):
    """A search, worth making in texts that hold one of its needles (in lower case).

    ``find`` yields where secrets begin and end, and their kind, from left to right. ``sign`` is
    what else has to be there, where the needle alone is too common. ``in_long_words`` says that
    needle (as it is written) and sign are looked for in the text's ``long_words`` only.
    """

    needles: tuple[str, ...]
    find: Callable[[str], Iterator[Found]]
    sign: Callable[[str], object] | None = None
    in_long_words: bool = False


_OF_TOKENS = re.compile(f"[{CHARACTERS}]")
_MASK = bytes(ord("a" if _OF_TOKENS.match(chr(code)) else " ") for code in range(256))
_LONG = b"a" * LEAST


def long_words(text: str) -> str:
    """Return the words of a text that are long enough for a token, each once."""
    raw = text.encode("utf-8", "surrogatepass")
    mask = raw.translate(_MASK)
    words: dict[bytes, None] = {}  # the same path stands in an output again and again
    end = 0
    while (start := mask.find(_LONG, end)) >= 0:
        end = mask.find(b" ", start + LEAST)
        end = len(raw) if end < 0 else end
        words[raw[start:end]] = None
    return b" ".join(words).decode("ascii")


def any_of(words: Iterable[str]) -> str:
    """Return an expression for any of these words that shares their beginnings.

    It looks at each character of a text once, where an alternation tries every word.
    """
    by_first: dict[str, list[str]] = {}
    for word in sorted(words):
        by_first.setdefault(word[:1], []).append(word[1:])
    if "" in by_first:  # whatever follows, a word ends here
        return ""
    branches = [re.escape(first) + any_of(rest) for first, rest in by_first.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# What stands in a key and between its lines, however they are quoted.
_IN_KEYS = string.ascii_letters + string.digits + "+/=" + string.whitespace + "\"'>|,\\"
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32}")
_CUT_OFF = re.compile(
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+(?:[A-Z][\w-]{2,30}: [^\r\n\\]{0,100}|[A-Za-z0-9+/=]{16,}+))*+"
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+[A-Za-z0-9+/=]{1,15}(?=\Z|[\r\n\"'\\]))?"
)


def private_keys(text: str) -> Iterator[Found]:
    """Find private key blocks, also those whose end is missing."""
    position = 0
    while begin := _BEGIN.search(text, position):
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if 0 <= dashes < begin.end() + _KEY_MAX else None
        last = end or _CUT_OFF.match(text, begin.end())
        position = last.end() if last else begin.end()
        yield begin.start(), position, "private-key"


def key_tail(text: str) -> Iterator[Found]:
    """Find a private key whose beginning is missing: of long outputs the end is kept."""
    end = _END.search(text)
    if end is None or _BEGIN.search(text, 0, end.start()) is not None:
        return
    start = len(text[: end.start()].rstrip(_IN_KEYS))
    if _KEY_LINE.search(text, start, end.start()) is not None:
        yield start, end.end(), "private-key"


_BREAK = r"(?:(?:\\{1,2}r)?\\{1,2}n|\r?\n)"
_PUTTY = re.compile(
    rf"Private-Lines: \d{{1,4}}{_BREAK}(?:[A-Za-z0-9+/=]{{1,80}}(?:{_BREAK}|\Z)){{1,400}}"
    r"(?:Private-(?:MAC|Hash): [0-9a-f]{1,80})?"
)


def putty_keys(text: str) -> Iterator[Found]:
    """Find the private half of PuTTY's key files."""
    for found in _PUTTY.finditer(text):
        yield *found.span(), "private-key"


def _shaped(shape: Shape) -> Search:
    def find(text: str) -> Iterator[Found]:
        first = text.find(shape.needle)
        for found in shape.pattern.finditer(text, first) if first >= 0 else ():
            start = _before(text, found.start(), shape.before) if shape.before else found.start()
            if start is not None:
                yield start, found.end(), shape.kind

    sign = (lambda words: shape.within in words) if shape.within else None
    return Search((shape.needle,), find, sign, in_long_words=True)


def _before(text: str, at: int, pattern: re.Pattern[str]) -> int | None:
    """Return where a token begins of which the rest begins at a place; None when it is none."""
    first = max(0, at - BEFORE)
    found = pattern.search(text[first:at])
    return first + found.start() if found else None


def discord(text: str) -> Iterator[Found]:
    """Find the tokens of Discord's bots."""
    for found in DISCORD.finditer(text):
        start = _before(text, found.start(), DISCORD_BEFORE)
        if start is not None:
            yield start, found.end(), "discord"


TOKEN_SEARCHES: tuple[Search, ...] = (
    Search(("-----begin",), private_keys),
    Search(("-----end",), key_tail),
    Search(("key",), putty_keys, lambda text: "Private-Lines" in text),
    *map(_shaped, SHAPES),
    Search((".",), discord, DISCORD.search, in_long_words=True),
)

# One look for the beginnings of all tokens: hardly any text has one.
TOKEN_BEGINNING = re.compile(any_of(shape.needle for shape in SHAPES))
