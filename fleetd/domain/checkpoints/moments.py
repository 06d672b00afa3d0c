"""Moments: the past state of a mission, from an earlier checkpoint and the changes after it.

The mission's events hold the changes (``core/changes``). No event records that activity prolongs
the leases of its agent: the replay computes this again.
"""

from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ...protocol.errors import Corrupt, Incompatible, InvalidParams, InvalidState
from ...protocol.events import MissionCreated, RecordsForgotten, StoreRestored
from ...protocol.records import (
    Lock,
    MissionState,
    Note,
    PendingMessage,
    SortieState,
    percent,
)
from ...protocol.requests.mission import MissionAt, MissionMoment
from ...protocol.timestamps import iso, to_ms
from ..core import changes
from ..core.changes import NOTE_CHANGES, Changes
from ..core.context import Context
from ..core.event_log import position, position_before
from ..core.ids import find
from ..core.mappers import columns_of, note_of
from ..core.registry import method
from ..core.soft_delete import LIVE
from ..core.sql import chunks, inside_of, named_params
from ..core.tx import Row, Tx
from .codec import from_row
from .state import WITHDRAWN_KEPT


class Moment(msgspec.Struct, frozen=True):
    """A position in the log, and the time at which leases are judged."""

    seq: int
    time: str


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The state and the event from which a mission's changes are replayed."""

    seq: int
    timestamp: str
    checkpoint_id: str | None = None
    mission: MissionState | None = None
    sorties: list[SortieState] = []
    locks: list[Lock] = []
    messages: list[PendingMessage] = []


@method(MissionAt)
def at(tx: Tx, ctx: Context, request: MissionAt) -> MissionMoment:
    """Return the state of a mission at a moment."""
    refuse_two(request.time, request.seq)
    mission = find(tx, "mission", request.mission_id)
    return state_at(tx, ctx, mission, find_moment(tx, ctx, request.time, request.seq))


def refuse_two(time: str | None, seq: int | None) -> None:
    """Refuse a request that names its moment twice, or not at all; raises InvalidParams."""
    if (time is None) == (seq is None):
        raise InvalidParams(
            "Neither time nor seq says which moment."
            if time is None
            else "time and seq exclude each other.",
            hint="Give one of them.",
            field="time",
        )


def find_moment(tx: Tx, ctx: Context, time: str | None, seq: int | None) -> Moment:
    """Return the moment of a time or of an event; raises InvalidParams for a future one."""
    return _after_event(tx, seq or 0) if time is None else _at_time(tx, ctx, time)


def _after_event(tx: Tx, seq: int) -> Moment:
    row = tx.one(
        "SELECT seq, timestamp FROM events WHERE seq <= :seq ORDER BY seq DESC LIMIT 1", seq=seq
    )
    if row is None or seq > position(tx):
        raise InvalidParams(
            f"There is no event {seq}.",
            hint=f"The newest event has seq {position(tx)}.",
            field="seq",
        )
    return Moment(seq, row["timestamp"])


def _at_time(tx: Tx, ctx: Context, time: str) -> Moment:
    """Return the position of a time in the log: after all events of that time.

    The order of events decides. If the clock was set back, the result is one of several possible
    positions.
    """
    if time > ctx.now:
        raise InvalidParams(
            f"{time} is in the future.", hint="Give a moment in the past.", field="time"
        )
    return Moment(position_before(tx, iso(to_ms(time) + 1), position(tx)), time)


def state_at(tx: Tx, ctx: Context, mission: Row, moment: Moment) -> MissionMoment:
    """Return the state of a mission at a moment; raises InvalidState if it is unknown."""
    replay = _replayed(tx, mission["id"], moment)
    if replay is None:
        raise _unknown(tx, mission, moment)
    plan = replay.plan()
    return MissionMoment(
        mission_id=mission["id"],
        seq=moment.seq,
        timestamp=moment.time,
        checkpoint_id=replay.base.checkpoint_id,
        mission=MissionState(**replay.mission, notes=_notes(tx, mission["id"], replay)),
        total_sorties=len(plan.sorties),
        completed_sorties=plan.completed,
        progress_percent=plan.progress_percent,
        sorties=plan.sorties,
        locks=_locks(tx, replay, moment),
        messages=_messages(tx, replay),
    )


def refuse_unknown_state(tx: Tx, mission: Row, moment: Moment) -> None:
    """Refuse a moment at which the state of a mission is unknown; raises InvalidState."""
    if _base(tx, mission["id"], moment) is None:
        raise _unknown(tx, mission, moment)


class Plan(msgspec.Struct, frozen=True):
    """A mission's own fields at a moment, as in MissionState, and its sorties in order."""

    mission: Row
    sorties: list[SortieState]

    @property
    def completed(self) -> int:
        """Return how many sorties were completed."""
        return sum(sortie.status == "completed" for sortie in self.sorties)

    @property
    def progress_percent(self) -> int:
        """Return the progress of the mission; a completed mission is at 100."""
        if self.mission["status"] == "completed":
            return 100
        return percent(self.completed, len(self.sorties))


def plan_at(tx: Tx, mission_id: str, moment: Moment) -> Plan | None:
    """Return the plan of a mission at a moment; None if unknown or before the mission began."""
    replay = _replayed(tx, mission_id, moment)
    if replay is None or not replay.mission:
        return None
    return replay.plan()


def _replayed(tx: Tx, mission_id: str, moment: Moment) -> "_Replay | None":
    base = _base(tx, mission_id, moment)
    if base is None:
        return None
    replay = _Replay(base)
    for row in tx.all(
        "SELECT seq, state_json FROM events WHERE mission_id = :mission"
        " AND state_json IS NOT NULL AND seq > :since AND seq <= :until ORDER BY seq",
        mission=mission_id,
        since=base.seq if base.checkpoint_id else base.seq - 1,
        until=moment.seq,
    ):
        replay.apply(row["seq"], changes.decode(row["state_json"]))
    return replay


def _floor(tx: Tx, seq: int) -> int:
    """Return the event from which the log is complete up to ``seq``.

    The log has a gap where the store was restored or records were forgotten.
    """
    found = 0
    for kind in (StoreRestored.type, RecordsForgotten.type):
        gap: int | None = tx.value(
            "SELECT max(seq) AS seq FROM events WHERE type = :type AND seq <= :seq",
            type=kind,
            seq=seq,
        )
        found = max(found, gap or 0)
    # Events from before the store kept changes have none.
    kept_from: Any = tx.value("SELECT value FROM store_meta WHERE key = 'moments_from'")
    return max(found, int(kept_from or 0))


_WHOLE = f"mission_id = :mission AND {LIVE} AND undo = 0 AND warnings_json = '[]'"


def _base(tx: Tx, mission_id: str, moment: Moment) -> Base | None:
    """Return the newest readable checkpoint before a moment, else the mission's creation.

    A checkpoint that was cut to its limits is skipped. So is one at the same position in the log
    with a later time: leases may have expired in between.
    """
    floor, before = _floor(tx, moment.seq), moment.seq
    while True:
        row = tx.one(
            f"SELECT * FROM checkpoints WHERE {_WHOLE} AND seq <= :before AND seq >= :floor"
            " AND timestamp <= :time ORDER BY seq DESC LIMIT 1",
            mission=mission_id,
            before=before,
            floor=floor,
            time=moment.time,
        )
        if row is None:
            break
        try:
            taken = from_row(row)
        except (Corrupt, Incompatible):
            before = row["seq"] - 1
            continue
        if taken.mission is not None:
            return Base(
                seq=taken.seq,
                timestamp=taken.timestamp,
                checkpoint_id=taken.id,
                mission=taken.mission,
                sorties=taken.sorties,
                locks=taken.active_locks,
                messages=taken.pending_messages,
            )
        before = row["seq"] - 1
    row = tx.one(
        "SELECT seq, timestamp FROM events WHERE mission_id = :mission AND type = :type"
        " AND seq > :floor AND seq <= :until AND state_json IS NOT NULL ORDER BY seq LIMIT 1",
        mission=mission_id,
        type=MissionCreated.type,
        floor=floor,
        until=moment.seq,
    )
    return Base(seq=row["seq"], timestamp=row["timestamp"]) if row else None


def _unknown(tx: Tx, mission: Row, moment: Moment) -> InvalidState:
    """Return the error that tells since when the state of a mission is known."""
    created = mission["created_at"]
    if moment.time < created:
        return InvalidState(
            f"At {moment.time} there was no mission {mission['id']}; it was created at {created}.",
            hint="Give a later time. A time of day without a date is the last one that has passed.",
            since=created,
        )
    since = tx.value(
        f"SELECT timestamp FROM checkpoints WHERE {_WHOLE} AND seq >= :seq AND timestamp > :time"
        " AND seq >= :floor ORDER BY seq LIMIT 1",
        mission=mission["id"],
        seq=moment.seq,
        time=moment.time,
        floor=_floor(tx, position(tx)),
    )
    if since is None:
        return InvalidState(
            f"The state of mission {mission['id']} at {moment.time} is not known, and there is no"
            " checkpoint after it.",
            hint=f"It is known from the next checkpoint on: fleetctl checkpoint --mission"
            f" {mission['id']}",
            since=None,
        )
    return InvalidState(
        f"The state of mission {mission['id']} is known since {since}, not at {moment.time}.",
        hint="Give a later moment.",
        since=since,
    )


class _Lease(msgspec.Struct):
    """A lock as known at an event; activity does not prolong an ``orphaned`` one."""

    lock: Lock
    seq: int
    orphaned: bool | None = None


class _Replay:
    """The state of a mission during its replay from the base to a moment."""

    def __init__(self, base: Base) -> None:
        self.base = base
        known = base.mission
        self.mission: dict[str, Any] = msgspec.structs.asdict(known) if known else {}
        self.notes: dict[str, Note | None] = {n.id: n for n in self.mission.pop("notes", ())}
        self.fates: dict[str, Row] = {}
        self.sorties = {sortie.id: sortie for sortie in base.sorties}
        self.messages = {message.id: message.to for message in base.messages}
        # The known states of each lease, in the order of events.
        self.leases: dict[str, list[_Lease]] = {
            lock.id: [_Lease(lock, base.seq)] for lock in base.locks
        }

    def plan(self) -> Plan:
        """Return the mission and its sorties as replayed so far."""
        return Plan(self.mission, sorted(self.sorties.values(), key=attrgetter("position")))

    def apply(self, seq: int, delta: Changes) -> None:
        """Apply the changes of an event."""
        self.mission.update(delta.mission)
        for sortie_id, fields in delta.sorties.items():
            if fields is None:
                self.sorties.pop(sortie_id, None)
            elif (known := self.sorties.get(sortie_id)) is not None:
                self.sorties[sortie_id] = msgspec.structs.replace(known, **fields)
            else:
                self.sorties[sortie_id] = SortieState(id=sortie_id, **fields)
        for lock_id, fields in delta.locks.items():
            if fields is None:
                self.leases.pop(lock_id, None)
            else:
                lease = _Lease(Lock(id=lock_id, **fields), seq)
                self.leases.setdefault(lock_id, []).append(lease)
        for lock_id, orphaned in delta.orphans.items():
            if steps := self.leases.get(lock_id):
                steps.append(_Lease(steps[-1].lock, seq, orphaned))
        self.messages.update(delta.messages)
        for note_id, fields in delta.notes.items():
            if fields is None:
                self.notes.pop(note_id, None)
                self.fates.pop(note_id, None)
            else:
                self.notes.setdefault(note_id, None)
                self.fates.setdefault(note_id, {}).update(fields)


def _notes(tx: Tx, mission_id: str, replay: _Replay) -> list[Note]:
    """Return the notes of a moment, without those that were forgotten since."""
    rows = _rows(tx, "notes", replay.notes)
    found = []
    for note_id, known in replay.notes.items():
        row = rows.get(note_id)
        if row is None:
            continue
        fate = dict.fromkeys(NOTE_CHANGES)
        if known is not None:
            fate = {name: getattr(known, name) for name in NOTE_CHANGES}
        fate |= replay.fates.get(note_id, {})
        found.append(note_of({**row, **fate, "mission_id": mission_id}))
    found.sort(key=attrgetter("seq", "id"))
    withdrawn = [note for note in found if note.withdrawn_at is not None]
    dropped = {note.id for note in withdrawn[: max(0, len(withdrawn) - WITHDRAWN_KEPT)]}
    return [note for note in found if note.id not in dropped]


def _messages(tx: Tx, replay: _Replay) -> list[PendingMessage]:
    """Return the messages that waited, without those that were forgotten since."""
    waiting = {message_id: to for message_id, to in replay.messages.items() if to}
    rows = sorted(_rows(tx, "messages", waiting).values(), key=itemgetter("seq"))
    return [
        PendingMessage(to=waiting[row["id"]], **columns_of(PendingMessage, row)) for row in rows
    ]


def _rows(tx: Tx, table: str, ids: Iterable[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for some in chunks(sorted(ids)):
        rows = tx.all(
            f"SELECT * FROM {table} WHERE id IN ({inside_of('id', some)})",
            **named_params("id", some),
        )
        found |= {row["id"]: row for row in rows}
    return found


def _locks(tx: Tx, replay: _Replay, moment: Moment) -> list[Lock]:
    """Return the locks whose leases had not expired, each prolonged by its holder's activity."""
    first: dict[str, int] = {}
    for steps in replay.leases.values():
        holder = steps[-1].lock.held_by
        first[holder] = min(first.get(holder, steps[0].seq), steps[0].seq)
    activity = {
        holder: [
            (row["seq"], row["timestamp"])
            for row in tx.all(
                "SELECT seq, timestamp FROM events WHERE agent_id = :agent AND seq > :since"
                " AND seq <= :until AND activity = 1 ORDER BY seq",
                agent=holder,
                since=since,
                until=moment.seq,
            )
        ]
        for holder, since in first.items()
    }
    orphans = _orphans(tx, replay)
    found = []
    for lock_id, steps in replay.leases.items():
        lock = _prolonged(steps, activity[steps[-1].lock.held_by], orphaned=lock_id in orphans)
        if (lock.expires_at or "") > moment.time:
            found.append(lock)
    return sorted(found, key=attrgetter("acquired_at", "id"))


def _orphans(tx: Tx, replay: _Replay) -> set[str]:
    """Return the locks whose holder was lost before the base: a checkpoint does not record it."""
    from_base = [
        lock_id for lock_id, steps in replay.leases.items() if steps[0].seq == replay.base.seq
    ]
    found = {
        lock_id
        for lock_id, row in _rows(tx, "locks", from_base).items()
        if row["orphaned_at"] is not None and row["orphaned_at"] <= replay.base.timestamp
    }
    for lock_id in from_base:
        flags = [step.orphaned for step in replay.leases[lock_id] if step.orphaned is not None]
        if flags:
            found.discard(lock_id)
            if flags[0] is False:
                found.add(lock_id)
    return found


def prolonged(lock: Lock, seq: int, activity: list[tuple[int, str]], *, orphaned: bool) -> Lock:
    """Return a lock with its lease as prolonged by its holder's activity since an event."""
    return _prolonged([_Lease(lock, seq)], activity, orphaned=orphaned)


def _prolonged(steps: list[_Lease], activity: list[tuple[int, str]], *, orphaned: bool) -> Lock:
    """Return a lock with its lease as prolonged by its holder's activity."""
    lock, expires = steps[0].lock, steps[0].lock.expires_at or ""
    ahead = steps[1:]
    for seq, at_time in activity:
        if seq <= steps[0].seq:
            continue
        while ahead and ahead[0].seq <= seq:
            lock, expires, orphaned = _next(ahead.pop(0), lock, expires, orphaned)
        until = iso(to_ms(at_time) + lock.timeout_ms)
        if not orphaned and not lock.automatic and at_time < expires < until:
            expires = until
    for step in ahead:
        lock, expires, orphaned = _next(step, lock, expires, orphaned)
    return msgspec.structs.replace(lock, expires_at=expires)


def _next(step: _Lease, lock: Lock, expires: str, orphaned: bool) -> tuple[Lock, str, bool]:
    if step.orphaned is not None:
        return lock, expires, step.orphaned
    return step.lock, step.lock.expires_at or "", orphaned
