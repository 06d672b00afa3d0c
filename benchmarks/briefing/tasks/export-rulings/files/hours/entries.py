"""Entries of working hours."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Entry:
    """Work on one project on one day."""

    day: date
    project: str
    minutes: int


def read(text: str) -> list[Entry]:
    """Read entries, one per line; blank lines and comments have none."""
    entries = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        day, project, minutes = line.split(",")
        entries.append(Entry(date.fromisoformat(day), project, int(minutes)))
    return entries
