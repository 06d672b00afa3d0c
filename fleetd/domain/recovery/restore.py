"""Recovery: one transaction that restores a mission and briefs its agent.

A failure rolls everything back. A dry run runs the same steps and is then rolled back. Knowledge
from outside the store, such as dead processes, is in the facts.
"""

from collections.abc import Sequence

import msgspec

from ...protocol.display import quote
from ...protocol.events import FleetRecovered, RecoveryBriefed
from ...protocol.records import Restored, RestoreResult, SortieState, percent
from ...protocol.requests.recovery import (
    Briefing,
    RecoveryContextGet,
    RecoveryList,
    RecoveryPage,
    RecoveryRestore,
)
from ..checkpoints import checkpoints
from ..checkpoints.codec import from_row
from ..checkpoints.state import capture
from ..core.context import Context
from ..core.event_log import emit_each
from ..core.ids import find
from ..core.mappers import recovery_of, states_of
from ..core.reading import Reading
from ..core.registry import method
from ..core.sql import Where
from ..core.tx import Row, Tx
from ..missions.milestones import reset_milestone
from ..missions.selection import is_automatic, last_session_mission
from . import handover, prompt
from .context_builder import agent_contexts, is_unknown, store_agent_contexts
from .restore_context import (
    RestoreContext,
    RestoreReport,
    check_agents,
    choose_checkpoint,
    mission_to_brief,
    refuse_unknown_agent,
)
from .restore_steps import restore_locks, restore_mail, restore_sorties
from .state import make_briefed
from .undo import already_recovered, keep_restored_state, reopen, take_undo_checkpoint


def restore(tx: Tx, ctx: Context, request: RecoveryRestore) -> RestoreResult:
    """Restore a mission, or one agent's part of it, from a checkpoint."""
    if request.dry_run:
        with tx.rehearsal():
            return _restore(tx, ctx, request)
    return _restore(tx, ctx, request)


def _restore(tx: Tx, ctx: Context, request: RecoveryRestore) -> RestoreResult:
    check_agents(request)
    report = RestoreReport()
    checkpoint = choose_checkpoint(tx, ctx, request, report)
    restore = RestoreContext(tx=tx, ctx=ctx, request=request, checkpoint=checkpoint, report=report)
    mission = find(tx, "mission", restore.mission_id)
    if restore.only_agent and not request.take_over_from:
        refuse_unknown_agent(restore, restore.only_agent)
    restore = msgspec.structs.replace(
        restore,
        repeated=already_recovered(restore, mission),
        undoes=handover.undone_takeover(restore),
    )
    reopen(restore, mission)
    handover.mark_dead_agents_lost(tx, ctx, restore.mission_id, request.take_over_from)
    before = capture(tx, ctx, mission)
    hands_over = handover.hands_over(restore, before)
    undo_id = take_undo_checkpoint(restore, before, hands_over=hands_over)
    moved = handover.hand_over(restore) or handover.undo_takeover(restore)
    present = states_of(tx, restore.mission_id) if moved else before.sorties
    count, sorties = restore_sorties(restore, present)
    restored = Restored(sorties=count, locks=restore_locks(restore), messages=restore_mail(restore))
    mission, left = reset_milestone(tx, restore.mission_id, sorties), None
    if hands_over:
        left = handover.move_in_successor(restore)
        mission, sorties = find(tx, "mission", restore.mission_id), states_of(tx, mission["id"])
    keep_restored_state(restore, mission, sorties, hands_over=hands_over)
    tx.run(
        "UPDATE checkpoints SET consumed_at = :now WHERE id = :id", now=ctx.now, id=checkpoint.id
    )
    recovery_id = make_briefed(
        tx,
        ctx,
        request,
        restore.mission_id,
        checkpoint_id=checkpoint.id,
        undo_checkpoint_id=undo_id,
        taken_over_from=request.take_over_from,
        left_mission_id=left,
    )
    _announce(restore, mission, recovery_id, restored)
    return _result(restore, mission, recovery_id, undo_id, restored, sorties)


def _announce(restore: RestoreContext, mission: Row, recovery_id: str, restored: Restored) -> None:
    payload = FleetRecovered(
        checkpoint_id=restore.checkpoint.id,
        mission_id=restore.mission_id,
        recovered_sorties=restored.sorties,
        recovered_locks=restored.locks,
        requeued_messages=restored.messages,
        recovery_duration_ms=restore.ctx.elapsed_ms(),
        sorties_restored=restored.sorties,
        locks_restored=restored.locks,
        messages_requeued=restored.messages,
        errors=len(restore.report.errors),
        warnings=len(restore.report.warnings),
        progress=percent(mission["completed_sorties"], mission["total_sorties"]),
    )
    briefed, to = RecoveryBriefed(recovery_id=recovery_id), restore.request.agent_id
    payloads = [(payload, None), (briefed, to)]
    emit_each(restore.tx, restore.ctx, payloads, mission_id=restore.mission_id)


def _result(
    restore: RestoreContext,
    mission: Row,
    recovery_id: str,
    undo_id: str | None,
    restored: Restored,
    sorties: Sequence[SortieState],
) -> RestoreResult:
    tx, ctx, request, report = restore.tx, restore.ctx, restore.request, restore.report
    # An agent that asks through a hook only needs to read about changes.
    silent = ctx.caller.hook and not report.changes
    note = "" if silent else f", {restored.sorties} sorties restored"
    reading = Reading(tx)
    context, text = prompt.brief(
        reading, ctx, mission, sorties, restore.checkpoint, request, restore, note
    )
    parts = agent_contexts(reading, restore, mission, sorties)
    store_agent_contexts(tx, mission["id"], parts)
    return RestoreResult(
        success=True,
        dry_run=request.dry_run,
        recovery_id=None if request.dry_run else recovery_id,
        checkpoint_id=restore.checkpoint.id,
        undo_checkpoint_id=None if request.dry_run else undo_id,
        mission_id=restore.mission_id,
        recovery_context=context,
        restored=restored,
        kept=report.kept,
        released_locks=report.released,
        errors=report.errors,
        warnings=report.warnings,
        prompt=text,
        would_restore=report.changes if request.dry_run else None,
        changed=[] if request.dry_run else report.changes,
        mission_title=mission["title"],
        project_dir=mission["project_dir"],
        agent_id=request.agent_id,
        take_over_from=request.take_over_from,
    )


def context(tx: Tx, ctx: Context, request: RecoveryContextGet) -> Briefing:
    """Return a briefing without restoring anything."""
    checkpoint = None
    if request.checkpoint_id:
        checkpoint = checkpoints.load(tx, request.checkpoint_id)
        mission = find(tx, "mission", checkpoint.mission_id)
    else:
        mission = mission_to_brief(tx, ctx, request)
        row = checkpoints.latest_row(tx, mission["id"], but=ctx.facts.unreadable)
        checkpoint = from_row(row) if row else None
    sorties, agent_id = states_of(tx, mission["id"]), request.agent_id
    recovery_context, text = prompt.brief(Reading(tx), ctx, mission, sorties, checkpoint, request)
    warnings = []
    if agent_id is not None and is_unknown(tx, agent_id, sorties):  # it may be misspelt
        whole = "briefing for the whole mission"
        warnings.append(f"mission {mission['id']} knows no agent {agent_id}: {whole}")
    # For a person who cleared the session's window and wants its work back.
    before = last_session_mission(tx, ctx, request.cwd) if is_automatic(mission) else None
    if before is not None and before["id"] != mission["id"]:
        what = f"{before['id']} ({quote(before['title'], 80)})"
        how = f"fleetctl context --mission {before['id']}"
        warnings.append(f"the session before this one worked on {what}: {how}")
    return Briefing(
        recovery_context=recovery_context,
        prompt=text,
        checkpoint_id=checkpoint.id if checkpoint else None,
        warnings=warnings,
    )


@method(RecoveryList)
def list_recoveries(tx: Tx, ctx: Context, request: RecoveryList) -> RecoveryPage:
    """Return recoveries, newest first."""
    where = Where()
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    if request.after:
        last = find(tx, "recovery", request.after)
        where.add("seq <= :seq AND (seq < :seq OR id > :after)", seq=last["seq"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM recoveries WHERE {where} ORDER BY seq DESC, id LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return RecoveryPage(recoveries=[recovery_of(row) for row in rows])
