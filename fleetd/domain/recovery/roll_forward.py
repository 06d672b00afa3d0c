"""Roll-forward: brings a mission that is behind its newest checkpoint file to that file's state.

The daemon does this by itself, with the steps of a recovery. Nobody is briefed, so the mission
waits for recovery afterwards. Finished work in the rows stays finished.
"""

from ...protocol.errors import Corrupt, Incompatible
from ...protocol.records import percent
from ...protocol.requests.recovery import RecoveryRestore
from ...protocol.types import OPEN_MISSION
from ..artifacts.ingest import (
    drop_stale_marks,
    mark_old_rows_dropped,
    take_import_end,
    to_roll_forward,
    unmark,
)
from ..artifacts.kinds import KINDS, RecordKind
from ..checkpoints.checkpoints import latest_row
from ..checkpoints.codec import from_row
from ..checkpoints.state import capture, origin_of
from ..core.context import Context
from ..core.ids import find
from ..core.mappers import ended_as, states_of
from ..core.tx import LogLine, Row, Tx
from ..liveness.silence import to_awake_ms
from ..locks import leases
from ..locks.keys import key_of_lock
from ..locks.targets import Target, overlap, target_of
from ..missions.milestones import reset_milestone
from ..notes import notes
from ..system.epoch import TOKENS_UNSEEN, begin_epoch
from .restore_context import RestoreContext
from .restore_steps import restore_locks, restore_mail, restore_sorties
from .state import make_pending
from .undo import reopen, take_undo_checkpoint


def finish_import(tx: Tx, ctx: Context, reached: int = 0) -> list[str]:
    """Give a store that is behind its files a new epoch, with counters above all in the files.

    ``reached`` is how far the log is known to have come, from other sources than files. Returns the
    missions that are to be rolled forward, the newest first.
    """
    end = take_import_end(tx, ctx)
    drop_stale_marks(tx, ctx)
    tops = [_log_end_in(tx, kind) for kind in KINDS.values()]
    # A record's own event always follows it. A log that ends where a file was taken has lost at
    # least that event.
    if end is not None and max(tops) >= end:
        _raise(tx, ctx, end, max(tops), reached)
    # All missions before the first is restored: what a newer mission then takes is not dropped.
    for mission_id in to_roll_forward(tx, ctx, "behind"):
        mission, restore = _restore_context(tx, ctx, mission_id)
        if restore is not None and mission["status"] in OPEN_MISSION:
            take_undo_checkpoint(restore, capture(tx, ctx, mission))
            _drop_ended(restore)
        mark_old_rows_dropped(tx, ctx, mission_id)
    return to_roll_forward(tx, ctx)


def _log_end_in(tx: Tx, kind: RecordKind) -> int:
    """Return how far the log reached as records of a kind know it; below any if none knows.

    An old checkpoint may have no position in the log, and then has 0 or less. A snapshot has 0 if
    it was taken before the first event.
    """
    top: int | None = tx.value(f"SELECT max(seq) AS seq FROM {kind.table}")
    return -1 if top is None or (top <= 0 and kind.noun == "checkpoint") else top


def _raise(tx: Tx, ctx: Context, end: int, top: int, reached: int) -> None:
    # No file holds the tokens that were granted after the newest file was written.
    highest = tx.value("SELECT value FROM counters WHERE name = 'fencing'") or 0
    begin_epoch(tx, ctx, max(top, reached), highest + TOKENS_UNSEEN, "files")
    what = "was rolled back or replaced by an older copy" if end else "was lost"
    text = (
        f"The database is behind its checkpoint files: its log ends at {end}, the files reach"
        f" {top}. It {what}; fleetd restores it from the files, under a new epoch"
    )
    tx.after_commit(LogLine("WARNING", text))


def roll_forward(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Roll a marked mission forward to its newest checkpoint; an ended mission stays ended."""
    there = "SELECT 1 AS there FROM missions WHERE id = :id"  # neither deleted nor forgotten since
    if not unmark(tx, ctx, mission_id) or not tx.exists(there, id=mission_id):
        return
    mission, restore = _restore_context(tx, ctx, mission_id)
    if restore is None:
        return
    if mission["status"] in OPEN_MISSION:
        _restore(restore, mission)
    else:
        newest = restore.checkpoint.id
        text = (
            f"Mission {mission['id']} is {ended_as(mission)} in the database and stays so, though"
            f" checkpoint {newest} is newer. To reopen it: fleetctl resume --checkpoint {newest}"
            " --rewind"
        )
        tx.after_commit(LogLine("WARNING", text))


def _restore_context(tx: Tx, ctx: Context, mission_id: str) -> tuple[Row, RestoreContext | None]:
    """Return a mission, and the context for rolling it forward to its newest checkpoint.

    An undo checkpoint counts only if there is no other; a damaged row does not count.
    """
    mission = find(tx, "mission", mission_id)
    damaged: list[str] = []
    while True:
        row = latest_row(tx, mission_id, but=damaged)
        row = row or latest_row(tx, mission_id, undo=True, but=damaged)
        if row is None:
            return mission, None
        try:
            checkpoint = from_row(row)
        except (Corrupt, Incompatible):
            damaged.append(row["id"])
            continue
        wanted = RecoveryRestore(checkpoint_id=row["id"], requested_by="fleetd")
        return mission, RestoreContext(tx=tx, ctx=ctx, request=wanted, checkpoint=checkpoint)


def _restore(restore: RestoreContext, mission: Row) -> None:
    tx, then = restore.tx, restore.checkpoint
    reopen(restore, mission)
    restored, sorties = restore_sorties(restore, states_of(tx, restore.mission_id))
    locks, messages = restore_locks(restore), restore_mail(restore)
    if then.mission is not None:
        notes.bring_back(tx, restore.mission_id, then.mission.notes)
    counted = reset_milestone(tx, restore.mission_id, sorties)
    _set_mission(restore)
    if find(tx, "mission", restore.mission_id)["status"] == "in_progress":
        make_pending(tx, restore.ctx, restore.mission_id, then.id)
    text = (
        f"Mission {restore.mission_id} was restored to checkpoint {then.id} of {then.timestamp}:"
        f" {percent(counted['completed_sorties'], counted['total_sorties'])}%, {restored} sorties,"
        f" {locks} locks, {messages} messages"
    )
    for line in (text, *restore.report.warnings, *restore.report.errors):
        tx.after_commit(LogLine("WARNING", line))


def _drop_ended(restore: RestoreContext) -> None:
    """End locks and deliveries in the old rows that the later checkpoint does not have.

    Otherwise a delivered message would be delivered again, and a released file would stay locked.
    """
    tx, ctx, then = restore.tx, restore.ctx, restore.checkpoint
    later = [
        (Target(path=key_of_lock(lock), directory=lock.directory), lock.held_by, lock.mode)
        for lock in then.active_locks
    ]
    holders = {(target, held_by) for target, held_by, _ in later}
    exclusive_files = {target: held_by for target, held_by, mode in later if mode == "exclusive"}
    # Nearly always empty: only these have to be compared with each lock.
    others = [each for each in later if each[0].directory is not None or each[2] == "shared"]
    for row in tx.all("SELECT * FROM locks WHERE status = 'active'"):
        target, holder = target_of(row), row["held_by"]
        compared = others if target.directory is None else later
        met = any(
            held_by != holder and not mode == row["mode"] == "shared" and overlap(other, target)
            for other, held_by, mode in compared
        )
        given_back = (target, holder) not in holders and row["mission_id"] == restore.mission_id
        if met or given_back or exclusive_files.get(target, holder) != holder:
            leases.end(tx, row, "released", ctx.now)
    still = {(message.id, agent) for message in then.pending_messages for agent in message.to}
    for row in tx.all(
        "SELECT d.message_id, d.agent_id FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.status = 'queued' AND m.mission_id = :mission",
        mission=restore.mission_id,
    ):
        if (row["message_id"], row["agent_id"]) not in still:
            tx.run(
                "UPDATE deliveries SET status = 'delivered', delivered_at = :at,"
                " attempts = attempts + 1 WHERE message_id = :message AND agent_id = :agent",
                at=then.timestamp,
                message=row["message_id"],
                agent=row["agent_id"],
            )


def _set_mission(restore: RestoreContext) -> None:
    """Set the mission's row, and its last activity, to what the checkpoint knows."""
    ctx, then = restore.ctx, restore.checkpoint
    last = then.recovery_context.last_activity_at or then.timestamp
    columns: Row = {
        "last_activity_at": last,
        "last_activity_seq": max(then.seq, 0),
        "active_awake_ms": to_awake_ms(ctx, last),
        "silent": 0,
        "updated_at": ctx.now,
    }
    if (known := then.mission) is not None:
        columns |= {
            "title": known.title,
            "description": known.description,
            "priority": known.priority,
            "project_dir": known.project_dir,
            "created_at": known.created_at or then.timestamp,
            "started_at": known.started_at,
            "origin": origin_of(known),
            "briefing": known.briefing,
        }
        if known.status in OPEN_MISSION:
            columns["status"] = known.status
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    restore.tx.run(
        f"UPDATE missions SET {assignments} WHERE id = :id", **columns, id=restore.mission_id
    )
