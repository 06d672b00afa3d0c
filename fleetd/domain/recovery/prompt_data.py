"""Gathers what a recovery prompt says about an agent or a whole mission; must not write."""

import heapq
from collections.abc import Sequence
from typing import Any

from ...protocol.display import path, quote, short, verbatim
from ...protocol.records import RecoveryContext, SortieState, percent
from ..checkpoints.derived_context import OF_ONE, newest
from ..checkpoints.titles import Titles, shares, titles_for
from ..cluster.membership import on_another
from ..core.context import Context
from ..core.event_log import data_of
from ..core.tx import Row, Tx
from ..locks.keys import file_from_here
from ..snapshots import recovery_context
from ..snapshots.recovery_context import Reader, reader_of
from .prompt import Brief

COMMANDS = 10
PROMPTS = 5
# Of one sender, and of all: mail that is not dealt with, the oldest first.
LETTERS_OF_ONE, LETTERS = 5, 20


def speaks_for_all(tx: Tx, agent_id: str | None, sorties: Sequence[SortieState]) -> bool:
    """Whether the one who is briefed sees the whole mission: nobody in particular, or dispatch.

    So does one who has no part of its own: never registered, with none of the mission's
    ``sorties``, and nobody's successor.
    """
    if agent_id is None:
        return True
    row = tx.one("SELECT role FROM agents WHERE id = :id", id=agent_id)
    if row is not None:
        return bool(row["role"] == "dispatch")
    return is_unknown(tx, agent_id, sorties)


def is_unknown(tx: Tx, agent_id: str, sorties: Sequence[SortieState]) -> bool:
    """Whether nothing names an agent: no registration, none of the ``sorties``, no succession."""
    if tx.one("SELECT 1 AS known FROM agents WHERE id = :id", id=agent_id) is not None:
        return False
    heir = tx.one("SELECT 1 AS heir FROM agents WHERE succeeded_by = :id", id=agent_id)
    return heir is None and all(sortie.assigned_to != agent_id for sortie in sorties)


def gather(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    context: RecoveryContext,
    *,
    agent_id: str | None,
    progress_note: str = "",
    taken_over_from: str | None = None,
    back_to: int | None = None,
    errors: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Brief:
    """Collect the parts of a prompt for an agent, or for whoever looks after the mission.

    ``back_to`` is the position in the log that a rewind goes back to.
    """
    done, total = mission["completed_sorties"], mission["total_sorties"]
    progress = f"{percent(done, total)}% ({done}/{total} sorties complete)"
    narrow = None if speaks_for_all(tx, agent_id, sorties) else agent_id
    reader = reader_of(tx, mission, agent_id, back_to) if agent_id else None
    messages, unread = _messages(tx, mission["id"], agent_id)
    titles = titles_for(tx, mission, agent_id)
    own, more = shares(_given_to(sorties, agent_id), titles, OF_ONE)
    return Brief(
        context=context,
        progress=progress + progress_note,
        mission_id=mission["id"],
        taken_over_from=taken_over_from,
        run=recovery_context.line(tx, reader, sorties) if reader else "",
        own_sorties=_own(own, titles),
        own_left_out=sum(more.values()),
        fleet=_fleet(sorties, narrow) if narrow else "",
        place=_place(tx, ctx, mission) if agent_id else "",
        locks=_locks(tx, ctx, mission["id"], agent_id),
        messages=messages,
        messages_left_out=unread - len(messages),
        commands=_commands(tx, mission["id"], narrow, reader),
        prompts=_prompts(tx, mission["id"], narrow, agent_id),
        repository=list(ctx.facts.repository),
        errors=list(errors),
        warnings=list(warnings),
    )


def _given_to(sorties: Sequence[SortieState], agent_id: str | None) -> list[SortieState]:
    return [s for s in sorties if agent_id is not None and s.assigned_to == agent_id]


def _own(sorties: Sequence[SortieState], titles: Titles) -> list[str]:
    items = []
    for sortie in sorties:
        files = f" [{', '.join(map(path, sortie.files))}]" if sortie.files else ""
        told = f"{sortie.id} {short(titles.of(sortie), 200)}: {sortie.status}, {sortie.progress}%"
        note = f" — {quote(sortie.progress_notes)}" if sortie.progress_notes else ""
        items.append(f"- {told}{short(files, 200) and ' ' + short(files, 200)}{note}")
    return items


def _place(tx: Tx, ctx: Context, mission: Row) -> str:
    place = ""
    if mission["project_dir"]:
        where = on_another(tx, ctx, mission["machine"])
        place = f" in {path(mission['project_dir'], 200)}{where}"
    return f"Mission {mission['id']}{place}"


def _fleet(sorties: Sequence[SortieState], agent_id: str) -> str:
    others = [s for s in sorties if s.assigned_to != agent_id]
    if not others:
        return ""
    agents = sorted({s.assigned_to for s in others if s.assigned_to})
    done = sum(s.status == "completed" for s in others)
    who = f" with {', '.join(agents[:5])}" if agents else ""
    return f"The rest of the fleet: {done}/{len(others)} other sorties complete{who}"


def _locks(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> list[str]:
    if agent_id is None:
        where, params = "mission_id = :mission", {"mission": mission_id}
    else:
        where, params = "held_by = :agent", {"agent": agent_id}
    rows = tx.all(
        f"SELECT * FROM locks WHERE {where} AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        **params,
        now=ctx.now,
    )
    return [
        f"- {path(file_from_here(tx, ctx, row), 200)} ({row['id']}, {short(row['purpose'], 200)}, "
        + ("" if agent_id else f"{row['held_by']}, ")
        + f"token {row['fencing_token']}, until {row['expires_at']})"
        for row in rows
    ]


def _messages(tx: Tx, mission_id: str, agent_id: str | None) -> tuple[list[str], int]:
    """Tell queued mail, and mail that was read but not acknowledged: reading is forgotten.

    Everybody's oldest letter first, then everybody's second: nobody's mail pushes another's out.
    Also returns how much there is in all.
    """
    if agent_id is None:
        where, params = "m.mission_id = :mission", {"mission": mission_id}
    else:
        where, params = "d.agent_id = :agent", {"agent": agent_id}
    rows = tx.all(
        "SELECT m.*, owed.recipient, owed.place, owed.total FROM"
        " (SELECT d.message_id, d.agent_id AS recipient, d.seq AS place,"
        " row_number() OVER (PARTITION BY m.sender ORDER BY d.seq) AS nth,"
        " count(*) OVER () AS total"
        f" FROM deliveries d JOIN messages m ON m.id = d.message_id WHERE {where}"
        " AND d.status IN ('queued', 'delivered')) owed"
        " JOIN messages m ON m.id = owed.message_id WHERE owed.nth <= :of_one"
        " ORDER BY owed.nth, owed.place LIMIT :most",
        **params,
        of_one=LETTERS_OF_ONE,
        most=LETTERS,
    )
    items = []
    for row in rows:
        to = "" if agent_id else f" to {row['recipient']}"
        item = f"- {row['id']} from {row['sender']}{to}: {quote(row['subject'], 200)}"
        body = verbatim(row["body"], 600) if row["body"] else ""
        items.append(f"{item}\n{body}" if body else item)
    return items, int(rows[0]["total"]) if rows else 0


def _newest(
    tx: Tx, mission_id: str, kind: str, agent_id: str | None, limit: int
) -> list[tuple[dict[str, Any], str]]:
    rows = newest(tx, mission_id, kind, agent_id, limit)
    found = ((data_of(row), row["timestamp"]) for row in rows)
    # What a hook told while no daemon ran has happened before it was recorded.
    return [(data, str(data.get("happened_at") or at)) for data, at in found]


def _commands(tx: Tx, mission_id: str, agent_id: str | None, reader: Reader | None) -> list[str]:
    """Tell how commands ended, newest first: by the log, and what only a client declared."""
    # Some harnesses tell how a command ended in a second event; the newer one knows more.
    found = _newest(tx, mission_id, "command_finished", agent_id, 2 * COMMANDS)
    once: dict[Any, tuple[dict[str, Any], str]] = {}
    for number, (data, at) in enumerate(found):
        once.setdefault(data.get("call_id") or number, (data, at))
    told = [(at, _command(data, at)) for data, at in list(once.values())[:COMMANDS]]
    declared = recovery_context.outcomes(tx, reader, COMMANDS) if reader else []
    both = heapq.merge(told, declared, key=lambda each: each[0], reverse=True)
    return [line for _, line in both][:COMMANDS]


def _command(data: dict[str, Any], at: str) -> str:
    name = short(str(data.get("command") or data.get("name") or "command"), 120)
    error = f" — {quote(str(data['error']), 120)}" if data.get("error") else ""
    return f"- {name}: {short(str(data.get('result', 'finished')), 20)}, {at}{error}"


def _prompts(tx: Tx, mission_id: str, narrow: str | None, agent_id: str | None) -> list[str]:
    """Tell what users said last: the reader's own first, also where others were told more since.

    What another agent was told says to whom.
    """
    found = newest(tx, mission_id, "prompt_submitted", narrow, PROMPTS)
    mine = newest(tx, mission_id, "prompt_submitted", agent_id, 1) if agent_id else []
    rows = [*mine, *(row for row in found if row["seq"] not in {each["seq"] for each in mine})]
    whose = {None, agent_id, *(row["agent_id"] for row in mine)}
    items = []
    for row in rows[:PROMPTS]:
        data = data_of(row)
        to = "" if narrow or not agent_id or row["agent_id"] in whose else f", to {row['agent_id']}"
        if data.get("prompt"):
            at = data.get("happened_at") or row["timestamp"]
            items.append(f"- {at}{to}:\n{verbatim(str(data['prompt']))}")
    return items
