"""The texts that an agent could get after a compaction: our briefing, and its alternatives."""

from collections.abc import Callable
from functools import partial

from . import record, transcript
from .session import Session

OURS = "fleetd"
NOTHING = "no briefing"
SUMMARY = "own summary"
PAST = f"fleetd {record.REVISION}"
DUMP = "dump"
SOURCES = (OURS, NOTHING, SUMMARY, PAST, DUMP)

TextSource = Callable[[int], str | None]
"""Returns what a source gives within a budget, None where it has nothing to give."""


def baselines(name: str, session: Session) -> dict[str, TextSource]:
    """Return the alternatives to our briefing for a session's agent."""
    return {
        NOTHING: lambda _: "",
        SUMMARY: partial(_summary, session),
        PAST: record.recorded(name).get,
        DUMP: partial(transcript.dump, session),
    }


def _summary(session: Session, budget: int) -> str | None:
    return None if session.summary is None else session.summary[:budget]
