"""JSONC parser: JSON with comments and trailing commas, and where everything stands.

Settings files are written by people: what is put in or taken out must leave every other byte as it
is, so what is needed is positions and not only values.
"""

import json
import re
from typing import Any

DEEPEST = 100

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER_OR_WORD = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
)
_BOM = "\ufeff"


class Broken(ValueError):
    """A text is no JSON, not even with comments; ``line`` and ``column`` count from 1."""

    def __init__(self, text: str, at: int, what: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


class Node:
    """A value and where it stands: ``text[start:end]``.

    ``items`` are the values of an array or of an object's members, in order; ``begins`` is where
    each begins (a member at its key), ``commas`` where the comma after each stands, or None.
    """

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = start
        self.end = start
        self.scalar: Any = None
        self.keys: list[str] = []
        self.items: list[Node] = []
        self.begins: list[int] = []
        self.commas: list[int | None] = []

    def member(self, key: str) -> "Node | None":
        """Return an object's member; None where it has none, or where this is no object."""
        return self.items[self.keys.index(key)] if key in self.keys else None

    def value(self) -> Any:
        """Return the value as plain data; of members with one name the last counts."""
        if self.kind == "object":
            return {k: item.value() for k, item in zip(self.keys, self.items, strict=True)}
        if self.kind == "array":
            return [item.value() for item in self.items]
        return self.scalar


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing at all."""
    return not text.removeprefix(_BOM).strip()


def is_plain(text: str) -> bool:
    """Return whether a text is JSON as the standard has it, without comments and the like."""
    try:
        json.loads(text.removeprefix(_BOM))
    except ValueError:
        return False
    return True


def parse(text: str) -> Node:
    """Return the value of a text; raises Broken."""
    return _JsoncReader(text).document()


class _JsoncReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(_BOM) if text.startswith(_BOM) else 0

    def document(self) -> Node:
        root = self._value(0)
        if self._peek():
            raise self._unexpected("the end of the file")
        return root

    def _peek(self) -> str:
        """Pass over blanks and comments; return the next character, or nothing at the end."""
        found = _TRIVIA.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _unexpected(self, wanted: str) -> Broken:
        found = self._text[self._at : self._at + 1]
        shown = f"found {found!r}" if found else "the file ends"
        return Broken(self._text, self._at, f"expected {wanted}, {shown}")

    def _value(self, depth: int) -> Node:
        first = self._peek()
        if depth > DEEPEST:
            raise Broken(self._text, self._at, f"nested deeper than {DEEPEST}")
        if first == "{":
            return self._container("object", "}", depth)
        if first == "[":
            return self._container("array", "]", depth)
        return self._scalar(first)

    def _scalar(self, first: str) -> Node:
        pattern = _STRING if first == '"' else _NUMBER_OR_WORD
        found = pattern.match(self._text, self._at)
        if not found:
            raise self._unexpected("the end of this text" if first == '"' else "a value")
        node = Node("string" if first == '"' else "scalar", self._at)
        try:
            node.scalar = json.loads(found[0])
        except ValueError as error:
            raise Broken(self._text, self._at, "a text with an escape that JSON lacks") from error
        self._at = node.end = found.end()
        return node

    def _container(self, kind: str, close: str, depth: int) -> Node:
        node = Node(kind, self._at)
        self._at += 1
        while self._peek() != close:
            if node.commas and node.commas[-1] is None:
                raise self._unexpected(f"a comma or {close!r}")
            node.begins.append(self._at)
            if kind == "object":
                node.keys.append(self._key(close))
            node.items.append(self._value(depth + 1))
            node.commas.append(self._at if self._peek() == "," else None)
            self._at += node.commas[-1] is not None
        self._at += 1
        node.end = self._at
        return node

    def _key(self, close: str) -> str:
        if self._peek() != '"':
            raise self._unexpected(f"a name in double quotes or {close!r}")
        key = self._scalar('"').scalar
        if self._peek() != ":":
            raise self._unexpected("a colon after the name")
        self._at += 1
        return str(key)
