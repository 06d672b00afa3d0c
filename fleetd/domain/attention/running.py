"""Running work: subagents, background shells, teammates and schedules of an agent.

The harness reports when work begins and ends. Work that a list of the harness no longer names has
ended.
"""

from collections.abc import Iterable

from ...harness.report import RunningItem
from ...protocol.requests.attention import RunningWork
from ..core.context import Context
from ..core.event_log import data_of, nth_newest_position
from ..core.observers import agent_left
from ..core.tx import Row, Tx
from ..liveness.needs import one_line

SHOWN = 50
# The maximum number of rows of one agent, and of those that have ended. The oldest are deleted
# first.
KEPT = 200
KEPT_ENDED = 50
# A subagent's answer is among this many of its last events.
LAST_EVENTS = 20
_LIVING = (
    "SELECT w.*, (SELECT s.last_event_at FROM sessions own JOIN sessions s"
    " ON s.harness = own.harness AND s.session_id = own.session_id AND s.subagent = w.id"
    " WHERE own.agent_id = w.agent_id AND own.subagent = ''"
    " ORDER BY s.last_event_at DESC LIMIT 1) AS heard_at"
    " FROM running_work w WHERE w.agent_id = :agent AND w.ended_at IS NULL"
)


def see(tx: Tx, ctx: Context, agent_id: str, items: Iterable[RunningItem], at: str) -> None:
    """Note that work runs or gave a sign of life; fields that are not reported stay unchanged."""
    for item in items:
        tx.run(
            "INSERT INTO running_work (agent_id, id, kind, told, began_at, seen_at, output)"
            " SELECT id, :id, :kind, :told, :at, :at, :output FROM agents WHERE id = :agent"
            " ON CONFLICT (agent_id, id) DO UPDATE SET seen_at = excluded.seen_at,"
            " ended_at = NULL, told = coalesce(excluded.told, running_work.told),"
            " output = coalesce(excluded.output, running_work.output)",
            agent=agent_id,
            id=item.id,
            kind=item.kind,
            told=one_line(item.task),
            output=item.output,
            at=at,
        )
    _bound(tx, agent_id)


def end(tx: Tx, agent_id: str, work_id: str, at: str) -> None:
    """Note that work has ended."""
    tx.run(
        "UPDATE running_work SET ended_at = :at, seen_at = :at"
        " WHERE agent_id = :agent AND id = :id AND ended_at IS NULL",
        agent=agent_id,
        id=work_id,
        at=at,
    )


def end_others(tx: Tx, agent_id: str, kinds: Iterable[str], still: set[str], at: str) -> None:
    """Note the end of all work of some kinds that is no longer named."""
    for row in tx.all(
        "SELECT id, kind FROM running_work WHERE agent_id = :agent AND ended_at IS NULL",
        agent=agent_id,
    ):
        if row["kind"] in kinds and row["id"] not in still:
            end(tx, agent_id, row["id"], at)


def end_subagents(tx: Tx, agent_id: str, silent_since: str | None, at: str) -> None:
    """Note the end of subagents without a sign of life since a time; of all if None."""
    for row in tx.all(f"{_LIVING} AND w.kind = 'subagent'", agent=agent_id):
        if silent_since is None or _last_sign(row) < silent_since:
            end(tx, agent_id, row["id"], at)


def reopen(tx: Tx, agent_id: str, work_id: str, at: str) -> bool:
    """Note that ended work runs again; return whether its end was known."""
    found = tx.one(
        "UPDATE running_work SET ended_at = NULL, seen_at = :at WHERE agent_id = :agent"
        " AND id = :id AND ended_at <= :at RETURNING id",
        agent=agent_id,
        id=work_id,
        at=at,
    )
    return found is not None


@agent_left.subscribe
def end_all(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Note the end of all work of an agent whose session or process is over."""
    tx.run(
        "UPDATE running_work SET ended_at = :at WHERE agent_id = :agent AND ended_at IS NULL",
        agent=agent_id,
        at=ctx.now,
    )


def runs_any(tx: Tx, agent_id: str) -> bool:
    """Whether an agent has running work that its turn does not wait for.

    A schedule only waits, and a teammate has turns of its own.
    """
    return tx.exists(
        "SELECT 1 AS runs FROM running_work WHERE agent_id = :agent AND ended_at IS NULL"
        " AND kind NOT IN ('schedule', 'teammate')",
        agent=agent_id,
    )


def subagent_tasks(tx: Tx, agent_id: str) -> dict[str | None, str]:
    """Return the tasks of an agent's subagents, each with when the last of them began."""
    rows = tx.all(
        "SELECT told, began_at FROM running_work WHERE agent_id = :agent AND kind = 'subagent'",
        agent=agent_id,
    )
    return {row["told"]: row["began_at"] for row in sorted(rows, key=lambda row: row["began_at"])}


def answers_of_subagents(tx: Tx, agent_id: str, most: int) -> list[tuple[str, str]]:
    """Return the tasks and answers of an agent's ended subagents, the newest first."""
    rows = tx.all(
        "SELECT w.told, s.agent_id FROM running_work w JOIN sessions own"
        " ON own.agent_id = w.agent_id AND own.subagent = ''"
        " JOIN sessions s ON s.harness = own.harness AND s.session_id = own.session_id"
        " AND s.subagent = w.id WHERE w.agent_id = :agent AND w.kind = 'subagent'"
        " AND w.ended_at IS NOT NULL ORDER BY w.ended_at DESC, w.id LIMIT :most",
        agent=agent_id,
        most=most,
    )
    answers = [(row["told"] or "", _last_answer(tx, row["agent_id"])) for row in rows]
    return [(task, answer) for task, answer in answers if answer]


def _last_answer(tx: Tx, agent_id: str) -> str:
    found = tx.value(
        "SELECT data_json FROM events WHERE agent_id = :id AND seq > :floor"
        " AND type = 'agent_answered' ORDER BY seq DESC LIMIT 1",
        id=agent_id,
        floor=nth_newest_position(tx, agent_id, LAST_EVENTS),
    )
    return str(data_of({"data_json": found}).get("message") or "") if found else ""


def leading_agent(tx: Tx, agent_id: str) -> str:
    """Return the agent of a subagent's session; for other agents, the agent itself."""
    found: str | None = tx.value(
        "SELECT own.agent_id FROM sessions s JOIN sessions own ON own.harness = s.harness"
        " AND own.session_id = s.session_id AND own.subagent = ''"
        " WHERE s.agent_id = :id AND s.subagent <> '' ORDER BY s.last_event_at DESC LIMIT 1",
        id=agent_id,
    )
    return found or agent_id


def living(tx: Tx, agent_id: str) -> tuple[list[RunningWork], int]:
    """Return what runs for an agent, the newest first, and how much more there is."""
    rows = tx.all(f"{_LIVING} ORDER BY w.began_at DESC, w.id", agent=agent_id)
    return [_work_of(row) for row in rows[:SHOWN]], max(0, len(rows) - SHOWN)


def _work_of(row: Row) -> RunningWork:
    fields = {name: row[name] for name in RunningWork.__struct_fields__}
    return RunningWork(**fields | {"seen_at": _last_sign(row)})


def _last_sign(row: Row) -> str:
    """Return the last sign of life of work; any report of a subagent's hooks counts as one."""
    seen_at: str = row["seen_at"]
    return max(seen_at, row["heard_at"] or "")


def _bound(tx: Tx, agent_id: str) -> None:
    """Delete the rows of an agent beyond the limits."""
    counted = tx.one(
        "SELECT count(*) AS kept, count(ended_at) AS ended FROM running_work"
        " WHERE agent_id = :agent",
        agent=agent_id,
    )
    if counted is None:
        return
    surplus = max(counted["ended"] - KEPT_ENDED, counted["kept"] - KEPT)
    if surplus > 0:
        tx.run(
            "DELETE FROM running_work WHERE agent_id = :agent AND id IN (SELECT id FROM"
            " running_work WHERE agent_id = :agent ORDER BY ended_at IS NULL, seen_at, id"
            " LIMIT :surplus)",
            agent=agent_id,
            surplus=surplus,
        )
