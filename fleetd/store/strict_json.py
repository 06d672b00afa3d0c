"""JSON of doubtful origin, read so that nothing in it is lost unnoticed; must not know its meaning.

Python's own parser passes over duplicate keys, NaN and half characters. What cannot be stored and
read back the same is refused here, with the place where it stands.
"""

import json
import math
import re
from typing import Any

import msgspec

# Far beyond what anybody writes, and far below what a parser or the redaction can bear.
DEPTH_MAX = 100
_KEY_SHOWN = 80
_INTEGERS = range(-(2**63), 2**64)
_DIGITS = 20
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class NotStrictJson(Exception):
    """The text is not JSON that can be trusted; says why and where."""


def strict_json(data: bytes) -> Any:
    """Return a document as dicts, lists and plain values; raises NotStrictJson."""
    if (plain := _at_once(data)) is not None:
        return plain
    try:
        text = data.decode("utf-8")
        document = _Reader().read(text)
        if _HALF_CHARACTER.search(text):
            document = _whole(document)
        _check_depth(document)
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"at byte {error.start}: not UTF-8 ({error.reason})") from error
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise NotStrictJson(f"at byte {offset}, line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise NotStrictJson(f"it nests deeper than {DEPTH_MAX} levels") from error
    return document


def _at_once(data: bytes) -> Any:
    """Return a document in which nothing can be doubtful, as in nearly all; None to look closer.

    Escapes may hide half a character. Where a key stands twice, its first value is dropped, and
    its quotes are missing when the document is written again. MessagePack has no number that is
    too large.
    """
    if b"\\u" in data:
        return None
    try:
        document = msgspec.json.decode(data)
        written = msgspec.json.encode(document)
        msgspec.msgpack.encode(document)
        _check_depth(document)
    except (ValueError, OverflowError, RecursionError):
        return None
    return document if written.count(b'"') == data.count(b'"') else None


def place(*keys: str | int) -> str:
    """Return a place inside a document: ``$.events["a b"][3].type``."""
    return "$" + "".join(map(_step, keys))


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    shown = key[:_KEY_SHOWN]
    return f".{shown}" if shown.isidentifier() else f"[{json.dumps(shown)}]"


class _Reader:
    """Parses, and remembers what is wrong until the place of it can be told."""

    def __init__(self) -> None:
        self._wrong: list[tuple[object, str]] = []

    def read(self, text: str) -> Any:
        document = json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=self._int,
            parse_float=self._float,
            parse_constant=self._constant,
        )
        # Where a key stands twice, what its first value held is not in the document.
        for thing, why in self._wrong:
            if (keys := _find(document, thing)) is not None:
                raise NotStrictJson(f"at {place(*keys)}: {why}")
        return document

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            self._wrong.append((found, f"the key {json.dumps(twice[:_KEY_SHOWN])} stands twice"))
        return found

    def _int(self, text: str) -> Any:
        if len(text) <= _DIGITS and (number := int(text)) in _INTEGERS:
            return number
        # Beyond 64 bits it was a float for whoever wrote it.
        return self._float(text)

    def _float(self, text: str) -> Any:
        number = float(text)
        return number if math.isfinite(number) else self._constant(text)

    def _constant(self, text: str) -> Any:
        marker = object()
        self._wrong.append((marker, f"{text[:20]} is no number that JSON can hold"))
        return marker


def _find(inside: Any, thing: object) -> tuple[str | int, ...] | None:
    """Return the keys that lead to a thing, None when it is not there."""
    if inside is thing:
        return ()
    parts: Any = ()
    if isinstance(inside, dict):
        parts = inside.items()
    elif isinstance(inside, list):
        parts = enumerate(inside)
    for key, part in parts:
        if (keys := _find(part, thing)) is not None:
            return (key, *keys)
    return None


def _whole(value: Any) -> Any:
    """Return a value in which half a character, as JavaScript can cut one, is its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_whole(part) for part in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(part) for name, part in value.items()}
    return value


def _check_depth(document: Any) -> None:
    layer = [document] if isinstance(document, dict | list) else []
    for _ in range(DEPTH_MAX + 1):
        layer = [
            part
            for each in layer
            for part in (each.values() if type(each) is dict else each)
            if type(part) is dict or type(part) is list
        ]
        if not layer:
            return
    raise RecursionError
