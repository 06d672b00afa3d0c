"""Reads durations."""

import re

UNITS = {"min": 1, "h": 60}
_PART = re.compile(r"(\d+)\s*([a-z]*)\s*")
_HOURS_DOT_MINUTES = re.compile(r"(\d+)\.(\d\d)\s*h")
_FROM_TO = re.compile(r"(\d\d)(\d\d)-(\d\d)(\d\d)")
_TIMES = re.compile(r"(\d+)\s*x\s*(.+)")


def minutes(text: str) -> int:
    """Return the minutes of a duration; raises ValueError."""
    text = text.strip()
    if found := _HOURS_DOT_MINUTES.fullmatch(text):
        return int(found[1]) * 60 + int(found[2])
    if found := _FROM_TO.fullmatch(text):
        begin, begin_min, end, end_min = map(int, found.groups())
        return end * 60 + end_min - begin * 60 - begin_min
    if found := _TIMES.fullmatch(text):
        return int(found[1]) * minutes(found[2])
    return _sum(text)


def _sum(text: str) -> int:
    total, place = 0, 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or (unit := part[2] or "min") not in UNITS:
            raise ValueError(f"no duration: {text}")
        total += int(part[1]) * UNITS[unit]
        place = part.end()
    return total
