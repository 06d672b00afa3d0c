"""Hand-over: a lost agent's work, locks and mail go to its successor, or come back from it.

The successor's session comes along into the mission, and goes back when the take-over is undone.
"""

import msgspec

from ...protocol.durations import duration
from ...protocol.errors import InvalidState
from ...protocol.timestamps import to_ms
from ...protocol.types import CLOSED_SORTIE
from ..agents import mailbox
from ..agents.agents import mark_lost
from ..checkpoints.state import State
from ..cluster import membership
from ..cluster.membership import on_another
from ..core.context import Context
from ..core.mappers import states_of
from ..core.tx import Row, Tx
from ..locks import leases
from ..locks.keys import file_from_here, of_lock
from ..sessions import merge, notices
from . import state
from .restore_context import Case, refuse_stranger

_strings = msgspec.json.Decoder(list[str]).decode


def note_dead(tx: Tx, ctx: Context, mission_id: str, also: str | None) -> None:
    """Mark a mission's agents lost whose processes are known to be gone; ``also`` one more."""
    for agent_id in sorted(ctx.facts.dead_agents):
        row = tx.one(
            "SELECT * FROM agents WHERE id = :id AND status NOT IN ('lost', 'gone')", id=agent_id
        )
        if row is not None and (row["mission_id"] == mission_id or row["id"] == also):
            mark_lost(tx, ctx, row, f"process {row['pid']} is gone")


def hand_over(case: Case) -> bool:
    """Give a lost agent's open sorties, locks and mail to its successor; False if there is none.

    Raises InvalidState for an agent that lives, or whose work somebody else has taken over, and
    NotFound for one that nobody has ever heard of.
    """
    lost, successor = case.request.take_over_from, case.request.agent_id
    if lost is None or successor is None:
        return False
    _refuse_living(case, lost, successor)
    _remember_unregistered(case, lost)
    _hand_over_sorties(case, lost, successor)
    _hand_over_locks(case, lost, successor)
    _hand_over_mail(case, lost, successor)
    case.tx.run(
        "UPDATE agents SET succeeded_by = :successor WHERE id = :id", successor=successor, id=lost
    )
    return True


def _warn_of_recent(case: Case, row: Row) -> None:
    """Say that an agent nobody can watch was at work a moment ago, and count it as lost."""
    silent = case.ctx.now_ms - to_ms(row["last_seen_at"])
    if silent <= case.ctx.config.detection.threshold_ms:
        where = on_another(case.tx, case.ctx, row["machine"])
        case.ledger.warnings.append(
            f"{row['id']} was seen {duration(silent)} ago{where}; if it still runs, stop it"
            + (" there" if where else "")
        )
    mark_lost(case.tx, case.ctx, row, f"its work went to {case.request.agent_id}")


def _refuse_living(case: Case, lost: str, successor: str) -> None:
    row = case.tx.one("SELECT * FROM agents WHERE id = :id", id=lost)
    if row is None:
        return
    if row["succeeded_by"] not in (None, successor):
        raise InvalidState(
            f"The work of {lost} was already taken over by {row['succeeded_by']}.",
            hint=f"Ask {row['succeeded_by']}, or take over from that agent when it is lost.",
            succeeded_by=row["succeeded_by"],
        )
    if row["status"] not in ("active", "waiting", "idle"):
        return
    if row["pid"] is None:
        _warn_of_recent(case, row)
    elif row["machine"] == case.ctx.machine:
        raise InvalidState(
            f"Agent {lost} is still running (process {row['pid']}).",
            hint=f"Let it finish, or end it first; fleetctl agent show {lost} says more.",
            pid=row["pid"],
        )
    else:
        _refuse_elsewhere(case, row)


def _refuse_elsewhere(case: Case, row: Row) -> None:
    """Refuse an agent of another machine as long as that does not count as lost."""
    machine = membership.heard_of(case.tx, row["machine"])
    if machine is None:
        mark_lost(case.tx, case.ctx, row, f"its work went to {case.request.agent_id}")
        return
    here = machine["status"] == "here"
    where = "runs on" if here else "ran, when it was last heard of, on"
    raise InvalidState(
        f"Agent {row['id']} {where} {machine['name']} (process {row['pid']}).",
        hint="Let it finish, or end it there."
        if here
        else f"fleetd left there in good order; the agent counts as lost when it has not come back"
        f" {duration(membership.LEFT_MS)} later.",
        pid=row["pid"],
        machine=machine["id"],
    )


def _remember_unregistered(case: Case, lost: str) -> None:
    """Give an agent that never registered a row, so that its one successor can stand in it."""
    refuse_stranger(case, lost)
    case.tx.run(
        "INSERT INTO agents (id, role, mission_id, status, registered_at, last_seen_at)"
        " VALUES (:id, 'specialist', :mission, 'lost', :now, :now) ON CONFLICT (id) DO NOTHING",
        id=lost,
        mission=case.mission_id,
        now=case.ctx.now,
    )


def _hand_over_sorties(case: Case, lost: str, successor: str) -> None:
    for sortie in states_of(case.tx, case.mission_id):
        if sortie.assigned_to == lost and sortie.status not in CLOSED_SORTIE:
            case.tx.run(
                "UPDATE sorties SET assigned_to = :successor, updated_at = :now WHERE id = :id",
                successor=successor,
                now=case.ctx.now,
                id=sortie.id,
            )
            case.ledger.changed("sortie", sortie.id, lost, successor)


def _hand_over_locks(case: Case, lost: str, successor: str) -> None:
    """Hand over what the lost agent locked since the checkpoint; the rest is restored from it."""
    restored = {of_lock(lock) for lock in case.checkpoint.active_locks if lock.held_by == lost}
    rows = case.tx.all(
        "SELECT * FROM locks WHERE held_by = :lost AND status = 'active' AND expires_at > :now"
        " AND (mission_id = :mission OR mission_id IS NULL) ORDER BY acquired_at, id",
        lost=lost,
        mission=case.mission_id,
        now=case.ctx.now,
    )
    for row in rows:
        if row["normalized_path"] in restored:
            continue
        leases.supersede(case.tx, case.ctx, row)
        claim = leases.claim_of_row(row, successor)
        leases.grant(case.tx, case.ctx, claim, activity=False)
        name = file_from_here(case.tx, case.ctx, row)
        case.ledger.changed("lock", name, f"held by {lost}", f"held by {successor}")


def _hand_over_mail(case: Case, lost: str, successor: str) -> None:
    """Readdress what was queued, and what was read but not acknowledged: reading is forgotten."""
    rows = case.tx.all(
        "SELECT d.* FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.agent_id = :lost AND d.status IN ('queued', 'delivered')"
        " AND (m.mission_id = :mission OR m.mission_id IS NULL) ORDER BY d.seq",
        lost=lost,
        mission=case.mission_id,
    )
    for row in rows:
        message_id = row["message_id"]
        known = case.tx.one(
            "SELECT 1 AS known FROM deliveries WHERE message_id = :id AND agent_id = :agent",
            id=message_id,
            agent=successor,
        )
        if known is None:
            mailbox.queue(case.tx, message_id, successor, row["seq"])
            case.ledger.letters.add(message_id)
        case.tx.run(
            "DELETE FROM deliveries WHERE message_id = :id AND agent_id = :lost",
            id=message_id,
            lost=lost,
        )
        case.ledger.changed("message", message_id, f"to {lost}", f"to {successor}")


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
