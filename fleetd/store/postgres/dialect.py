"""Turns the SQL of the rules into what psycopg takes; must not know any table.

The rules are written once, in what both engines understand. Only how a parameter is named differs.
"""

import re
from functools import lru_cache

# A text, a name in quotes and a comment stand for themselves, whatever is in them; two colons are
# a cast.
_PART = re.compile(
    r"'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|--[^\n]*"
    r"|/\*.*?\*/"
    r"|::"
    r"|:([a-z_][a-z0-9_]*)"
    r"|%",
    re.IGNORECASE | re.DOTALL,
)


@lru_cache(maxsize=2_000)
def translated(sql: str) -> str:
    """Return a statement with ``%(name)s`` where it has ``:name``."""
    return _PART.sub(_placed, sql)


def _placed(match: re.Match[str]) -> str:
    if match[1]:
        return f"%({match[1]})s"
    return match[0].replace("%", "%%")
