"""Joins what a checkpoint remembers with what the store knows now; must not write."""

import msgspec

from ..wire.model import Checkpoint, RecoveryContext
from . import briefs
from .briefing import derive
from .context import Context
from .records import sorties_of
from .restoring import Ledger
from .tx import Row, Tx


def remember(
    tx: Tx,
    ctx: Context,
    mission: Row,
    checkpoint: Checkpoint | None,
    agent_id: str | None,
    ledger: Ledger,
    rewind: bool,
    *,
    narrow: bool = False,
) -> RecoveryContext:
    """Join what the checkpoint remembers with what is known now; for a specialist, its own part.

    The checkpoint's words come first, less what was finished since. A rewound mission has the
    checkpoint's last action, otherwise the newest one counts.
    """
    everything = not narrow and briefs.speaks_for_all(tx, agent_id)
    sorties = sorties_of(tx, mission["id"])
    found = [text for owner, text in ledger.blockers if everything or owner == agent_id]
    live = derive(tx, ctx, mission, sorties, agent_id=None if everything else agent_id)
    if checkpoint is None or not everything:
        return msgspec.structs.replace(live, blockers=_merged(ledger, found, live.blockers))
    then = checkpoint.recovery_context
    newer = mission["last_activity_seq"] > checkpoint.seq and not rewind
    return msgspec.structs.replace(
        live,
        last_action=live.last_action if newer or not then.last_action else then.last_action,
        next_steps=_merged(ledger, then.next_steps, live.next_steps),
        blockers=_merged(ledger, found, then.blockers, live.blockers),
        files_modified=_merged(ledger, live.files_modified, then.files_modified),
        mission_summary=then.mission_summary or live.mission_summary,
    )


def _merged(ledger: Ledger, *parts: list[str]) -> list[str]:
    every = dict.fromkeys(entry for part in parts for entry in part)
    return [entry for entry in every if entry not in ledger.outdated]
