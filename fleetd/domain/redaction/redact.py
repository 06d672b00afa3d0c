"""Redaction: replaces secrets in text and data by ``[redacted:<kind>]``.

The time it takes depends only on the length of the text. It finds secrets with a known shape or a
telling name, and no others.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from ...protocol.display import INVISIBLE
from .key_names import is_gap, kind_of_name, lowered
from .searches import SEARCHES
from .tokens import TOKEN_BEGINNING, Found, Search, long_words

# Longer texts are cut before they are scanned: text that is not scanned is not kept.
SCANNED_MAX = 1_048_576
CUT = "[redacted:not-scanned]"
# A text in which one search finds more secrets than this consists of them: the rest is cut as well,
# so that a flood of secrets cannot keep the daemon busy.
FOUND_MAX = 1_000
# Secrets without a gap between them are found one by one; more than this is deliberate.
PASSES = 8
_SHORTEST = 6
_EVERY = SEARCHES
# The searches that each needle calls for, by their places in SEARCHES.
_CALLED: dict[str, tuple[int, ...]] = {}
_CALLED_BY_TOKENS: dict[str, tuple[int, ...]] = {}
for _place, _search in enumerate(SEARCHES):
    _called = _CALLED_BY_TOKENS if _search.in_long_words else _CALLED
    for _needle in _search.needles:
        _called[_needle] = (*_called.get(_needle, ()), _place)
_LETTERS = frozenset("".join(_CALLED_BY_TOKENS))
# From this length on, in characters, it is faster to check first which letters occur.
_MANY = 10_000
# Needles of one character or none: the expression for the others does not contain them.
_SHORT_NEEDLES = tuple(pair for pair in _CALLED_BY_TOKENS.items() if len(pair[0]) < 2)
_encode = msgspec.json.Encoder().encode


def redact(text: str) -> str:
    """Return the text with its secrets replaced; the same text when it holds none."""
    return _clean(text, _EVERY)


def _clean(text: str, searches: Sequence[Search]) -> str:
    """Scan a text, and again after each find: a replacement may reveal an adjacent secret."""
    for _ in range(PASSES):
        if len(text) < _SHORTEST:
            return text
        cleaned = _without_disguised(_scan(text, _live(text, searches)))
        if cleaned == text:
            return text
        text, searches = cleaned, _EVERY
    return text


def _without_disguised(text: str) -> str:
    """Replace the secrets that are only found without invisible characters and colours."""
    found = undisguised(text)
    if found is None:
        return text
    plain, places = found
    live = _live(plain, _EVERY)
    spans = [
        (places[start], places[end - 1] + 1, kind)
        for search in live
        for start, end, kind in islice(search.find(plain), FOUND_MAX)
        if start < end
    ]
    return _without(text, sorted(spans, key=itemgetter(0)), whole=True)


def _without(text: str, spans: Iterable[Found], *, whole: bool = False) -> str:
    """Replace spans of a text, from left to right.

    A span that overlaps the one before is replaced with it if ``whole`` is set; else the rest of it
    is scanned again.
    """
    parts: list[str] = []
    position = 0
    for start, end, kind in spans:
        if start >= position:
            parts += [text[position:start], f"[redacted:{kind}]"]
            position = end
        elif whole:
            position = max(position, end)
        if len(parts) == 2 * FOUND_MAX:
            # On its own line, or a later scan would not recognise the last replacement.
            return "".join([*parts, f"\n{CUT}"])
    return "".join([*parts, text[position:]]) if parts else text


# Disguises as they are escaped in JSON and in source code.
_WRITTEN = (
    r"\\\\?(?:u(?:00[aA][dD]|034[fF]|061[cC]|200[b-fB-F]|202[a-eA-E]|206[0-9a-fA-F]|[fF][eE][fF]{2})"
    r"|(?:u001[bB]|x1[bB]|033|e)\[[0-?]{0,40}[ -/]{0,4}[@-~])"
)
_COLOUR = r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|[@-Z\\-_])"
_DISGUISE = re.compile(rf"[{INVISIBLE}]|{_COLOUR}|{_WRITTEN}")


def undisguised(text: str) -> tuple[str, list[int]] | None:
    """Return a text without its disguises, and each character's position; None if it has none."""
    if not _is_disguised(text):
        return None
    parts: list[str] = []
    places: list[int] = []
    end = 0
    for found in _DISGUISE.finditer(text):
        parts.append(text[end : found.start()])
        places.extend(range(end, found.start()))
        end = found.end()
    if end == 0:
        return None
    places.extend(range(end, len(text)))
    return "".join([*parts, text[end:]]), places


# Cheaper than looking for a disguise, and hardly any text has one of them.
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_SPELLED_OUT = re.compile(_WRITTEN)


def _is_disguised(text: str) -> bool:
    if "\x1b" in text or (not text.isascii() and _UNSEEN.search(_beyond_ascii(text))):
        return True
    return "\\" in text and bool(_SPELLED_OUT.search(text))


_ASCII = bytes(range(128))


def _beyond_ascii(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return raw.decode("utf-8", "surrogatepass")


def redact_data(value: Any) -> Any:
    """Return JSON data without secrets, including those that only a key reveals.

    The same object is returned when it holds none.
    """
    # One scan of everything: for most data this is enough.
    together = _encode(value).decode()
    live = _EVERY if undisguised(together) else _live(together, _EVERY)
    if not live and len(together) <= SCANNED_MAX:
        return value
    cleaned = _Cleaning(live).clean(value)
    return value if cleaned == value else cleaned


def has_no_secret(json: str) -> bool:
    """Return whether data written as JSON certainly holds no secret.

    JSON leaves the parts by which secrets are found unchanged, and puts nothing before them that
    would hide them.
    """
    return len(json) <= SCANNED_MAX and not _live(json, _EVERY) and undisguised(json) is None


def _live(text: str, searches: Sequence[Search]) -> list[Search]:
    """Return the searches that could find something in a text, in their order."""
    lower = lowered(text)
    every = searches is _EVERY
    words = long_words(text) if every or any(s.in_long_words for s in searches) else ""
    if every:
        places = {place for needle, which in _CALLED.items() if needle in lower for place in which}
        if words:
            places.update(_of_tokens(words))
        found = [SEARCHES[place] for place in sorted(places)]
    else:
        found = [
            search
            for search in searches
            if any(
                needle in (words if search.in_long_words else lower) for needle in search.needles
            )
        ]
    return [s for s in found if not s.sign or s.sign(words if s.in_long_words else text)]


def _of_tokens(words: str) -> Iterator[int]:
    """Return the places of the searches for tokens that could find something in long words."""
    called: Iterable[tuple[str, tuple[int, ...]]]
    if len(words) < _MANY:
        called = _CALLED_BY_TOKENS.items() if TOKEN_BEGINNING.search(words) else _SHORT_NEEDLES
    else:
        # For long texts, it is faster to look for single letters first.
        letters = {letter for letter in _LETTERS if letter in words}
        called = [pair for pair in _CALLED_BY_TOKENS.items() if letters.issuperset(pair[0])]
    for needle, which in called:
        if needle in words:
            yield from which


def _scan(text: str, live: Sequence[Search]) -> str:
    if len(text) > SCANNED_MAX:
        text = text[:SCANNED_MAX] + CUT
    for search in live:
        text = _replace(text, search)
    return text


def _replace(text: str, search: Search) -> str:
    return _without(text, search.find(text))


class _Cleaning:
    """Walks through data with the searches that could find something in it."""

    def __init__(self, live: Sequence[Search]) -> None:
        self._live = live

    def clean(self, value: Any, parent_kind: str | None = None) -> Any:
        """Return the value without secrets; a parent key announces ``parent_kind``."""
        if isinstance(value, str):
            secret = parent_kind and value and not is_gap(value)
            return f"[redacted:{parent_kind}]" if secret else _clean(value, self._live)
        if isinstance(value, dict):
            return self._object(value, parent_kind)
        if isinstance(value, list):
            return self._array(value, parent_kind)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return "[redacted:password]" if number and parent_kind == "password" else value

    def _object(self, value: dict[str, Any], parent_kind: str | None) -> dict[str, Any]:
        # {"name": "API_KEY", "value": "..."}, as lists of environment variables are written.
        named = value.get("name", value.get("key"))
        pair = kind_of_name(named) if isinstance(named, str) and "value" in value else None
        found: dict[str, Any] = {}
        for name, inner in value.items():
            kind = pair if pair and name == "value" else kind_of_name(name) or parent_kind
            if pair and name in ("name", "key"):
                kind = None
            found[self._free(_clean(name, self._live), found)] = self.clean(inner, kind)
        return found

    def _free(self, name: str, taken: dict[str, Any]) -> str:
        """Return a free name: redaction may make two names equal, and neither value is lost."""
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}#{number}"
        return free

    def _array(self, value: list[Any], parent_kind: str | None) -> list[Any]:
        found = []
        flag: str | None = None
        for inner in value:
            found.append(self.clean(inner, flag or parent_kind))
            # ["--password", "..."], as the arguments of a command are written.
            is_flag = isinstance(inner, str) and inner.startswith("-")
            flag = kind_of_name(inner) if is_flag else None
        return found
