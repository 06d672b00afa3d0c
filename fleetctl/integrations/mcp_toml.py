"""An MCP server in the text of TOML settings: find, insert and remove it.

Python reads TOML but does not write it. So a table is appended to the text, or its lines are
replaced. The result is parsed again: any other change is an error.
"""

import json
import re
import tomllib
from typing import Any

from .hooks import UnusableSettings

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def found(text: str, section: str, name: str) -> Any:
    """Return the entry by a name, None where there is none; raises ValueError for no TOML."""
    servers = tomllib.loads(text).get(section)
    return servers.get(name) if isinstance(servers, dict) else None


def put_in(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with an entry in it; in an existing one, only differences change."""
    known = found(text, section, name)
    if known is None:
        lines = [f"[{section}.{name}]", *(f"{k} = {_value(v)}" for k, v in entry.items())]
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        after = text + gap + "\n".join(lines) + "\n"
        return _checked(after, text, section, name, entry)
    after = text
    for key, value in entry.items():
        if known.get(key) != value:
            after = _set(after, section, name, key, value)
    return _checked(after, text, section, name, known | entry)


def take_out(text: str, section: str, name: str, before: str | None) -> str | None:
    """Return the text without an entry; None when nothing is left of a text that was ours."""
    after = text
    for start, end in reversed(_blocks(text, section, name)):
        after = after[:start] + after[end:]
    if not after.strip() and (before is None or not before.strip()):
        return before
    return _checked(after, text, section, name, None)


def _blocks(text: str, section: str, name: str) -> list[tuple[int, int]]:
    """Return the ranges of an entry's tables, each with the empty line that we put before it."""
    own = re.compile(rf"[ \t]*\[{re.escape(section)}\.\"?{re.escape(name)}\"?[\].]")
    starts = [match.start() for match in _HEADER.finditer(text)]
    blocks = []
    for index, start in enumerate(starts):
        if own.match(text, start):
            end = starts[index + 1] if index + 1 < len(starts) else len(text)
            end = start + len(text[start:end].rstrip("\n")) + 1
            begin = start - 1 if text[:start].endswith("\n\n") else start
            blocks.append((0 if not text[:begin].strip() else begin, min(end, len(text))))
    return blocks


def _set(text: str, section: str, name: str, key: str, value: Any) -> str:
    """Return the text with a new value for a key that is on one line, or with a new line."""
    blocks = _blocks(text, section, name)
    if not blocks:
        raise _unusable(section, name)
    start, end = blocks[0]
    line = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=.*$", re.MULTILINE)
    match = line.search(text, start, end)
    assignment = f"{key} = {_value(value)}"
    if match is not None:
        return text[: match.start()] + assignment + text[match.end() :]
    head = text.index("\n", text.index("[", start)) + 1
    return f"{text[:head]}{assignment}\n{text[head:]}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # The escapes of JSON are those of TOML's basic strings.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked(after: str, before: str, section: str, name: str, entry: Any) -> str:
    """Return a text in which only the entry has changed; raises UnusableSettings."""
    wanted = tomllib.loads(before)
    servers = dict(wanted.pop(section, None) or {})
    servers.pop(name, None)
    if entry is not None:
        servers[name] = entry
    if servers:
        wanted[section] = servers
    try:
        made = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        made = {}
    if not made.get(section):
        made.pop(section, None)
    if made != wanted:
        raise _unusable(section, name)
    return after


def _unusable(section: str, name: str) -> UnusableSettings:
    return UnusableSettings(f"its {section}.{name} is written in a way that fleetd does not change")
