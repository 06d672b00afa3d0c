"""Row mappers: turn rows into records, with a function per noun."""

from typing import Any

import msgspec

from ...protocol import endings
from ...protocol.records import (
    Agent,
    CheckpointSummary,
    Delivery,
    Handoff,
    Lock,
    Message,
    Mission,
    Note,
    Recovery,
    SortieState,
    WorkNote,
    percent,
)
from .tx import Row, Tx

_strings = msgspec.json.Decoder(list[str]).decode
_note = msgspec.json.Decoder(WorkNote).decode
SORTIE_LISTS = ("files", "depends_on")
_FILES, _DEPENDS_ON = map(SortieState.__struct_fields__.index, SORTIE_LISTS)
_STATE = ", ".join(
    f"{name}_json" if name in SORTIE_LISTS else name for name in SortieState.__struct_fields__
)
_metadata = msgspec.json.Decoder(dict[str, Any]).decode


def columns_of(kind: type[msgspec.Struct], row: Row) -> Row:
    """Return the fields of a record that are columns of its row, under the same names."""
    return {name: row[name] for name in kind.__struct_fields__ if name in row}


def mission_of(tx: Tx, row: Row) -> Mission:
    """Build a Mission from its row."""
    derived = {
        "progress_percent": percent(row["completed_sorties"], row["total_sorties"]),
        "metadata": _metadata(row["metadata_json"]),
        "machine": row["machine"] or None,
        "merged_into": _merged_into(tx, row) if row["closed_reason"] == "merged" else None,
    }
    return Mission(**columns_of(Mission, row) | derived)


def _merged_into(tx: Tx, mission: Row) -> str | None:
    """Return the mission that ``mission`` was merged into, by the take-over that ended it."""
    found: str | None = tx.value(
        "SELECT mission_id FROM recoveries WHERE left_mission_id = :id AND briefed_at = :then"
        " ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
        then=mission["completed_at"],
    )
    return found


def ended_as(mission: Row) -> str:
    """Return a mission's state in words that show whether its session or a person ended it."""
    return endings.ended(mission["status"], mission["closed_reason"])


def states_of(tx: Tx, mission_id: str) -> list[SortieState]:
    """Return every sortie of a mission in order, as a checkpoint keeps it.

    There may be thousands, and every checkpoint reads them. Tuples take half the time of rows, and
    no caller needs the sorties' recovery contexts.
    """
    rows = tx.tuples(
        f"SELECT {_STATE} FROM sorties WHERE mission_id = :id ORDER BY position", id=mission_id
    )
    return [_state_of(list(row)) for row in rows]


def state_of(row: Row) -> SortieState:
    """Return a sortie as a checkpoint keeps it, by its row."""
    names = SortieState.__struct_fields__
    return _state_of([row[f"{n}_json" if n in SORTIE_LISTS else n] for n in names])


def _state_of(fields: list[Any]) -> SortieState:
    fields[_FILES] = _strings(fields[_FILES])
    # Nearly every sortie depends on none.
    fields[_DEPENDS_ON] = [] if fields[_DEPENDS_ON] == "[]" else _strings(fields[_DEPENDS_ON])
    return SortieState(*fields)


def agent_of(row: Row) -> Agent:
    """Build an Agent from its row."""
    note = _note(row["note_json"]) if row["note_json"] else None
    return Agent(**columns_of(Agent, row) | {"note": note, "machine": row["machine"] or None})


def lock_of(row: Row) -> Lock:
    """Build a Lock from its row."""
    return Lock(**columns_of(Lock, row) | {"automatic": bool(row["automatic"])})


def message_of(row: Row, deliveries: list[Row]) -> Message:
    """Build a Message from its row and its deliveries' rows, which are sorted by agent."""
    to = _strings(row["to_json"])
    rank = {agent_id: index for index, agent_id in enumerate(to)}
    found = [Delivery(**columns_of(Delivery, delivery)) for delivery in deliveries]
    # A successor's delivery comes after those of the addressed agents.
    found.sort(key=lambda delivery: rank.get(delivery.agent_id, len(to)))
    return Message(to=to, deliveries=found, **columns_of(Message, row))


def summary_of(row: Row) -> CheckpointSummary:
    """Build one line of a list of checkpoints from its row."""
    return CheckpointSummary(**columns_of(CheckpointSummary, row) | {"undo": bool(row["undo"])})


def note_of(row: Row) -> Note:
    """Build a Note from its row."""
    return Note(**columns_of(Note, row))


def recovery_of(row: Row) -> Recovery:
    """Build a Recovery from its row."""
    return Recovery(**columns_of(Recovery, row))


def handoff_of(tx: Tx, row: Row, now: str) -> Handoff:
    """Build a Handoff from its row; one that has waited too long for its session has expired."""
    derived: Row = tx.all(
        "SELECT m.title AS mission_title, coalesce(a.cwd, m.project_dir) AS cwd"
        " FROM missions m, agents a WHERE m.id = :mission AND a.id = :agent",
        mission=row["mission_id"],
        agent=row["agent_id"],
    )[0]
    if row["state"] == "pending" and row["expires_at"] < now:
        derived |= {"state": "expired", "ended_at": row["expires_at"]}
    return Handoff(**columns_of(Handoff, row) | derived)
