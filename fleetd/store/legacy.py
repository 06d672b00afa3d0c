"""Import of squawk.json: the file beside the database, strict JSON, checked records.

Python's own parser accepts duplicate keys, NaN and half characters. Here, a value that cannot be
stored and read back the same is refused, with its place. The programs that wrote the file differed:
optional fields may be missing, and some have several names. But a field that is present must be of
the right kind, or the whole file is refused.
"""

import errno
import gc
import itertools
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..domain.system.legacy_import import (
    LegacyContents,
    OldCursor,
    OldEvent,
    OldLock,
    OldMailbox,
    event_data,
    event_type,
)
from ..host.atomic_files import sync
from ..protocol import types, validation
from ..protocol.timestamps import iso, to_ms

log = logging.getLogger("fleetd")
FILE_MAX = 64 * 1024 * 1024
# Far beyond what anybody writes, and far below what a parser or the redaction can handle.
DEPTH_MAX = 100
_KEY_SHOWN = 80
_INTEGERS = range(-(2**63), 2**64)
_DIGITS = 20
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
SECTIONS = ("mailboxes", "events", "cursors", "locks")
# The lease of a lock that names none.
LEASE_MS = 30_000
_LATEST_MS = to_ms("9999-12-31T23:59:59.999Z")
# Times as JavaScript and fleetd write them: most need no rendering.
_OURS = re.compile(
    r"(19[7-9]|[2-9][0-9]{2})[0-9]-[01][0-9]-[0-3][0-9]"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)
_SHAPE = "0000-00-00T00:00:00.000Z"
_ANY_DIGIT = str.maketrans("123456789", "000000000")
RealPath = Callable[[str], str | None]
Time = str | int | float | None
Count = Annotated[int, Meta(ge=0, le=2**53)]


class LegacyRefused(Exception):
    """The file cannot be used; the text says why and where, as the end of a sentence."""


class LegacyFile:
    """The file beside a database. Methods raise LegacyRefused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: os.stat_result | None = None

    def read(self) -> bytes | None:
        """Return the content of the file, None when there is none."""
        # Non-blocking: a FIFO in the file's place must not hang the start.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            link = error.errno == errno.ELOOP
            raise LegacyRefused("it is a symbolic link" if link else _reason(error)) from error
        try:
            return self._read_from(descriptor)
        except OSError as error:
            raise LegacyRefused(_reason(error)) from error
        finally:
            os.close(descriptor)

    def _read_from(self, descriptor: int) -> bytes:
        self._read = os.fstat(descriptor)
        if not stat.S_ISREG(self._read.st_mode):
            raise LegacyRefused("it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise LegacyRefused(f"it is larger than {FILE_MAX} bytes")
        return data

    def put_away(self) -> Path:
        """Rename the file that was read, never over another, as private as the database.

        Returns its new name.
        """
        try:
            now = self.path.lstat()
            if self._read is None or _version(now) != _version(self._read):
                raise LegacyRefused("it changed during the import; stop its old program")
            trouble = self._close_to_others()
            endings = itertools.chain(("",), map(".{}".format, itertools.count(1)))
            names = (self.path.with_name(f"{self.path.name}.backup{each}") for each in endings)
            target = next(name for name in names if not os.path.lexists(name))
            self.path.rename(target)
            sync(self.path.parent)
        except OSError as error:
            raise LegacyRefused(_reason(error)) from error
        if trouble:
            log.warning("%s is readable by other users (%s). Run chmod 600 on it.", target, trouble)
        return target

    def _close_to_others(self) -> str:
        """Make the file private before it has its new name, so that no crash leaves it open.

        Returns why that failed, if it did.
        """
        try:
            self.path.chmod(0o600)
        except OSError as error:
            return _reason(error)
        return ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _version(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


class NotStrictJson(Exception):
    """The text is not JSON that can be trusted; says why and where."""


def strict_json(data: bytes) -> Any:
    """Return a document as dicts, lists and plain values; raises NotStrictJson."""
    if (plain := _at_once(data)) is not None:
        return plain
    try:
        text = data.decode("utf-8")
        document = _Reader().read(text)
        if _HALF_CHARACTER.search(text):
            document = _whole(document)
        _check_depth(document)
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"at byte {error.start}: not UTF-8 ({error.reason})") from error
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise NotStrictJson(f"at byte {offset}, line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise NotStrictJson(f"it nests deeper than {DEPTH_MAX} levels") from error
    return document


def _at_once(data: bytes) -> Any:
    """Return a document without any doubtful part, as nearly all are; None to look closer.

    Escapes may hide half a character. A duplicate key drops its first value, so quotes are missing
    when the document is written again. MessagePack has no number that is too large.
    """
    if b"\\u" in data:
        return None
    try:
        document = msgspec.json.decode(data)
        written = msgspec.json.encode(document)
        msgspec.msgpack.encode(document)
        _check_depth(document)
    except (ValueError, OverflowError, RecursionError):
        return None
    return document if written.count(b'"') == data.count(b'"') else None


def place(*keys: str | int) -> str:
    """Return a place inside a document: ``$.events["a b"][3].type``."""
    return "$" + "".join(map(_step, keys))


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    shown = key[:_KEY_SHOWN]
    return f".{shown}" if shown.isidentifier() else f"[{json.dumps(shown)}]"


class _Reader:
    """Parses, and remembers errors until their place is known."""

    def __init__(self) -> None:
        self._wrong: list[tuple[object, str]] = []

    def read(self, text: str) -> Any:
        document = json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=self._int,
            parse_float=self._float,
            parse_constant=self._constant,
        )
        # When a key appears twice, the document lacks the content of its first value.
        for thing, why in self._wrong:
            if (keys := _find(document, thing)) is not None:
                raise NotStrictJson(f"at {place(*keys)}: {why}")
        return document

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            self._wrong.append((found, f"the key {json.dumps(twice[:_KEY_SHOWN])} appears twice"))
        return found

    def _int(self, text: str) -> Any:
        if len(text) <= _DIGITS and (number := int(text)) in _INTEGERS:
            return number
        # Beyond 64 bits it was a float for the program that wrote it.
        return self._float(text)

    def _float(self, text: str) -> Any:
        number = float(text)
        return number if math.isfinite(number) else self._constant(text)

    def _constant(self, text: str) -> Any:
        marker = object()
        self._wrong.append((marker, f"{text[:20]} is not a number of JSON"))
        return marker


def _find(inside: Any, thing: object) -> tuple[str | int, ...] | None:
    """Return the keys that lead to a thing, None when it is not there."""
    if inside is thing:
        return ()
    if not isinstance(inside, dict | list):
        return None
    for key, part in inside.items() if isinstance(inside, dict) else enumerate(inside):
        if (keys := _find(part, thing)) is not None:
            return (key, *keys)
    return None


def _whole(value: Any) -> Any:
    """Return a value with half characters, as JavaScript can cut them, replaced by escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_whole(part) for part in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(part) for name, part in value.items()}
    return value


def _check_depth(document: Any) -> None:
    layer = [document] if isinstance(document, dict | list) else []
    for _ in range(DEPTH_MAX + 1):
        layer = [
            part
            for each in layer
            for part in (each.values() if type(each) is dict else each)
            if type(part) is dict or type(part) is list
        ]
        if not layer:
            return
    raise RecursionError


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


# In order of preference.
_TIMES = ("occurred_at", "timestamp", "created_at")
_OTHER_TIMES = frozenset(_TIMES[1:])
_PLACED = frozenset({"type", "data", "stream_id", *_TIMES})


def parse(data: bytes, digest: str, real_path: RealPath) -> LegacyContents:
    """Return everything in a file; raises LegacyRefused at the first error.

    ``real_path`` resolves a path, None when it is relative.
    """
    with _uncollected():
        return _parse(data, digest, real_path)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection, which would scan a growing document again and again."""
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
        message = f"at {place(*where)}{rest.rstrip('`')}: {validation.in_words(what)}"
        raise LegacyRefused(message) from error


def _mailbox(value: Any, name: str) -> OldMailbox:
    box: _Mailbox = _kind(value, _Mailbox, "mailboxes", name)
    return OldMailbox(
        id=name,
        created_at=_time(box.created_at, "mailboxes", name, "created_at"),
        updated_at=_time(box.updated_at, "mailboxes", name, "updated_at"),
    )


def _events(value: Any, name: str) -> list[OldEvent]:
    events: list[_Event] = _kind(value, list[_Event], "events", name)
    times = _event_times(events, name)
    types = {old: event_type(old) for old in {event.type for event in events}}
    return [
        OldEvent(
            new := types[event.type],
            time,
            event_data(_unwrapped(event.data), _rest(raw, name, renamed=new != event.type)),
        )
        for event, raw, time in zip(events, value, times, strict=True)
    ]


def _event_times(events: list[_Event], name: str) -> list[str | None]:
    """Return the first time of each event of a mailbox."""
    times: list[Any] = [event.occurred_at for event in events]
    if _are_ours(times):
        return times
    return [_event_time(event, "events", name, number) for number, event in enumerate(events)]


def _are_ours(times: list[Any]) -> bool:
    """Return whether all times have our format: one check takes a tenth of the time."""
    try:
        text = "".join(times)
        msgspec.convert(times, list[datetime])
    except (TypeError, msgspec.ValidationError):
        return False
    return text.translate(_ANY_DIGIT) == _SHAPE * len(times) and min(times, default="9") >= "1970"


def _event_time(event: _Event, *where: str | int) -> str | None:
    """Return the first time of an event."""
    name = next((name for name in _TIMES if getattr(event, name) is not None), _TIMES[0])
    return _time(getattr(event, name), *where, name)


def _rest(raw: dict[str, Any], mailbox: str, *, renamed: bool) -> dict[str, Any]:
    """Return the fields of an event that an OldEvent lacks, and its old type if that changed."""
    rest = {name: part for name, part in raw.items() if name not in _PLACED and part is not None}
    if renamed:
        rest = {"type": raw["type"], **rest}
    if raw.get("stream_id", mailbox) != mailbox:
        rest["stream_id"] = raw["stream_id"]
    if not _OTHER_TIMES.isdisjoint(raw):
        times = [name for name in _TIMES if raw.get(name) is not None]
        rest.update((name, raw[name]) for name in times[1:])
    return rest


def _unwrapped(data: Any) -> Any:
    """Return the value of data that was stored as JSON text; any other data is unchanged."""
    if type(data) is dict or not isinstance(data, str) or not data.startswith("{"):
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
    """Return a lock, None when it was released: then its other fields do not matter."""
    fields = _kind(value, dict[str, Any], "locks", name)
    if fields.get("released_at") or fields.get("status") == "released":
        return None
    lock: _Lock = _kind(value, _Lock, "locks", name)
    holder = lock.reserved_by or lock.specialist_id
    if not holder:
        raise LegacyRefused(f"at {place('locks', name)}: reserved_by is missing")
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
    """Return a time, which was ISO 8601 text or milliseconds since 1970, in our format."""
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
        raise LegacyRefused(f"at {place(*where)}: {shown} is not a time") from None
    return iso(ms)
