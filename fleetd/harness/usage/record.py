"""Records of usage: one request to a model, and all that a portion of a transcript contains.

A reader is a function. From the lines of a portion and the state after the portion before, it makes
records, counts and the next state. It opens no file.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...protocol.timestamps import iso, to_ms
from ..payload import cut

MODEL_CHARS = 100
ID_CHARS = 500
KEY_CHARS = 32
# More than any request has; a sum of many must fit a column.
MOST = 10**12
Count = Annotated[int, Meta(ge=0, le=MOST)]
State = dict[str, Any]


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one request to a model, in tokens.

    ``input`` is what was neither read from a cache nor written to one. ``output`` includes the
    ``reasoning``, and ``cache_write`` what is kept for an hour. If several lines or files report
    one request, their records have one ``key``, and the largest of their figures count.
    """

    key: str
    at: str
    model: str | None = None
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0

    @property
    def empty(self) -> bool:
        """Whether it used nothing, as an answer that a CLI gives by itself."""
        return not (self.input or self.output or self.cache_read or self.cache_write)


class Portion(msgspec.Struct):
    """The content of a portion of a transcript: records, broken lines and repetitions."""

    state: State
    records: list[UsageRecord] = msgspec.field(default_factory=list)
    broken: int = 0
    repeated: int = 0

    def add(self, record: UsageRecord) -> None:
        """Add a record of a request that used anything."""
        if not record.empty:
            self.records.append(record)


Read = Callable[[State, Sequence[bytes]], Portion]


def key_of(harness: str, *parts: object) -> str:
    """Return the key of a request, made of what distinguishes it from all others."""
    joined = "\0".join((harness, *(str(part)[:ID_CHARS] for part in parts)))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_CHARS]


def moment(text: str) -> str:
    """Return a timestamp in the store's format; raises ValueError for an invalid one."""
    try:
        return iso(to_ms(text))
    except OverflowError as error:
        raise ValueError(text) from error


def model_of(name: str | None) -> str | None:
    """Return the name of a model in a form fit for storage; None where there is none."""
    if name is None:
        return None
    clean = "".join(filter(str.isprintable, cut(name, MODEL_CHARS)))
    return clean.strip() or None


def looks_whole(line: bytes) -> bool:
    """Return whether a line can be a JSON object, without parsing it."""
    return line.startswith(b"{") and line.rstrip().endswith(b"}")


def lines_of(data: bytes) -> tuple[list[bytes], int]:
    """Return the whole lines of some bytes, and the length of these in bytes with their ends.

    Bytes after the last end of a line are torn: they wait until the rest is there.
    """
    whole = data.rfind(b"\n") + 1
    return [line for line in data[:whole].split(b"\n") if line.strip()], whole
