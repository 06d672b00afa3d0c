"""Which snapshots speak for an agent; must not say what is made of them.

An agent's are those of its runs, and of the lost agents that it took over from. What was recorded
for no agent speaks for nobody.
"""

from collections.abc import Iterator

import msgspec

from ...protocol.errors import Corrupt
from ...protocol.snapshots import CommandOutcome, Snapshot
from ..core.event_log import position
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from .codec import from_row

# How far back something readable is looked for: runs of the agent, and snapshots of each.
RUNS, TRIED = 5, 20


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Whose snapshots are asked for: an agent's, as far as they are about a mission.

    ``whose`` are the agents whose runs speak for it. Behind the position ``until`` in the log
    nothing counts: that is where a rewind goes back to.
    """

    agent_id: str
    mission: Row
    whose: tuple[str, ...]
    until: int


def reader_of(tx: Tx, mission: Row, agent_id: str, until: int | None = None) -> Reader:
    """Return an agent as a reader: with those it took over from, none of another mission."""
    rows = tx.all(
        "SELECT id, mission_id FROM agents WHERE id = :agent OR succeeded_by = :agent ORDER BY id",
        agent=agent_id,
    )
    mission_of = {agent_id: None} | {row["id"]: row["mission_id"] for row in rows}
    whose = tuple(each for each, at in mission_of.items() if at in (None, mission["id"]))
    end = position(tx) if until is None else until
    return Reader(agent_id=agent_id, mission=mission, whose=whose, until=end)


def newest_of_agent(tx: Tx, reader: Reader) -> Snapshot | None:
    """Return the newest snapshot that can be read and speaks for an agent, None without one."""
    return next(snapshots_of_agent(tx, reader), None)


def snapshots_of_agent(tx: Tx, reader: Reader) -> Iterator[Snapshot]:
    """Yield the snapshots that can be read and speak for an agent, run by run, newest first."""
    rows = (row for run_id in _runs(tx, reader) for row in _rows(tx, reader, run_id))
    return _readable(tx, reader, rows)


def declared_outcomes(tx: Tx, reader: Reader, most: int) -> list[tuple[str, CommandOutcome]]:
    """Return outcomes that a client declared itself, and when they were recorded; newest first.

    Those that were gathered stand in the log, where they are read.
    """
    told = "AND gathered = 0 AND outcome_count > 0"
    rows = [row for run_id in _runs(tx, reader) for row in _rows(tx, reader, run_id, told)]
    rows.sort(key=lambda row: row["seq"], reverse=True)
    found: list[tuple[str, CommandOutcome]] = []
    for snapshot in _readable(tx, reader, iter(rows)):
        outcomes = reversed(snapshot.command_outcomes)
        found += [(snapshot.created_at, outcome) for outcome in outcomes]
        if len(found) >= most:
            break
    return found[:most]


def _runs(tx: Tx, reader: Reader) -> list[str]:
    """Return the runs of which snapshots may speak for an agent, the one recorded last first."""
    found: list[Row] = []
    for author in reader.whose:
        found += tx.all(
            "SELECT r.id, (SELECT max(s.seq) FROM snapshots s WHERE s.run_id = r.id) AS newest"
            " FROM runs r WHERE r.agent_id = :author ORDER BY newest DESC LIMIT :most",
            author=author,
            most=RUNS,
        )
    found.sort(key=lambda row: row["newest"] or 0, reverse=True)
    return [row["id"] for row in found[:RUNS]]


def _rows(tx: Tx, reader: Reader, run_id: str, more: str = "") -> list[Row]:
    return tx.all(
        f"SELECT * FROM snapshots WHERE run_id = :run AND {LIVE} AND seq <= :until {more}"
        " ORDER BY seq DESC LIMIT :most",
        run=run_id,
        until=reader.until,
        most=TRIED,
    )


def _readable(tx: Tx, reader: Reader, rows: Iterator[Row]) -> Iterator[Snapshot]:
    """Yield what can be read and speaks for the agent; damage is for others to tell and heal."""
    for row in rows:
        try:
            snapshot = from_row(row)
        except Corrupt:
            continue
        if snapshot.agent_id in reader.whose and _of_mission(tx, reader, snapshot):
            yield snapshot


def _of_mission(tx: Tx, reader: Reader, snapshot: Snapshot) -> bool:
    """Whether a snapshot can be about a mission: its agent may have been in another one then."""
    if snapshot.created_at < reader.mission["created_at"]:
        return False
    step_id = snapshot.step_state.step_id
    elsewhere = step_id and tx.value("SELECT mission_id FROM sorties WHERE id = :id", id=step_id)
    return elsewhere in (None, "", reader.mission["id"])
