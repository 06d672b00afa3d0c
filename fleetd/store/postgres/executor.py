"""How values travel to PostgreSQL and back; must not know any table.

Every column is TEXT or BIGINT, so every parameter is one of the two: what the server would have to
guess it is told.
"""

from typing import Any

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.types.numeric import FloatDumper, Int8Dumper
from psycopg.types.string import StrDumper

from ...domain.core.text import NUL, SIGN_OF_NUL


class _Text(StrDumper):
    """A text; what is asked for may have a NUL in it, which PostgreSQL holds in none."""

    def dump(self, obj: str) -> Buffer | None:
        """Return its bytes."""
        return super().dump(obj.replace(NUL, SIGN_OF_NUL) if NUL in obj else obj)


class _Truth(Dumper):
    """A truth value, which is 0 or 1 in every column."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer | None:
        """Return its digit."""
        return b"1" if obj else b"0"


class _Number(Loader):
    """A sum, which is a numeric here and an integer there."""

    def load(self, data: Buffer) -> int | float:
        """Return it as Python counts."""
        text = bytes(data).decode("ascii")
        return float(text) if "." in text else int(text)


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Have a connection pass values as the rules know them."""
    adapters = connection.adapters
    adapters.register_dumper(str, _Text)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bool, _Truth)
    adapters.register_dumper(float, FloatDumper)
    adapters.register_loader("numeric", _Number)
