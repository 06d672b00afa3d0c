"""Changes of a mission's state, stored with the event that carries them.

A checkpoint and the changes after it are the state at any moment. A rule that writes a row of a
mission's state reports it here. The mission's next event in the same transaction carries the
change, else the last one before.
"""

from typing import Any

import msgspec

from ...protocol.records import Record
from .assigned import encode_json
from .tx import Row, Tx


class Changes(msgspec.Struct, omit_defaults=True):
    """What changed in a mission: by the ids of records, the fields with their new values.

    None is a record that is no longer part of the mission.
    """

    mission: dict[str, Any] = {}
    sorties: dict[str, dict[str, Any] | None] = {}
    locks: dict[str, dict[str, Any] | None] = {}
    orphans: dict[str, bool] = {}
    """By lock: True when its holder's activity no longer prolongs it, False when it does again."""
    messages: dict[str, list[str]] = {}
    """The agents that have not received a message yet; its text is in its own row."""
    notes: dict[str, dict[str, Any] | None] = {}
    """The fields of a note that can change; the others are in its own row."""


# The fields of a note that can change.
NOTE_CHANGES = ("pinned_at", "withdrawn_at", "withdrawn_by", "withdrawn_reason", "came_from")
decode = msgspec.json.Decoder(Changes).decode


def as_json(changes: Changes) -> str:
    """Return changes in the form of an event's column."""
    return encode_json(changes).decode()


def _of(tx: Tx, mission_id: str) -> Changes:
    found: Changes = tx.changes.setdefault(mission_id, Changes())
    return found


def mission_changed(tx: Tx, mission_id: str, fields: Row) -> None:
    """Keep new values of a mission's own fields."""
    _of(tx, mission_id).mission.update(fields)


def sortie_changed(tx: Tx, mission_id: str, sortie_id: str, fields: Row | None) -> None:
    """Keep new values of a sortie's fields; None for one that left its mission."""
    _merge(_of(tx, mission_id).sorties, sortie_id, fields)


def lock_changed(tx: Tx, mission_id: str | None, lock_id: str, fields: Row | None) -> None:
    """Keep new values of a lock's fields; None for one that ended or went elsewhere."""
    if mission_id is not None:
        _merge(_of(tx, mission_id).locks, lock_id, fields)


def lock_orphaned(tx: Tx, mission_id: str | None, lock_id: str, orphaned: bool) -> None:
    """Keep whether a lock waits for a holder that is lost."""
    if mission_id is not None:
        _of(tx, mission_id).orphans[lock_id] = orphaned


def queue_changed(tx: Tx, mission_id: str | None, message_id: str, to: list[str]) -> None:
    """Keep the agents that have not received a message yet."""
    if mission_id is not None:
        _of(tx, mission_id).messages[message_id] = sorted(to)


def note_changed(tx: Tx, mission_id: str, note_id: str, fields: Row | None) -> None:
    """Keep new values of a note's fields; None for one that left its mission."""
    _merge(_of(tx, mission_id).notes, note_id, fields)


def _merge(into: dict[str, dict[str, Any] | None], record_id: str, fields: Row | None) -> None:
    into[record_id] = None if fields is None else {**(into.get(record_id) or {}), **fields}


def fields_of(record: Record) -> Row:
    """Return all fields of a record except its id."""
    fields = msgspec.structs.asdict(record)
    del fields["id"]
    return fields


def merged(before: Changes, after: Changes) -> Changes:
    """Return two successive changes as one."""
    for names in ("sorties", "locks", "notes"):
        into = getattr(before, names)
        for record_id, fields in getattr(after, names).items():
            _merge(into, record_id, fields)
    before.mission.update(after.mission)
    before.orphans.update(after.orphans)
    before.messages.update(after.messages)
    return before
