"""Overview of agents: what each does now, what runs for it, and what it needs of a person."""

from collections import defaultdict
from typing import Any, get_args

from ...protocol.patterns import AgentNeed
from ...protocol.requests.attention import AgentState, AttentionList, Doing, PlanStep
from ...protocol.timestamps import iso
from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.event_log import data_of, position, position_before
from ..core.ids import find
from ..core.sql import Where, in_sql
from ..core.tx import Row, Tx
from ..liveness.needs import one_line
from . import running

HOUR_MS = 3_600_000
# What these need is no haste: the agent has done what it was asked, or goes on by itself.
AT_EASE: frozenset[str] = frozenset(("finished", "background"))
_URGENCY = {need: place for place, need in enumerate(get_args(AgentNeed))}
# Edits of one hour that are counted at most.
MOST_EDITS = 5_000
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


def agent_states(tx: Tx, ctx: Context, request: AttentionList) -> list[AgentState]:
    """Return what agents do and need, the most urgent first; without branch and worktree."""
    rows = _agents(tx, request)
    edits = _edits(tx, ctx)
    states = [_state(tx, ctx, row, edits) for row in rows]
    if request.waiting:
        states = [each for each in states if each.needs != "none" and each.needs not in AT_EASE]
    states.sort(key=lambda each: (_URGENCY.get(each.needs, len(_URGENCY)), each.since))
    return states[: request.limit]


def _agents(tx: Tx, request: AttentionList) -> list[Row]:
    """Return the rows of agents that are here, and of lost ones whose work nobody goes on with."""
    where = Where()
    where.add("a.status <> 'gone'")
    where.add(
        f"(a.status <> 'lost' OR (a.succeeded_by IS NULL AND m.status IN {in_sql(OPEN_MISSION)}))"
    )
    if request.agent_id:
        where.add("a.id = :agent", agent=request.agent_id)
    if request.mission_id:
        where.add("a.mission_id = :id", id=find(tx, "mission", request.mission_id)["id"])
    return tx.all(
        "SELECT a.*, m.title AS mission_title, m.total_sorties, s.window_tokens, s.window_size"
        " FROM agents a LEFT JOIN missions m ON m.id = a.mission_id LEFT JOIN sessions s"
        " ON s.agent_id = a.id AND s.session_id = a.session_id AND s.harness = a.harness"
        f" WHERE {where} AND (s.subagent IS NULL OR s.subagent = '')"
        " AND NOT EXISTS (SELECT 1 FROM sessions u WHERE u.agent_id = a.id AND u.subagent <> '')"
        " ORDER BY a.id",
        **where.params,
    )


def _state(tx: Tx, ctx: Context, row: Row, edits: dict[str, set[str]]) -> AgentState:
    works, more = running.living(tx, row["id"])
    doing = _doing(tx, row["id"])
    return AgentState(
        agent_id=row["id"],
        harness=row["harness"],
        session_id=row["session_id"],
        status=row["status"],
        needs=row["needs"] or "none",
        since=row["needs_since"] or (doing.since if doing else row["registered_at"]),
        text=row["needs_text"],
        reset_at=row["needs_reset_at"],
        prompted_at=_prompted_at(tx, row["id"]),
        mission_id=row["mission_id"],
        mission=row["mission_title"],
        doing=doing,
        step=_step(tx, row),
        files_changed=len(edits.get(row["id"], ())),
        window_tokens=row["window_tokens"],
        window_size=row["window_size"],
        cwd=row["cwd"],
        branch=None,
        worktree=None,
        machine=row["machine"] or None,
        running=works,
        running_more=more,
    )


def _doing(tx: Tx, agent_id: str) -> Doing | None:
    row = tx.one(
        f"SELECT type, timestamp, data_json FROM events WHERE agent_id = :id AND type IN"
        f" {in_sql(_DOINGS)} ORDER BY seq DESC LIMIT 1",
        id=agent_id,
    )
    if row is None:
        return None
    what, field, ended = _DOINGS[row["type"]]
    told = data_of(row).get(field)
    text = one_line(told) if isinstance(told, str) else None
    return Doing(what=what, text=text or "", since=row["timestamp"], ended=ended)


def _prompted_at(tx: Tx, agent_id: str) -> str | None:
    found: str | None = tx.value(
        "SELECT timestamp FROM events WHERE agent_id = :id AND type = 'prompt_submitted'"
        " ORDER BY seq DESC LIMIT 1",
        id=agent_id,
    )
    return found


def _step(tx: Tx, agent: Row) -> PlanStep | None:
    """Return the step of its mission that an agent has in progress, else one of nobody's."""
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
    return PlanStep(number=row["number"], total=agent["total_sorties"], title=row["title"])


def _edits(tx: Tx, ctx: Context) -> dict[str, set[str]]:
    """Return the files that each agent changed within the last hour."""
    since = position_before(tx, iso(ctx.now_ms - HOUR_MS), position(tx))
    rows = tx.all(
        "SELECT agent_id, data_json FROM events WHERE type = 'file_modified' AND seq > :since"
        " ORDER BY seq DESC LIMIT :most",
        since=since,
        most=MOST_EDITS,
    )
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        file = data_of(row).get("file")
        if row["agent_id"] and isinstance(file, str):
            found[row["agent_id"]].add(file)
    return found
