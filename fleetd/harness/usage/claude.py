"""Usage in transcripts of Claude Code, based on those of 2.1.

A message with several blocks is written as several lines, with one id and the figures known by
then. A session that is resumed or forked into a new file begins with copies of the old lines.
Subagents have files of their own, below the directory that is named after the session.
"""

from collections.abc import Sequence

import msgspec

from .record import Count, Portion, State, UsageRecord, key_of, looks_whole, model_of, moment

HARNESS = "claude"
_MARK = b'"usage"'
# The model of answers that Claude Code gives by itself, without a model.
_SYNTHETIC = "<synthetic>"


class _CacheWrite(msgspec.Struct):
    ephemeral_1h_input_tokens: Count | None = 0


class _Details(msgspec.Struct):
    thinking_tokens: Count | None = 0


class _Usage(msgspec.Struct):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_creation_input_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation: _CacheWrite | None = None
    output_tokens_details: _Details | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Line(msgspec.Struct):
    type: str | None = None
    timestamp: str | None = None
    uuid: str | None = None
    request_id: str | None = msgspec.field(default=None, name="requestId")
    message: msgspec.Raw = msgspec.Raw()


_line = msgspec.json.Decoder(_Line).decode
_message = msgspec.json.Decoder(_Message).decode


def read(state: State, lines: Sequence[bytes]) -> Portion:
    """Return the usage in lines of a transcript; the lines before do not matter."""
    portion = Portion(state)
    for line in lines:
        if not looks_whole(line):
            portion.broken += 1
        elif _MARK in line:
            try:
                _take(portion, line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                portion.broken += 1
    return portion


def _take(portion: Portion, line: bytes) -> None:
    entry = _line(line)
    if entry.type != "assistant" or not bytes(entry.message):
        return
    message = _message(entry.message)
    usage = message.usage
    if usage is None or message.model == _SYNTHETIC:
        return
    named = message.id or entry.uuid
    if named is None or entry.timestamp is None:
        raise ValueError("nothing tells this message from others")
    cache_write = usage.cache_creation_input_tokens or 0
    kept, details = usage.cache_creation, usage.output_tokens_details
    one_hour = (kept and kept.ephemeral_1h_input_tokens) or 0
    thinking = (details and details.thinking_tokens) or 0
    portion.add(
        UsageRecord(
            key=key_of(HARNESS, named, entry.request_id or ""),
            at=moment(entry.timestamp),
            model=model_of(message.model),
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_input_tokens or 0,
            cache_write=cache_write,
            cache_write_1h=min(one_hour, cache_write),
            reasoning=min(thinking, usage.output_tokens),
        )
    )
