"""Overview of agents: what each does now, what runs for it, and what it needs from a person."""

from typing import Any, get_args

from ...protocol.patterns import AgentNeed
from ...protocol.requests.attention import AgentState, AttentionList, Doing, PlanStep
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.event_log import (
    AT_EASE,
    LOG_END,
    data_of,
    nth_newest_position,
    position,
    position_before,
)
from ..core.ids import find
from ..core.sql import LIVING, Where, in_sql
from ..core.tx import Row, Tx
from ..liveness.needs import MID_TURN, one_line
from . import running

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# The most urgent come first. Then come agents that work, agents that were lost more than a day ago,
# and last those that have finished.
_RANKS = {need: rank for rank, need in enumerate(get_args(AgentNeed)) if need not in AT_EASE}
_WORKS = len(_RANKS)
_LONG_LOST, _RANKS["finished"] = _WORKS + 1, _WORKS + 2
# How many of an agent's last events are searched for what it did, and when a person spoke to it.
LOOKED_BACK = 1_000
# Hand-offs that agents asked for, if no person has spoken to them since.
WISHED = (
    "state = 'asked' AND NOT EXISTS (SELECT 1 FROM events e WHERE e.agent_id = handoffs.agent_id"
    " AND e.seq > handoffs.seq AND e.type = 'prompt_submitted')"
)
_NEED = ("needs", "needs_since", "needs_text", "needs_reset_at")
# What an agent did last, by the types of events: the field that names it, and whether it is over.
_DOINGS: dict[str, tuple[Any, str, bool]] = {
    "command_started": ("command", "command", False),
    "command_finished": ("command", "command", True),
    "tool_started": ("tool", "tool", False),
    "tool_finished": ("tool", "tool", True),
    "tool_failed": ("tool", "name", True),
    "file_modified": ("edit", "file", True),
    "prompt_submitted": ("prompt", "prompt", True),
    "agent_answered": ("answer", "message", True),
}


def agent_states(tx: Tx, ctx: Context, request: AttentionList) -> tuple[list[AgentState], int]:
    """Return what agents do and need, the most urgent first, and how many more there are.

    Branch and worktree are not set.
    """
    asking, wishes = _asking(tx, ctx), _wishes(tx)
    found = _agents(tx, request)
    rows = [with_wish(with_subagents(ctx.now_ms, row, asking), wishes) for row in found]
    if request.waiting:
        rows = [row for row in rows if row["needs"] is not None and row["needs"] not in AT_EASE]
    rows.sort(key=lambda row: urgency(ctx.now_ms, row))
    shown = rows[: request.limit]
    hour = position_before(tx, iso(ctx.now_ms - HOUR_MS), position(tx)) if shown else 0
    return [_state(tx, row, hour) for row in shown], len(rows) - len(shown)


def urgency(now_ms: int, row: Row) -> tuple[int, int, str]:
    """Return the sort key of an agent: the rank of what it needs, since when, and its name.

    The longest wait comes first. Of the lost agents the newest comes first: nobody waits there.
    """
    since_ms = to_ms(row["needs_since"] or row["last_seen_at"])
    if row["needs"] != "lost":
        return _RANKS.get(row["needs"], _WORKS), since_ms, row["id"]
    long_lost = since_ms < now_ms - DAY_MS
    return _LONG_LOST if long_lost else _RANKS["lost"], -since_ms, row["id"]


def _agents(tx: Tx, request: AttentionList) -> list[Row]:
    """Return the rows of agents that are here, and of lost ones whose work nobody continues."""
    where = Where()
    where.add("a.status <> 'gone'")
    where.add(
        f"(a.status <> 'lost' OR (a.succeeded_by IS NULL AND m.status IN {in_sql(OPEN_MISSION)}))"
    )
    where.add("NOT EXISTS (SELECT 1 FROM sessions u WHERE u.agent_id = a.id AND u.subagent <> '')")
    if request.agent_id:
        where.add("a.id = :agent", agent=running.leading_agent(tx, request.agent_id))
    if request.mission_id:
        where.add("a.mission_id = :id", id=find(tx, "mission", request.mission_id)["id"])
    return tx.all(
        "SELECT a.*, m.title AS mission_title, m.total_sorties FROM agents a"
        f" LEFT JOIN missions m ON m.id = a.mission_id WHERE {where}",
        **where.params,
    )


def _asking(tx: Tx, ctx: Context) -> dict[tuple[str, str], Row]:
    """Return the most urgent need of the subagents of each session, by harness and session."""
    rows = tx.all(
        "SELECT s.harness, s.session_id, a.id, a.last_seen_at, a.needs, a.needs_since,"
        " a.needs_text, a.needs_reset_at FROM agents a JOIN sessions s ON s.agent_id = a.id"
        f" WHERE a.status <> 'gone' AND a.status IN {LIVING} AND a.needs IN {in_sql(MID_TURN)}"
        " AND s.subagent <> ''",
    )
    return most_urgent(ctx.now_ms, rows)


def most_urgent(now_ms: int, rows: list[Row]) -> dict[tuple[str, str], Row]:
    """Return the most urgent need of the subagents of each session, by harness and session."""
    rows.sort(key=lambda row: urgency(now_ms, row), reverse=True)
    return {(row["harness"], row["session_id"]): row for row in rows}


def _wishes(tx: Tx) -> dict[str, Row]:
    """Return the hand-offs that agents ask for, by agent."""
    rows = tx.all(f"SELECT agent_id, harness, created_at FROM handoffs WHERE {WISHED}")
    return {row["agent_id"]: row for row in rows}


def with_wish(row: Row, wishes: dict[str, Row]) -> Row:
    """Return an agent's row with the hand-off that it asks for, unless it needs something else."""
    wish = wishes.get(row["id"])
    if wish is None or (row["needs"] is not None and row["needs"] not in AT_EASE):
        return row
    how = f"fleetctl handoff {row['id']} --to {wish['harness']}"
    return row | {
        "needs": "question",
        "needs_since": wish["created_at"],
        "needs_text": one_line(f"asks to be handed over to {wish['harness']}: {how}"),
        "needs_reset_at": None,
    }


def with_subagents(now_ms: int, row: Row, asking: dict[tuple[str, str], Row]) -> Row:
    """Return an agent's row with what a subagent waits for, if that is more urgent."""
    inner = asking.get((row["harness"], row["session_id"]))
    if inner is None or row["status"] == "lost":
        return row
    if urgency(now_ms, inner)[0] >= urgency(now_ms, row)[0]:
        return row
    return row | {name: inner[name] for name in _NEED}


def _state(tx: Tx, row: Row, hour: int) -> AgentState:
    """Return the state of an agent; ``hour`` is the position of the log an hour ago."""
    floor = nth_newest_position(tx, row["id"], LOOKED_BACK)
    works, more = running.living(tx, row["id"])
    doing = last_done(tx, row["id"], floor)
    used = _window(tx, row)
    return AgentState(
        agent_id=row["id"],
        harness=row["harness"],
        session_id=row["session_id"],
        status=row["status"],
        needs=row["needs"] or "none",
        since=row["needs_since"] or (doing.since if doing else row["registered_at"]),
        text=row["needs_text"],
        reset_at=row["needs_reset_at"],
        prompted_at=last_prompted(tx, row["id"], floor),
        mission_id=row["mission_id"],
        mission=one_line(row["mission_title"]),
        doing=doing,
        step=_step(tx, row),
        files_changed=count_files(tx, row["id"], max(floor, hour)),
        window_tokens=used["window_tokens"],
        window_size=used["window_size"],
        cwd=row["cwd"],
        branch=None,
        worktree=None,
        machine=row["machine"] or None,
        running=works,
        running_more=more,
    )


def _window(tx: Tx, agent: Row) -> Row:
    """Return how full the window of an agent's session is, as far as it is known."""
    found = tx.one(
        "SELECT window_tokens, window_size FROM sessions WHERE harness = :harness"
        " AND session_id = :session AND subagent = '' AND agent_id = :agent",
        harness=agent["harness"],
        session=agent["session_id"],
        agent=agent["id"],
    )
    return found or {"window_tokens": None, "window_size": None}


def last_done(tx: Tx, agent_id: str, floor: int, end: int = LOG_END) -> Doing | None:
    """Return the last thing that an agent did between two positions of the log."""
    rows = tx.all(
        "SELECT type, timestamp, data_json FROM events WHERE agent_id = :id AND seq > :floor"
        f" AND seq <= :end AND type IN {in_sql(_DOINGS)} ORDER BY seq DESC LIMIT 2",
        id=agent_id,
        floor=floor,
        end=end,
    )
    if not rows:
        return None
    # A call that changed a file reports the file first, and then its end.
    edited = rows[0]["type"] == "tool_finished" and rows[-1]["type"] == "file_modified"
    row = rows[-1] if edited else rows[0]
    what, field, ended = _DOINGS[row["type"]]
    value = data_of(row).get(field)
    text = one_line(value) if isinstance(value, str) else None
    return Doing(what=what, text=text or "", since=row["timestamp"], ended=ended)


def last_prompted(tx: Tx, agent_id: str, floor: int, end: int = LOG_END) -> str | None:
    """Return when a person last spoke to an agent between two positions of the log."""
    found: str | None = tx.value(
        "SELECT timestamp FROM events WHERE agent_id = :id AND seq > :floor AND seq <= :end"
        " AND type = 'prompt_submitted' ORDER BY seq DESC LIMIT 1",
        id=agent_id,
        floor=floor,
        end=end,
    )
    return found


def _step(tx: Tx, agent: Row) -> PlanStep | None:
    """Return the step of its mission that an agent has in progress, else an unassigned one."""
    row = tx.one(
        "SELECT s.title, (SELECT count(*) FROM sorties b WHERE b.mission_id = s.mission_id"
        " AND b.position <= s.position) AS number FROM sorties s WHERE s.mission_id = :mission"
        " AND s.status = 'in_progress' AND (s.assigned_to = :agent OR s.assigned_to IS NULL)"
        " ORDER BY s.assigned_to IS NULL, s.position LIMIT 1",
        mission=agent["mission_id"],
        agent=agent["id"],
    )
    if row is None:
        return None
    title = one_line(row["title"]) or ""
    return PlanStep(number=row["number"], total=agent["total_sorties"], title=title)


def count_files(tx: Tx, agent_id: str, since: int, end: int = LOG_END) -> int:
    """Return how many files an agent changed between two positions of the log."""
    rows = tx.all(
        "SELECT data_json FROM events WHERE agent_id = :id AND seq > :since AND seq <= :end"
        " AND type = 'file_modified'",
        id=agent_id,
        since=since,
        end=end,
    )
    return len({file for row in rows if isinstance(file := data_of(row).get("file"), str)})
