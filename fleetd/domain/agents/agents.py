"""Agents: register, find by process, declare, leave."""

import re

import msgspec
from msgspec.structs import asdict, replace

from ...protocol.events import (
    AgentDeregistered,
    AgentLost,
    AgentNeeds,
    AgentNoted,
    AgentRegistered,
)
from ...protocol.records import Agent, WorkNote
from ...protocol.requests.agent import (
    AgentCurrent,
    AgentDeregister,
    AgentGet,
    AgentHeartbeat,
    AgentList,
    AgentNote,
    AgentPage,
    AgentRegister,
    CurrentAgent,
    Registration,
)
from ...protocol.types import Role
from ..core.changes import lock_orphaned
from ..core.context import Context
from ..core.event_log import NO_NEED, emit, emit_need_ended
from ..core.history import agent_changed, locks_change
from ..core.ids import find
from ..core.mappers import agent_of
from ..core.observers import agent_left, store_arrived
from ..core.registry import method
from ..core.sql import LIVING, Where
from ..core.tx import LogLine, Row, Tx, WatchProcess
from ..liveness.needs import one_line
from ..liveness.open_calls import end_turn
from ..liveness.process_identity import agents_of_process
from ..liveness.silence import detect_for
from ..locks.leases import release_all
from ..missions.selection import inherited_mission, mission_of_directory, mission_to_join
from ..snapshots import triggers

_note = msgspec.json.Decoder(WorkNote).decode
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 40


def register(tx: Tx, ctx: Context, request: AgentRegister) -> Registration:
    """Start an agent or bring it back; detection runs first, because registering is activity."""
    before = tx.one("SELECT * FROM agents WHERE id = :id", id=request.agent_id)
    recovery = detect_for(tx, ctx, before, request.threshold_ms)
    mission_id = _mission(tx, ctx, request, before)
    end_turn(tx, request.agent_id)
    reclaim_locks(tx, ctx, request.agent_id)
    tx.run(
        "INSERT INTO agents (id, role, harness, session_id, pid, pid_started, mission_id, cwd,"
        " machine, status, registered_at, last_seen_at, seen_awake_ms) VALUES (:id, :role,"
        " :harness, :session, :pid, :pid_started, :mission, :cwd, :machine, 'active', :now, :now,"
        " :awake)"
        " ON CONFLICT (id) DO UPDATE SET role = excluded.role,"
        " harness = coalesce(excluded.harness, agents.harness),"
        " session_id = excluded.session_id, pid = excluded.pid,"
        " pid_started = excluded.pid_started,"
        " mission_id = coalesce(excluded.mission_id, agents.mission_id),"
        " cwd = coalesce(excluded.cwd, agents.cwd), status = 'active', succeeded_by = NULL,"
        f" {NO_NEED},"
        " registered_at = excluded.registered_at, last_seen_at = excluded.last_seen_at,"
        " seen_awake_ms = excluded.seen_awake_ms, machine = excluded.machine",
        id=request.agent_id,
        role=request.role,
        harness=request.harness,
        session=request.session_id,
        pid=request.pid,
        pid_started=ctx.facts.pid_started,
        mission=mission_id,
        cwd=request.cwd,
        now=ctx.now,
        awake=ctx.awake_ms,
        machine=ctx.machine,
    )
    agent_changed(tx, request.agent_id)
    row = find(tx, "agent", request.agent_id)
    if request.pid is not None:
        tx.after_commit(WatchProcess(row["id"], request.pid, ctx.facts.pid_started))
    if before is not None:
        emit_need_ended(tx, ctx, before)
    payload = AgentRegistered(role=request.role, harness=request.harness, pid=request.pid)
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=row["id"])
    return Registration(agent=agent_of(row), recovery=recovery)


def reclaim_locks(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Give an agent that came back in time its locks back; its activity then renews them."""
    orphans = tx.all(
        "SELECT id, mission_id FROM locks WHERE held_by = :agent AND status = 'active'"
        " AND orphaned_at IS NOT NULL AND expires_at > :now",
        agent=agent_id,
        now=ctx.now,
    )
    locks_change(tx, *(row["id"] for row in orphans))
    for row in orphans:
        tx.run("UPDATE locks SET orphaned_at = NULL WHERE id = :id", id=row["id"])
        lock_orphaned(tx, row["mission_id"], row["id"], False)


def _mission(tx: Tx, ctx: Context, request: AgentRegister, before: Row | None) -> str | None:
    """Return the mission an agent joins: the named, else the inherited, else its directory's.

    An agent that comes back without naming one stays in its mission.
    """
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    if before and before["mission_id"]:
        return None
    heir = inherited_mission(tx, request.agent_id)
    joined = heir or mission_of_directory(tx, ctx, request.cwd)
    return str(joined["id"]) if joined else None


def find_current(tx: Tx, ctx: Context, agent_id: str | None) -> CurrentAgent:
    """Return the living agent that the process in the facts belongs to.

    An agent CLI has a hook client and its own tool server as child processes. Both belong to the
    agent of the session that is at work in that process, whichever comes first.
    """
    row = _current_row(tx, ctx, agent_id)
    return CurrentAgent(agent=agent_of(row) if row else None)


def _current_row(tx: Tx, ctx: Context, agent_id: str | None) -> Row | None:
    """Return the living agent with a name, else that of the process.

    Sessions of the process with that name come first; a second one is ``<name>.2``.
    """
    for row in agents_of_process(tx, ctx):
        if agent_id is None or re.fullmatch(rf"{re.escape(agent_id)}(\.\d+)?", row["id"]):
            return row
    if agent_id is None:
        return None
    return tx.one(f"SELECT * FROM agents WHERE id = :id AND status IN {LIVING}", id=agent_id)


def find_or_register(tx: Tx, ctx: Context, request: AgentCurrent) -> CurrentAgent:
    """Return the agent that a process belongs to; register it if necessary."""
    if row := _current_row(tx, ctx, request.agent_id):
        return CurrentAgent(agent=agent_of(row))
    known = tx.one("SELECT * FROM agents WHERE id = :id", id=request.agent_id)
    joined = None
    if not (known and known["mission_id"]):
        joined = inherited_mission(tx, request.agent_id) or mission_to_join(tx, ctx, request.cwd)
    first: Role = "specialist" if joined else "dispatch"
    name = _NOT_IN_IDS.sub("-", request.harness or "").strip("-._")[:LONGEST_NAME]
    registered = register(
        tx,
        ctx,
        AgentRegister(
            request.agent_id or ctx.new_id(name or "agent"),
            known["role"] if known else first,
            harness=request.harness,
            pid=ctx.facts.agent_pid,
            mission_id=joined["id"] if joined else None,
            cwd=request.cwd,
        ),
    )
    return CurrentAgent(agent=registered.agent)


@method(AgentHeartbeat)
def heartbeat(tx: Tx, ctx: Context, request: AgentHeartbeat) -> Agent:
    """Note that an agent lives; a heartbeat is no activity and leaves no event.

    An agent that was lost only because it was silent for too long is no longer lost.
    """
    row = find(tx, "agent", request.agent_id)
    tx.run(
        "UPDATE agents SET last_seen_at = :now, seen_awake_ms = :awake,"
        " machine = CASE WHEN status = 'lost' AND pid IS NULL THEN :machine ELSE machine END,"
        " status = CASE WHEN status = 'lost' AND pid IS NULL AND succeeded_by IS NULL"
        " THEN 'active' ELSE status END WHERE id = :id",
        now=ctx.now,
        awake=ctx.awake_ms,
        machine=ctx.machine,
        id=row["id"],
    )
    if row["status"] == "lost" and row["pid"] is None:
        agent_changed(tx, row["id"])
    if row["status"] == "lost" and row["pid"] is None and row["succeeded_by"] is None:
        forget_need(tx, ctx, row)
    return _get(tx, row["id"])


def forget_need(tx: Tx, ctx: Context, row: Row) -> None:
    """Note that an agent no longer needs anybody; ``row`` is its previous row."""
    tx.run(f"UPDATE agents SET {NO_NEED} WHERE id = :id", id=row["id"])
    agent_changed(tx, row["id"])
    emit_need_ended(tx, ctx, row)


@method(AgentNote)
def note(tx: Tx, ctx: Context, request: AgentNote) -> Agent:
    """Keep what an agent declares; each given field replaces the previous one."""
    row = find(tx, "agent", request.agent_id)
    before = _note(row["note_json"]) if row["note_json"] else WorkNote()
    declared = {name: getattr(request, name) for name in WorkNote.__struct_fields__}
    after = replace(
        before, **{name: value for name, value in declared.items() if value is not None}
    )
    tx.run(
        "UPDATE agents SET note_json = :note WHERE id = :id",
        note=msgspec.json.encode(after).decode(),
        id=row["id"],
    )
    emit(tx, ctx, AgentNoted(**asdict(after)), mission_id=row["mission_id"], agent_id=row["id"])
    return _get(tx, row["id"])


def _get(tx: Tx, agent_id: str) -> Agent:
    return agent_of(find(tx, "agent", agent_id))


@method(AgentGet)
def get(tx: Tx, ctx: Context, request: AgentGet) -> Agent:
    """Return one agent."""
    return _get(tx, request.agent_id)


@method(AgentList)
def list_agents(tx: Tx, ctx: Context, request: AgentList) -> AgentPage:
    """Return agents by id."""
    where = Where()
    where.add("id > :after", after=request.after or "")
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    if request.status:
        where.equal(status=request.status)
        if request.status != "gone":  # names the index
            where.add("status <> 'gone'")
    rows = tx.all(
        f"SELECT * FROM agents WHERE {where} ORDER BY id LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return AgentPage(agents=[agent_of(row) for row in rows])


@method(AgentDeregister)
def deregister(tx: Tx, ctx: Context, request: AgentDeregister) -> Agent:
    """Let an agent leave: its locks are released, and its process is no longer watched."""
    row = find(tx, "agent", request.agent_id)
    mark_gone(tx, ctx, row, request.reason)
    return _get(tx, row["id"])


def mark_gone(tx: Tx, ctx: Context, row: Row, reason: str | None, *, activity: bool = True) -> None:
    """Note that an agent left; it is no ``activity`` when only the daemon itself noticed."""
    if row["status"] == "gone":
        return
    triggers.on_agent_left(tx, ctx, row["id"], reason)
    release_all(tx, ctx, row["id"], activity=activity)
    end_turn(tx, row["id"])
    if row["needs"] is not None:  # before the activity, which would report it again
        forget_need(tx, ctx, row)
    payload, mission = AgentDeregistered(reason=reason), row["mission_id"]
    emit(tx, ctx, payload, mission_id=mission, agent_id=row["id"], activity=activity)
    tx.run(
        "UPDATE agents SET status = 'gone', pid = NULL, pid_started = NULL WHERE id = :id",
        id=row["id"],
    )
    agent_changed(tx, row["id"])
    agent_left(tx, ctx, row["id"])


def mark_lost(tx: Tx, ctx: Context, row: Row, reason: str) -> None:
    """Note that an agent ended without notice; without a process, that is not certain."""
    if row["pid"] is not None:
        triggers.on_agent_died(tx, ctx, row["id"], reason)
    tx.run("UPDATE agents SET status = 'lost' WHERE id = :id", id=row["id"])
    agent_changed(tx, row["id"])
    end_turn(tx, row["id"])
    mission, agent = row["mission_id"], row["id"]
    emit(tx, ctx, AgentLost(reason=reason), mission_id=mission, agent_id=agent)
    need_successor(tx, ctx, row, reason)
    if row["pid"] is not None:
        agent_left(tx, ctx, agent)
    tx.after_commit(LogLine("WARNING", f"Agent {row['id']} is lost: {reason}"))


def replace_agent(tx: Tx, ctx: Context, row: Row, successor: str) -> None:
    """Note that a person handed the work of an agent over to another one.

    It needs no attention. The agent may go on running: its next activity brings it back.
    """
    if f"'{row['status']}'" not in LIVING:
        return
    reason = f"its work was handed over to {successor}"
    triggers.on_agent_left(tx, ctx, row["id"], reason)
    tx.run("UPDATE agents SET status = 'lost' WHERE id = :id", id=row["id"])
    agent_changed(tx, row["id"])
    end_turn(tx, row["id"])
    emit(tx, ctx, AgentLost(reason=reason), mission_id=row["mission_id"], agent_id=row["id"])
    agent_left(tx, ctx, row["id"])


def return_agent(tx: Tx, ctx: Context, row: Row, status: str) -> bool:
    """Mark a replaced agent as living again; return False for one that cannot be watched."""
    if row["status"] != "lost" or row["pid"] is None or not ctx.is_here(row):
        return False
    tx.run("UPDATE agents SET status = :status WHERE id = :id", status=status, id=row["id"])
    agent_changed(tx, row["id"])
    # Its process may have ended meanwhile: then it is lost again immediately.
    tx.after_commit(WatchProcess(row["id"], row["pid"], row["pid_started"]))
    return True


def need_successor(tx: Tx, ctx: Context, row: Row, reason: str | None) -> None:
    """Note that a person has to take care of a lost agent's work."""
    tx.run(
        "UPDATE agents SET needs = 'lost', needs_since = :now, needs_text = :reason,"
        " needs_reset_at = NULL WHERE id = :id",
        now=ctx.now,
        reason=one_line(reason),
        id=row["id"],
    )
    agent_changed(tx, row["id"])
    needs = AgentNeeds(needs="lost", text=one_line(reason))
    emit(tx, ctx, needs, mission_id=row["mission_id"], agent_id=row["id"])


@store_arrived.subscribe
def lose_agents_of_other_machines(tx: Tx, ctx: Context) -> None:
    """Mark agents of other machines lost in a store that only this machine uses."""
    if ctx.machine:
        return
    rows = tx.all(
        f"SELECT * FROM agents WHERE status <> 'gone' AND status IN {LIVING} AND machine <> :own"
        " ORDER BY id",
        own=ctx.machine,
    )
    for row in rows:
        mark_lost(tx, ctx, row, "its machine no longer uses this store")
