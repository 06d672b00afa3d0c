"""State capture: a mission at one moment, with its sorties, locks and messages."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter, itemgetter

import msgspec
from msgspec import Raw

from ...protocol.records import Lock, MissionState, Note, PendingMessage, SortieState
from ...protocol.types import MissionOrigin
from ..core.context import Context
from ..core.mappers import columns_of, lock_of, note_of, states_of
from ..core.tx import Row, Tx

_canonical = msgspec.json.Encoder(order="sorted").encode
# How many of the withdrawn notes a checkpoint keeps: the newest.
WITHDRAWN_KEPT = 50
_material = attrgetter(*(f for f in SortieState.__struct_fields__ if f != "updated_at"))


class Sorties:
    """The sorties of a mission, and their canonical JSON, which is encoded only once."""

    def __init__(self, states: list[SortieState]) -> None:
        self.states = states
        self.canonical = _canonical(states).decode()

    @property
    def size(self) -> int:
        """Return about how many bytes they take: twice as JSON, once as records."""
        return 3 * len(self.canonical)

    @cached_property
    def material(self) -> bytes:
        """Return the JSON of their material fields."""
        return _canonical([_material(sortie) for sortie in self.states])


class State(msgspec.Struct, frozen=True):
    """The state of a mission that a checkpoint keeps and a recovery restores."""

    mission: Row
    sorties: list[SortieState]
    locks: list[Lock]
    messages: list[PendingMessage]
    kept: Sorties | None = None
    """The same sorties, where their JSON may be known already."""
    notes: Sequence[Note] = ()
    """A recovery does not restore notes: they are never taken back."""

    def mission_state(self) -> MissionState:
        """Return the fields that restore the mission's own row."""
        automatic = self.mission["origin"] == "session"
        known = columns_of(MissionState, self.mission)
        return MissionState(automatic=automatic, **known, notes=[*self.notes])

    def was_noted_since(self, time: str) -> bool:
        """Return whether a note was added, pinned or withdrawn since a time."""
        return any(
            at is not None and at > time
            for note in self.notes
            for at in (note.created_at, note.pinned_at, note.withdrawn_at)
        )

    def digest(self) -> str:
        """Return a hash of all that is restored; lock holders count, times and leases do not."""
        material = (
            self.mission["status"],
            Raw(self.kept.material if self.kept else Sorties(self.sorties).material),
            sorted((lock.normalized_path, lock.held_by) for lock in self.locks),
            [(message.id, message.to) for message in self.messages],
        )
        return hashlib.sha256(_canonical(material)).hexdigest()


def origin_of(known: MissionState | None) -> MissionOrigin:
    """Return a mission's origin as a checkpoint knows it: a person's mission is never deleted."""
    return "session" if known is not None and known.automatic else "person"


def capture(tx: Tx, ctx: Context, mission: Row, sorties: list[SortieState] | None = None) -> State:
    """Read the state of a mission as it is now; ``sorties`` if they were just read."""
    mission_id, kept = mission["id"], None
    if sorties is None:
        kept = tx.of_sorties(mission_id, lambda: Sorties(states_of(tx, mission_id)))
        sorties = list(kept.states)
    locks, messages = active_locks(tx, ctx, mission_id), queued_messages(tx, mission_id)
    return State(mission, sorties, locks, messages, kept, notes_of(tx, mission_id))


def notes_of(tx: Tx, mission_id: str) -> list[Note]:
    """Return a mission's valid notes and its newest withdrawn ones, oldest first."""
    rows = tx.all(
        "SELECT * FROM notes WHERE mission_id = :id AND withdrawn_at IS NULL"
        " UNION ALL SELECT * FROM (SELECT * FROM notes WHERE mission_id = :id"
        " AND withdrawn_at IS NOT NULL ORDER BY seq DESC LIMIT :most) AS withdrawn",
        id=mission_id,
        most=WITHDRAWN_KEPT,
    )
    return [note_of(row) for row in sorted(rows, key=itemgetter("seq", "id"))]


def active_locks(tx: Tx, ctx: Context, mission_id: str) -> list[Lock]:
    """Return the locks of a mission whose lease has not expired, oldest first."""
    rows = tx.all(
        "SELECT * FROM locks WHERE mission_id = :id AND status = 'active' AND expires_at > :now",
        id=mission_id,
        now=ctx.now,
    )
    # There are nearly always few: SQLite's sorter would cost more than the rest of this.
    return [lock_of(row) for row in sorted(rows, key=itemgetter("acquired_at", "id"))]


def queued_messages(tx: Tx, mission_id: str) -> list[PendingMessage]:
    """Return the messages of a mission that somebody has not received, oldest first."""
    rows = tx.all(
        "SELECT m.*, d.agent_id AS recipient FROM messages m"
        " JOIN deliveries d ON d.message_id = m.id AND d.status = 'queued'"
        " WHERE m.mission_id = :id ORDER BY m.seq, d.agent_id",
        id=mission_id,
    )
    found: dict[str, PendingMessage] = {}
    for row in rows:
        if row["id"] in found:
            found[row["id"]].to.append(row["recipient"])
        else:
            found[row["id"]] = PendingMessage(
                to=[row["recipient"]], **columns_of(PendingMessage, row)
            )
    return list(found.values())
