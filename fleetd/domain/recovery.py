"""Recovery: one transaction that brings a mission back and briefs its agent.

Source: behaviour, Recovery. A failure rolls everything back; a dry run does the very same and is
then undone. Must not read files or clocks: what comes from outside is in the facts.
"""

import msgspec

from ..wire.errors import InvalidParams, InvalidState
from ..wire.events import FleetRecovered, RecoveryBriefed
from ..wire.model import Checkpoint, Recovery, Restored, RestoreResult
from ..wire.requests import RecoveryContextGet, RecoveryList, RecoveryRestore
from ..wire.requests.recovery import Briefing, RecoveryPage
from . import briefs, checkpoints, restoring, takeover
from .capture import capture
from .checkpoints import Reason
from .choosing import choose
from .content import from_row
from .context import Context
from .events import emit
from .ids import find, fresh_id
from .missions import current_row
from .progress import rearm
from .prompt import render
from .records import recovery_of, sorties_of
from .registry import handler
from .remembering import remember
from .restoring import Ledger, Scope
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
    narrow = _narrow(request)
    ledger = Ledger()
    checkpoint = choose(tx, ctx, request, ledger)
    mission = find(tx, "mission", checkpoint.mission_id)
    _reopen(tx, ctx, mission, checkpoint, rewind=request.rewind)
    takeover.note_dead(tx, ctx, mission["id"], request.take_over_from)
    _warn_if_done_before(tx, mission, checkpoint, ledger)
    undo_id = _keep_undo(tx, ctx, mission, checkpoint, request.requested_by)
    scope = Scope(
        agent_id=request.agent_id,
        take_over_from=request.take_over_from,
        rewind=request.rewind,
        force_locks=request.force_locks,
    )
    if request.agent_id and request.take_over_from:
        takeover.hand_over(tx, ctx, mission["id"], request.take_over_from, request.agent_id, ledger)
    restored = Restored(
        sorties=restoring.sorties(tx, ctx, checkpoint, scope, narrow, ledger),
        locks=restoring.file_locks(tx, ctx, checkpoint, scope, narrow, ledger),
        messages=restoring.mail(tx, ctx, checkpoint, scope, narrow, ledger),
    )
    restoring.orphaned_locks(tx, ctx, checkpoint, narrow, ledger)
    progress = rearm(tx, mission["id"])
    tx.run(
        "UPDATE checkpoints SET consumed_at = :now WHERE id = :id", now=ctx.now, id=checkpoint.id
    )
    recovery_id = _record(tx, ctx, request, checkpoint, undo_id)
    _announce(tx, ctx, request, checkpoint, recovery_id, restored, progress, ledger)
    return _result(tx, ctx, request, checkpoint, recovery_id, undo_id, restored, ledger)


def _narrow(request: RecoveryRestore) -> str | None:
    """Return the only agent whose part is restored, if it is only one's; checks the request."""
    if request.take_over_from and not request.agent_id:
        raise InvalidParams(
            "take_over_from names a lost agent, but agent_id, its successor, is missing.",
            hint="Give the successor as agent_id.",
            field="agent_id",
        )
    if request.scope == "mission":
        return None
    if request.agent_id is None:
        raise InvalidParams(
            "scope is agent, but agent_id is missing.",
            hint="Say whose part is to be restored.",
            field="agent_id",
        )
    return request.agent_id


def _reopen(tx: Tx, ctx: Context, mission: Row, checkpoint: Checkpoint, *, rewind: bool) -> None:
    """Refuse a finished mission; with ``rewind`` it goes on from the checkpoint."""
    if mission["status"] not in _FINISHED:
        return
    if not rewind:
        raise InvalidState(
            f"Mission {mission['id']} was {mission['status']} at {mission['completed_at']}.",
            hint="To go back to the checkpoint all the same, add --rewind.",
            status=mission["status"],
        )
    then = checkpoint.mission.status if checkpoint.mission else "in_progress"
    tx.run(
        "UPDATE missions SET status = :status, completed_at = NULL, updated_at = :now,"
        " started_at = coalesce(started_at, :now) WHERE id = :id",
        status="in_progress" if then in _FINISHED else then,
        now=ctx.now,
        id=mission["id"],
    )


def _warn_if_done_before(tx: Tx, mission: Row, checkpoint: Checkpoint, ledger: Ledger) -> None:
    """Tell the second of two that recover at once who was first."""
    last = tx.one(
        "SELECT * FROM recoveries WHERE mission_id = :id ORDER BY seq DESC LIMIT 1",
        id=mission["id"],
    )
    if last is None or last["checkpoint_id"] != checkpoint.id:
        return
    if mission["last_activity_seq"] <= last["seq"]:
        who = last["agent_id"] or last["requested_by"]
        ledger.warnings.append(
            f"Already recovered from {checkpoint.id} by {who} at {last['created_at']} "
            f"({last['id']}); nothing has happened since"
        )


def _keep_undo(
    tx: Tx, ctx: Context, mission: Row, checkpoint: Checkpoint, requested_by: str
) -> str | None:
    """Take a checkpoint of what is there, unless one that equals it is at hand."""
    state = capture(tx, ctx, mission)
    newest = checkpoints.latest_row(tx, mission["id"], undo=True)
    target = checkpoints.find_row(tx, checkpoint.id)
    known = {target["state_digest"], newest["state_digest"] if newest else ""}
    if state.digest() in known:
        return None
    reason = Reason(
        trigger="compaction",
        details=f"Before recovery from {checkpoint.id}",
        created_by=requested_by,
        undo=True,
    )
    return checkpoints.take(tx, ctx, mission["id"], reason, state).id


def _record(
    tx: Tx, ctx: Context, request: RecoveryRestore, checkpoint: Checkpoint, undo_id: str | None
) -> str:
    recovery_id = fresh_id(tx, ctx, "recovery")
    tx.run(
        "INSERT INTO recoveries (id, seq, mission_id, checkpoint_id, undo_checkpoint_id, agent_id,"
        " requested_by, scope, state, created_at, briefed_at) SELECT :id,"
        " (SELECT max(seq) FROM events), :mission, :checkpoint, :undo, :agent, :requested_by,"
        " :scope, 'briefed', :now, :now",
        id=recovery_id,
        mission=checkpoint.mission_id,
        checkpoint=checkpoint.id,
        undo=undo_id,
        agent=request.agent_id,
        requested_by=request.requested_by,
        scope=request.scope,
        now=ctx.now,
    )
    return recovery_id


def _announce(
    tx: Tx,
    ctx: Context,
    request: RecoveryRestore,
    checkpoint: Checkpoint,
    recovery_id: str,
    restored: Restored,
    progress: int,
    ledger: Ledger,
) -> None:
    payload = FleetRecovered(
        checkpoint_id=checkpoint.id,
        mission_id=checkpoint.mission_id,
        recovered_sorties=restored.sorties,
        recovered_locks=restored.locks,
        requeued_messages=restored.messages,
        recovery_duration_ms=ctx.elapsed_ms(),
        sorties_restored=restored.sorties,
        locks_restored=restored.locks,
        messages_requeued=restored.messages,
        errors=len(ledger.errors),
        warnings=len(ledger.warnings),
        progress=progress,
    )
    emit(tx, ctx, payload, mission_id=checkpoint.mission_id)
    briefed = RecoveryBriefed(recovery_id=recovery_id)
    emit(tx, ctx, briefed, mission_id=checkpoint.mission_id, agent_id=request.agent_id)


def _result(
    tx: Tx,
    ctx: Context,
    request: RecoveryRestore,
    checkpoint: Checkpoint,
    recovery_id: str,
    undo_id: str | None,
    restored: Restored,
    ledger: Ledger,
) -> RestoreResult:
    mission = find(tx, "mission", checkpoint.mission_id)
    context = remember(tx, ctx, mission, checkpoint, request.agent_id, ledger, request.rewind)
    _brief_sorties(tx, ctx, mission, checkpoint, ledger, _narrow(request), request.rewind)
    brief = briefs.gather(
        tx,
        ctx,
        mission,
        sorties_of(tx, mission["id"]),
        context,
        agent_id=request.agent_id,
        progress_note=f", {restored.sorties} sorties restored",
        errors=ledger.errors,
        warnings=ledger.warnings,
    )
    brief = msgspec.structs.replace(brief, taken_over_from=request.take_over_from)
    return RestoreResult(
        success=True,
        dry_run=request.dry_run,
        recovery_id=None if request.dry_run else recovery_id,
        checkpoint_id=checkpoint.id,
        undo_checkpoint_id=None if request.dry_run else undo_id,
        mission_id=mission["id"],
        recovery_context=context,
        restored=restored,
        kept=ledger.kept,
        released_locks=ledger.released,
        errors=ledger.errors,
        warnings=ledger.warnings,
        prompt=render(brief, request.max_chars or ctx.config.prompt.max_chars),
        would_restore=ledger.changes if request.dry_run else None,
    )


def _brief_sorties(
    tx: Tx,
    ctx: Context,
    mission: Row,
    checkpoint: Checkpoint,
    ledger: Ledger,
    narrow: str | None,
    rewind: bool,
) -> None:
    """Leave each open sortie its agent's part of the context, until its next progress."""
    own: dict[str, str] = {}
    for sortie in sorties_of(tx, mission["id"]):
        agent = sortie.assigned_to
        if agent is None or sortie.status in ("completed", "failed"):
            continue
        if narrow not in (None, agent):
            continue
        if agent not in own:
            part = remember(tx, ctx, mission, checkpoint, agent, ledger, rewind, narrow=True)
            own[agent] = msgspec.json.encode(part).decode()
        tx.run(
            "UPDATE sorties SET recovery_context_json = :context WHERE id = :id",
            context=own[agent],
            id=sortie.id,
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
        row = checkpoints.latest_row(tx, mission["id"])
        checkpoint = from_row(row) if row else None
    ledger = Ledger()
    told = remember(tx, ctx, mission, checkpoint, request.agent_id, ledger, rewind=False)
    brief = briefs.gather(
        tx, ctx, mission, sorties_of(tx, mission["id"]), told, agent_id=request.agent_id
    )
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
