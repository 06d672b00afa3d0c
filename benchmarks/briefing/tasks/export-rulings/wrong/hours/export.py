"""The file for the accountant."""

from .entries import Entry
from .rates import RATES


def export(entries: list[Entry]) -> str:
    """Return a line per entry, below a heading."""
    lines = ["date,project,minutes,amount"]
    for entry in entries:
        amount = RATES[entry.project] * entry.minutes / 60 / 100
        lines.append(f"{entry.day},{entry.project},{entry.minutes},{amount:.2f}")
    return "\n".join(lines) + "\n"
