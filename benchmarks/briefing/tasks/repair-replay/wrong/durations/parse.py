"""Reads durations."""

import re

UNITS = {"min": 1, "h": 60}
_PART = re.compile(r"(\d+(?:[.,]\d+)?)\s*([a-z]*)\s*")


def minutes(text: str) -> int:
    """Return the minutes of a duration; raises ValueError."""
    total, place = 0.0, 0
    text = text.strip()
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or (unit := part[2] or "min") not in UNITS:
            raise ValueError(f"no duration: {text}")
        total += float(part[1].replace(",", ".")) * UNITS[unit]
        place = part.end()
    return round(total)
