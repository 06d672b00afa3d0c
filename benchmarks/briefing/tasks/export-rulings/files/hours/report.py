"""The report of a month."""

from .entries import Entry
from .rates import RATES


def report(entries: list[Entry]) -> str:
    """Return the hours and the amount of each project."""
    lines = []
    for project in sorted(RATES):
        minutes = 0
        for entry in entries:
            if entry.project == project:
                minutes += entry.minutes
        if minutes:
            amount = RATES[project] * minutes / 60 / 100
            lines.append(f"{project}: {minutes // 60} h {minutes % 60} min, {amount:.2f} EUR")
    return "\n".join(lines)
