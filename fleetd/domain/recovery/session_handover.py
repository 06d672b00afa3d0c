"""What a take-over is beside the handing over: the successor's session comes along, or goes back.

One part of recovery; must not hand over what the lost agent had.
"""

import msgspec

from ...protocol.types import CLOSED_SORTIE
from ..checkpoints.state import State
from ..core.tx import Row, Tx
from ..locks import leases
from ..locks.keys import of_lock
from ..locks.names import file_from_here
from ..sessions import merge, notices
from . import state
from .restore_context import Case

_strings = msgspec.json.Decoder(list[str]).decode


def hands_over(case: Case, before: State) -> bool:
    """Whether a take-over would change who has what; ``before`` is what is there."""
    lost, successor = case.request.take_over_from, case.request.agent_id
    if lost is None:
        return False
    rows = {
        row["id"]: row
        for row in case.tx.all(
            "SELECT * FROM agents WHERE id IN (:lost, :heir)", lost=lost, heir=successor
        )
    }
    if lost not in rows or rows[lost]["succeeded_by"] != successor:
        return True
    if successor in rows and rows[successor]["mission_id"] != case.mission_id:
        return True
    has = {sortie.assigned_to for sortie in before.sorties if sortie.status not in CLOSED_SORTIE}
    has |= {lock.held_by for lock in before.locks}
    return lost in has.union(*(message.to for message in before.messages))


def bring_in(case: Case) -> str | None:
    """Move the successor's session into the mission, and have it told; return where it was.

    Comes after everything that was restored, so that what the session brings along is no part of
    it, and after the milestones were set: more sorties alone let none of them be passed twice.
    """
    lost, successor = case.request.take_over_from, case.request.agent_id
    if lost is None or successor is None:
        return None
    role = case.tx.value("SELECT role FROM agents WHERE id = :id", id=lost)
    moved = merge.move_in(case.tx, case.ctx, successor, case.mission_id, role)
    if _can_be_told(case.tx, successor):
        word = notices.Word("to", lost, case.mission_id)
        notices.remember(case.tx, successor, word)
    if moved is None:
        return case.mission_id
    _note_move(case, successor, moved, case.mission_id)
    return moved.left


def _can_be_told(tx: Tx, agent_id: str) -> bool:
    """Whether hooks speak for an agent, or may: nobody knows of one that is still to begin."""
    known = tx.one("SELECT 1 AS known FROM agents WHERE id = :id", id=agent_id)
    session = tx.one("SELECT 1 AS known FROM sessions WHERE agent_id = :id", id=agent_id)
    return known is None or session is not None


def _note_move(case: Case, agent_id: str, moved: merge.SessionMove, into: str) -> None:
    """Note in the ledger what moved with a session, and that nobody waits for it where it was."""
    if moved.left:
        state.go_on_elsewhere(case.tx, case.ctx, moved.left, moved.windows)
    source = moved.left or "no mission"
    case.ledger.changed("agent", agent_id, f"in {source}", f"in {into}")
    for row in moved.sorties:
        case.ledger.changed("sortie", row["id"], f"in {source}", f"in {into}")
    if moved.left and moved.ended:
        case.ledger.changed("mission", moved.left, "in_progress", f"merged into {into}")
    if moved.reopened:
        case.ledger.changed("mission", into, f"merged into {source}", "in_progress")


_UNDONE = (
    "EXISTS (SELECT 1 FROM recoveries since WHERE since.mission_id = r.mission_id"
    " AND since.checkpoint_id = r.undo_checkpoint_id AND since.scope = 'mission'"
    " AND since.taken_over_from IS NULL AND since.briefed_at IS NOT NULL AND since.seq > r.seq)"
)


def undone_by(case: Case) -> Row | None:
    """Return the recovery that this one undoes, if that was a take-over nobody followed up on.

    Its undo checkpoint has to be named, for the whole mission. A lost agent that came back has no
    successor any more, but the one it had has its work still, until that is undone.
    """
    if case.request.checkpoint_id is None or case.narrow or case.request.take_over_from:
        return None
    return case.tx.one(
        "SELECT r.*, a.succeeded_by FROM recoveries r JOIN agents a ON a.id = r.taken_over_from"
        " WHERE r.mission_id = :mission AND r.undo_checkpoint_id = :checkpoint"
        f" AND (a.succeeded_by = r.agent_id OR (a.succeeded_by IS NULL AND NOT {_UNDONE}))"
        " ORDER BY r.seq DESC LIMIT 1",
        mission=case.mission_id,
        checkpoint=case.checkpoint.id,
    )


def take_back(case: Case) -> bool:
    """Undo what a take-over did beside the mission's own state; False where none is undone.

    The lost agent has no successor any more, its letters wait for it again, and the successor's
    session goes back to where it was, with whatever it did not get by the take-over. A lost agent
    that came back was told what it had lost, so it is told that too.
    """
    undone = case.undoes
    if undone is None:
        return False
    tx, lost, successor = case.tx, undone["taken_over_from"], undone["agent_id"]
    tx.run("UPDATE agents SET succeeded_by = NULL WHERE id = :id", id=lost)
    for letter in case.checkpoint.pending_messages:
        if lost in letter.to:
            _take_letter_back(tx, letter.id, successor)
    _take_locks_back(case, undone)
    if _can_be_told(tx, successor):
        notices.remember(tx, successor, notices.Word("back", lost))
    if undone["succeeded_by"] is None and _can_be_told(tx, lost):
        notices.remember(tx, lost, notices.Word("again", successor))
    known = {sortie.id for sortie in case.checkpoint.sorties}
    left = undone["left_mission_id"]
    if left == case.mission_id:  # it was there before, too
        return True
    moved = merge.move_back(tx, case.ctx, successor, case.mission_id, left, known)
    if moved is not None:
        _note_move(case, successor, moved, left or "no mission")
    return True


def _take_locks_back(case: Case, undone: Row) -> None:
    """Release what the successor locked only by the take-over, and nobody gets back."""
    given_back = {of_lock(lock) for lock in case.checkpoint.active_locks}
    rows = case.tx.all(
        "SELECT * FROM locks WHERE held_by = :successor AND status = 'active'"
        " AND (mission_id = :mission OR mission_id IS NULL) AND acquired_at = :then ORDER BY id",
        successor=undone["agent_id"],
        mission=case.mission_id,
        then=undone["briefed_at"],
    )
    for row in rows:
        if row["normalized_path"] not in given_back:
            leases.end_held(case.tx, case.ctx, row, activity=False)
            name = file_from_here(case.tx, case.ctx, row)
            case.ledger.released.append(name)
            case.ledger.changed("lock", name, f"held by {row['held_by']}", "released")


def _take_letter_back(tx: Tx, message_id: str, successor: str) -> None:
    """Take a letter from a successor that has not dealt with it, unless it was sent there too."""
    sent_to = tx.value("SELECT to_json FROM messages WHERE id = :id", id=message_id)
    if sent_to is None or successor not in _strings(sent_to):
        tx.run(
            "DELETE FROM deliveries WHERE message_id = :id AND agent_id = :successor"
            " AND status <> 'acked'",
            id=message_id,
            successor=successor,
        )
