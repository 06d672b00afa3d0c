"""Context builder: joins what a checkpoint and the store know, and stores each agent's part.

A recovery stores one part of the context per agent, and the agent's open sorties refer to it. A
copy in each of a thousand sorties would repeat the steps of all of them.
"""

from collections.abc import Sequence, Set
from functools import partial

import msgspec

from ...protocol.records import Checkpoint, RecoveryContext, SortieState
from ...protocol.types import CLOSED_SORTIE
from ..checkpoints.derived_context import derive, is_noted_by, last_action, own_note
from ..checkpoints.narrative import obstacle, step, titles_for, waits_in
from ..core.context import Context
from ..core.tx import Row, Tx
from ..locks.keys import display_event
from ..snapshots.recovery_context import snapshot_scope, with_next_actions
from .restore_context import RestoreContext

_encode = msgspec.json.Encoder().encode
_OPEN = ("pending", "assigned", "in_progress", "blocked")


def sees_whole_mission(tx: Tx, agent_id: str | None, sorties: Sequence[SortieState]) -> bool:
    """Return whether the reader sees the whole mission: no agent in particular, or dispatch.

    So does an agent without a part of its own: never registered, with none of the mission's
    ``sorties``, and nobody's successor.
    """
    if agent_id is None:
        return True
    row = tx.one("SELECT role FROM agents WHERE id = :id", id=agent_id)
    if row is not None:
        return bool(row["role"] == "dispatch")
    return is_unknown(tx, agent_id, sorties)


def is_unknown(tx: Tx, agent_id: str, sorties: Sequence[SortieState]) -> bool:
    """Return whether an agent is unknown: no registration, no ``sorties``, no succession."""
    named = "SELECT 1 AS known FROM agents WHERE id = :id OR succeeded_by = :id"
    return all(s.assigned_to != agent_id for s in sorties) and not tx.exists(named, id=agent_id)


def build(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    checkpoint: Checkpoint | None,
    agent_id: str | None,
    restore: RestoreContext | None = None,
) -> RecoveryContext:
    """Return the context for continuing, for the mission or for one specialist.

    The reader's own note, as it is now, comes first. Declarations for the checkpoint follow; its
    derived entries are derived again. For an agent of any role, its newest snapshot adds detail.
    ``sorties`` are the mission's. ``restore`` is the recovery that just took place, if one did: the
    problems that it met block the work.
    """
    only_agent = None if sees_whole_mission(tx, agent_id, sorties) else agent_id
    live = _derived_now(tx, ctx, mission, sorties, agent_id, only_agent, restore)
    met = _blockers_met(restore, only_agent)
    if checkpoint is None or only_agent:
        return msgspec.structs.replace(live, blockers=_joined(met, live.blockers))
    then = checkpoint.recovery_context
    rewound = restore is not None and restore.request.rewind
    newer = mission["last_activity_seq"] > checkpoint.seq and not rewound
    waits = waits_in(checkpoint.sorties)
    derived = {
        line
        for s in checkpoint.sorties
        if s.status in _OPEN
        for line in (step(s, awaited=waits.get(s.id, ())), obstacle(s))
    }
    own = own_note(tx, mission["id"], agent_id)
    steps, blockers = (
        [line for line in each if line not in derived and not is_noted_by(agent_id, line)]
        for each in (then.next_steps, then.blockers)
    )
    if newer:  # an error that is no longer open was resolved since
        blockers = [b for b in blockers if not b.startswith("Error: ") or b in live.blockers]
    # A last action derived then names a file as its lock's holder did; live names it as here.
    stale = newer or then.last_action in ("", last_action(tx, mission["id"], sorties, None))
    known = live.last_action if stale else then.last_action
    return msgspec.structs.replace(
        live,
        last_action=own.last_action or known,
        next_steps=_joined(own.next_steps, steps, live.next_steps),
        blockers=_joined(met, own.blockers, blockers, live.blockers),
        files_modified=_joined(live.files_modified, then.files_modified),
        mission_summary=_summary(checkpoint, live),
    )


def agent_contexts(
    tx: Tx, restore: RestoreContext, mission: Row, sorties: Sequence[SortieState]
) -> dict[str, RecoveryContext]:
    """Return the part of the context of each agent with open sorties that are restored."""
    at_work = (s.assigned_to for s in sorties if s.status not in CLOSED_SORTIE)
    contexts: dict[str, RecoveryContext] = {}
    for agent_id in dict.fromkeys(filter(None, at_work)):
        if restore.only_agent not in (None, agent_id):
            continue
        live = _derived_now(tx, restore.ctx, mission, sorties, agent_id, agent_id, restore)
        blockers = _joined(_blockers_met(restore, agent_id), live.blockers)
        contexts[agent_id] = msgspec.structs.replace(live, blockers=blockers)
    return contexts


def store_agent_contexts(tx: Tx, mission_id: str, contexts: dict[str, RecoveryContext]) -> None:
    """Store each agent's part of the context for its open sorties, until their next progress."""
    stored = tx.all("SELECT id FROM briefings WHERE mission_id = :id", id=mission_id)
    carried = tx.all(
        "SELECT DISTINCT briefing_id, CASE WHEN status IN ('completed', 'failed') THEN NULL"
        " ELSE assigned_to END AS at_work FROM sorties WHERE mission_id = :id",
        id=mission_id,
    )
    again, gone = _decide([row["id"] for row in stored], carried, contexts.keys())
    texts = {agent_id: _encode(context).decode() for agent_id, context in contexts.items()}
    tx.many(
        "UPDATE briefings SET context_json = :context WHERE id = :id",
        [{"id": again[agent_id], "context": texts[agent_id]} for agent_id in again],
    )
    for agent_id in [each for each in texts if each not in again]:
        briefing_id = tx.value(
            "INSERT INTO briefings (mission_id, context_json) VALUES (:mission, :context)"
            " RETURNING id",
            mission=mission_id,
            context=texts[agent_id],
        )
        tx.run(
            "UPDATE sorties SET briefing_id = :briefing WHERE mission_id = :mission"
            " AND assigned_to = :agent AND status NOT IN ('completed', 'failed')",
            briefing=briefing_id,
            mission=mission_id,
            agent=agent_id,
        )
    tx.many("DELETE FROM briefings WHERE id = :id", [{"id": each} for each in gone])


def _decide(
    stored: Sequence[int], carried: Sequence[Row], contexts: Set[str]
) -> tuple[dict[str, int], list[int]]:
    """Decide which agents' briefings are overwritten, and which are deleted as no sortie has them.

    ``carried`` tells which briefings sorties refer to, and which agents work on those. If all open
    sorties of an agent refer to one, and no others do, the sorties need no update.
    """
    agents_of: dict[int, set[str | None]] = {}
    of_agent: dict[str, set[int]] = {}
    for row in carried:
        agents_of.setdefault(row["briefing_id"], set()).add(row["at_work"])
        of_agent.setdefault(row["at_work"], set()).add(row["briefing_id"])
    again = {
        agent_id: each
        for each in stored
        for agent_id in contexts & agents_of.get(each, set())
        if agents_of[each] == {agent_id} and of_agent[agent_id] == {each}
    }
    left = contexts - again.keys()
    return again, [each for each in stored if not agents_of.get(each, set()) - left]


def _derived_now(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    agent_id: str | None,
    only_agent: str | None,
    restore: RestoreContext | None,
) -> RecoveryContext:
    """Return what the store knows now of the mission, or of the part of ``only_agent``.

    A checkpoint keeps only the result of ``derive``. It covers the whole mission, and a snapshot
    adds detail only between two checkpoints.
    """
    titles = titles_for(tx, mission, agent_id)
    live = derive(
        tx,
        ctx,
        mission,
        sorties,
        agent_id=only_agent,
        reader=agent_id,
        titles=titles,
        display=partial(display_event, tx, ctx),
    )
    if agent_id is None:
        return live
    reader = snapshot_scope(tx, mission, agent_id, restore.rewind_seq if restore else None)
    return with_next_actions(tx, reader, sorties, live, titles)


def _summary(checkpoint: Checkpoint, live: RecoveryContext) -> str:
    """Return the summary that was declared for the checkpoint, else the mission's present title."""
    then = checkpoint.recovery_context.mission_summary
    title = checkpoint.mission.title if checkpoint.mission else None
    return live.mission_summary if then in ("", title) else then


def _blockers_met(restore: RestoreContext | None, only_agent: str | None) -> list[str]:
    if restore is None:
        return []
    return [text for owner, text in restore.report.blockers if only_agent in (None, owner)]


def _joined(*parts: list[str]) -> list[str]:
    return list(dict.fromkeys(entry for part in parts for entry in part))
