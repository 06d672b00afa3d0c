"""What squawk.json held, the store before this one, and how its names become ours; stores nothing.

Times are ISO 8601 UTC, as everywhere.
"""

import hashlib
import re
from functools import lru_cache
from typing import Any

import msgspec

from ...protocol.records import Record
from ...protocol.request import Mutation
from ...protocol.types import AGENT_ID, EVENT_TYPE

_AGENT_ID = re.compile(AGENT_ID)
_EVENT_TYPE = re.compile(EVENT_TYPE)
_SHOWN = 5


class OldMailbox(Record, frozen=True, kw_only=True):
    """Where the letters of one agent lay."""

    id: str
    created_at: str | None = None
    updated_at: str | None = None


class OldEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a mailbox; ``rest`` holds the fields that have no column of their own."""

    type: str
    timestamp: str | None
    data: Any
    rest: dict[str, Any]


class OldCursor(Record, frozen=True, kw_only=True):
    """How many events of a mailbox somebody had read."""

    mailbox: str
    position: int


class OldLock(Record, frozen=True, kw_only=True):
    """A lock that nobody had released; ``path`` is its key, relative where no base is known."""

    file: str
    path: str
    held_by: str
    purpose: str
    timeout_ms: int
    acquired_ms: int | None = None
    expires_ms: int | None = None


class Imported(Record, frozen=True, kw_only=True):
    """What was taken over. ``before``: the same file was imported already; nothing was done.

    ``left_out`` counts the locks that were released, had expired or were taken.
    """

    before: bool = False
    mailboxes: int = 0
    events: int = 0
    cursors: int = 0
    locks: int = 0
    left_out: int = 0


class LegacyImport(Mutation[Imported], frozen=True, kw_only=True):
    """Take over a whole file, or nothing of it; ``digest`` is how it is recognised again."""

    digest: str
    mailboxes: list[OldMailbox]
    events: dict[str, list[OldEvent]]
    cursors: list[OldCursor]
    locks: list[OldLock]
    released: int = 0
    unknown: tuple[str, ...] = ()
    """Sections of the file that mean nothing to us."""


def agent_name(mailbox: str) -> str:
    """Return the agent id of a mailbox: its own where that is one, else always the same other."""
    if _AGENT_ID.match(mailbox):
        return mailbox
    readable = re.sub(r"[^A-Za-z0-9._:@-]+", "_", mailbox).lstrip("._:@-")[:48] or "mailbox"
    return f"{readable}-{hashlib.sha256(mailbox.encode()).hexdigest()[:12]}"


@lru_cache(maxsize=1024)
def event_type(old: str) -> str:
    """Return an event type: the old one where it is one, else what is nearest to it."""
    if _EVENT_TYPE.match(old):
        return old
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", old).lower()
    near = re.sub(r"[^a-z0-9_]+", "_", words).strip("_")[:64]
    return near if _EVENT_TYPE.match(near) else f"legacy_{near or 'event'}"[:64]


def some(names: list[str]) -> str:
    """Return the first few of a list, and how many there are beyond."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:200] for name in names[:_SHOWN]) + more
