"""Lost agents and their successors: who is dead, and who gets what they had."""

from ...protocol.durations import duration
from ...protocol.errors import InvalidState
from ...protocol.records import Record
from ...protocol.request import Query
from ...protocol.timestamps import to_ms
from ...protocol.types import CLOSED_SORTIE
from ..agents import mailbox
from ..agents.agents import mark_lost
from ..cluster import heartbeat, membership
from ..cluster.names import on_another
from ..core.context import Context
from ..core.mappers import states_of
from ..core.registry import handler
from ..core.tx import Row, Tx
from ..locks import leases
from ..locks.keys import file_from_here, of_lock
from .restore_context import Case, refuse_stranger


class Process(Record, frozen=True, kw_only=True):
    """The process of an agent that is not known to be gone."""

    agent_id: str
    pid: int
    started: str | None


class Surroundings(Record, frozen=True, kw_only=True):
    """What to look at outside the store: the project and the agents' processes of this machine."""

    project_dir: str | None
    processes: list[Process]
    agent_cwd: str | None = None
    """Where on this machine the agent works that is to be briefed."""


class SurroundingsGet(Query[Surroundings], frozen=True):
    """Ask what to look at before a recovery; not on the wire."""

    mission_id: str | None = None
    checkpoint_id: str | None = None
    agent_id: str | None = None


class WindowProcess(Query[Surroundings], frozen=True):
    """Ask for the processes by which a session is known on this machine; not on the wire."""

    harness: str
    session_id: str
    previous_session_id: str | None = None


@handler
def surroundings(tx: Tx, ctx: Context, request: SurroundingsGet) -> Surroundings:
    """Return the project a request is about, and the processes that should be alive."""
    rows = tx.all(
        "SELECT id, pid, pid_started FROM agents WHERE machine = :machine AND pid IS NOT NULL"
        " AND status IN ('active', 'waiting', 'idle') ORDER BY id",
        machine=ctx.machine,
    )
    return Surroundings(
        project_dir=_project_dir(tx, ctx, request),
        processes=[
            Process(agent_id=row["id"], pid=row["pid"], started=row["pid_started"]) for row in rows
        ],
        agent_cwd=_agent_cwd(tx, ctx, request.agent_id),
    )


@handler
def of_window(tx: Tx, ctx: Context, request: WindowProcess) -> Surroundings:
    """Return the processes of a session's agents, its own before those of its subagents."""
    rows = tx.all(
        "SELECT a.id, a.pid, a.pid_started FROM sessions s JOIN agents a ON a.id = s.agent_id"
        " WHERE s.harness = :harness AND s.session_id IN (:session, :previous)"
        " AND a.machine = :machine AND a.pid IS NOT NULL ORDER BY s.subagent, a.id",
        harness=request.harness,
        session=request.session_id,
        previous=request.previous_session_id or request.session_id,
        machine=ctx.machine,
    )
    return Surroundings(
        project_dir=None,
        processes=[
            Process(agent_id=row["id"], pid=row["pid"], started=row["pid_started"]) for row in rows
        ],
    )


def _project_dir(tx: Tx, ctx: Context, request: SurroundingsGet) -> str | None:
    """Return the project directory of the mission that a request leads to, if it leads to one.

    That of another machine may be another project here: there the agent's own directory counts.
    """
    of_checkpoint = "JOIN checkpoints c ON c.mission_id = m.id WHERE c.id = :id"
    of_agent = "JOIN agents a ON a.mission_id = m.id WHERE a.id = :id"
    ways = (
        ("WHERE m.id = :id", request.mission_id),
        (of_checkpoint, request.checkpoint_id),
        (of_agent, request.agent_id),
    )
    found = (
        tx.one(f"SELECT m.project_dir, m.machine FROM missions m {where}", id=record_id)
        for where, record_id in ways
        if record_id
    )
    row = next((row for row in found if row and row["project_dir"]), None)
    if row is None:
        return None
    if row["machine"] == ctx.machine:
        return str(row["project_dir"])
    return _agent_cwd(tx, ctx, request.agent_id)


def _agent_cwd(tx: Tx, ctx: Context, agent_id: str | None) -> str | None:
    directory: str | None = tx.value(
        "SELECT cwd FROM agents WHERE id = :id AND machine = :machine",
        id=agent_id,
        machine=ctx.machine,
    )
    return directory


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
        f" {duration(heartbeat.LEFT_MS)} later.",
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
