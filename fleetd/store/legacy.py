"""What squawk.json says, checked: bytes into the records of an import; must not store or open it.

Its writers were not all alike: optional fields may be missing and some go by several names. But
what is there must be of the right kind, or nothing of the file is believed.
"""

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..domain.system.legacy_import import LegacyContents, OldCursor, OldEvent, OldLock, OldMailbox
from ..protocol import types
from ..protocol.timestamps import iso, to_ms
from .legacy_file import LegacyRefused
from .strict_json import NotStrictJson, place, strict_json

SECTIONS = ("mailboxes", "events", "cursors", "locks")
# What a lock's lease was when nothing else was said.
LEASE_MS = 30_000
_LATEST_MS = to_ms("9999-12-31T23:59:59.999Z")
# As JavaScript writes times, and as we do: most need no rendering.
_OURS = re.compile(
    r"(19[7-9]|[2-9][0-9]{2})[0-9]-[01][0-9]-[0-3][0-9]"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)
RealPath = Callable[[str], str | None]
Time = str | int | float | None
Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Mailbox(msgspec.Struct):
    created_at: Time = None
    updated_at: Time = None


class _Event(msgspec.Struct):
    type: str
    data: Any = None
    occurred_at: Time = None
    timestamp: Time = None
    created_at: Time = None


class _Cursor(msgspec.Struct):
    position: Count
    mailbox_id: str | None = None
    stream_id: str | None = None


class _Lock(msgspec.Struct):
    file: types.Path
    timeout_ms: Count | None = None
    purpose: str | None = None
    reserved_by: str | None = None
    specialist_id: str | None = None
    reserved_at: Time = None
    acquired_at: Time = None
    expires_at: Time = None


# In the order in which they are believed.
_TIMES = ("occurred_at", "timestamp", "created_at")
_OTHER_TIMES = frozenset(_TIMES[1:])
_PLACED = frozenset({"type", "data", "stream_id", *_TIMES})


def parse(data: bytes, digest: str, real_path: RealPath) -> LegacyContents:
    """Return all that a file holds; raises LegacyRefused at the first thing that is not right.

    ``real_path`` resolves a path, None when it is relative.
    """
    with _uncollected():
        return _parse(data, digest, real_path)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Stop the search for garbage, which would go through a growing document again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _parse(data: bytes, digest: str, real_path: RealPath) -> LegacyContents:
    try:
        document = strict_json(data)
    except NotStrictJson as error:
        raise LegacyRefused(str(error)) from error
    found = _sections(document)
    locks = [_lock(lock, name, real_path) for name, lock in found["locks"].items()]
    kept = [lock for lock in locks if lock is not None]
    return LegacyContents(
        digest=digest,
        mailboxes=[_mailbox(box, name) for name, box in found["mailboxes"].items()],
        events={name: _events(events, name) for name, events in found["events"].items()},
        cursors=[_cursor(cursor, name) for name, cursor in found["cursors"].items()],
        locks=kept,
        released=len(locks) - len(kept),
        unknown=tuple(name for name in document if name not in SECTIONS),
    )


def _sections(document: Any) -> dict[str, dict[str, Any]]:
    top = _kind(document, dict[str, Any])
    if top and top.keys().isdisjoint(SECTIONS):
        raise LegacyRefused(f"at $: it has none of the sections {', '.join(SECTIONS)}")
    return {
        name: {} if top.get(name) is None else _kind(top[name], dict[str, Any], name)
        for name in SECTIONS
    }


def _kind(value: Any, kind: Any, *where: str | int) -> Any:
    """Return a value as the kind that it must be; the error names the place inside the file."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, rest = str(error).partition(" - at `$")
        raise LegacyRefused(f"at {place(*where)}{rest.rstrip('`')}: {what}") from error


def _mailbox(value: Any, name: str) -> OldMailbox:
    box: _Mailbox = _kind(value, _Mailbox, "mailboxes", name)
    return OldMailbox(
        id=name,
        created_at=_time(box.created_at, "mailboxes", name, "created_at"),
        updated_at=_time(box.updated_at, "mailboxes", name, "updated_at"),
    )


def _events(value: Any, name: str) -> list[OldEvent]:
    events: list[_Event] = _kind(value, list[_Event], "events", name)
    return [
        OldEvent(
            type=event.type,
            timestamp=_event_time(event, "events", name, number),
            data=_unwrapped(event.data),
            rest=_rest(raw, name),
        )
        for number, (event, raw) in enumerate(zip(events, value, strict=True))
    ]


def _event_time(event: _Event, *where: str | int) -> str | None:
    if event.occurred_at is not None:
        return _time(event.occurred_at, *where, "occurred_at")
    if event.timestamp is not None:
        return _time(event.timestamp, *where, "timestamp")
    return _time(event.created_at, *where, "created_at")


def _rest(raw: dict[str, Any], mailbox: str) -> dict[str, Any]:
    """Return what of an event has no field in an OldEvent."""
    rest = {name: part for name, part in raw.items() if name not in _PLACED and part is not None}
    if raw.get("stream_id", mailbox) != mailbox:
        rest["stream_id"] = raw["stream_id"]
    if not _OTHER_TIMES.isdisjoint(raw):
        times = [name for name in _TIMES if raw.get(name) is not None]
        rest.update((name, raw[name]) for name in times[1:])
    return rest


def _unwrapped(data: Any) -> Any:
    """Return data that was stored as text of JSON as what it says; any other as it is."""
    if not isinstance(data, str) or not data.startswith("{"):
        return data
    try:
        return strict_json(data.encode())
    except NotStrictJson:
        return data


def _cursor(value: Any, name: str) -> OldCursor:
    cursor: _Cursor = _kind(value, _Cursor, "cursors", name)
    return OldCursor(
        mailbox=cursor.mailbox_id or cursor.stream_id or name, position=cursor.position
    )


def _lock(value: Any, name: str, real_path: RealPath) -> OldLock | None:
    """Return a lock, None when it was released: then nothing else of it matters."""
    fields = _kind(value, dict[str, Any], "locks", name)
    if fields.get("released_at") or fields.get("status") == "released":
        return None
    lock: _Lock = _kind(value, _Lock, "locks", name)
    holder = lock.reserved_by or lock.specialist_id
    if not holder:
        raise LegacyRefused(f"at {place('locks', name)}: it has no reserved_by")
    begun = "reserved_at" if lock.reserved_at is not None else "acquired_at"
    return OldLock(
        file=lock.file,
        path=real_path(lock.file) or lock.file,
        held_by=holder,
        purpose=lock.purpose or "edit",
        timeout_ms=lock.timeout_ms or LEASE_MS,
        acquired_ms=_ms(getattr(lock, begun), "locks", name, begun),
        expires_ms=_ms(lock.expires_at, "locks", name, "expires_at"),
    )


def _ms(value: Time, *where: str | int) -> int | None:
    text = _time(value, *where)
    return None if text is None else to_ms(text)


def _time(value: Time, *where: str | int) -> str | None:
    """Return a time, which was ISO 8601 text or milliseconds since 1970, as our text."""
    if value is None:
        return None
    try:
        if isinstance(value, str) and _OURS.fullmatch(value):
            datetime.fromisoformat(value)
            return value
        ms = to_ms(value) if isinstance(value, str) else int(value)
        if not 0 <= ms <= _LATEST_MS:
            raise ValueError
    except (ValueError, OverflowError):
        shown = json.dumps(value)[:60]
        raise LegacyRefused(f"at {place(*where)}: {shown} is no time") from None
    return iso(ms)
