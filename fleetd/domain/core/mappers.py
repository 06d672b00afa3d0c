"""Row mappers: rows into records, a function per noun."""

from typing import Any

import msgspec

from ...protocol import endings
from ...protocol.records import (
    Agent,
    AgentNote,
    CheckpointSummary,
    Delivery,
    Lock,
    Message,
    Mission,
    Recovery,
    SortieState,
    percent,
)
from .tx import Row, Tx

_strings = msgspec.json.Decoder(list[str]).decode
_note = msgspec.json.Decoder(AgentNote).decode
_FILES = SortieState.__struct_fields__.index("files")
_STATE = ", ".join(
    "files_json" if name == "files" else name for name in SortieState.__struct_fields__
)
_metadata = msgspec.json.Decoder(dict[str, Any]).decode


def mission_of(tx: Tx, row: Row) -> Mission:
    """Build a Mission from its row."""
    return Mission(
        id=row["id"],
        title=row["title"],
        description=row["description"],
        status=row["status"],
        priority=row["priority"],
        project_dir=row["project_dir"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        last_activity_at=row["last_activity_at"],
        total_sorties=row["total_sorties"],
        completed_sorties=row["completed_sorties"],
        progress_percent=percent(row["completed_sorties"], row["total_sorties"]),
        metadata=_metadata(row["metadata_json"]),
        machine=row["machine"] or None,
        project=row["project"],
        origin=row["origin"],
        closed_reason=row["closed_reason"],
        author=row["author"],
        merged_into=_merged_into(tx, row) if row["closed_reason"] == "merged" else None,
    )


def _merged_into(tx: Tx, mission: Row) -> str | None:
    """Return the mission that one was merged into: by the take-over that ended it."""
    found: str | None = tx.value(
        "SELECT mission_id FROM recoveries WHERE left_mission_id = :id AND briefed_at = :then"
        " ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
        then=mission["completed_at"],
    )
    return found


def ended_as(mission: Row) -> str:
    """Return what a mission is, in words that tell an end of its session from a person's."""
    return endings.ended(mission["status"], mission["closed_reason"])


def states_of(tx: Tx, mission_id: str) -> list[SortieState]:
    """Return every sortie of a mission in order, as a checkpoint keeps it.

    There may be thousands, and every checkpoint reads them: tuples take half the time of rows, and
    nobody needs the sorties' recovery contexts here.
    """
    rows = tx.tuples(
        f"SELECT {_STATE} FROM sorties WHERE mission_id = :id ORDER BY position", id=mission_id
    )
    return [_state_of(list(row)) for row in rows]


def _state_of(fields: list[Any]) -> SortieState:
    fields[_FILES] = _strings(fields[_FILES])
    return SortieState(*fields)


def agent_of(row: Row) -> Agent:
    """Build an Agent from its row."""
    return Agent(
        id=row["id"],
        role=row["role"],
        harness=row["harness"],
        session_id=row["session_id"],
        pid=row["pid"],
        mission_id=row["mission_id"],
        cwd=row["cwd"],
        status=row["status"],
        registered_at=row["registered_at"],
        last_seen_at=row["last_seen_at"],
        note=_note(row["note_json"]) if row["note_json"] else None,
        machine=row["machine"] or None,
        needs=row["needs"],
        needs_since=row["needs_since"],
    )


def lock_of(row: Row) -> Lock:
    """Build a Lock from its row."""
    return Lock(
        id=row["id"],
        file=row["file"],
        normalized_path=row["normalized_path"],
        held_by=row["held_by"],
        mission_id=row["mission_id"],
        purpose=row["purpose"],
        acquired_at=row["acquired_at"],
        expires_at=row["expires_at"],
        timeout_ms=row["timeout_ms"],
        fencing_token=row["fencing_token"],
        status=row["status"],
        released_at=row["released_at"],
    )


def message_of(tx: Tx, row: Row) -> Message:
    """Build a Message, with its deliveries, from its row."""
    deliveries = tx.all(
        "SELECT * FROM deliveries WHERE message_id = :id ORDER BY agent_id", id=row["id"]
    )
    to = _strings(row["to_json"])
    rank = {agent_id: index for index, agent_id in enumerate(to)}
    found = [
        Delivery(
            agent_id=delivery["agent_id"],
            status=delivery["status"],
            delivered_at=delivery["delivered_at"],
            acked_at=delivery["acked_at"],
            attempts=delivery["attempts"],
        )
        for delivery in deliveries
    ]
    # A successor's delivery stands behind those of those the message was addressed to.
    found.sort(key=lambda delivery: rank.get(delivery.agent_id, len(to)))
    return Message(
        id=row["id"],
        mission_id=row["mission_id"],
        thread_id=row["thread_id"],
        sender=row["sender"],
        to=to,
        subject=row["subject"],
        body=row["body"],
        priority=row["priority"],
        sent_at=row["sent_at"],
        deliveries=found,
    )


def summary_of(row: Row) -> CheckpointSummary:
    """Build one line of a list of checkpoints from its row."""
    return CheckpointSummary(
        id=row["id"],
        mission_id=row["mission_id"],
        timestamp=row["timestamp"],
        trigger=row["trigger"],
        trigger_details=row["trigger_details"],
        progress_percent=row["progress_percent"],
        sortie_count=row["sortie_count"],
        lock_count=row["lock_count"],
        message_count=row["message_count"],
        size_bytes=row["size_bytes"],
        consumed_at=row["consumed_at"],
        undo=bool(row["undo"]),
    )


def recovery_of(row: Row) -> Recovery:
    """Build a Recovery from its row."""
    return Recovery(
        id=row["id"],
        mission_id=row["mission_id"],
        checkpoint_id=row["checkpoint_id"],
        undo_checkpoint_id=row["undo_checkpoint_id"],
        agent_id=row["agent_id"],
        requested_by=row["requested_by"],
        scope=row["scope"],
        state=row["state"],
        created_at=row["created_at"],
        briefed_at=row["briefed_at"],
        resumed_at=row["resumed_at"],
    )
