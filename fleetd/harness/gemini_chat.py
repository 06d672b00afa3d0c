"""What the log of a Gemini CLI session tells of compactions, which no hook does; pure.

Source: the files of Gemini CLI 0.61. Each line is a message or sets fields anew; one that sets
``messages`` replaces the conversation. That happens after a compaction, which puts a summary first,
and when a session is resumed, where the messages keep their ids.
"""

import re
from itertools import islice

_REPLACES = b'\n{"$set":{"messages":['
# In texts the quotation marks are escaped.
_ID = re.compile(rb'"id":"([^"\\]{1,100})"')


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
