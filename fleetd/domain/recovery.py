"""Recovery: one transaction that brings a mission back and briefs its agent.

Source: behaviour, Recovery. A failure rolls everything back; a dry run does the very same and is
then undone. Must not read files or clocks: what comes from outside is in the facts.
"""

import msgspec

from ..wire.errors import InvalidState
from ..wire.events import FleetRecovered, RecoveryBriefed
from ..wire.model import Recovery, Restored, RestoreResult
from ..wire.requests import RecoveryContextGet, RecoveryList, RecoveryRestore
from ..wire.requests.recovery import Briefing, RecoveryPage
from . import briefs, checkpoints, takeover
from .capture import capture
from .case import Case, Ledger, check, refuse_strangers
from .checkpoints import Reason
from .choosing import choose
from .content import from_row
from .context import Context
from .current import current_row
from .events import emit, position
from .ids import find, fresh_id
from .progress import rearm
from .prompt import render
from .records import recovery_of
from .registry import handler
from .remembering import part_of, remember
from .restore_locks import restore_locks
from .restore_mail import restore_mail
from .restore_sorties import restore_sorties
from .tx import Row, Tx

_FINISHED = ("completed", "failed", "cancelled")


@handler
def restore(tx: Tx, request: RecoveryRestore, ctx: Context) -> RestoreResult:
    """Bring a mission, or one agent's part of it, back from a checkpoint."""
    if request.dry_run:
        with tx.rehearsal():
            return _restore(tx, request, ctx)
    return _restore(tx, request, ctx)


def _restore(tx: Tx, request: RecoveryRestore, ctx: Context) -> RestoreResult:
    check(request)
    ledger = Ledger()
    checkpoint = choose(tx, ctx, request, ledger)
    case = Case(tx=tx, ctx=ctx, request=request, checkpoint=checkpoint, ledger=ledger)
    mission = find(tx, "mission", case.mission_id)
    refuse_strangers(case)
    _reopen(case, mission)
    takeover.note_dead(tx, ctx, case.mission_id, request.take_over_from)
    case = msgspec.structs.replace(case, repeated=_done_before(case, mission))
    undo_id = _keep_undo(case, mission)
    takeover.hand_over(case)
    restored = Restored(
        sorties=restore_sorties(case), locks=restore_locks(case), messages=restore_mail(case)
    )
    progress = rearm(tx, case.mission_id)
    _become_newest(case)
    tx.run(
        "UPDATE checkpoints SET consumed_at = :now WHERE id = :id", now=ctx.now, id=checkpoint.id
    )
    recovery_id = _record(case, undo_id)
    _announce(case, recovery_id, restored, progress)
    return _result(case, recovery_id, undo_id, restored)


def _reopen(case: Case, mission: Row) -> None:
    """Refuse a finished mission; with ``rewind`` it goes on from the checkpoint."""
    if mission["status"] not in _FINISHED:
        _end_again(case)
        return
    if case.narrow:
        raise InvalidState(
            f"Mission {mission['id']} is {mission['status']}; one agent cannot reopen it.",
            hint="Restore the whole mission: --scope mission --rewind.",
            status=mission["status"],
        )
    if not case.request.rewind:
        raise InvalidState(
            f"Mission {mission['id']} was {mission['status']} at {mission['completed_at']}.",
            hint="To go back to the checkpoint all the same, add --rewind.",
            status=mission["status"],
        )
    known = case.checkpoint.mission
    then = known.status if known else "in_progress"
    case.tx.run(
        "UPDATE missions SET status = :status, completed_at = NULL, updated_at = :now,"
        " started_at = coalesce(started_at, :now) WHERE id = :id",
        status="in_progress" if then in _FINISHED else then,
        now=case.ctx.now,
        id=mission["id"],
    )


def _end_again(case: Case) -> None:
    """Put back the end of a mission whose rewinding is undone: its checkpoint has to be named."""
    known = case.checkpoint.mission
    named = case.request.checkpoint_id is not None
    if named and known and known.status in _FINISHED and not case.narrow:
        case.tx.run(
            "UPDATE missions SET status = :status, completed_at = :at, updated_at = :now"
            " WHERE id = :id",
            status=known.status,
            at=case.checkpoint.timestamp,
            now=case.ctx.now,
            id=case.mission_id,
        )


def _done_before(case: Case, mission: Row) -> bool:
    """Whether the same was done just now; the second of two at once is told who was first."""
    last = case.tx.one(
        "SELECT * FROM recoveries WHERE mission_id = :id ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
    )
    if last is None or last["checkpoint_id"] != case.checkpoint.id:
        return False
    if mission["last_activity_seq"] > last["seq"]:
        return False
    who = last["agent_id"] or last["requested_by"]
    case.ledger.warnings.append(
        f"Already recovered from {case.checkpoint.id} by {who} at {last['created_at']} "
        f"({last['id']}); nothing has happened since"
    )
    return True


def _keep_undo(case: Case, mission: Row) -> str | None:
    """Return the checkpoint that would undo the recovery; one that equals it need not be taken.

    None when what is there equals what is restored: there is nothing to undo.
    """
    state = capture(case.tx, case.ctx, mission)
    digest = state.digest()
    if checkpoints.find_row(case.tx, case.checkpoint.id)["state_digest"] == digest:
        return None
    newest = checkpoints.latest_row(case.tx, mission["id"], undo=True)
    if newest and newest["state_digest"] == digest:
        return str(newest["id"])
    reason = Reason(
        trigger="compaction",
        details=f"Before recovery from {case.checkpoint.id}",
        created_by=case.request.requested_by,
        undo=True,
        spare=case.checkpoint.id,
    )
    return checkpoints.take(case.tx, case.ctx, mission["id"], reason, state).id


def _become_newest(case: Case) -> None:
    """Take a checkpoint of what an older one restored.

    Otherwise the next recovery would go forward again, to the newer one that was just left.
    """
    newest = checkpoints.latest_row(case.tx, case.mission_id)
    if case.checkpoint.undo or newest is None or newest["id"] == case.checkpoint.id:
        return
    state = capture(case.tx, case.ctx, find(case.tx, "mission", case.mission_id))
    if state.digest() == newest["state_digest"]:
        return
    reason = Reason(
        trigger="compaction",
        details=f"Recovered from {case.checkpoint.id}",
        created_by=case.request.requested_by,
        spare=case.checkpoint.id,
    )
    checkpoints.take(case.tx, case.ctx, case.mission_id, reason, state)


def _record(case: Case, undo_id: str | None) -> str:
    recovery_id = fresh_id(case.tx, case.ctx, "recovery")
    case.tx.insert(
        "recoveries",
        {
            "id": recovery_id,
            "seq": position(case.tx),
            "mission_id": case.mission_id,
            "checkpoint_id": case.checkpoint.id,
            "undo_checkpoint_id": undo_id,
            "agent_id": case.request.agent_id,
            "requested_by": case.request.requested_by,
            "scope": case.request.scope,
            "state": "briefed",
            "created_at": case.ctx.now,
            "briefed_at": case.ctx.now,
        },
    )
    return recovery_id


def _announce(case: Case, recovery_id: str, restored: Restored, progress: int) -> None:
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
        progress=progress,
    )
    emit(case.tx, case.ctx, payload, mission_id=case.mission_id)
    briefed, to = RecoveryBriefed(recovery_id=recovery_id), case.request.agent_id
    emit(case.tx, case.ctx, briefed, mission_id=case.mission_id, agent_id=to)


def _result(case: Case, recovery_id: str, undo_id: str | None, restored: Restored) -> RestoreResult:
    tx, ctx, request, ledger = case.tx, case.ctx, case.request, case.ledger
    mission = find(tx, "mission", case.mission_id)
    context = remember(tx, ctx, mission, case.checkpoint, request.agent_id, case)
    _brief_sorties(case, mission)
    brief = briefs.gather(
        tx,
        ctx,
        mission,
        context,
        agent_id=request.agent_id,
        progress_note=f", {restored.sorties} sorties restored",
        taken_over_from=request.take_over_from,
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
    )


def _brief_sorties(case: Case, mission: Row) -> None:
    """Leave each open sortie its agent's part of the context, until its next progress."""
    rows = case.tx.all(
        "SELECT DISTINCT assigned_to FROM sorties WHERE mission_id = :mission"
        " AND assigned_to IS NOT NULL AND status NOT IN ('completed', 'failed')",
        mission=case.mission_id,
    )
    for agent_id in (row["assigned_to"] for row in rows):
        if case.narrow in (None, agent_id):
            case.tx.run(
                "UPDATE sorties SET recovery_context_json = :context WHERE mission_id = :mission"
                " AND assigned_to = :agent AND status NOT IN ('completed', 'failed')",
                context=msgspec.json.encode(part_of(case, mission, agent_id)).decode(),
                mission=case.mission_id,
                agent=agent_id,
            )


@handler
def context(tx: Tx, request: RecoveryContextGet, ctx: Context) -> Briefing:
    """Brief without restoring anything."""
    checkpoint = None
    if request.checkpoint_id:
        checkpoint = checkpoints.load(tx, request.checkpoint_id)
        mission = find(tx, "mission", checkpoint.mission_id)
    else:
        mission = _mission_of(tx, request)
        row = checkpoints.latest_row(tx, mission["id"], but=ctx.facts.unreadable)
        checkpoint = from_row(row) if row else None
    told = remember(tx, ctx, mission, checkpoint, request.agent_id)
    brief = briefs.gather(tx, ctx, mission, told, agent_id=request.agent_id)
    return Briefing(
        recovery_context=told,
        prompt=render(brief, request.max_chars or ctx.config.prompt.max_chars),
        checkpoint_id=checkpoint.id if checkpoint else None,
    )


def _mission_of(tx: Tx, request: RecoveryContextGet) -> Row:
    """Return the mission to brief about: named, the agent's, or the current one."""
    if request.mission_id:
        return find(tx, "mission", request.mission_id)
    if request.agent_id:
        row = tx.one(
            "SELECT m.* FROM missions m JOIN agents a ON a.mission_id = m.id WHERE a.id = :id",
            id=request.agent_id,
        )
        if row is not None:
            return row
    row = current_row(tx, request.cwd)
    if row is None:
        raise InvalidState(
            "No active mission found. Use --mission <id> to specify.",
            hint="fleetctl mission list shows the missions there are.",
        )
    return row


@handler
def list_recoveries(tx: Tx, request: RecoveryList, ctx: Context) -> RecoveryPage:
    """Return recoveries, newest first."""
    mission_id = find(tx, "mission", request.mission_id)["id"] if request.mission_id else None
    rows = tx.all("SELECT * FROM recoveries ORDER BY seq DESC")
    found: list[Recovery] = [
        recovery_of(row) for row in rows if mission_id in (None, row["mission_id"])
    ]
    return RecoveryPage(recoveries=found)
