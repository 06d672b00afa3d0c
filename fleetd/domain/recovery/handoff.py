"""Hand-off: a person gives an agent's work to a new session, which begins with the briefing.

The beginning moves nothing. The awaited session completes the hand-off with its first hook: that
transaction moves the work as a take-over does. Without that session everything stays unchanged,
whatever ended meanwhile, so nothing has to be taken back.
"""

import re
from collections.abc import Iterator

from ...protocol.errors import FleetError, InvalidParams, InvalidState
from ...protocol.events import AgentNeeds
from ...protocol.records import Handoff, RestoreResult
from ...protocol.requests.agent import AgentRegister
from ...protocol.requests.handoff import (
    HandoffAsk,
    HandoffBegin,
    HandoffBegun,
    HandoffCancel,
    HandoffGet,
)
from ...protocol.requests.recovery import RecoveryRestore
from ...protocol.types import OPEN_MISSION
from ..agents import agents
from ..attention.overview import WISHED
from ..attention.running import runs_any
from ..checkpoints import checkpoints
from ..checkpoints.state import capture
from ..cluster.membership import machine_suffix
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.history import agent_changed
from ..core.ids import find, fresh_id
from ..core.observers import handoff_due
from ..core.registry import method
from ..core.tx import LogLine, Row, Tx
from ..liveness.needs import MID_TURN
from ..liveness.process_identity import who_asks
from ..missions import missions
from ..sessions import handoffs, notices
from .prompt_layout import OPENING
from .restore import restore

# How long the session of a successor is awaited.
AWAITED_MS = 30_000
_LIVES = ("active", "waiting", "idle")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 40


def begin(tx: Tx, ctx: Context, request: HandoffBegin) -> HandoffBegun:
    """Take a checkpoint of the mission, and await the successor; nothing moves yet.

    Only a person can begin one; an agent asks for it.
    """
    by = who_asks(tx, ctx, None)
    if by is not None:
        raise InvalidState(
            f"Only a person can hand work over; {by} is an agent.",
            hint=f"Ask your user to run: fleetctl handoff {request.agent_id} --to {request.to}",
            agent_id=by,
        )
    if request.dry_run:
        with tx.rehearsal():
            return _begin(tx, ctx, request)
    return _begin(tx, ctx, request)


def _begin(tx: Tx, ctx: Context, request: HandoffBegin) -> HandoffBegun:
    row = find(tx, "agent", request.agent_id)
    _refuse_part(tx, row)
    mission = _mission(tx, row)
    _refuse_awaited(tx, ctx, row)
    at_work = _at_work(tx, ctx, row)
    if at_work and not request.force:
        raise InvalidState(
            f"Agent {row['id']} is still at work: {at_work}.",
            hint="Let it finish, or add --force to hand its work over in the middle.",
            status=row["status"],
        )
    handoff_id = fresh_id(tx, ctx, "handoff")
    successor = _successor(tx, ctx, request)
    reason = checkpoints.Reason(
        trigger="manual",
        details=f"Before the hand-off of {row['id']} to {successor}",
        created_by="cli",
    )
    checkpoint_id = checkpoints.take(tx, ctx, mission["id"], reason).id
    with tx.rehearsal():
        agents.register(
            tx, ctx, AgentRegister(successor, row["role"], mission_id=mission["id"], cwd=row["cwd"])
        )
        moved = _move(tx, ctx, row, successor)
    tx.insert(
        "handoffs",
        {
            "id": handoff_id,
            "seq": position(tx),
            "agent_id": row["id"],
            "successor_id": successor,
            "harness": request.to,
            "mission_id": mission["id"],
            "state": "pending",
            "checkpoint_id": checkpoint_id,
            "created_at": ctx.now,
            "expires_at": ctx.at(AWAITED_MS),
        },
    )
    _end_wishes(tx, ctx, row["id"])
    return HandoffBegun(
        handoff=handoffs.record_of(tx, ctx, handoff_id),
        prompt=_first_prompt(handoff_id, row["id"], successor, moved.prompt),
        changes=moved.changed,
        warnings=[*_warnings(tx, ctx, row, at_work), *moved.errors, *moved.warnings],
    )


def _first_prompt(handoff_id: str, agent_id: str, successor: str, briefing: str) -> str:
    return (
        f"{handoffs.opening(handoff_id)}: continue the work of {agent_id}. You are {successor} from"
        f" now on, and the open sorties, locks and mail of {agent_id} are yours. fleetd recorded"
        f" where the work stands:\n\n{briefing.removeprefix(OPENING).lstrip()}"
    )


def _refuse_part(tx: Tx, row: Row) -> None:
    """Refuse a subagent: it ends with its session."""
    session = tx.one(
        "SELECT l.agent_id FROM sessions s JOIN sessions l ON l.harness = s.harness"
        " AND l.session_id = s.session_id AND l.subagent = ''"
        " WHERE s.agent_id = :id AND s.subagent <> ''",
        id=row["id"],
    )
    if session is not None:
        raise InvalidState(
            f"Agent {row['id']} is a subagent of {session['agent_id']}.",
            hint=f"Hand over the work of {session['agent_id']}.",
            agent_id=session["agent_id"],
        )


def _mission(tx: Tx, row: Row) -> Row:
    """Return the mission whose work is handed over; it is open, or ended with its session."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=row["mission_id"])
    if mission is None:
        raise InvalidState(
            f"Agent {row['id']} works in no mission, so it has no work to hand over.",
            hint="fleetctl agent list shows the missions of agents.",
        )
    ended_with_session = mission["closed_reason"] == "session"
    if mission["status"] not in OPEN_MISSION and not ended_with_session:
        raise InvalidState(
            f"The mission of {row['id']}, {mission['id']}, is over.",
            hint=f"To reopen it: fleetctl resume --mission {mission['id']} --rewind",
            status=mission["status"],
        )
    return mission


def _refuse_awaited(tx: Tx, ctx: Context, row: Row) -> None:
    """Refuse a second hand-off of one agent while the first awaits its session."""
    waiting = tx.one(
        "SELECT * FROM handoffs WHERE agent_id = :id AND state = 'pending' AND expires_at >= :now",
        id=row["id"],
        now=ctx.now,
    )
    if waiting is not None:
        raise InvalidState(
            f"The work of {row['id']} is being handed to {waiting['successor_id']}, which is"
            f" awaited until {waiting['expires_at']}.",
            hint="Wait until then, and try again.",
            handoff_id=waiting["id"],
        )


def _at_work(tx: Tx, ctx: Context, row: Row) -> str | None:
    """Return what an agent is busy with, None for one that is idle or gone.

    The turns of an agent without a session are unknown.
    """
    if row["status"] not in _LIVES or row["id"] in ctx.facts.dead_agents:
        return None
    if not ctx.is_here(row):
        where = machine_suffix(tx, ctx, row["machine"])
        raise InvalidState(
            f"Agent {row['id']} runs{where}.",
            hint="Hand its work over there, where its files are.",
            machine=row["machine"],
        )
    if tx.exists("SELECT 1 AS open FROM tool_calls WHERE agent_id = :id", id=row["id"]):
        return "a tool call is open"
    if row["needs"] in MID_TURN:
        return "it waits for your answer in the middle of its turn"
    if row["status"] == "active" and row["session_id"] is not None:
        return "its turn is not over"
    return None


def _warnings(tx: Tx, ctx: Context, row: Row, at_work: str | None) -> Iterator[str]:
    if row["status"] not in _LIVES or row["id"] in ctx.facts.dead_agents:
        return
    if at_work:
        yield f"{row['id']} is still at work: {at_work}"
    elif runs_any(tx, row["id"]):
        yield f"something that {row['id']} began still runs in the background"
    if row["pid"] is not None:
        yield f"{row['id']} still runs (process {row['pid']}); end it, or let it do something else"


def _successor(tx: Tx, ctx: Context, request: HandoffBegin) -> str:
    """Return an agent id for the successor that no agent has or had."""
    name = _NOT_IN_IDS.sub("-", request.to).strip("-._")[:LONGEST_NAME]
    wanted = request.successor_id or ctx.new_id(name or "agent")
    taken = tx.exists("SELECT 1 AS taken FROM agents WHERE id = :id", id=wanted)
    if taken or handoffs.awaited(tx, wanted) is not None:
        raise InvalidParams(
            f"There is an agent {wanted} already.",
            hint="Leave successor_id out, and fleetd chooses a new name.",
            field="successor_id",
        )
    return wanted


def _move(tx: Tx, ctx: Context, row: Row, successor: str) -> RestoreResult:
    """Move the work of an agent to its successor, which may be registered in any mission."""
    mission = _mission(tx, row)
    missions.reopen(tx, ctx, mission, "session")
    agents.replace_agent(tx, ctx, row, successor)
    return restore(
        tx,
        ctx,
        RecoveryRestore(
            checkpoint_id=_checkpoint(tx, ctx, row, successor),
            requested_by="cli",
            agent_id=successor,
            take_over_from=row["id"],
            scope="agent",
        ),
    )


def _checkpoint(tx: Tx, ctx: Context, row: Row, successor: str) -> str:
    """Return a checkpoint of the mission's present state, so that nothing is undone."""
    state = capture(tx, ctx, find(tx, "mission", row["mission_id"]))
    newest = checkpoints.latest_row(tx, row["mission_id"], columns=checkpoints.HEAD)
    if newest is not None and newest["state_digest"] == state.digest():
        return str(newest["id"])
    details = f"Hand-off of {row['id']} to {successor}"
    reason = checkpoints.Reason(trigger="manual", details=details, created_by="cli")
    return checkpoints.take(tx, ctx, row["mission_id"], reason, state).id


@handoff_due.subscribe
def complete(tx: Tx, ctx: Context, handoff: Row) -> None:
    """Move the work to the session that has begun; if anything prevents this, the hand-off fails.

    The successor has the briefing already, so no hook reports the take-over again.
    """
    row = tx.one("SELECT * FROM agents WHERE id = :id", id=handoff["agent_id"])
    successor = handoff["successor_id"]
    if row is None or row["mission_id"] != handoff["mission_id"]:
        handoffs.fail(tx, ctx, handoff, "failed", f"{handoff['agent_id']} works elsewhere now")
        return
    try:
        with tx.attempt():
            moved = _move(tx, ctx, row, successor)
    except FleetError as refusal:
        handoffs.fail(tx, ctx, handoff, "failed", refusal.message)
        tx.after_commit(
            LogLine("WARNING", f"Hand-off {handoff['id']} did not take place: {refusal.message}")
        )
        return
    tx.run("UPDATE agents SET role = :role WHERE id = :id", role=row["role"], id=successor)
    agent_changed(tx, successor)
    notices.drop_handover(tx, successor, row["id"])
    tx.run(
        "UPDATE handoffs SET state = 'completed', ended_at = :now, was_status = :status,"
        " undo_checkpoint_id = :undo, recovery_id = :recovery WHERE id = :id",
        now=ctx.now,
        status=row["status"],
        undo=moved.undo_checkpoint_id,
        recovery=moved.recovery_id,
        id=handoff["id"],
    )
    tx.after_commit(
        LogLine("INFO", f"Hand-off {handoff['id']}: {successor} has the work of {row['id']}")
    )


@method(HandoffGet)
def get(tx: Tx, ctx: Context, request: HandoffGet) -> Handoff:
    """Return one hand-off."""
    return handoffs.record_of(tx, ctx, request.handoff_id)


@method(HandoffCancel)
def cancel(tx: Tx, ctx: Context, request: HandoffCancel) -> Handoff:
    """Stop awaiting the session of a hand-off; a finished hand-off stays unchanged."""
    row = find(tx, "handoff", request.handoff_id)
    if row["state"] in ("asked", "pending"):
        handoffs.end(tx, ctx, row, "cancelled")
    return handoffs.record_of(tx, ctx, row["id"])


@method(HandoffAsk)
def ask(tx: Tx, ctx: Context, request: HandoffAsk) -> Handoff:
    """Record that an agent wants its work to go to another agent CLI; a person decides."""
    row = find(tx, "agent", request.agent_id)
    _refuse_part(tx, row)
    mission = _mission(tx, row)
    _refuse_awaited(tx, ctx, row)
    same = tx.one(
        f"SELECT id FROM handoffs WHERE agent_id = :id AND harness = :to AND {WISHED}",
        id=row["id"],
        to=request.to,
    )
    if same is not None:
        return handoffs.record_of(tx, ctx, same["id"])
    _end_wishes(tx, ctx, row["id"])
    handoff_id = fresh_id(tx, ctx, "handoff")
    tx.insert(
        "handoffs",
        {
            "id": handoff_id,
            "seq": position(tx),
            "agent_id": row["id"],
            "harness": request.to,
            "mission_id": mission["id"],
            "state": "asked",
            "created_at": ctx.now,
        },
    )
    payload = AgentNeeds(needs="question", text=f"asks to be handed over to {request.to}")
    emit(tx, ctx, payload, mission_id=mission["id"], agent_id=row["id"])
    return handoffs.record_of(tx, ctx, handoff_id)


def _end_wishes(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Cancel what an agent asked for: its work is handed over, or it asks for something else."""
    tx.run(
        "UPDATE handoffs SET state = 'cancelled', ended_at = :now"
        " WHERE agent_id = :id AND state = 'asked'",
        now=ctx.now,
        id=agent_id,
    )
