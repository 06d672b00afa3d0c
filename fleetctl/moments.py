"""Moments as people write them: ``14:05``, ``2h ago``, ``2026-01-05 14:05``; local time."""

from argparse import ArgumentTypeError
from datetime import date, datetime, time, timedelta

from fleetd.protocol.timestamps import iso

from .args import age
from .output import console
from .parser import not_empty

EXPECTED = "expected a time such as 14:05, 2h or 2026-01-05T14:05"


def moment(text: str) -> str:
    """Return a time in the format of the wire; raises ArgumentTypeError.

    A time without a date is its last occurrence.
    """
    stripped = text.strip()
    try:
        return iso(console.now_ms() - age(stripped.removesuffix("ago").rstrip()))
    except (ArgumentTypeError, OverflowError):
        pass
    now = datetime.fromtimestamp(console.now_ms() / 1_000).astimezone()
    try:
        if ":" in stripped[:3] and "-" not in stripped:
            hours = time.fromisoformat(stripped if stripped[2:3] == ":" else f"0{stripped}")
            # Today is a date in the zone of the time, and so is the day before.
            today = now.astimezone(hours.tzinfo)
            found = _at(today.date(), hours)
            if found > now:
                found = _at(today.date() - timedelta(days=1), hours)
        else:
            found = datetime.fromisoformat(stripped)
            found = found if found.tzinfo else found.astimezone()
        return iso(round(found.timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(f"{EXPECTED}; got {text!r}") from None


def _at(day: date, hours: time) -> datetime:
    found = datetime.combine(day, hours)
    return found if found.tzinfo else found.astimezone()


def checkpoint_or_moment(text: str) -> str:
    """Return the id of a checkpoint unchanged, a time in the format of the wire."""
    return moment(text) if is_moment(text) else not_empty(text)


def is_moment(text: str) -> bool:
    """Return whether a text is a time; an id begins with letters."""
    return text.lstrip()[:1].isdecimal()
