"""The plan in a script of Codex's ``exec`` tool, where it is written out; must not run anything.

Models that call tools from JavaScript call ``tools.update_plan({plan: [...]})`` there.
"""

import re

from .plans import ITEMS, listed
from .report import Planned

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`"
_FIELD = rf"[\"']?(step|status)[\"']?\s*:\s*({_STRING})"
_ITEM = re.compile(rf"[\s,]*\{{\s*{_FIELD}\s*,\s*{_FIELD}\s*,?\s*\}}")
_LIST = re.compile(r"[\"']?\bplan[\"']?\s*:\s*\[")
_END = re.compile(r"[\s,]*\]")
_HEX = "([0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:u{_HEX}{{4}})|u\{{{_HEX}{{1,5}})\}}|x{_HEX}{{2}})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": ""}


def script_plan(script: str) -> tuple[Planned, ...] | None:
    """Return the last plan that a script makes; None for no plan, empty for one it works out."""
    _, called, given = script.rpartition("update_plan(")
    if not called:
        return None
    opening = _LIST.search(given)
    return _read(given, opening.end()) if opening else ()


def _read(given: str, at: int) -> tuple[Planned, ...]:
    found: list[dict[str, str]] = []
    while len(found) < ITEMS and (item := _ITEM.match(given, at)) is not None:
        found.append({item[1]: _plain(item[2]), item[3]: _plain(item[4])})
        at = item.end()
    return listed(found) if _END.match(given, at) else ()


def _plain(literal: str) -> str:
    """Return what a string literal stands for."""

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else _ESCAPED.get(found[4], found[4])

    said = _ESCAPE.sub(character, literal[1:-1])
    # A character beyond the first 65,536 is written as two halves.
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
