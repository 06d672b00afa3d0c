"""Usage in rollouts, the files in which Codex keeps its sessions, based on those of 0.169.

A ``token_count`` reports the usage of the last request and of the whole session. It is repeated
with the same total where only the limits changed. A fork continues the total of its parent: new
versions write none of the parent's lines, older ones copied them all at the beginning.
"""

from collections.abc import Sequence

import msgspec

from ...protocol.timestamps import to_ms
from .record import Count, Portion, State, UsageRecord, key_of, looks_whole, model_of, moment

HARNESS = "codex"
# Copies of the parent's lines are all written within this time.
_COPIED_MS = 1_000
_MARKS = (b'"token_count"', b'"turn_context"', b'"session_meta"')


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    cache_write_input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_output_tokens: Count = 0
    total_tokens: Count = 0

    @property
    def figures(self) -> list[int]:
        return [
            self.input_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.output_tokens,
            self.reasoning_output_tokens,
        ]


class _Info(msgspec.Struct):
    total_token_usage: _Usage | None = None
    last_token_usage: _Usage | None = None


class _Payload(msgspec.Struct):
    type: str | None = None
    info: _Info | None = None
    model: str | None = None
    id: str | None = None
    forked_from_id: str | None = None
    history_base: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct):
    type: str | None = None
    timestamp: str | None = None
    payload: msgspec.Raw = msgspec.Raw()


class _Seen(msgspec.Struct):
    """State after the lines before: the session, its model, and the totals.

    ``copied_until_ms`` is when the copies end in the file of a fork. ``era`` counts how often the
    total started again.
    """

    session: str | None = None
    model: str | None = None
    total: list[int] | None = None
    copied_until_ms: int | None = None
    era: int = 0


_line = msgspec.json.Decoder(_Line).decode
_payload = msgspec.json.Decoder(_Payload).decode


def read(state: State, lines: Sequence[bytes]) -> Portion:
    """Return the usage in lines of a rollout, given the state after the lines before."""
    seen = msgspec.convert(state, _Seen)
    portion = Portion(state)
    for line in lines:
        if not looks_whole(line):
            portion.broken += 1
        elif any(mark in line for mark in _MARKS):
            try:
                _take(seen, portion, line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                portion.broken += 1
    portion.state = msgspec.to_builtins(seen)
    return portion


def _take(seen: _Seen, portion: Portion, line: bytes) -> None:
    entry = _line(line)
    if not bytes(entry.payload) or entry.timestamp is None:
        return
    if entry.type == "session_meta":
        _begin(seen, _payload(entry.payload), entry.timestamp)
    elif entry.type == "turn_context":
        seen.model = model_of(_payload(entry.payload).model) or seen.model
    elif entry.type == "event_msg":
        payload = _payload(entry.payload)
        if payload.type == "token_count" and payload.info is not None:
            _count(seen, portion, payload.info, entry.timestamp)


def _begin(seen: _Seen, meta: _Payload, timestamp: str) -> None:
    """Note whose file it is; a copied line of the parent does not show that."""
    if seen.session is not None or meta.id is None:
        return
    seen.session = meta.id
    if meta.forked_from_id is not None and not bytes(meta.history_base):
        seen.copied_until_ms = to_ms(timestamp) + _COPIED_MS


def _count(seen: _Seen, portion: Portion, info: _Info, timestamp: str) -> None:
    total, last = info.total_token_usage, info.last_token_usage
    if total is None:
        return
    before, figures = seen.total, total.figures
    if figures == before:
        portion.repeated += 1
        return
    seen.total = figures
    if seen.copied_until_ms is not None and to_ms(timestamp) <= seen.copied_until_ms:
        portion.repeated += 1
        return
    if before is not None and any(now < then for now, then in zip(figures, before, strict=True)):
        seen.era += 1
        before = None
    # Older versions report the total only.
    used = last.figures if last is not None else _since(before, figures)
    given, cached, cache_write, output, reasoning = used
    cached = min(cached, given)
    cache_write = min(cache_write, given - cached)
    portion.add(
        UsageRecord(
            key=key_of(HARNESS, seen.session, seen.era, *figures),
            at=moment(timestamp),
            model=seen.model,
            input=given - cached - cache_write,
            output=output,
            cache_read=cached,
            cache_write=cache_write,
            reasoning=min(reasoning, output),
        )
    )


def _since(before: list[int] | None, figures: list[int]) -> list[int]:
    return [now - then for now, then in zip(figures, before or [0] * len(figures), strict=True)]
