"""Needs: what an agent needs from a person, set by its hooks, ended by its next activity.

An agent that needs something is never ``active``. The code in ``core/event_log`` that makes it
active again also ends its need.
"""

import re

import msgspec

from ...protocol.events import AgentNeeds
from ...protocol.patterns import AgentNeed
from ..core.context import Context
from ..core.event_log import AT_EASE, NO_NEED, emit, emit_need_ended
from ..core.history import agent_changed
from ..core.sql import LIVING, in_sql
from ..core.tx import ConfirmAsks, Row, Tx
from .open_calls import BEGINS_A_CALL

TEXT_CHARS = 200
# These interrupt an agent in the middle of its turn. With the others, the turn is over.
MID_TURN: tuple[AgentNeed, ...] = ("permission", "question", "plan_approval")
# The turn was broken off, so a report that it is over is no news.
BROKEN_OFF: tuple[AgentNeed, ...] = ("limit", "failed")
# With these the agent has not done what it was asked: its turn goes on, or was broken off.
UNFINISHED: tuple[AgentNeed, ...] = (*MID_TURN, *BROKEN_OFF)
# Some harnesses run the permission hooks even when they grant it themselves immediately.
CONFIRMED_AFTER_MS = 5_000
# Few requests wait at a time, so their agents are looked up one by one.
_MACHINE = "(SELECT a.machine FROM agents a WHERE a.id = unconfirmed_asks.agent_id)"
# Terminal control characters, marks that change the text direction, and lone surrogates.
_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class Need(msgspec.Struct, frozen=True):
    """What an agent needs, its text if known, and when a limit that it reached ends."""

    kind: AgentNeed
    text: str | None = None
    reset_at: str | None = None


def set_need(tx: Tx, ctx: Context, agent_id: str, need: Need, since: str) -> None:
    """Let a living agent wait for a person; a repeated need keeps its start time."""
    text = one_line(need.text)
    row = tx.one(
        "UPDATE agents SET status = 'waiting', needs = :needs, needs_text = :text,"
        " needs_since = CASE WHEN needs = :needs THEN needs_since ELSE :since END,"
        f" needs_reset_at = :reset WHERE id = :id AND status IN {LIVING}"
        " AND (needs IS DISTINCT FROM :needs OR needs_text IS DISTINCT FROM :text"
        " OR needs_reset_at IS DISTINCT FROM :reset) RETURNING mission_id",
        needs=need.kind,
        since=since,
        text=text,
        reset=need.reset_at,
        id=agent_id,
    )
    if row is None:
        return
    agent_changed(tx, agent_id)
    payload = AgentNeeds(needs=need.kind, text=text, reset_at=need.reset_at)
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=agent_id)


def end_need(tx: Tx, ctx: Context, agent_id: str) -> None:
    """Make a waiting agent active again, because somebody else's activity shows that it works."""
    row = tx.one(
        "SELECT id, mission_id, needs FROM agents WHERE id = :id AND status = 'waiting'",
        id=agent_id,
    )
    if row is not None:
        tx.run(f"UPDATE agents SET status = 'active', {NO_NEED} WHERE id = :id", id=agent_id)
        agent_changed(tx, agent_id)
        emit_need_ended(tx, ctx, row)


def is_broken_off(tx: Tx, agent_id: str) -> bool:
    """Whether an agent's turn was broken off: any activity since then would have ended that."""
    broken = f"SELECT 1 AS broken FROM agents WHERE id = :id AND needs IN {in_sql(BROKEN_OFF)}"
    return tx.exists(broken, id=agent_id)


def settle(tx: Tx, ctx: Context, agent_id: str, since: str, *, works_on: bool) -> None:
    """Record whether work that an agent began goes on after the end of its turn."""
    row = tx.one(
        f"SELECT needs, needs_text FROM agents WHERE id = :id AND needs IN {in_sql(AT_EASE)}",
        id=agent_id,
    )
    kind: AgentNeed = "background" if works_on else "finished"
    if row is not None and row["needs"] != kind:
        set_need(tx, ctx, agent_id, Need(kind, row["needs_text"]), since)


def ask(tx: Tx, ctx: Context, agent_id: str, text: str | None, since: str, seq: int) -> None:
    """Note a permission request, which counts unless its agent soon goes on.

    ``seq`` is the position of its event in the log.
    """
    tx.run(
        "INSERT INTO unconfirmed_asks (agent_id, seq, since, text, due_ms)"
        " SELECT id, :seq, :since, :text, :due FROM agents WHERE id = :id"
        " ON CONFLICT (agent_id) DO UPDATE SET seq = excluded.seq, since = excluded.since,"
        " text = excluded.text, due_ms = excluded.due_ms",
        id=agent_id,
        seq=seq,
        since=since,
        text=one_line(text),
        due=ctx.now_ms + CONFIRMED_AFTER_MS,
    )
    tx.after_commit(ConfirmAsks())


def next_ask_ms(tx: Tx, ctx: Context) -> int | None:
    """Return in how many ms the next request on this machine counts; None without one."""
    due: int | None = tx.value(
        "SELECT min(CASE WHEN due_ms > :latest THEN 0 ELSE due_ms END)"
        f" FROM unconfirmed_asks WHERE {_MACHINE} = :machine",
        latest=_latest(ctx),
        machine=ctx.machine,
    )
    return None if due is None else max(0, due - ctx.now_ms)


def _latest(ctx: Context) -> int:
    """Return the latest time a request can be due; a later one means the clock was set back."""
    return ctx.now_ms + CONFIRMED_AFTER_MS


def confirm_asks(tx: Tx, ctx: Context) -> None:
    """Let agents wait whose requests are due, if they have done nothing since."""
    rows: list[Row] = tx.all(
        "DELETE FROM unconfirmed_asks WHERE (due_ms <= :now OR due_ms > :latest)"
        f" AND {_MACHINE} = :machine RETURNING *",
        now=ctx.now_ms,
        latest=_latest(ctx),
        machine=ctx.machine,
    )
    for row in sorted(rows, key=lambda each: int(each["seq"])):
        _confirm(tx, ctx, row)


def confirm_ask_of(tx: Tx, ctx: Context, harness: str, session_id: str) -> bool:
    """Let the newest request of a session count now, if its agent has not gone on since.

    Return whether one did: then the harness's notice to its user is about that request.
    """
    row = tx.one(
        "DELETE FROM unconfirmed_asks WHERE agent_id = (SELECT u.agent_id FROM sessions s"
        " JOIN unconfirmed_asks u ON u.agent_id = s.agent_id WHERE s.harness = :harness"
        " AND s.session_id = :session ORDER BY u.seq DESC LIMIT 1) RETURNING *",
        harness=harness,
        session=session_id,
    )
    return row is not None and _confirm(tx, ctx, row)


def _confirm(tx: Tx, ctx: Context, asked: Row) -> bool:
    """Let an agent wait for a permission unless it has gone on since; return whether it waits.

    The start of another call proves nothing, because calls run in parallel.
    """
    goes_on = tx.exists(
        "SELECT 1 AS goes_on FROM events WHERE agent_id = :agent AND seq > :seq"
        f" AND activity = 1 AND type NOT IN {in_sql(BEGINS_A_CALL)} LIMIT 1",
        agent=asked["agent_id"],
        seq=asked["seq"],
    )
    if not goes_on:
        set_need(tx, ctx, asked["agent_id"], Need("permission", asked["text"]), asked["since"])
    return not goes_on


def one_line(text: str | None) -> str | None:
    """Return the first line with content of a text, truncated; None without one.

    It contains nothing that a terminal would interpret.
    """
    lines = (_UNSHOWN.sub("", each).strip() for each in (text or "").splitlines())
    first = next(filter(None, lines), "")
    return (first if len(first) <= TEXT_CHARS else f"{first[: TEXT_CHARS - 1]}…") or None
