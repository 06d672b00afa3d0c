"""Legacy import: takes over squawk.json, the previous store, completely or not at all.

Old events are history: none of them is activity, renews a lease or belongs to a mission. Times are
ISO 8601 UTC, as everywhere.
"""

import hashlib
import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import LegacyImported
from ...protocol.records import Record
from ...protocol.types import AGENT_ID, EVENT_TYPE, LONGEST_LEASE_MS
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.history import agent_changed, locks_change
from ..core.tx import LogLine, Row, Tx
from ..locks import leases
from ..locks.targets import Target
from ..redaction.redact import has_no_secret, redact, redact_data
from ..search import index as search_index

CONSUMER = "legacy"
TOGETHER = 100
_AGENT_ID = re.compile(AGENT_ID)
_EVENT_TYPE = re.compile(EVENT_TYPE)
_SHOWN = 5
_encode_lines = msgspec.json.Encoder().encode_lines


class OldMailbox(Record, frozen=True, kw_only=True):
    """The mailbox of one agent."""

    id: str
    created_at: str | None = None
    updated_at: str | None = None


class OldEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a mailbox, with the type and the data that it has here."""

    type: str
    timestamp: str | None
    data: dict[str, Any]


class OldCursor(Record, frozen=True, kw_only=True):
    """How many events of a mailbox a reader had read."""

    mailbox: str
    position: int


class OldLock(Record, frozen=True, kw_only=True):
    """A lock that was not released; ``path`` is its key, relative where no base is known."""

    file: str
    path: str
    held_by: str
    purpose: str
    timeout_ms: int
    acquired_ms: int | None = None
    expires_ms: int | None = None


class LegacyCounts(Record, frozen=True, kw_only=True):
    """What was imported. ``before``: the same file was imported already; nothing was done.

    ``left_out`` counts the locks that were released, had expired or were taken.
    """

    before: bool = False
    mailboxes: int = 0
    events: int = 0
    cursors: int = 0
    locks: int = 0
    left_out: int = 0


class LegacyContents(Record, frozen=True, kw_only=True):
    """The content of a whole file; ``digest`` identifies a file that was imported before."""

    digest: str
    mailboxes: list[OldMailbox]
    events: dict[str, list[OldEvent]]
    cursors: list[OldCursor]
    locks: list[OldLock]
    released: int = 0
    unknown: tuple[str, ...] = ()
    """Unknown sections of the file."""


def import_legacy(tx: Tx, ctx: Context, legacy: LegacyContents) -> LegacyCounts:
    """Import mailboxes, events, cursors and active locks, once per file, and count them.

    Raises InvalidState when the stored numbers differ from the given ones: then nothing is stored.
    """
    key = f"legacy:{legacy.digest}"
    if tx.exists("SELECT 1 AS known FROM store_meta WHERE key = :key", key=key):
        return LegacyCounts(before=True)
    if total := sum(map(len, legacy.events.values())):
        # This event has the time of the import: the events after it do not count as old before it.
        emit(tx, ctx, LegacyImported(events=total))
    end = position(tx)
    imported = LegacyCounts(
        mailboxes=_agents(tx, ctx, legacy),
        events=_events(tx, ctx, legacy, end),
        cursors=_cursors(tx, ctx, legacy, end),
        locks=(locks := _locks(tx, ctx, legacy)),
        left_out=legacy.released + len(legacy.locks) - locks,
    )
    tx.insert("store_meta", {"key": key, "value": ctx.now})
    _warn(tx, "Sections of squawk.json that were not imported", list(legacy.unknown))
    return imported


def _warn(tx: Tx, text: str, names: list[str]) -> None:
    if names:
        tx.after_commit(LogLine("WARNING", f"{text}: {_first_few(names)}"))


def _count(tx: Tx, what: str, **values: Any) -> int:
    return int(tx.value(f"SELECT count(*) AS n FROM {what}", **values))


def _compare(what: str, stored: int, given: int) -> int:
    if stored != given:
        raise InvalidState(
            f"{given} {what} had to be stored, only {stored} were.",
            hint="Report this as a bug, with the file if possible.",
        )
    return stored


def _agents(tx: Tx, ctx: Context, legacy: LegacyContents) -> int:
    """Make an agent of every mailbox, even of one that is known only from its events.

    The agent is idle: its process is unknown, so none is watched. An existing agent stays
    unchanged.
    """
    known = {mailbox.id: mailbox for mailbox in legacy.mailboxes}
    boxes = [known.get(name) or OldMailbox(id=name) for name in {**known, **legacy.events}]
    names = {box.id: agent_name(box.id) for box in boxes}
    for box in boxes:
        created = box.created_at or ctx.now
        tx.run(
            "INSERT INTO agents (id, role, status, registered_at, last_seen_at) VALUES (:id,"
            " 'specialist', 'idle', :created, :seen) ON CONFLICT (id) DO NOTHING",
            id=names[box.id],
            created=created,
            seen=box.updated_at or created,
        )
        agent_changed(tx, names[box.id])
    stored = sum(_count(tx, "agents WHERE id = :id", id=name) for name in set(names.values()))
    renamed = [f"{old!r} is {new}" for old, new in names.items() if old != new]
    _warn(tx, "Mailboxes of squawk.json whose names no agent may have", renamed)
    return _compare("mailboxes", stored, len(boxes))


def _events(tx: Tx, ctx: Context, legacy: LegacyContents, end: int) -> int:
    """Append the events of all mailboxes in the order of their times, ties as in the file."""
    rows = sorted(_rows(legacy, ctx), key=itemgetter("at"))
    tx.many(
        "INSERT INTO events (type, stream, timestamp, agent_id, activity, data_json)"
        " VALUES (:type, 'agent:' || :agent, :at, :agent, 0, :data)",
        rows,
    )
    if rows:
        search_index.owe(tx, position(tx))
    return _compare("events", _count(tx, "events WHERE seq > :end", end=end), len(rows))


def _rows(legacy: LegacyContents, ctx: Context) -> Iterator[Row]:
    """Yield the events to store; an event without a time gets the time of the previous one."""
    starts = {box.id: box.created_at for box in legacy.mailboxes}
    for mailbox, events in legacy.events.items():
        agent, moment = agent_name(mailbox), starts.get(mailbox) or ctx.now
        # In the order of the file, sorted afterwards: what was read together is near in memory.
        for event, data in zip(events, _stored(events), strict=True):
            moment = event.timestamp or moment
            yield {"type": event.type, "at": moment, "agent": agent, "data": data}


def _stored(events: list[OldEvent]) -> Iterator[str]:
    """Yield the data of events to store; for speed, secrets are searched in many events at once."""
    for start in range(0, len(events), TOGETHER):
        part = [event.data for event in events[start : start + TOGETHER]]
        text = _encode_lines(part).decode()
        if not has_no_secret(text):
            text = _encode_lines([redact_data(data) for data in part]).decode()
        # Split at "\n" only: JSON may contain other characters that Python takes for line ends.
        yield from text.removesuffix("\n").split("\n")


def _cursors(tx: Tx, ctx: Context, legacy: LegacyContents, end: int) -> int:
    """Point a cursor at the last event of its mailbox that was read.

    If a mailbox has several cursors, the one furthest behind counts, so that nothing is skipped.
    """
    read: dict[str, int] = {}
    shared = []
    for cursor in legacy.cursors:
        agent = agent_name(cursor.mailbox)
        if agent in read:
            shared.append(agent)
        read[agent] = min(cursor.position, read.get(agent, cursor.position))
    _warn(tx, "Mailboxes with several cursors, of which the one behind counts", shared)
    beyond = [
        agent for agent, count in read.items() if _set_cursor(tx, ctx, agent, count, end) < count
    ]
    _warn(tx, "Cursors beyond the last event of their mailbox", beyond)
    stored = [
        _count(
            tx,
            "cursors WHERE consumer = :consumer AND stream = :stream",
            consumer=CONSUMER,
            stream=f"agent:{agent}",
        )
        for agent in read
    ]
    return _compare("cursors", sum(stored), len(read))


def _set_cursor(tx: Tx, ctx: Context, agent: str, count: int, end: int) -> int:
    """Set a cursor on an agent's ``count``-th imported event; return which one it reached."""
    events = "events WHERE agent_id = :agent AND seq > :end"
    reached = min(count, _count(tx, events, agent=agent, end=end))
    last = reached and tx.value(
        f"SELECT seq FROM {events} ORDER BY seq LIMIT 1 OFFSET :skip",
        agent=agent,
        end=end,
        skip=reached - 1,
    )
    tx.run(
        "INSERT INTO cursors (consumer, stream, position, updated_at) VALUES (:consumer,"
        " :stream, :position, :now) ON CONFLICT (consumer, stream) DO UPDATE SET"
        " position = excluded.position, updated_at = excluded.updated_at"
        " WHERE cursors.position < excluded.position",
        consumer=CONSUMER,
        stream=f"agent:{agent}",
        position=last,
        now=ctx.now,
    )
    return reached


def _locks(tx: Tx, ctx: Context, legacy: LegacyContents) -> int:
    """Grant the locks whose lease still runs, under new tokens, until their old end."""
    expired, taken, relative = [], [], []
    granted: set[str] = set()
    for lock in legacy.locks:
        label = f"{lock.file} ({lock.held_by})"
        begun, until = _lease(lock, ctx)
        if until <= ctx.now_ms:
            expired.append(label)
            continue
        near, _ = leases.settle(tx, ctx, Target(path=lock.path))
        if near.held:
            taken.append(label)
            continue
        granted.add(_grant(tx, ctx, lock, begun, until))
        if not lock.file.startswith(("/", "~/")):
            relative.append(label)
    _warn(tx, "Locks of squawk.json that had expired, not imported", expired)
    _warn(tx, "Locks of squawk.json on files that are locked already, not imported", taken)
    _warn(tx, "Locks of squawk.json on relative paths, which guard no real file", relative)
    active = "locks WHERE id = :id AND status = 'active'"
    return _compare("locks", sum(_count(tx, active, id=lock) for lock in granted), len(granted))


def _lease(lock: OldLock, ctx: Context) -> tuple[int, int]:
    """Return when a lease began and ends: it begins no later than now, and its end is limited."""
    begun = min(ctx.now_ms if lock.acquired_ms is None else lock.acquired_ms, ctx.now_ms)
    until = begun + lock.timeout_ms if lock.expires_ms is None else lock.expires_ms
    return begun, min(until, ctx.now_ms + LONGEST_LEASE_MS)


def _grant(tx: Tx, ctx: Context, lock: OldLock, begun: int, until: int) -> str:
    claim = leases.LeaseRequest(
        path=lock.path,
        file=lock.file,
        agent_id=agent_name(lock.held_by),
        mission_id=None,
        purpose=redact(lock.purpose),
        timeout_ms=min(lock.timeout_ms, LONGEST_LEASE_MS),
    )
    row = leases.grant(tx, ctx, claim, activity=False)
    if row is None:
        raise AssertionError(f"{lock.path} was free and could not be locked")
    locks_change(tx, row["id"])
    tx.run(
        "UPDATE locks SET acquired_at = :begun, expires_at = :until WHERE id = :id",
        begun=ctx.at(begun - ctx.now_ms),
        until=ctx.at(until - ctx.now_ms),
        id=row["id"],
    )
    return str(row["id"])


def agent_name(mailbox: str) -> str:
    """Return the agent id of a mailbox: its own if valid, else always the same replacement."""
    if _AGENT_ID.match(mailbox):
        return mailbox
    readable = re.sub(r"[^A-Za-z0-9._:@-]+", "_", mailbox).lstrip("._:@-")[:48] or "mailbox"
    return f"{readable}-{hashlib.sha256(mailbox.encode()).hexdigest()[:12]}"


def event_data(old: Any, rest: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event; what has no other place is under ``legacy``."""
    data = {} if old is None else old
    if not isinstance(data, dict) or (rest and "legacy" in data):
        data = {"value": data}
    return {**data, "legacy": rest} if rest else data


def event_type(old: str) -> str:
    """Return an event type: the old one if valid, else the nearest valid one."""
    if _EVENT_TYPE.match(old):
        return old
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", old).lower()
    near = re.sub(r"[^a-z0-9_]+", "_", words).strip("_")[:64]
    return near if _EVENT_TYPE.match(near) else f"legacy_{near or 'event'}"[:64]


def _first_few(names: list[str]) -> str:
    """Return the first few names of a list, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:200] for name in names[:_SHOWN]) + more
