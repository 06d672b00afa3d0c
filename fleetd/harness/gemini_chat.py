"""What the log of a Gemini CLI session tells and no hook does: compactions, the window; pure.

Source: the files of Gemini CLI 0.61. Each line is a message or sets fields anew; one that sets
``messages`` replaces the conversation. That happens after a compaction, which puts a summary first,
and when a session is resumed, where the messages keep their ids.
"""

import re
from itertools import islice

from .fields import window_used
from .report import WindowUsed

_REPLACES = b'\n{"$set":{"messages":['
# In texts the quotation marks are escaped.
_ID = re.compile(rb'"id":"([^"\\]{1,100})"')
_TOKENS = b'"tokens":{"input":'
_COUNT = re.compile(rb'"tokens":\{"input":(\d{1,12}),"output":(\d{1,12})[,}]')
_MODEL = re.compile(rb'[^{}]{0,200}\},"model":"gemini-')
# What Gemini CLI reckons with for every Gemini model.
GEMINIS_WINDOW = 1_048_576


def first_message(end: bytes, *, whole: bool) -> str | None:
    """Return the id of the message that the conversation begins with, behind its fixed context.

    ``end`` is the end of the log, all of it if ``whole``. None where it cannot be told.
    """
    at = end.rfind(_REPLACES)
    if at < 0:
        return None
    line, _, later = end[at + 1 :].partition(b"\n")
    ids = [found[1] for found in islice(_ID.finditer(line), 2)]
    if len(ids) == 1 and whole:
        # Only the context was ever set: what was said first is in a line of its own.
        ids += [found[1] for found in islice(_ID.finditer(later), 1)]
    return ids[1].decode("utf-8", "replace") if len(ids) == 2 else None


def last_count(end: bytes) -> tuple[WindowUsed, ...]:
    """Return how full the window was after the last answer, empty where that is not known.

    What stands before the conversation was last replaced is of a window that is gone.
    """
    replaced = end.rfind(_REPLACES)
    begin = end.find(b"\n", replaced + 1)
    line = -1 if begin < 0 else end.rfind(b"\n", begin, end.rfind(_TOKENS, begin) + 1)
    if line < 0:
        return ()
    # Behind its own count a message holds what tools were called with, which can be anything.
    found = _COUNT.match(end, end.find(_TOKENS, line))
    if found is None:
        return ()
    size = GEMINIS_WINDOW if _MODEL.match(end, found.end()) else None
    used = {"tokens": int(found[1]) + int(found[2]), "size": size}
    return window_used(used, "tokens", "size")
