"""What an agent is told beside its briefing, one line each: mail, missions that wait.

Phrased as facts: text in the imperative can trip an agent's defences against injection.
"""

import msgspec

from ...protocol.display import quote
from ...protocol.requests.agent import Registration
from ..checkpoints.titles import goal_for
from ..core.context import Context, TranscriptMark
from ..core.session_key import WHERE_KEY, Key
from ..core.tx import Tx
from ..missions.current import belongs

TITLE_CHARS = 80


_mark = msgspec.json.Decoder(TranscriptMark).decode


def compacted_between(before: str | None, now: TranscriptMark) -> bool:
    """Whether a transcript was shortened or begun anew since it was last looked at."""
    if before is None:
        return False
    then = _mark(before)
    return now.size < then.size or (None not in {then.head, now.head} and now.head != then.head)


def keep_mark(tx: Tx, key: Key, before: str | None, mark: TranscriptMark) -> None:
    """Remember what a transcript looks like now, and its beginning as it was last known."""
    if mark.head is None and before is not None:
        mark = msgspec.structs.replace(mark, head=_mark(before).head)
    tx.run(
        f"UPDATE sessions SET transcript_mark = :mark WHERE {WHERE_KEY}",
        **key.params,
        mark=msgspec.json.encode(mark).decode(),
    )


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


def waiting_nearby(
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
