"""Usage in the messages of OpenCode, which 1.2 and later keep in a database; based on 1.18.

A fork copies the messages of its parent under new ids, with their times. So the times, the model
and the figures identify a message.
"""

from collections.abc import Sequence

import msgspec

from ...protocol.timestamps import iso
from .record import Count, Portion, UsageRecord, key_of, model_of

HARNESS = "opencode"
# A message that is still unfinished after this time will never be finished.
UNFINISHED_MS = 3_600_000


class _Cache(msgspec.Struct):
    read: Count = 0
    write: Count = 0


class _Tokens(msgspec.Struct):
    input: Count = 0
    output: Count = 0
    reasoning: Count = 0
    total: Count | None = None
    cache: _Cache = msgspec.field(default_factory=_Cache)


class _Time(msgspec.Struct):
    created: int
    completed: int | None = None


class _Message(msgspec.Struct):
    role: str
    time: _Time
    tokens: _Tokens | None = None
    model: str | None = msgspec.field(default=None, name="modelID")


class _User(msgspec.Struct):
    role: str


_user = msgspec.json.Decoder(_User).decode
_message = msgspec.json.Decoder(_Message).decode
# When a message was created, and its stored data.
Row = tuple[int, bytes]


def read_messages(since: int, rows: Sequence[Row], now_ms: int) -> tuple[Portion, int]:
    """Return the usage in messages, and the time from which to read messages the next time.

    Rows are in the order of their times. An unfinished message is read again.
    """
    portion, position, waits = Portion({}), since, False
    for created, data in rows:
        try:
            finished = _take(portion, data)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            portion.broken += 1
            finished = True
        waits = waits or not (finished or created < now_ms - UNFINISHED_MS)
        if not waits:
            position = max(position, created + 1)
    return portion, position


def _take(portion: Portion, data: bytes) -> bool:
    """Take in one message; return whether it is finished."""
    if _user(data).role != "assistant":
        return True
    message = _message(data)
    tokens, time = message.tokens, message.time
    if tokens is None or time.completed is None:
        return time.completed is not None
    cache = tokens.cache
    apart = tokens.input + tokens.output + cache.read + cache.write
    # Since 1.2 the output excludes the reasoning, and the total shows it.
    output = tokens.output
    if tokens.total is not None and tokens.total != apart:
        output += tokens.reasoning
    figures = (tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write)
    portion.add(
        UsageRecord(
            key=key_of(HARNESS, time.created, time.completed, message.model, *figures),
            at=iso(time.completed),
            model=model_of(message.model),
            input=tokens.input,
            output=output,
            cache_read=cache.read,
            cache_write=cache.write,
            reasoning=min(tokens.reasoning, output),
        )
    )
    return True
