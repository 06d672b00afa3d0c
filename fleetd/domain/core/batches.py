"""A batch: what one bounded look through many rows finds, and where the next one goes on."""

from typing import Generic, TypeVar

import msgspec

Found = TypeVar("Found")
Cursor = TypeVar("Cursor")


class Batch(msgspec.Struct, Generic[Found, Cursor], frozen=True):
    """``following`` is the cursor of the next batch, None behind the last one."""

    found: Found
    following: Cursor | None
