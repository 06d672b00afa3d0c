"""Payloads of hooks: parses text into an object, without blocking others for long.

The parser holds the interpreter until it is done. A large payload contains one or a few long texts:
these are taken out and parsed in pieces, and the rest is short.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...harness.report import Unfit

# A payload is large from this length on.
LARGE_CHARS = 1_048_576
# One call parses this many characters, of any kind, in 2 ms.
PIECE_CHARS = 262_144
# Texts from this length on are taken out of a large payload.
LONG_CHARS = 16_384
_ESCAPE_CHARS = len(r"\u0000")
# A part of an escape, or the first half of a surrogate pair.
_UNFINISHED = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?\Z")
_INVALID = (msgspec.MsgspecError, ValueError, RecursionError)


def decode(payload: str) -> dict[str, Any]:
    """Return the object that a payload contains; raises Unfit."""
    with contextlib.suppress(*_INVALID):
        found = _large(payload) if len(payload) > LARGE_CHARS else _whole(payload)
        if isinstance(found, dict):
            return found
    raise Unfit("it is not a JSON object")


def _whole(text: str) -> Any:
    """Parse JSON in one call.

    CLIs in JavaScript cut texts between the halves of a surrogate pair. Only the slower parser
    accepts the remaining half; the adapters drop it.
    """
    with contextlib.suppress(*_INVALID):
        return msgspec.json.decode(text if text.isascii() else text.encode())
    return json.loads(text)


def _large(text: str) -> Any:
    """Parse JSON without its long texts, and these in pieces; in one call if the rest is long."""
    mark = f"{secrets.token_hex(8)}-"
    places = {f"{mark}{n}": place for n, place in enumerate(_long_texts(text))}
    rest: list[str] = []
    at = 0
    for name, (begin, end) in places.items():
        rest += text[at:begin], name
        at = end
    rest.append(text[at:])
    if sum(map(len, rest)) > LARGE_CHARS:
        return _whole(text)
    found = [_whole("".join(rest))]
    _put_back(found, {name: "".join(_pieces(text, *place)) for name, place in places.items()})
    return found[0]


def _put_back(value: list[Any], long: dict[str, str]) -> None:
    """Put long texts in the places of their names, at any depth."""
    left: list[Any] = [value]
    while left:
        each = left.pop()
        if isinstance(each, list):
            each[:] = [long.get(part, part) if isinstance(part, str) else part for part in each]
            parts: Iterable[Any] = each
        else:
            renamed = {long.get(name, name): part for name, part in each.items()}
            each.clear()
            each |= {
                name: long.get(part, part) if isinstance(part, str) else part
                for name, part in renamed.items()
            }
            parts = each.values()
        left += (part for part in parts if isinstance(part, list | dict))


def _long_texts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of the content of each long string."""
    inside, last, at = False, -1, 0
    while at < len(text):
        end = _piece_end(text, at, len(text))
        # Escaped quotes do not end a string.
        piece = text[at:end].replace(r"\\", "__").replace(r"\"", "__")
        seen = 0
        while (newest := _newest_quote(piece, seen)) >= 0:
            first = piece.find('"', seen)
            if inside and at + first - last > LONG_CHARS:
                yield last + 1, at + first
            inside ^= piece.count('"', first, newest + 1) % 2 == 1
            last, seen = at + newest, newest + 1
        at = end


def _newest_quote(piece: str, seen: int) -> int:
    """Return the last quote that is near, else the next one, -1 if there is none.

    No text between two near quotes is long, so that a piece takes few steps.
    """
    newest = piece.rfind('"', seen, seen + LONG_CHARS)
    return newest if newest >= 0 else piece.find('"', seen)


def _pieces(text: str, begin: int, end: int) -> Iterator[str]:
    """Yield the decoded content of a string in pieces."""
    while begin < end:
        piece_end = _piece_end(text, begin, end)
        yield _whole(f'"{text[begin:piece_end]}"')
        begin = piece_end


def _piece_end(text: str, begin: int, end: int) -> int:
    """Return where a piece can end so that it can be decoded.

    The last escape of the piece may be incomplete, or the first half of a surrogate pair.
    """
    if end - begin <= PIECE_CHARS:
        return end
    at = begin + PIECE_CHARS
    for _ in range(2):
        found = _UNFINISHED.search(text, at - _ESCAPE_CHARS, at)
        if found and _is_escape(text, begin, found.start()):
            at = found.start()
    return at


def _is_escape(text: str, begin: int, backslash: int) -> bool:
    """Return whether a backslash begins an escape, and is not an escaped backslash."""
    before = text[begin:backslash]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0
