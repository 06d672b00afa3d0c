"""Times in words: ``3 min ago``, ``yesterday 14:02``; the clock is an argument.

Moments are ISO 8601 UTC, as on the wire, and are shown in the local time zone. They are parsed by
hand, because importing ``datetime`` takes longer than most commands.
"""

import time

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
# Clocks of one machine may be this far apart in what was written a moment ago.
NOW_MS = 5 * SECOND
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CUMULATED = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def ms_of(text: str) -> int | None:
    """Return a time of the wire in ms since the epoch; None for other text."""
    if len(text) != len("2026-01-05T12:00:00.000Z") or text[10] != "T" or text[23] != "Z":
        return None
    parts = (text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19], text[20:23])
    if not all(part.isdecimal() and part.isascii() for part in parts):
        return None
    year, month, day, hour, minute, second, ms = map(int, parts)
    if year < 1 or not 1 <= month <= 12:
        return None
    days = _days_before(year, month) + day - 1
    return days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + ms


def _days_before(year: int, month: int) -> int:
    """Return the days from the epoch to the first of a month."""
    before = year - 1
    leap_days = before // 4 - before // 100 + before // 400
    days = before * 365 + leap_days - 719_162
    leap = month > 2 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return days + _CUMULATED[month - 1] + leap


def span(ms: int) -> str:
    """Return a length of time: ``12 s``, ``4 min``, ``2 h 5 min``, ``3 days``."""
    if ms < MINUTE:
        return f"{max(ms, 0) // SECOND} s"
    if ms < HOUR:
        return f"{ms // MINUTE} min"
    if ms < DAY:
        hours, minutes = divmod(ms // MINUTE, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days = ms // DAY
    hours = ms % DAY // HOUR
    if days < 3 and hours:
        return f"{days} d {hours} h"
    return "1 day" if days == 1 else f"{days} days"


def ago(text: str, now_ms: int) -> str:
    """Return when something was: ``now``, ``3 min ago``, ``yesterday 14:02``, ``5 Jan 14:02``.

    A moment slightly ahead is ``now`` too, one further ahead is ``in 8 min``. Text that is no time
    is returned unchanged.
    """
    at = ms_of(text)
    if at is None:
        return text
    passed = now_ms - at
    if abs(passed) < NOW_MS:
        return "now"
    if passed < 0:
        return f"in {_left(-passed)}" if -passed < DAY else _date(at, now_ms)
    if passed < HOUR:
        return f"{span(passed)} ago"
    if passed < 12 * HOUR:
        return f"{passed // HOUR} h ago"
    return _date(at, now_ms)


def _date(at: int, now_ms: int) -> str:
    """Return the day, only as exactly as necessary, and the minute."""
    then = time.localtime(at // SECOND)
    apart = _day_number(now_ms) - _day_number(at)
    near = {0: "today", 1: "yesterday", -1: "tomorrow"}.get(apart)
    if near is None:
        near = (
            _DAYS[then.tm_wday] if 1 < apart < 7 else f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]}"
        )
    if then.tm_year != time.localtime(now_ms // SECOND).tm_year and abs(apart) > 6:
        return f"{near} {then.tm_year}"
    return f"{near} {then.tm_hour:02}:{then.tm_min:02}"


def since(at: int, now_ms: int) -> str:
    """Return how long ago a moment in ms was, whatever the day: ``3 h ago``, ``2 days ago``."""
    passed = now_ms - at
    if abs(passed) < NOW_MS:
        return "now"
    if passed < 0:
        return f"in {span(-passed)}"
    if HOUR <= passed < DAY:
        return f"{passed // HOUR} h ago"
    return f"{span(passed // DAY * DAY) if passed >= DAY else span(passed)} ago"


def moment(text: str, now_ms: int) -> str:
    """Return the local time of something: ``14:02:31`` today, ``5 Jan 14:02`` before."""
    at = ms_of(text)
    if at is None:
        return text
    if _day_number(at) == _day_number(now_ms):
        return clock(at, seconds=True)
    then = time.localtime(at // SECOND)
    return f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]} {clock(at)}"


def lease(text: str, now_ms: int) -> str:
    """Return how long something still holds: ``for 8 min``; else since when it does not."""
    at = ms_of(text)
    if at is None or at <= now_ms:
        return ago(text, now_ms)
    return f"for {_left(at - now_ms)}"


def _left(ms: int) -> str:
    """Return the remaining time to the nearest minute, so that ten minutes show as ten."""
    return span(ms + MINUTE // 2 if ms >= MINUTE else ms)


def clock(at: int, *, seconds: bool = False) -> str:
    """Return the local time of day of a moment in ms: ``14:02``, ``14:02:31``."""
    then = time.localtime(at // SECOND)
    text = f"{then.tm_hour:02}:{then.tm_min:02}"
    return f"{text}:{then.tm_sec:02}" if seconds else text


def day(at: int) -> str:
    """Return the local day of a moment in ms: ``Mon 5 Jan 2026``."""
    then = time.localtime(at // SECOND)
    month = _MONTHS[then.tm_mon - 1]
    return f"{_DAYS[then.tm_wday]} {then.tm_mday} {month} {then.tm_year}"


def zone(at: int) -> str:
    """Return the name of the local time zone at a moment in ms: ``CET``."""
    return time.localtime(at // SECOND).tm_zone


def _day_number(at: int) -> int:
    """Return the number of the local day of a moment."""
    then = time.localtime(at // SECOND)
    return _days_before(then.tm_year, 1) + then.tm_yday
