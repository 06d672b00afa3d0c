"""Looks at the server of a store as a start would find it; must not change anything there."""

from contextlib import closing

import psycopg

from ..api import StoreRefused
from .connect import connect, name_of, shown_version
from .connection import Line
from .errors import ServerAway, away, refused
from .migrate import look
from .url import named


class Unusable(Exception):
    """The server cannot be used; names it, the step, and whether a start is refused for it."""

    def __init__(self, where: str, gone: ServerAway) -> None:
        super().__init__(f"cannot be used ({gone.step}): {gone.said}")
        self.where = where
        self.final = gone.final


def seen(url: str) -> tuple[str, str]:
    """Return what the server is called, and what a start would find there.

    Raises StoreRefused for a URL that is none, Unusable for everything else.
    """
    where = named(url)
    try:
        with closing(connect(url, "doctor")) as line:
            return name_of(line), f"{shown_version(line)}, {_schema(line, where)}"
    except ServerAway as gone:
        raise Unusable(where, gone) from None


def _schema(line: Line, where: str) -> str:
    try:
        version, newest = look(line, where)
    except StoreRefused as error:
        raise refused(error, where) from None
    except psycopg.Error as error:
        raise away(error, "opening") from None
    if version == newest:
        return f"schema version {version}"
    there = f"schema version {version}" if version else "no tables yet"
    return f"{there}: a start makes version {newest}, where its role may"
