"""Records of usage: what one request to a model took, and what a portion of a transcript tells.

A reader is a function: the lines of a portion and the state after the portion before become
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
    """What one request to a model took, in tokens.

    ``input`` is what was neither read from a cache nor written to one. ``output`` includes the
    ``reasoning``, and ``cache_write`` what is kept for an hour. Records of one request that several
    lines or files tell have one ``key``; the largest figures of them count.
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
        """Whether it took nothing, as what a CLI answers by itself."""
        return not (self.input or self.output or self.cache_read or self.cache_write)


class Portion(msgspec.Struct):
    """What a portion of a transcript tells: records, lines that are broken, what was repeated."""

    state: State
    records: list[UsageRecord] = msgspec.field(default_factory=list)
    broken: int = 0
    repeated: int = 0

    def add(self, record: UsageRecord) -> None:
        """Add a record of a request that took anything."""
        if not record.empty:
            self.records.append(record)


Read = Callable[[State, Sequence[bytes]], Portion]


def key_of(harness: str, *parts: object) -> str:
    """Return the key of a request by what tells it from all others."""
    said = "\0".join((harness, *(str(part)[:ID_CHARS] for part in parts)))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_CHARS]


def moment(text: str) -> str:
    """Return a timestamp as the store has it; raises ValueError for one that is none."""
    try:
        return iso(to_ms(text))
    except OverflowError as error:
        raise ValueError(text) from error


def model_of(name: str | None) -> str | None:
    """Return the name of a model, fit to be kept; None where there is none."""
    if name is None:
        return None
    clean = "".join(filter(str.isprintable, cut(name, MODEL_CHARS)))
    return clean.strip() or None


def looks_whole(line: bytes) -> bool:
    """Whether a line can be a JSON object; it is not parsed for that."""
    return line.startswith(b"{") and line.rstrip().endswith(b"}")


def lines_of(data: bytes) -> tuple[list[bytes], int]:
    """Return the whole lines of some bytes, and how many bytes they are with their ends.

    What follows the last end of a line is torn: it waits until the rest is there.
    """
    whole = data.rfind(b"\n") + 1
    return [line for line in data[:whole].split(b"\n") if line.strip()], whole
