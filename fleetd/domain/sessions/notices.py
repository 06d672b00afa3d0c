"""Notices: lines that an agent reads once, beside its briefing.

Work that changed hands is remembered until one of the agent's hooks can report it. Nothing is taken
back here: an agent whose work went to another continues without it when it comes back. Waiting mail
and missions are looked up. All lines are phrased as facts: imperative text can trigger an
"""

from typing import Literal

import msgspec

from ...protocol.display import quote
from ...protocol.requests.agent import Registration
from ..checkpoints.narrative import goal_for
from ..cluster.membership import agent_label
from ..core.context import Context
from ..core.tx import Tx
from ..locks.keys import display_file
from ..missions.selection import belongs

_KEY = "handed_over:"
HAS_HANDOVERS = f"EXISTS (SELECT 1 FROM store_meta WHERE key = '{_KEY}' || a.id)"
"""SQL for whether there is anything for ``take_handovers`` of an agent ``a``."""
NAMED = 10
TITLE_CHARS = 80


class HandoverNotice(msgspec.Struct, frozen=True):
    """A notice that work went ``to`` an agent or ``from`` it; ``other`` is the other agent.

    After an undo it went ``back`` from the first agent, and the second has it ``again``. If a
    hand-off did not take place, the other agent has ``kept`` it. ``mission_id`` is where the work
    is, for the agent that got it.
    """

    what: Literal["to", "from", "back", "again", "kept"]
    other: str
    mission_id: str | None = None


# A notice is not needed if its agent has not read the notice that it undoes.
_UNDOES = {"back": "to", "again": "from"}
_words = msgspec.json.Decoder(list[HandoverNotice]).decode
_encode = msgspec.json.Encoder().encode


def add_handover(tx: Tx, agent_id: str, word: HandoverNotice) -> None:
    """Store a notice for an agent, in place of an earlier one about the same other agent.

    Work that went back before its agent read about it needs no notice at all.
    """
    known = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_KEY + agent_id)
    before = _words(known) if known else []
    words = [each for each in before if each.other != word.other]
    unread = {each.what for each in before if each.other == word.other}
    if _UNDOES.get(word.what) not in unread:
        words.append(word)
    if not words:
        tx.run("DELETE FROM store_meta WHERE key = :key", key=_KEY + agent_id)
        return
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES (:key, :words)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=_KEY + agent_id,
        words=_encode(words).decode(),
    )


def drop_handover(tx: Tx, agent_id: str, other: str) -> None:
    """Drop an agent's notice about another one, because it knows already."""
    known = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_KEY + agent_id)
    words = [each for each in _words(known or "[]") if each.other != other]
    tx.run(
        "UPDATE store_meta SET value = :words WHERE key = :key"
        if words
        else "DELETE FROM store_meta WHERE key = :key",
        key=_KEY + agent_id,
        words=_encode(words).decode(),
    )


def take_handovers(tx: Tx, ctx: Context, agent_id: str) -> list[str]:
    """Take the lines that an agent is to read now, none if there are no notices."""
    row = tx.one("DELETE FROM store_meta WHERE key = :key RETURNING value", key=_KEY + agent_id)
    words = _words(row["value"]) if row else []
    lines = (_LINES[word.what](tx, ctx, agent_id, word) for word in words)
    return [line for line in lines if line]


def _work_taken_over(tx: Tx, ctx: Context, agent_id: str, word: HandoverNotice) -> str:
    successor = word.other
    handed = tx.exists(
        "SELECT 1 AS handed FROM handoffs WHERE agent_id = :agent AND state = 'completed'"
        " AND successor_id = :successor",
        agent=agent_id,
        successor=successor,
    )
    label = agent_label(tx, ctx, successor)
    how = (
        f"The user handed the work of {agent_id} over to {label}"
        if handed
        else f"The work of {agent_id} was taken over by {label} while {agent_id} counted as lost"
    )
    line = f"{how}: its open sorties and its mail went there too."
    rows = tx.all(
        "SELECT l.* FROM locks l WHERE l.held_by = :successor AND l.status = 'active'"
        " AND l.expires_at > :now AND l.normalized_path IN"
        " (SELECT normalized_path FROM locks WHERE held_by = :agent)"
        " ORDER BY l.file, l.normalized_path",
        successor=successor,
        agent=agent_id,
        now=ctx.now,
    )
    if not rows:
        return line
    which = _enumerated([display_file(tx, ctx, row) for row in rows])
    return f"{line} {agent_id} holds none of these locks any more, {successor} does: {which}."


def _took_work_over(tx: Tx, ctx: Context, agent_id: str, word: HandoverNotice) -> str:
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=word.mission_id)
    if mission is None:
        return ""
    rows = tx.all(
        "SELECT title FROM sorties WHERE mission_id = :mission AND assigned_to = :agent"
        " AND status NOT IN ('completed', 'failed') ORDER BY position",
        mission=mission["id"],
        agent=agent_id,
    )
    which = f"{mission['id']} ({goal_for(mission, agent_id, TITLE_CHARS)})"
    line = (
        f"{agent_id} took over the work of {agent_label(tx, ctx, word.other)}, which is lost, and"
        f" works in mission {which} from now on, with what it had planned itself."
    )
    titles = [quote(row["title"], TITLE_CHARS) for row in rows]
    steps = f" Open sorties of {agent_id}: {_enumerated(titles)}." if titles else ""
    how = f"fleetctl context --mission {mission['id']} --agent {agent_id}"
    return f"{line}{steps} {how} tells where that work stands."


def _gave_work_back(tx: Tx, ctx: Context, agent_id: str, word: HandoverNotice) -> str:
    return (
        f"That {agent_id} took over the work of {agent_label(tx, ctx, word.other)} was undone: open"
        f" sorties and locks that came from there are {word.other}'s again, and {agent_id} goes on"
        " with what it had itself."
    )


def _got_work_back(tx: Tx, ctx: Context, agent_id: str, word: HandoverNotice) -> str:
    other = agent_label(tx, ctx, word.other)
    return (
        f"That {other} took over the work of {agent_id} was undone: open sorties, locks and mail"
        f" that went there are {agent_id}'s again, as far as nobody has dealt with them since."
    )


def _kept_work(tx: Tx, ctx: Context, agent_id: str, word: HandoverNotice) -> str:
    reason = tx.value(
        "SELECT reason FROM handoffs WHERE successor_id = :successor AND agent_id = :agent"
        " ORDER BY created_at DESC",
        successor=agent_id,
        agent=word.other,
    )
    other = agent_label(tx, ctx, word.other)
    why = f" ({quote(reason, 200)})" if reason else ""
    return (
        f"The hand-off of the work of {other} to {agent_id} did not take place{why}: its open"
        f" sorties, locks and mail are {word.other}'s still. The user can hand it over again with"
        " `fleetctl handoff`."
    )


_LINES = {
    "kept": _kept_work,
    "from": _work_taken_over,
    "to": _took_work_over,
    "back": _gave_work_back,
    "again": _got_work_back,
}


def _enumerated(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def unread_mail(tx: Tx, agent_id: str) -> list[str]:
    """Return a line about the mail that an agent has not read, none when there is none."""
    rows = tx.all(
        "SELECT m.sender, m.subject FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.agent_id = :agent AND d.status = 'queued' ORDER BY d.seq DESC LIMIT 100",
        agent=agent_id,
    )
    if not rows:
        return []
    newest = f"{rows[0]['sender']}: {quote(rows[0]['subject'], TITLE_CHARS)}"
    many = f"{len(rows)} unread messages wait" if len(rows) > 1 else "1 unread message waits"
    return [f"{many} for {agent_id}, the newest from {newest} (fleetctl mail inbox {agent_id})."]


def waiting_mission(
    tx: Tx, ctx: Context, missed: Registration | None, cwd: str | None, agent_id: str
) -> list[str]:
    """Return a line about the mission of this directory that waits for recovery, if one does."""
    if missed is None or cwd is None:
        return []
    for each in missed.recovery.candidates:
        mission = tx.one("SELECT * FROM missions WHERE id = :id", id=each.mission_id)
        if mission is not None and belongs(ctx, mission, cwd):
            title = goal_for(mission, agent_id, TITLE_CHARS)
            what = f"Mission {each.mission_id} ({title}) of this project"
            since = f"has been silent since {each.last_activity_at} and waits for recovery"
            how = f"fleetctl resume --mission {each.mission_id} brings it back and briefs"
            return [f"{what} {since}; {how}."]
    return []
