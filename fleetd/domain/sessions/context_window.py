"""What is left in a session's context window, and when its agent is due a briefing.

Source: hooks, rule 6, and the orders of events that were seen with real CLIs. The states in
``sessions.context`` are ``whole``, ``compacting`` (announced), ``lost`` (compacted, nobody briefed)
and ``briefed``, which work makes ``whole`` again.
"""

import msgspec

from ...harness.report import (
    AnyHappening,
    Compacted,
    Compacting,
    Paused,
    PromptSubmitted,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    WindowUsed,
)
from ..core.context import Context, TranscriptMark
from ..core.ids import WHERE_KEY, Key
from ..core.tx import Tx

_mark = msgspec.json.Decoder(TranscriptMark).decode
_WORK = (PromptSubmitted, ToolStarted, ToolFinished, Paused)


def after(state: str, happening: AnyHappening) -> str:
    """Return the state of a window after something happened in it."""
    if isinstance(happening, Compacting):
        return "compacting" if happening.certain else state
    if isinstance(happening, Compacted):
        # Told once more after the briefing, by an event that comes later in some harnesses.
        return state if state == "briefed" else "lost"
    if isinstance(happening, SessionStarted):
        return _opened(state, happening.source)
    if isinstance(happening, PromptSubmitted) and state == "compacting":
        # Nobody told that it was done, and a new turn has begun: the worst is assumed.
        return "lost"
    if isinstance(happening, _WORK) and state == "briefed":
        return "whole"
    return state


def _opened(state: str, source: str) -> str:
    if source == "compact":
        return state if state == "briefed" else "lost"
    if source == "resume":
        # Its conversation is read again, so what was in it still is, and what was lost still is.
        return "lost" if state in ("compacting", "lost") else state
    return "whole"


def set_context(tx: Tx, key: Key, state: str) -> None:
    """Keep the state of a window."""
    tx.run(
        f"UPDATE sessions SET context = :state WHERE {WHERE_KEY} AND context <> :state",
        **key.params,
        state=state,
    )


def keep_used(tx: Tx, key: Key, told: WindowUsed | None) -> None:
    """Keep how full a window is, as its harness told last; None forgets it."""
    tx.run(
        f"UPDATE sessions SET window_tokens = :tokens, window_size = :size WHERE {WHERE_KEY}",
        **key.params,
        tokens=None if told is None else told.tokens,
        size=None if told is None else told.size,
    )


def set_briefed(tx: Tx, ctx: Context, key: Key, delivery_id: str) -> None:
    """Note that the reply to a delivery holds the briefing."""
    tx.run(
        f"UPDATE sessions SET context = 'briefed', briefed_by = :delivery WHERE {WHERE_KEY}",
        **key.params,
        delivery=delivery_id,
    )


def take_back_briefing(tx: Tx, delivery_id: str) -> None:
    """Have the briefing given again: the reply that held it was never read.

    A delivery that also lies in the spool is one whose client gave up waiting.
    """
    tx.run(
        "UPDATE sessions SET context = 'lost', briefed_by = NULL WHERE briefed_by = :delivery",
        delivery=delivery_id,
    )


def compacted_between(before: str | None, now: TranscriptMark) -> bool:
    """Whether a transcript was shortened or begun anew since it was last looked at."""
    if before is None:
        return False
    then = _mark(before)
    return now.size < then.size or (None not in {then.head, now.head} and now.head != then.head)


def keep_mark(tx: Tx, key: Key, before: str | None, mark: TranscriptMark) -> None:
    """Remember what a transcript looks like now, and its beginning as it was last known."""
    if mark.head is None and before is not None:
        mark = msgspec.structs.replace(mark, head=_mark(before).head)
    tx.run(
        f"UPDATE sessions SET transcript_mark = :mark WHERE {WHERE_KEY}",
        **key.params,
        mark=msgspec.json.encode(mark).decode(),
    )
