"""Usage in the log of a session of Gemini CLI, based on that of 0.61.

A message with tool calls is written again when they are over. When a session is resumed, its
conversation is written to the log again, without the figures.
"""

from collections.abc import Sequence

import msgspec

from .record import Count, Portion, State, UsageRecord, key_of, looks_whole, model_of, moment

HARNESS = "gemini"
_MARK = b'"tokens"'


class _Tokens(msgspec.Struct):
    input: Count = 0
    output: Count = 0
    cached: Count | None = 0
    thoughts: Count | None = 0
    tool: Count | None = 0


class _Message(msgspec.Struct):
    id: str | None = None
    timestamp: str | None = None
    model: str | None = None
    tokens: _Tokens | None = None


_message = msgspec.json.Decoder(_Message).decode


def read(state: State, lines: Sequence[bytes]) -> Portion:
    """Return the usage in lines of a log; the lines before do not matter."""
    portion = Portion(state)
    for line in lines:
        if not looks_whole(line):
            portion.broken += 1
        elif _MARK in line:
            try:
                _take(portion, _message(line))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                portion.broken += 1
    return portion


def _take(portion: Portion, message: _Message) -> None:
    tokens = message.tokens
    if tokens is None or message.id is None or message.timestamp is None:
        return
    cached, thoughts = min(tokens.cached or 0, tokens.input), tokens.thoughts or 0
    portion.add(
        UsageRecord(
            key=key_of(HARNESS, message.id),
            at=moment(message.timestamp),
            model=model_of(message.model),
            input=tokens.input - cached + (tokens.tool or 0),
            output=tokens.output + thoughts,
            cache_read=cached,
            reasoning=thoughts,
        )
    )
