"""Recovery: one transaction that brings a mission back and briefs its agent.

Source: behaviour, Recovery. A failure rolls everything back; a dry run does the very same and is
then undone. Must not read files or clocks: what comes from outside is in the facts.
"""

from collections.abc import Sequence
from typing import Any, cast

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
from ...protocol.types import CLOSED_SORTIE
from ..checkpoints import checkpoints
from ..checkpoints.codec import from_row
from ..checkpoints.state import capture
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find
from ..core.mappers import recovery_of, states_of
from ..core.registry import method
from ..core.tx import Row, Tx
from ..missions.current import is_automatic, session_before
from ..missions.milestones import rearm
from . import handover, prompt_data
from .checkpoint_selection import choose, mission_to_brief
from .context_builder import part_of, remember
from .prompt import render
from .restore_context import Case, Ledger, check, refuse_stranger
from .restore_locks import restore_locks
from .restore_mail import restore_mail
from .restore_sorties import restore_sorties
from .sortie_context import drop_old, leave
from .state import make_briefed
from .undo import become_newest, done_before, keep_undo, reopen


def restore(tx: Tx, ctx: Context, request: RecoveryRestore) -> RestoreResult:
    """Bring a mission, or one agent's part of it, back from a checkpoint."""
    if request.dry_run:
        with tx.rehearsal():
            return _restore(tx, ctx, request)
    return _restore(tx, ctx, request)


def _restore(tx: Tx, ctx: Context, request: RecoveryRestore) -> RestoreResult:
    check(request)
    ledger = Ledger()
    checkpoint = choose(tx, ctx, request, ledger)
    case = Case(tx=tx, ctx=ctx, request=request, checkpoint=checkpoint, ledger=ledger)
    mission = find(tx, "mission", case.mission_id)
    if case.narrow and not request.take_over_from:
        refuse_stranger(case, case.narrow)
    case = msgspec.structs.replace(
        case, repeated=done_before(case, mission), undoes=handover.undone_by(case)
    )
    reopen(case, mission)
    handover.note_dead(tx, ctx, case.mission_id, request.take_over_from)
    before = capture(tx, ctx, mission)
    hands_over = handover.hands_over(case, before)
    undo_id = keep_undo(case, before, hands_over=hands_over)
    moved = handover.hand_over(case) or handover.take_back(case)
    present = states_of(tx, case.mission_id) if moved else before.sorties
    restored = Restored(
        sorties=restore_sorties(case, present),
        locks=restore_locks(case),
        messages=restore_mail(case),
    )
    rearm(tx, case.mission_id)
    left = handover.bring_in(case) if hands_over else None
    sorties = states_of(tx, case.mission_id) if ledger.changes else present
    become_newest(case, sorties, hands_over=hands_over)
    tx.run(
        "UPDATE checkpoints SET consumed_at = :now WHERE id = :id", now=ctx.now, id=checkpoint.id
    )
    recovery_id = make_briefed(
        tx,
        ctx,
        request,
        case.mission_id,
        checkpoint_id=checkpoint.id,
        undo_checkpoint_id=undo_id,
        taken_over_from=request.take_over_from,
        left_mission_id=left,
    )
    _announce(case, recovery_id, restored)
    return _result(case, recovery_id, undo_id, restored, sorties)


def _announce(case: Case, recovery_id: str, restored: Restored) -> None:
    mission = find(case.tx, "mission", case.mission_id)
    payload = FleetRecovered(
        checkpoint_id=case.checkpoint.id,
        mission_id=case.mission_id,
        recovered_sorties=restored.sorties,
        recovered_locks=restored.locks,
        requeued_messages=restored.messages,
        recovery_duration_ms=case.ctx.elapsed_ms(),
        sorties_restored=restored.sorties,
        locks_restored=restored.locks,
        messages_requeued=restored.messages,
        errors=len(case.ledger.errors),
        warnings=len(case.ledger.warnings),
        progress=percent(mission["completed_sorties"], mission["total_sorties"]),
    )
    emit(case.tx, case.ctx, payload, mission_id=case.mission_id)
    briefed, to = RecoveryBriefed(recovery_id=recovery_id), case.request.agent_id
    emit(case.tx, case.ctx, briefed, mission_id=case.mission_id, agent_id=to)


def _result(
    case: Case,
    recovery_id: str,
    undo_id: str | None,
    restored: Restored,
    sorties: Sequence[SortieState],
) -> RestoreResult:
    tx, ctx, request, ledger = case.tx, case.ctx, case.request, case.ledger
    mission = find(tx, "mission", case.mission_id)
    context = remember(tx, ctx, mission, sorties, case.checkpoint, request.agent_id, case)
    _brief_sorties(case, mission, sorties)
    brief = prompt_data.gather(
        tx,
        ctx,
        mission,
        sorties,
        context,
        agent_id=request.agent_id,
        progress_note=f", {restored.sorties} sorties restored",
        taken_over_from=request.take_over_from,
        back_to=case.back_to,
        errors=ledger.errors,
        warnings=ledger.warnings,
    )
    return RestoreResult(
        success=True,
        dry_run=request.dry_run,
        recovery_id=None if request.dry_run else recovery_id,
        checkpoint_id=case.checkpoint.id,
        undo_checkpoint_id=None if request.dry_run else undo_id,
        mission_id=case.mission_id,
        recovery_context=context,
        restored=restored,
        kept=ledger.kept,
        released_locks=ledger.released,
        errors=ledger.errors,
        warnings=ledger.warnings,
        prompt=render(brief, request.max_chars or ctx.config.prompt.max_chars),
        would_restore=ledger.changes if request.dry_run else None,
        changed=[] if request.dry_run else ledger.changes,
        mission_title=mission["title"],
        project_dir=mission["project_dir"],
        agent_id=request.agent_id,
        take_over_from=request.take_over_from,
    )


def _brief_sorties(case: Case, mission: Row, sorties: Sequence[SortieState]) -> None:
    """Leave each open sortie its agent's part of the context, until its next progress."""
    at_work = (s.assigned_to for s in sorties if s.status not in CLOSED_SORTIE)
    for agent_id in dict.fromkeys(filter(None, at_work)):
        if case.narrow in (None, agent_id):
            leave(case.tx, case.mission_id, agent_id, part_of(case, mission, sorties, agent_id))
    drop_old(case.tx, case.mission_id)


def context(tx: Tx, ctx: Context, request: RecoveryContextGet) -> Briefing:
    """Brief without restoring anything."""
    checkpoint = None
    if request.checkpoint_id:
        checkpoint = checkpoints.load(tx, request.checkpoint_id)
        mission = find(tx, "mission", checkpoint.mission_id)
    else:
        mission = mission_to_brief(tx, ctx, request)
        row = checkpoints.latest_row(tx, mission["id"], but=ctx.facts.unreadable)
        checkpoint = from_row(row) if row else None
    sorties = states_of(tx, mission["id"])
    told = remember(tx, ctx, mission, sorties, checkpoint, request.agent_id)
    brief = prompt_data.gather(tx, ctx, mission, sorties, told, agent_id=request.agent_id)
    return Briefing(
        recovery_context=told,
        prompt=render(brief, request.max_chars or ctx.config.prompt.max_chars),
        checkpoint_id=checkpoint.id if checkpoint else None,
        warnings=[
            *_stranger(tx, mission, sorties, request.agent_id),
            *_before(tx, ctx, mission, request.cwd),
        ],
    )


def _stranger(
    tx: Tx, mission: Row, sorties: Sequence[SortieState], agent_id: str | None
) -> list[str]:
    """Say that no agent has this name, which may be misspelt, and what is told of instead."""
    if agent_id is None or not prompt_data.is_unknown(tx, agent_id, sorties):
        return []
    return [f"mission {mission['id']} knows no agent {agent_id}: this tells of the whole mission"]


def _before(tx: Tx, ctx: Context, mission: Row, cwd: str | None) -> list[str]:
    """Name the session before, for a person who cleared its window and wants it back after all."""
    before = session_before(tx, ctx, cwd) if is_automatic(mission) else None
    if before is None or before["id"] == mission["id"]:
        return []
    what = f"{before['id']} ({quote(before['title'], 80)})"
    how = f"fleetctl context --mission {before['id']}"
    return [f"the session before this one worked on {what}: {how}"]


@method(RecoveryList)
def list_recoveries(tx: Tx, ctx: Context, request: RecoveryList) -> RecoveryPage:
    """Return recoveries, newest first."""
    where, params = ["1 = 1"], cast("dict[str, Any]", {})
    if request.mission_id:
        where.append("mission_id = :mission")
        params["mission"] = find(tx, "mission", request.mission_id)["id"]
    if request.after:
        last = find(tx, "recovery", request.after)
        where.append("seq <= :seq AND (seq < :seq OR id > :after)")
        params |= {"seq": last["seq"], "after": last["id"]}
    rows = tx.all(
        f"SELECT * FROM recoveries WHERE {' AND '.join(where)} ORDER BY seq DESC, id LIMIT :limit",
        **params,
        limit=request.limit,
    )
    return RecoveryPage(recoveries=[recovery_of(row) for row in rows])
