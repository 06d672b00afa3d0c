"""JSONC: JSON with comments and trailing commas, parsed with positions and edited in its text.

People write settings files, so an insertion or removal leaves every other byte unchanged.
``remove`` undoes an ``append`` without a trace, unless the container was empty: it is left as
``{}`` or ``[]``.
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
_SAME_LINE = re.compile(r"(?:[ \t]*(?:/\*(?:(?!\*/)[^\r\n])*\*/|//[^\r\n]*))*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# Not the lines of a block comment, which begin with a star.
_INDENT = re.compile(r"^([ \t]+)[^\s*]", re.MULTILINE)


class Broken(ValueError):
    """A text is no JSON, not even with comments; ``line`` and ``column`` count from 1."""

    def __init__(self, text: str, at: int, what: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


class Node:
    """A value and its position: ``text[start:end]``.

    ``items`` are the values of an array or of an object's members, in order. ``begins`` is where
    each begins (a member at its key). ``commas`` is the position of the comma after each, or None.
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
        """Return the value as plain data; of members with the same name, the last one counts."""
        if self.kind == "object":
            return {k: item.value() for k, item in zip(self.keys, self.items, strict=True)}
        if self.kind == "array":
            return [item.value() for item in self.items]
        return self.scalar


def is_blank(text: str) -> bool:
    """Return whether a text is empty or only white space."""
    return not text.removeprefix(_BOM).strip()


def is_plain(text: str) -> bool:
    """Return whether a text is standard JSON, without comments and the like."""
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
        """Skip blanks and comments; return the next character, or an empty text at the end."""
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


def newline(text: str) -> str:
    """Return how the lines of a text end."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def append(text: str, into: Node, value: Any, *, key: str | None = None, levels: int = 0) -> str:
    """Return the text with a value at the end of an array, or as an object's last member.

    The outer ``levels`` of the value span several lines, unless the container is on one line.
    """
    if into.items:
        return _append_after_last(text, into, key, value, levels)
    return _append_first(text, into, key, value, levels)


def remove(text: str, out_of: Node, index: int) -> str:
    """Return the text without one item of a container, and without the comma that went with it."""
    begin, end = out_of.begins[index], out_of.items[index].end
    before = len(text[:begin].rstrip(" \t\r\n"))
    comma = out_of.commas[index]
    after = text[end:] if comma is None else text[end:comma] + text[comma + 1 :]
    if comma is None and index:
        comma = out_of.commas[index - 1]
    cuts = [(before, end)] if comma is None else [(before, end), (comma, comma + 1)]
    between = text[out_of.items[index - 1].end if index else out_of.start : before]
    if len(out_of.items) == 1 and _is_bare(text, out_of):
        cuts = [(out_of.start + 1, out_of.end - 1)]
    elif _ends_in_remark(between) and not re.match(r"[ \t]*\r?\n", after):
        # End the line of the comment: the following text would become part of it.
        cuts[0] = (text.index("\n", before) + 1, end)
    for start, stop in sorted(cuts, reverse=True):
        text = text[:start] + text[stop:]
    return text


def _is_bare(text: str, container: Node) -> bool:
    """Return whether a container of one item has no comments around it."""
    around = text[container.start + 1 : container.begins[0]]
    around += text[container.items[0].end : container.end - 1]
    return not around.strip(" \t\r\n,")


def _ends_in_remark(between: str) -> bool:
    return "//" in _BLOCK_COMMENT.sub("", between).rpartition("\n")[2]


def replace(text: str, node: Node, value: Any) -> str:
    """Return the text with one value replaced."""
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


def _append_after_last(text: str, into: Node, key: str | None, value: Any, levels: int) -> str:
    last, comma = into.items[-1], into.commas[-1]
    anchor = last.end if comma is None else comma + 1
    if "\n" in text[last.end : into.end]:
        # A comment at the end of the line belongs to the item before it.
        same_line = _SAME_LINE.match(text, anchor)
        place = same_line.end() if same_line else anchor
        indent = _indent_of(text, into.begins[-1], into)
        addition = newline(text) + indent + _rendered(text, key, value, levels, indent)
    else:
        place = anchor
        addition = " " + _rendered(text, key, value, 0, "")
    if comma is None:
        return text[:anchor] + "," + text[anchor:place] + addition + text[place:]
    return text[:place] + addition + "," + text[place:]


def _append_first(text: str, into: Node, key: str | None, value: Any, levels: int) -> str:
    inside = text[into.start + 1 : into.end - 1]
    kept = inside.rstrip(" \t\r\n")
    outer = _line_indent(text, into.start)
    indent = outer + unit(text)
    rest = inside[len(kept) :]
    if "\n" not in rest:
        rest = newline(text) + outer
    addition = newline(text) + indent + _rendered(text, key, value, levels, indent)
    return text[: into.start + 1] + kept + addition + rest + text[into.end - 1 :]


def _rendered(text: str, key: str | None, value: Any, levels: int, indent: str) -> str:
    rendered = layout(value, levels, unit(text)).replace("\n", newline(text) + indent)
    return rendered if key is None else f"{layout(key)}: {rendered}"


def layout(value: Any, levels: int = 0, unit: str = "  ") -> str:
    """Return a value as JSON, its outermost ``levels`` over several lines."""
    if levels == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        parts = [f"{layout(k)}: {layout(v, levels - 1, unit)}" for k, v in value.items()]
    else:
        parts = [layout(v, levels - 1, unit) for v in value]
    inside = ",\n".join(parts).replace("\n", "\n" + unit)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{unit}{inside}\n{end}"


def unit(text: str) -> str:
    """Return the indentation of one level: that of the first indented line."""
    first = _INDENT.search(text)
    if first is None:
        return "  "
    return "\t" if first[1].startswith("\t") else first[1]


def _indent_of(text: str, begin: int, container: Node) -> str:
    """Return an item's indentation; for one that begins within a line, what it should be."""
    lead = text[text.rfind("\n", 0, begin) + 1 : begin]
    return lead if not lead.strip() else _line_indent(text, container.start) + unit(text)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
