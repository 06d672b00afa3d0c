"""A report as Markdown (CommonMark): text from others is code, in a line or in a fence.

Code contains no markup, links, images, or names that a forge would notify. The backticks around it
are longer than any inside.
"""

import re

from .document import Block, Document, Line, UntrustedText

_TICKS = re.compile("`+")


def render(document: Document) -> str:
    """Return the report as one text."""
    parts = [f"# {_inline(document.title)}", _items(document.facts)]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts.append(_content(section.content) or section.empty)
    return "\n\n".join(parts) + "\n"


def _content(content: list[Line | Block]) -> str:
    parts: list[str] = []
    items: list[Line] = []
    for each in content:
        if isinstance(each, Line):
            items.append(each)
            continue
        parts += [_items(items), _fenced(each.shown)]
        items = []
    return "\n\n".join(filter(None, [*parts, _items(items)]))


def _items(lines: list[Line]) -> str:
    return "\n".join(f"- {_inline(line.parts)}" for line in lines)


def _inline(parts: tuple[str | UntrustedText, ...]) -> str:
    return "".join(_code(part.shown) if isinstance(part, UntrustedText) else part for part in parts)


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _code(text: str) -> str:
    """Return text as a code span; a space added on either side is not part of it."""
    if not text:
        return "(empty)"
    marks = "`" * (_longest(text) + 1)
    between = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{marks}{between}{text}{between}{marks}"


def _fenced(text: str) -> str:
    marks = "`" * max(_longest(text) + 1, 3)
    return f"{marks}\n{text}\n{marks}"
