"""JSONC edits: put a value in or take one out, and leave every other byte.

What was put in by ``append`` is taken out by ``remove`` without a trace, unless it went into an
empty container: that one is left as ``{}`` or ``[]``.
"""

import json
import re
from typing import Any

from .jsonc import Node

_SAME_LINE = re.compile(r"(?:[ \t]*(?:/\*(?:(?!\*/)[^\r\n])*\*/|//[^\r\n]*))*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# Not the lines of a block comment, which begin with a star.
_INDENT = re.compile(r"^([ \t]+)[^\s*]", re.MULTILINE)


def newline(text: str) -> str:
    """Return how the lines of a text end."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def append(text: str, into: Node, value: Any, *, key: str | None = None, levels: int = 0) -> str:
    """Return the text with a value at the end of an array, or as an object's last member.

    So many ``levels`` of the value are laid out over lines, unless the container is on one line.
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
        # What follows would become part of the remark: its line has to end.
        cuts[0] = (text.index("\n", before) + 1, end)
    for start, stop in sorted(cuts, reverse=True):
        text = text[:start] + text[stop:]
    return text


def _is_bare(text: str, container: Node) -> bool:
    """Return whether a container of one item holds no remarks around it."""
    around = text[container.start + 1 : container.begins[0]]
    around += text[container.items[0].end : container.end - 1]
    return not around.strip(" \t\r\n,")


def _ends_in_remark(between: str) -> bool:
    return "//" in _BLOCK_COMMENT.sub("", between).rpartition("\n")[2]


def replace(text: str, node: Node, value: Any) -> str:
    """Return the text with another value in the place of a scalar."""
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


def _append_after_last(text: str, into: Node, key: str | None, value: Any, levels: int) -> str:
    last, comma = into.items[-1], into.commas[-1]
    anchor = last.end if comma is None else comma + 1
    if "\n" in text[last.end : into.end]:
        # A comment at the end of the line belongs to what stands before it.
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
    """Return by how much a text is indented a level: its first indented line tells."""
    first = _INDENT.search(text)
    if first is None:
        return "  "
    return "\t" if first[1].startswith("\t") else first[1]


def _indent_of(text: str, begin: int, container: Node) -> str:
    """Return the indentation of an item; of one that begins within a line, what it should have."""
    lead = text[text.rfind("\n", 0, begin) + 1 : begin]
    return lead if not lead.strip() else _line_indent(text, container.start) + unit(text)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
