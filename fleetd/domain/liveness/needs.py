"""What an agent needs of a person: set by what its hooks tell, ended by its next activity.

An agent that needs something is never ``active``. What makes it active again, in
``core/event_log``, ends its need.
"""

import msgspec

from ...protocol.events import AgentNeeds
from ...protocol.patterns import AgentNeed
from ..core.context import Context
from ..core.event_log import emit
from ..core.sql import LIVING
from ..core.tx import ConfirmAsks, Row, Tx

TEXT_CHARS = 200
# Some harnesses run the hooks for a permission also where they give it by themselves, at once.
CONFIRMED_AFTER_MS = 5_000


class Need(msgspec.Struct, frozen=True):
    """What an agent needs, in words as far as known, and when a limit that it met ends."""

    kind: AgentNeed
    text: str | None = None
    reset_at: str | None = None


def set_need(tx: Tx, ctx: Context, agent_id: str, need: Need, since: str) -> None:
    """Let a living agent wait for a person; one that needs just this already has since then."""
    row = tx.one(
        "SELECT mission_id, needs, needs_text, needs_reset_at FROM agents"
        f" WHERE id = :id AND status IN {LIVING}",
        id=agent_id,
    )
    text = one_line(need.text)
    if row is None or row == {
        "mission_id": row["mission_id"],
        "needs": need.kind,
        "needs_text": text,
        "needs_reset_at": need.reset_at,
    }:
        return
    tx.run(
        "UPDATE agents SET status = 'waiting', needs = :needs, needs_text = :text,"
        " needs_since = CASE WHEN needs = :needs THEN needs_since ELSE :since END,"
        " needs_reset_at = :reset WHERE id = :id",
        needs=need.kind,
        since=since,
        text=text,
        reset=need.reset_at,
        id=agent_id,
    )
    told = AgentNeeds(needs=need.kind, text=text, reset_at=need.reset_at)
    emit(tx, ctx, told, mission_id=row["mission_id"], agent_id=agent_id)


def ask(tx: Tx, ctx: Context, agent_id: str, text: str | None, since: str, seq: int) -> None:
    """Note a request for permission that counts unless its agent goes on at once.

    ``seq`` is the place of its event in the log.
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
    """Return in how many ms a request of an agent of this machine counts; None without one."""
    due: int | None = tx.value(
        "SELECT min(u.due_ms) FROM unconfirmed_asks u JOIN agents a ON a.id = u.agent_id"
        " WHERE a.machine = :machine",
        machine=ctx.machine,
    )
    # A clock that was set back must not keep one for long.
    return None if due is None else min(max(0, due - ctx.now_ms), CONFIRMED_AFTER_MS)


def confirm_asks(tx: Tx, ctx: Context) -> None:
    """Let those agents wait whose requests are due and that have done nothing since."""
    rows: list[Row] = tx.all(
        "DELETE FROM unconfirmed_asks WHERE due_ms <= :now AND agent_id IN"
        " (SELECT id FROM agents WHERE machine = :machine) RETURNING *",
        now=ctx.now_ms,
        machine=ctx.machine,
    )
    for row in sorted(rows, key=lambda each: int(each["seq"])):
        goes_on = tx.exists(
            "SELECT 1 AS goes_on FROM events WHERE agent_id = :agent AND seq > :seq"
            " AND activity = 1 LIMIT 1",
            agent=row["agent_id"],
            seq=row["seq"],
        )
        if not goes_on:
            set_need(tx, ctx, row["agent_id"], Need("permission", row["text"]), row["since"])


def one_line(text: str | None) -> str | None:
    """Return the first line of a text, cut; None for one that says nothing."""
    first = next((line for each in (text or "").splitlines() if (line := each.strip())), "")
    return (first if len(first) <= TEXT_CHARS else f"{first[: TEXT_CHARS - 1]}…") or None
