"""Transcripts: the files that report the usage of sessions, and how far each is read."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...harness.usage.record import UsageRecord
from ...protocol.requests.usage import TranscriptReading
from ..core import tombstones
from ..core.context import Context
from ..core.ids import Key
from ..core.registry import frees_space
from ..core.sql import Where
from ..core.tx import Row, Tx
from ..snapshots.runs import run_of_session
from . import records
from .report import Filter

# A CLI keeps writing after its last hook, so a transcript is checked for this long.
LOOKED_AT_MS = 900_000
_WHERE = "machine = :machine AND path = :path AND session_id = :session_id"


class NotedTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript that a hook named, and when."""

    harness: str
    session_id: str
    path: str
    at: str


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript and how far it is read: a position in bytes, or what its reader makes of it.

    ``open`` says that it may still grow, even if no hook names it any more.
    """

    path: str
    harness: str
    session_id: str
    position: int = 0
    head: str = ""
    state: dict[str, Any] = {}
    missing: bool = False
    outstanding: int = 0
    found_at: str = ""
    open: bool = True


class ReadPortion(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a transcript; ``whole`` says that nothing more is there now."""

    position: int
    head: str
    state: dict[str, Any]
    whole: bool = True
    missing: bool = False
    outstanding: int = 0
    records: list[UsageRecord] = []
    broken: int = 0
    long_lines: int = 0
    repeated: int = 0

    def is_news(self, transcript: Transcript) -> bool:
        """Whether there is anything to store that is not known of a transcript."""
        known = (transcript.position, transcript.head, transcript.missing, transcript.outstanding)
        now = (self.position, self.head, self.missing, self.outstanding)
        return now != known or bool(self.records) or not transcript.open


def note(tx: Tx, ctx: Context, noted: Sequence[NotedTranscript]) -> None:
    """Store transcripts that hooks named, and have them checked again."""
    tx.many(
        "INSERT INTO transcripts (machine, path, harness, session_id, noted_at, found_at)"
        " VALUES (:machine, :path, :harness, :session_id, :at, :at)"
        " ON CONFLICT (machine, path, session_id) DO UPDATE"
        " SET noted_at = excluded.noted_at, pending = 1",
        [{"machine": ctx.machine, **msgspec.structs.asdict(each)} for each in noted],
    )


def pending(tx: Tx, ctx: Context, after: tuple[str, str, str]) -> list[Transcript]:
    """Return the next transcripts that may have grown, those that were found first.

    ``after`` is the key of the last one: when it was found, its path, and its session.
    """
    rows = tx.all(
        "SELECT path, harness, session_id, position, head, state_json, missing, outstanding,"
        " found_at, noted_at FROM transcripts WHERE machine = :machine AND pending = 1"
        " AND (found_at, path, session_id) > (:found, :path, :session)"
        " ORDER BY found_at, path, session_id LIMIT :most",
        machine=ctx.machine,
        found=after[0],
        path=after[1],
        session=after[2],
        most=ctx.batches.records,
    )
    old = ctx.at(-LOOKED_AT_MS)
    return [
        Transcript(
            path=row["path"],
            harness=row["harness"],
            session_id=row["session_id"],
            position=row["position"],
            head=row["head"],
            state=msgspec.json.decode(row["state_json"]),
            missing=bool(row["missing"]),
            outstanding=row["outstanding"],
            found_at=row["found_at"],
            open=row["noted_at"] >= old,
        )
        for row in rows
    ]


def paths_of(tx: Tx, ctx: Context, transcript: Transcript) -> list[str]:
    """Return the transcripts that are known of a session."""
    rows = tx.all(
        "SELECT path FROM transcripts WHERE harness = :harness AND session_id = :session_id"
        " AND machine = :machine",
        harness=transcript.harness,
        session_id=transcript.session_id,
        machine=ctx.machine,
    )
    return [row["path"] for row in rows]


def keep(tx: Tx, ctx: Context, transcript: Transcript, portion: ReadPortion) -> bool:
    """Store what a portion contains and how far the transcript is read.

    Returns False for a transcript that belongs to no session any more: its row is deleted.
    """
    place = {
        "machine": ctx.machine,
        "path": transcript.path,
        "session_id": transcript.session_id,
    }
    agent_id: str | None = tx.value(
        "SELECT agent_id FROM sessions WHERE harness = :harness AND session_id = :session_id"
        " AND subagent = ''",
        harness=transcript.harness,
        session_id=transcript.session_id,
    )
    if agent_id is None:
        tx.run(f"DELETE FROM transcripts WHERE {_WHERE}", **place)
        return False
    floor = max(records.kept_since(ctx), _forgotten_until(tx, ctx, transcript))
    repeated = records.add(tx, ctx, transcript.harness, agent_id, portion.records, floor)
    tx.run(
        "UPDATE transcripts SET position = :position, head = :head, state_json = :state,"
        " outstanding = :outstanding, missing = :missing,"
        " broken = broken + :broken, long_lines = long_lines + :long_lines,"
        " repeated = repeated + :repeated,"
        " pending = CASE WHEN :whole = 1 AND noted_at < :old THEN 0 ELSE 1 END"
        f" WHERE {_WHERE}",
        **place,
        position=portion.position,
        head=portion.head,
        state=msgspec.json.encode(portion.state).decode(),
        outstanding=portion.outstanding,
        missing=int(portion.missing),
        broken=portion.broken,
        long_lines=portion.long_lines,
        repeated=portion.repeated + repeated,
        whole=int(portion.whole),
        old=ctx.at(-LOOKED_AT_MS),
    )
    return True


def _forgotten_until(tx: Tx, ctx: Context, transcript: Transcript) -> str:
    """Return when the session was forgotten, empty for never; older records stay forgotten."""
    run = run_of_session(Key(transcript.harness, transcript.session_id))
    until = tombstones.forgotten_of(tx, ctx, "run", [run]).get(run, -1)
    if until == -1:
        return ""
    after: str | None = tx.value(
        "SELECT timestamp FROM events WHERE seq > :until ORDER BY seq LIMIT 1",
        until=until or 0,
    )
    return after or ctx.now


def reading(tx: Tx, ctx: Context, wanted: Filter) -> TranscriptReading:
    """Return how far the transcripts of some agents are read, and what of them is not counted."""
    agent_filter, where = Where(), Where()
    if wanted.agent_id:
        agent_filter.add("a.id = :agent", agent=wanted.agent_id)
    if wanted.mission_id:
        agent_filter.add("a.mission_id = :mission", mission=wanted.mission_id)
    if agent_filter.params:
        where.add(
            "EXISTS (SELECT 1 FROM sessions s JOIN agents a ON a.id = s.agent_id"
            " WHERE s.harness = transcripts.harness AND s.session_id = transcripts.session_id"
            f" AND s.subagent = '' AND {agent_filter})",
            **agent_filter.params,
        )
    row: Row = (
        tx.one(
            "SELECT count(*) AS transcripts,"
            " coalesce(sum(missing), 0) AS missing,"
            " coalesce(sum(outstanding), 0) AS outstanding_bytes,"
            " coalesce(sum(broken), 0) AS broken_lines,"
            " coalesce(sum(long_lines), 0) AS long_lines, coalesce(sum(repeated), 0) AS repeated"
            f" FROM transcripts WHERE {where}",
            **where.params,
        )
        or {}
    )
    return TranscriptReading(**{name: int(number) for name, number in row.items()})


@frees_space
def drop_orphans(tx: Tx, ctx: Context) -> int:
    """Remove some transcripts whose session is gone; return how many."""
    rows = tx.all(
        "SELECT t.machine, t.path, t.session_id FROM transcripts t WHERE NOT EXISTS"
        " (SELECT 1 FROM sessions s WHERE s.harness = t.harness AND s.session_id = t.session_id)"
        " AND t.noted_at < :old LIMIT :most",
        old=ctx.at(-LOOKED_AT_MS),
        most=ctx.batches.rows,
    )
    tx.many(f"DELETE FROM transcripts WHERE {_WHERE}", rows)
    return len(rows)
