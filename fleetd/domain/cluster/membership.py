"""Machines of a shared store: heartbeat, membership, loss, and displayed names.

A machine sends a heartbeat every 10 s. That is cheap enough for a thousand machines, as it takes no
turn while nothing else has changed. It is also short compared with the limits. A machine is lost
after 60 s without a heartbeat, so five may be missing. A failover of the database, a wireless
network that comes back, or a daemon that was killed and restarted then costs no agent its place. A
dead process also keeps its locks for a minute. A machine that left in good order usually comes back
soon, after an upgrade or a restart. Its agents go on working meanwhile, so it has 5 minutes, as
long as an agent without a process.

A store that only one machine uses names no machine, and nothing here applies to it. All machines
use one clock, the store's.
"""

from typing import Any

from msgspec import convert

from ...protocol.display import duration
from ...protocol.records import Record
from ...protocol.status import MachineLine
from ..core.context import Context
from ..core.registry import optimistic, without_turn
from ..core.sql import LIVING
from ..core.tx import LogLine, Row, Tx

HEARTBEAT_MS = 10_000
LOST_MS = 60_000
LEFT_MS = 300_000
# A machine without a heartbeat for this long could not see the heartbeats of others either. A
# machine that sends them again for this long has reported what waited until the store was
# reachable.
UNBROKEN_MS = 3 * HEARTBEAT_MS
_AT_WORK = "status = 'here' AND heard_awake_ms >= :beaten"
# Whether this machine is the one that declares others lost. It has the lowest id of those in touch
# for long enough: if hundreds of machines did it, each would want to write for each lost one.
_JUDGED_HERE = (
    f":machine = (SELECT min(id) FROM machines WHERE {_AT_WORK} AND since_awake_ms <= :here)"
)
# The machines to declare lost.
_OVERDUE = (
    "((status = 'here' AND heard_awake_ms < :here) OR (status = 'left' AND heard_awake_ms < :left))"
)
# Sent with the heartbeat: nearly always nothing is missing, and then no other message is sent.
_MISSING = f"SELECT 1 FROM machines WHERE {_JUDGED_HERE} AND {_OVERDUE} LIMIT 1"
_LISTED = "status <> 'lost' OR heard_at >= :old"
_NAMESAKE = (
    "SELECT 1 FROM machines WHERE id <> :machine"
    " AND (name = :name OR name = :name || ' (' || id || ')')"
    f" AND ({_LISTED}) LIMIT 1"
)
_NAME_FITS = "name IN (:name, :named)"
_NAME_IS_RIGHT = f"name = CASE WHEN EXISTS ({_NAMESAKE}) THEN :named ELSE :name END"


class HeartbeatResult(Record, frozen=True, kw_only=True):
    """Whether the machine, and with it its agents, may have counted as lost.

    ``overtaken_by`` is the name of a computer whose daemon sends heartbeats with the same id. This
    heartbeat did not count then. ``any_missing`` says whether this machine must declare another one
    lost.
    """

    was_lost: bool
    overtaken_by: str | None = None
    any_missing: bool = False


class IdHolder(Record, frozen=True, kw_only=True):
    """The computer that just used this machine's id; ``name`` is None without one."""

    name: str | None = None
    nonce: str = ""
    boot_id: str = ""
    heard_awake_ms: int = 0


class LostMachines(Record, frozen=True, kw_only=True):
    """Machines without a heartbeat for too long, and agents of machines that are already lost."""

    machines: list[str]
    agents: list[str]


@optimistic
def heartbeat(
    tx: Tx,
    ctx: Context,
    name: str,
    started_at: str,
    nonce: str = "",
    boot_id: str = "",
    earlier: tuple[str, ...] = (),
) -> HeartbeatResult:
    """Note that this machine is here, whatever its status was before.

    If another machine has the same ``name``, the displayed name of this one includes its id.
    ``nonce`` identifies this start of the daemon, and ``earlier`` the starts before it. ``boot_id``
    says where its pids are valid.
    """
    before = tx.one("SELECT * FROM machines WHERE id = :id", id=ctx.machine)
    # Another daemon with this id has sent a heartbeat since, and still sends them.
    if before is not None and before["nonce"] not in ("", nonce, *earlier) and _beats(ctx, before):
        return HeartbeatResult(was_lost=False, overtaken_by=before["name"])
    tx.run(
        "INSERT INTO machines (id, name, status, started_at, heard_at, heard_awake_ms,"
        " since_awake_ms, nonce, boot_id)"
        " VALUES (:id, :name, 'here', :started, :now, :awake, :since, :nonce, :boot)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, status = excluded.status,"
        " started_at = excluded.started_at, heard_at = excluded.heard_at,"
        " heard_awake_ms = excluded.heard_awake_ms, since_awake_ms = excluded.since_awake_ms,"
        " nonce = excluded.nonce, boot_id = excluded.boot_id",
        id=ctx.machine,
        name=with_id(name, ctx.machine) if _has_namesake(tx, ctx, name) else name,
        started=started_at,
        now=ctx.now,
        awake=ctx.awake_ms,
        since=_since(ctx, before),
        nonce=nonce,
        boot=boot_id,
    )
    if before is not None and before["status"] == "lost":
        tx.after_commit(LogLine("WARNING", "This machine counted as lost and is back"))
    missing = tx.exists(_MISSING, **_limits(ctx))
    # An unknown machine may have been forgotten, and its agents are lost.
    was_lost = before is None or before["status"] == "lost"
    return HeartbeatResult(was_lost=was_lost, any_missing=missing)


@without_turn
def renew(
    tx: Tx, ctx: Context, name: str, nonce: str = "", *, thorough: bool = True
) -> HeartbeatResult | None:
    """Note that this machine is still here; None if ``heartbeat`` is needed for it.

    It is needed when the status, name or daemon has changed, or when heartbeats were missing. Only
    a ``thorough`` one looks whether any other machine has the same ``name``.
    """
    rows = tx.tuples(
        "UPDATE machines SET heard_at = :now, heard_awake_ms = :awake"
        f" WHERE id = :machine AND nonce = :nonce AND {_AT_WORK} AND "
        + (_NAME_IS_RIGHT if thorough else _NAME_FITS)
        + f" RETURNING EXISTS ({_MISSING})",
        now=ctx.now,
        awake=ctx.awake_ms,
        nonce=nonce,
        name=name,
        named=with_id(name, ctx.machine),
        old=ctx.days_ago(ctx.config.retention.days),
        **_limits(ctx),
    )
    return HeartbeatResult(was_lost=False, any_missing=bool(rows[0][0])) if rows else None


def with_id(name: str, machine: str) -> str:
    """Return the displayed name of a machine whose own name is ambiguous."""
    return f"{name} ({machine})"


def _has_namesake(tx: Tx, ctx: Context, name: str) -> bool:
    old = ctx.days_ago(ctx.config.retention.days)
    return tx.exists(_NAMESAKE, machine=ctx.machine, name=name, old=old)


def _beats(ctx: Context, machine: Row) -> bool:
    """Whether a machine has sent a heartbeat just now."""
    silent = ctx.awake_ms - machine["heard_awake_ms"]
    return bool(machine["status"] == "here" and silent <= UNBROKEN_MS)


def _since(ctx: Context, before: Row | None) -> int:
    """Return since when this machine has sent heartbeats without a gap."""
    if before is None or before["status"] != "here":
        return ctx.awake_ms
    broken = ctx.awake_ms - before["heard_awake_ms"] > UNBROKEN_MS
    return ctx.awake_ms if broken else int(before["since_awake_ms"])


def id_holder(tx: Tx, ctx: Context) -> IdHolder:
    """Return whose daemon uses this machine's id: until its first heartbeat this one, or a copy."""
    row = tx.one("SELECT * FROM machines WHERE id = :id", id=ctx.machine)
    if row is None or not _beats(ctx, row):
        return IdHolder()
    return convert(row, IdHolder)


@without_turn
def leave(tx: Tx, ctx: Context, nonce: str = "") -> None:
    """Note that this machine's daemon, which sent the last heartbeat under ``nonce``, ends."""
    tx.run(
        "UPDATE machines SET status = 'left', heard_at = :now, heard_awake_ms = :awake"
        " WHERE id = :id AND status = 'here' AND nonce = :nonce",
        id=ctx.machine,
        now=ctx.now,
        awake=ctx.awake_ms,
        nonce=nonce,
    )


def has_lock_waits(tx: Tx, ctx: Context) -> bool:
    """Whether this machine would notify somebody who waits for a lock."""
    return tx.exists("SELECT 1 FROM lock_waits WHERE machine = :id LIMIT 1", id=ctx.machine)


def delete_lock_waits(tx: Tx, ctx: Context) -> None:
    """Delete the lock waits that this machine would notify."""
    tx.run("DELETE FROM lock_waits WHERE machine = :id", id=ctx.machine)


def find_lost(tx: Tx, ctx: Context) -> LostMachines:
    """Return machines to declare lost, and agents of lost machines that are not lost yet.

    Only one machine looks for them. It must have been in touch itself for the time limit of the
    others. Otherwise the first machine to come back after an outage of the database would miss all
    others.
    """
    if not _judges(tx, ctx):
        return LostMachines(machines=[], agents=[])
    overdue = tx.all(f"SELECT id FROM machines WHERE {_OVERDUE} ORDER BY id", **_limits(ctx))
    return LostMachines(
        machines=[row["id"] for row in overdue],
        agents=[row["id"] for row in stranded_agents(tx, ctx)],
    )


def _judges(tx: Tx, ctx: Context) -> bool:
    """Whether this machine is the one that declares others lost."""
    return tx.exists(f"SELECT 1 AS judges WHERE {_JUDGED_HERE}", **_limits(ctx))


def _limits(ctx: Context) -> dict[str, Any]:
    """Return the parameters of ``_OVERDUE`` and ``_JUDGED_HERE``.

    A machine that is ``here``, or that ``left``, is overdue without a heartbeat since that time.
    """
    return {
        "here": ctx.awake_ms - LOST_MS,
        "left": ctx.awake_ms - LEFT_MS,
        **unreachable_params(ctx),
    }


def lose_machine(tx: Tx, ctx: Context, machine: str) -> bool:
    """Declare a machine lost, once for all that miss it; its agents follow one by one.

    One statement checks and writes: the machine itself may ``renew`` its heartbeat at any moment.
    """
    if not _judges(tx, ctx):
        return False
    rows = tx.all(
        f"UPDATE machines SET status = 'lost' WHERE id = :id AND {_OVERDUE} RETURNING *",
        id=machine,
        **_limits(ctx),
    )
    for row in rows:
        tx.run("DELETE FROM lock_waits WHERE machine = :id", id=row["id"])
        text = f"Machine {row['name']} ({row['id']}) {missing_heartbeat_text(ctx, row)}: it is lost"
        tx.after_commit(LogLine("WARNING", text))
    return bool(rows)


def missing_heartbeat_text(ctx: Context, machine: Row) -> str:
    """Return the text that says for how long a machine has sent no heartbeat."""
    return f"has sent no heartbeat for {duration(ctx.awake_ms - machine['heard_awake_ms'])}"


def stranded_agents(tx: Tx, ctx: Context, agent_id: str | None = None) -> list[Row]:
    """Return the agents, or the given one, that count as living on a lost machine.

    An agent that was seen since then came back before its machine sent a heartbeat.
    """
    return tx.all(
        "SELECT a.*, m.name AS machine_name, m.heard_awake_ms FROM machines m"
        " JOIN agents a ON a.machine = m.id WHERE m.status = 'lost'"
        f" AND a.status <> 'gone' AND a.status IN {LIVING} AND a.seen_awake_ms < :before"
        + (" AND a.id = :agent" if agent_id else "")
        + " ORDER BY a.id",
        before=ctx.awake_ms - LOST_MS,
        agent=agent_id,
    )


def machine_in_touch(tx: Tx, machine: str) -> Row | None:
    """Return a machine that does not count as lost; None for a lost or unknown one.

    It need not be at work: its daemon may just be restarting.
    """
    return tx.one("SELECT * FROM machines WHERE id = :id AND status <> 'lost'", id=machine)


def list_machines(tx: Tx, ctx: Context) -> list[MachineLine]:
    """Return the machines by name; a lost one for ``retention.days``."""
    rows = tx.all(
        f"SELECT * FROM machines WHERE {_LISTED} ORDER BY name, id",
        old=ctx.days_ago(ctx.config.retention.days),
    )
    living = f"status <> 'gone' AND status IN {LIVING}"
    count = f"SELECT machine, count(*) AS number FROM agents WHERE {living} GROUP BY machine"
    agents = {row["machine"]: row["number"] for row in tx.all(count)} if rows else {}
    return [
        MachineLine(
            machine_id=row["id"],
            name=row["name"],
            status=row["status"],
            started_at=row["started_at"],
            heard_at=row["heard_at"],
            agents=agents.get(row["id"], 0),
        )
        for row in rows
    ]


def unreachable(agent: str) -> str:
    """Return SQL for whether news of an agent, a row with this alias, may still be on the way.

    Its machine does not count as lost, and has sent no heartbeat just now, or only just again.
    ``unreachable_params`` has the parameters.
    """
    return (
        "(CAST(:machine AS TEXT) <> '' AND EXISTS (SELECT 1 FROM machines its"
        f" WHERE its.id = {agent}.machine AND its.status <> 'lost'"
        " AND (its.heard_awake_ms < :beaten OR its.since_awake_ms > :beaten)))"
    )


def ours_to_act_on(machine: str) -> str:
    """Return SQL for whether ``:own`` must act on the rows of a machine, given as a column.

    Each machine acts on its own rows. For machines that are not at work, the machine at work with
    the lowest id acts: if all did, all would want to write at the same moment. ``''`` acts on
    everything. ``unreachable_params`` has the other parameter.
    """
    return (
        f"(CAST(:own AS TEXT) = '' OR {machine} = :own"
        f" OR (:own = (SELECT min(id) FROM machines WHERE {_AT_WORK})"
        f" AND {machine} NOT IN (SELECT id FROM machines WHERE {_AT_WORK})))"
    )


def unreachable_params(ctx: Context) -> dict[str, Any]:
    """Return the parameters of ``unreachable``; a single machine has nobody to wait for."""
    return {"machine": ctx.machine, "beaten": ctx.awake_ms - UNBROKEN_MS}


def machine_suffix(tx: Tx, ctx: Context, machine: str) -> str:
    """Return `` on <name>`` for another machine, nothing for this one or none."""
    if machine in ("", ctx.machine):
        return ""
    name = tx.value("SELECT name FROM machines WHERE id = :id", id=machine)
    return f" on {name or machine}"


def agent_label(tx: Tx, ctx: Context, agent_id: str) -> str:
    """Return an agent's id, followed by its machine if that is another one."""
    if not ctx.shared:
        return agent_id
    machine = tx.value("SELECT machine FROM agents WHERE id = :id", id=agent_id)
    return agent_id + machine_suffix(tx, ctx, machine or "")
