"""Hand-over: a lost agent's work, locks and mail go to its successor, or back from it.

The successor's session moves into the mission, and moves back when the take-over is undone.
"""

import msgspec

from ...protocol.display import duration
from ...protocol.errors import InvalidState
from ...protocol.timestamps import to_ms
from ...protocol.types import CLOSED_SORTIE
from ..agents import mailbox
from ..agents.agents import forget_need, mark_lost, need_successor, return_agent
from ..checkpoints.state import State
from ..cluster import membership
from ..cluster.membership import machine_suffix
from ..core.changes import sortie_changed
from ..core.context import Context
from ..core.history import agent_changed
from ..core.ids import find
from ..core.mappers import states_of
from ..core.tx import Row, Tx
from ..locks import leases
from ..locks.keys import display_file, key_of_lock
from ..sessions import notices, session_move
from . import state
from .restore_context import RestoreContext, refuse_unknown_agent

_strings = msgspec.json.Decoder(list[str]).decode


def mark_dead_agents_lost(tx: Tx, ctx: Context, mission_id: str, also: str | None) -> None:
    """Mark a mission's agents, and ``also``, lost if their processes are known to be gone."""
    for agent_id in sorted(ctx.facts.dead_agents):
        row = tx.one(
            "SELECT * FROM agents WHERE id = :id AND status NOT IN ('lost', 'gone')", id=agent_id
        )
        if row is not None and (row["mission_id"] == mission_id or row["id"] == also):
            mark_lost(tx, ctx, row, f"process {row['pid']} is gone")


def hand_over(restore: RestoreContext) -> bool:
    """Give a lost agent's open sorties, locks and mail to its successor; False if there is none.

    Raises InvalidState for an agent that lives, or whose work another agent has taken over, and
    NotFound for an unknown agent.
    """
    lost, successor = restore.request.take_over_from, restore.request.agent_id
    if lost is None or successor is None:
        return False
    _refuse_living(restore, lost, successor)
    refuse_unknown_agent(restore, lost)
    # An agent that never registered gets a row, which holds its one successor.
    restore.tx.run(
        "INSERT INTO agents (id, role, mission_id, status, registered_at, last_seen_at)"
        " VALUES (:id, 'specialist', :mission, 'lost', :now, :now) ON CONFLICT (id) DO NOTHING",
        id=lost,
        mission=restore.mission_id,
        now=restore.ctx.now,
    )
    _hand_over_sorties(restore, lost, successor)
    _hand_over_locks(restore, lost, successor)
    _hand_over_mail(restore, lost, successor)
    restore.tx.run(
        "UPDATE agents SET succeeded_by = :successor WHERE id = :id", successor=successor, id=lost
    )
    agent_changed(restore.tx, lost)
    forget_need(restore.tx, restore.ctx, find(restore.tx, "agent", lost))
    return True


def _warn_of_recent(restore: RestoreContext, row: Row) -> None:
    """Warn that an agent that cannot be watched was active a moment ago, and mark it lost."""
    silent = restore.ctx.now_ms - to_ms(row["last_seen_at"])
    if silent <= restore.ctx.config.detection.threshold_ms:
        where = machine_suffix(restore.tx, restore.ctx, row["machine"])
        restore.report.warnings.append(
            f"{row['id']} was seen {duration(silent)} ago{where}; if it still runs, stop it"
            + (" there" if where else "")
        )
    mark_lost(restore.tx, restore.ctx, row, f"its work went to {restore.request.agent_id}")


def _refuse_living(restore: RestoreContext, lost: str, successor: str) -> None:
    row = restore.tx.one("SELECT * FROM agents WHERE id = :id", id=lost)
    if row is None:
        return
    if row["succeeded_by"] not in (None, successor):
        raise InvalidState(
            f"The work of {lost} was already taken over by {row['succeeded_by']}.",
            hint=f"Ask {row['succeeded_by']}, or take over from it when it is lost.",
            succeeded_by=row["succeeded_by"],
        )
    if row["status"] not in ("active", "waiting", "idle"):
        return
    if row["pid"] is None:
        _warn_of_recent(restore, row)
    elif restore.ctx.is_here(row):
        raise InvalidState(
            f"Agent {lost} is still running (process {row['pid']}).",
            hint=f"Let it finish, or stop it first; fleetctl agent show {lost} says more.",
            pid=row["pid"],
        )
    else:
        _refuse_elsewhere(restore, row)


def _refuse_elsewhere(restore: RestoreContext, row: Row) -> None:
    """Refuse an agent of another machine as long as that machine does not count as lost."""
    machine = membership.machine_in_touch(restore.tx, row["machine"])
    if machine is None:
        mark_lost(restore.tx, restore.ctx, row, f"its work went to {restore.request.agent_id}")
        return
    here = machine["status"] == "here"
    where = "runs on" if here else "last ran on"
    raise InvalidState(
        f"Agent {row['id']} {where} {machine['name']} (process {row['pid']}).",
        hint="Let it finish, or end it there."
        if here
        else f"fleetd stopped properly there; the agent counts as lost if fleetd is not back"
        f" {duration(membership.LEFT_MS)} later.",
        pid=row["pid"],
        machine=machine["id"],
    )


def _hand_over_sorties(restore: RestoreContext, lost: str, successor: str) -> None:
    for sortie in states_of(restore.tx, restore.mission_id):
        if sortie.assigned_to == lost and sortie.status not in CLOSED_SORTIE:
            restore.tx.run(
                "UPDATE sorties SET assigned_to = :successor, updated_at = :now WHERE id = :id",
                successor=successor,
                now=restore.ctx.now,
                id=sortie.id,
            )
            fields = {"assigned_to": successor, "updated_at": restore.ctx.now}
            sortie_changed(restore.tx, restore.mission_id, sortie.id, fields)
            restore.report.changed("sortie", sortie.id, lost, successor)


def _hand_over_locks(restore: RestoreContext, lost: str, successor: str) -> None:
    """Hand over the locks taken since the checkpoint; the others are restored from it."""
    restored = {
        key_of_lock(lock) for lock in restore.checkpoint.active_locks if lock.held_by == lost
    }
    for row in restore.tx.all(
        "SELECT * FROM locks WHERE held_by = :lost AND status = 'active' AND expires_at > :now"
        " AND (mission_id = :mission OR mission_id IS NULL) ORDER BY acquired_at, id",
        lost=lost,
        mission=restore.mission_id,
        now=restore.ctx.now,
    ):
        if row["normalized_path"] in restored:
            continue
        leases.end(restore.tx, row, "released", restore.ctx.now)
        leases.grant(
            restore.tx, restore.ctx, leases.lease_request_from(row, successor), activity=False
        )
        name = display_file(restore.tx, restore.ctx, row)
        restore.report.changed("lock", name, f"held by {lost}", f"held by {successor}")


def _hand_over_mail(restore: RestoreContext, lost: str, successor: str) -> None:
    """Readdress queued messages, and read but unacknowledged ones: reading alone does not count."""
    for row in restore.tx.all(
        "SELECT d.* FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.agent_id = :lost AND d.status IN ('queued', 'delivered')"
        " AND (m.mission_id = :mission OR m.mission_id IS NULL) ORDER BY d.seq",
        lost=lost,
        mission=restore.mission_id,
    ):
        message_id = row["message_id"]
        if not restore.tx.exists(
            "SELECT 1 AS known FROM deliveries WHERE message_id = :id AND agent_id = :agent",
            id=message_id,
            agent=successor,
        ):
            mailbox.enqueue_delivery(restore.tx, message_id, successor, row["seq"])
            restore.report.messages.add(message_id)
        restore.tx.run(
            "DELETE FROM deliveries WHERE message_id = :id AND agent_id = :lost",
            id=message_id,
            lost=lost,
        )
        mailbox.keep_queue(restore.tx, message_id)
        restore.report.changed("message", message_id, f"to {lost}", f"to {successor}")


def hands_over(restore: RestoreContext, before: State) -> bool:
    """Return whether a take-over would change any owner; ``before`` is the present state."""
    lost, successor = restore.request.take_over_from, restore.request.agent_id
    if lost is None:
        return False
    rows = {
        row["id"]: row
        for row in restore.tx.all(
            "SELECT * FROM agents WHERE id IN (:lost, :heir)", lost=lost, heir=successor
        )
    }
    if lost not in rows or rows[lost]["succeeded_by"] != successor:
        return True
    if successor in rows and rows[successor]["mission_id"] != restore.mission_id:
        return True
    has = {sortie.assigned_to for sortie in before.sorties if sortie.status not in CLOSED_SORTIE}
    has |= {lock.held_by for lock in before.locks}
    return lost in has.union(*(message.to for message in before.messages))


def move_in_successor(restore: RestoreContext) -> str | None:
    """Move the successor's session into the mission, and notify it; return where it was.

    This follows the restore, so that what the session brings along is no part of it. It also
    follows the milestones: more sorties alone make the mission pass none of them twice.
    """
    lost, successor = restore.request.take_over_from, restore.request.agent_id
    if lost is None or successor is None:
        return None
    role = restore.tx.value("SELECT role FROM agents WHERE id = :id", id=lost)
    moved = session_move.move_in(restore.tx, restore.ctx, successor, restore.mission_id, role)
    if _can_be_notified(restore.tx, successor):
        notices.add_handover(
            restore.tx, successor, notices.HandoverNotice("to", lost, restore.mission_id)
        )
    if moved is None:
        return restore.mission_id
    _note_move(restore, successor, moved, restore.mission_id)
    return moved.left


def _can_be_notified(tx: Tx, agent_id: str) -> bool:
    """Return whether hooks can notify an agent: it has a session, or is yet to begin."""
    session = "SELECT 1 AS known FROM sessions WHERE agent_id = :id"
    known = tx.exists("SELECT 1 AS known FROM agents WHERE id = :id", id=agent_id)
    return not known or tx.exists(session, id=agent_id)


def _note_move(
    restore: RestoreContext, agent_id: str, moved: session_move.SessionMove, into: str
) -> None:
    """Report what moved with a session, and stop waiting for its agents where it was."""
    if moved.left:
        state.confirm_moved_agents(restore.tx, restore.ctx, moved.left, moved.windows)
    source = moved.left or "no mission"
    restore.report.changed("agent", agent_id, f"in {source}", f"in {into}")
    for row in moved.sorties:
        restore.report.changed("sortie", row["id"], f"in {source}", f"in {into}")
    if moved.left and moved.ended:
        restore.report.changed("mission", moved.left, "in_progress", f"merged into {into}")
    if moved.reopened:
        restore.report.changed("mission", into, f"merged into {source}", "in_progress")


_UNDONE = (
    "EXISTS (SELECT 1 FROM recoveries since WHERE since.mission_id = r.mission_id"
    " AND since.checkpoint_id = r.undo_checkpoint_id AND since.scope = 'mission'"
    " AND since.taken_over_from IS NULL AND since.briefed_at IS NOT NULL AND since.seq > r.seq)"
)


def undone_takeover(restore: RestoreContext) -> Row | None:
    """Return the recovery that this one undoes, if it was the latest take-over of its agent.

    The request has to name its undo checkpoint, for the whole mission. A lost agent that came back
    has no successor any more, but its former successor has the work until that is undone.
    """
    if (
        restore.request.checkpoint_id is None
        or restore.only_agent
        or restore.request.take_over_from
    ):
        return None
    return restore.tx.one(
        "SELECT r.*, a.succeeded_by FROM recoveries r JOIN agents a ON a.id = r.taken_over_from"
        " WHERE r.mission_id = :mission AND r.undo_checkpoint_id = :checkpoint"
        f" AND (a.succeeded_by = r.agent_id OR (a.succeeded_by IS NULL AND NOT {_UNDONE}))"
        " ORDER BY r.seq DESC LIMIT 1",
        mission=restore.mission_id,
        checkpoint=restore.checkpoint.id,
    )


def undo_takeover(restore: RestoreContext) -> bool:
    """Undo what a take-over did outside the mission's own state; False where none is undone.

    The lost agent has no successor any more, and its messages wait for it again. The successor's
    session goes back to where it was, with everything that it did not get by the take-over. A lost
    agent that came back learned what it had lost, so it is notified of this too.
    """
    undone = restore.undoes
    if undone is None:
        return False
    tx, lost, successor = restore.tx, undone["taken_over_from"], undone["agent_id"]
    tx.run("UPDATE agents SET succeeded_by = NULL WHERE id = :id", id=lost)
    agent_changed(tx, lost)
    row = find(tx, "agent", lost)
    if row["status"] == "lost" and not _goes_on(restore, undone, row):
        need_successor(tx, restore.ctx, row, f"its work came back from {successor}")
    for message in restore.checkpoint.pending_messages:
        if lost in message.to:
            _take_message_back(tx, message.id, successor)
    _take_locks_back(restore, undone)
    if _can_be_notified(tx, successor):
        notices.add_handover(tx, successor, notices.HandoverNotice("back", lost))
    if undone["succeeded_by"] is None and _can_be_notified(tx, lost):
        notices.add_handover(tx, lost, notices.HandoverNotice("again", successor))
    known = {sortie.id for sortie in restore.checkpoint.sorties}
    left = undone["left_mission_id"]
    if left == restore.mission_id:  # the session was there before, too
        return True
    moved = session_move.move_back(tx, restore.ctx, successor, restore.mission_id, left, known)
    if moved is not None:
        _note_move(restore, successor, moved, left or "no mission")
    return True


def _goes_on(restore: RestoreContext, undone: Row, row: Row) -> bool:
    """Return whether the agent that gets its work back is alive, as it was at the hand-off."""
    was = restore.tx.value(
        "SELECT was_status FROM handoffs WHERE agent_id = :agent AND state = 'completed'"
        " AND recovery_id = :recovery",
        agent=row["id"],
        recovery=undone["id"],
    )
    lived = was in ("active", "waiting", "idle")
    return lived and return_agent(restore.tx, restore.ctx, row, "waiting")


def _take_locks_back(restore: RestoreContext, undone: Row) -> None:
    """Release what the successor locked only by the take-over, unless somebody gets it back."""
    given_back = {key_of_lock(lock) for lock in restore.checkpoint.active_locks}
    for row in restore.tx.all(
        "SELECT * FROM locks WHERE held_by = :successor AND status = 'active'"
        " AND (mission_id = :mission OR mission_id IS NULL) AND acquired_at = :then ORDER BY id",
        successor=undone["agent_id"],
        mission=restore.mission_id,
        then=undone["briefed_at"],
    ):
        if row["normalized_path"] not in given_back:
            leases.end_held(restore.tx, restore.ctx, row, activity=False)
            name = display_file(restore.tx, restore.ctx, row)
            restore.report.released.append(name)
            restore.report.changed("lock", name, f"held by {row['held_by']}", "released")


def _take_message_back(tx: Tx, message_id: str, successor: str) -> None:
    """Take a message from a successor that has not handled it, unless it was sent there too."""
    sent_to = tx.value("SELECT to_json FROM messages WHERE id = :id", id=message_id)
    if sent_to is None or successor not in _strings(sent_to):
        tx.run(
            "DELETE FROM deliveries WHERE message_id = :id AND agent_id = :successor"
            " AND status <> 'acked'",
            id=message_id,
            successor=successor,
        )
        mailbox.keep_queue(tx, message_id)
