"""The file for the accountant."""

from .entries import Entry
from .rates import RATES

QUARTER = 15


def export(entries: list[Entry]) -> str:
    """Return a line per entry, billed in begun quarters of an hour."""
    return "".join(_line(entry) for entry in entries)


def _line(entry: Entry) -> str:
    billed = -(-entry.minutes // QUARTER) * QUARTER
    euros, cents = divmod(RATES[entry.project] * billed // 60, 100)
    return f"{entry.day:%d.%m.%Y};{entry.project};{billed};{euros},{cents:02}\n"
