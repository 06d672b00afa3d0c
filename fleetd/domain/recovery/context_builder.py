"""Joins what a checkpoint remembers with what the store knows now; must not write."""

from collections.abc import Sequence
from functools import partial

import msgspec

from ...protocol.records import Checkpoint, RecoveryContext, SortieState
from ..checkpoints.derived_context import derive, is_noted_by, last_action, own_note
from ..checkpoints.narrative import obstacle, step
from ..checkpoints.titles import titles_for
from ..core.context import Context
from ..core.tx import Row, Tx
from ..locks.keys import event_from_here
from ..snapshots.recovery_context import reader_of, sharpened
from . import prompt_data
from .restore_context import Case

_OPEN = ("pending", "assigned", "in_progress", "blocked")


def remember(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    checkpoint: Checkpoint | None,
    agent_id: str | None,
    case: Case | None = None,
) -> RecoveryContext:
    """Return what is needed to go on, for the mission or for one specialist.

    What somebody declared for the checkpoint comes first; what was derived then is derived anew.
    Before that comes what the agent who is briefed noted itself, in its own words of now. For an
    agent, whatever its role, its newest snapshot makes that sharper.
    ``sorties`` are the mission's. ``case`` is the recovery that just took place, if one did: what
    it met blocks the work.
    """
    narrow = None if prompt_data.speaks_for_all(tx, agent_id, sorties) else agent_id
    live = _live(tx, ctx, mission, sorties, agent_id, narrow, case)
    met = _blockers_met(case, narrow)
    if checkpoint is None or narrow:
        return msgspec.structs.replace(live, blockers=_joined(met, live.blockers))
    then = checkpoint.recovery_context
    rewound = case is not None and case.request.rewind
    newer = mission["last_activity_seq"] > checkpoint.seq and not rewound
    derived = {
        told for s in checkpoint.sorties if s.status in _OPEN for told in (step(s), obstacle(s))
    }
    own = own_note(tx, mission["id"], agent_id)
    steps, blockers = (
        [told for told in each if told not in derived and not is_noted_by(agent_id, told)]
        for each in (then.next_steps, then.blockers)
    )
    blockers = [b for b in blockers if not (newer and _over(b, live))]
    # What was derived then names the file of a lock as its holder did: whose that is, live tells.
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


def part_of(
    case: Case, mission: Row, sorties: Sequence[SortieState], agent_id: str
) -> RecoveryContext:
    """Return one agent's own part after a recovery, whatever its role."""
    live = _live(case.tx, case.ctx, mission, sorties, agent_id, agent_id, case)
    blockers = _joined(_blockers_met(case, agent_id), live.blockers)
    return msgspec.structs.replace(live, blockers=blockers)


def _live(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    agent_id: str | None,
    narrow: str | None,
    case: Case | None,
) -> RecoveryContext:
    """Return what the store knows now: of the mission, or of the part of ``narrow``.

    A checkpoint keeps nothing of this but what ``derive`` tells: it is of the whole mission, and
    what a snapshot says is sharp between two of them only.
    """
    titles = titles_for(tx, mission, agent_id)
    live = derive(
        tx,
        ctx,
        mission,
        sorties,
        agent_id=narrow,
        reader=agent_id,
        titles=titles,
        retold=partial(event_from_here, tx, ctx),
    )
    if agent_id is None:
        return live
    reader = reader_of(tx, mission, agent_id, case.back_to if case else None)
    return sharpened(tx, reader, sorties, live, titles)


def _summary(checkpoint: Checkpoint, live: RecoveryContext) -> str:
    """Return what a mission is about: as was declared for the checkpoint, else its title of now."""
    then = checkpoint.recovery_context.mission_summary
    title = checkpoint.mission.title if checkpoint.mission else None
    return live.mission_summary if then in ("", title) else then


def _blockers_met(case: Case | None, narrow: str | None) -> list[str]:
    if case is None:
        return []
    return [text for owner, text in case.ledger.blockers if narrow in (None, owner)]


def _over(blocker: str, live: RecoveryContext) -> bool:
    """Whether an error of the checkpoint has been dealt with since."""
    return blocker.startswith("Error: ") and blocker not in live.blockers


def _joined(*parts: list[str]) -> list[str]:
    return list(dict.fromkeys(entry for part in parts for entry in part))
