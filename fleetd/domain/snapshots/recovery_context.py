"""The part of a recovery context that comes from the agent's newest snapshot.

Between two checkpoints, that is the best account of the agent's work. An agent's snapshots are
those of its runs, and of the lost agents that it took over from. Snapshots without an agent are not
used. Texts that are not the agent's own are in quotes.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ...protocol.display import LINE_CHARS, quote, short
from ...protocol.errors import Corrupt
from ...protocol.records import RecoveryContext, SortieState
from ...protocol.snapshots import CommandOutcome, Snapshot
from ...protocol.types import CLOSED_SORTIE
from ..checkpoints.narrative import Titles, step, waits_in
from ..core.event_log import data_of, position
from ..core.soft_delete import LIVE
from ..core.sql import inside_of, named_params
from ..core.tx import Row, Tx
from .codec import from_row, seq_of
from .plan_steps import FAILED_FIRST

NAME_CHARS = 120
# Events after which a plan differs from what a snapshot saw.
_MOVES = (
    "('sortie_started', 'sortie_completed', 'sortie_failed', 'sortie_reopened', 'sortie_removed')"
)
_MOST_CALLS = 1_000
_CLOSED = ("done", "failed", "skipped")
_PASSES = "('command_finished', 'tool_finished')"
# How hints name a step of the plan; the group is the step's title.
_OF_A_STEP = re.compile(r"(?:Continue|Then): (.*?)(?: \(blocked: .*\))?")
# How many runs of the agent, and snapshots of each, are searched for a readable one.
RUNS, TRIED = 5, 20


class SnapshotScope(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots to search: an agent's, as far as they are about a mission.

    ``whose`` are the agents whose runs count as its own. Nothing after the position ``until`` in
    the log counts: that is where a rewind goes back to.
    """

    agent_id: str
    mission: Row
    whose: tuple[str, ...]
    until: int


def snapshot_scope(tx: Tx, mission: Row, agent_id: str, until: int | None = None) -> SnapshotScope:
    """Return the scope of an agent: with those it took over from, none of another mission."""
    rows = tx.all(
        "SELECT id, mission_id FROM agents WHERE id = :agent OR succeeded_by = :agent ORDER BY id",
        agent=agent_id,
    )
    mission_of = {agent_id: None} | {row["id"]: row["mission_id"] for row in rows}
    agent_ids = tuple(each for each, at in mission_of.items() if at in (None, mission["id"]))
    end = position(tx) if until is None else until
    return SnapshotScope(agent_id=agent_id, mission=mission, whose=agent_ids, until=end)


def _snapshots(tx: Tx, reader: SnapshotScope) -> Iterator[Snapshot]:
    """Yield the readable snapshots that count as an agent's, run by run, newest first."""
    rows = (row for run_id in _runs(tx, reader) for row in _rows(tx, reader, run_id))
    return _readable(tx, reader, rows)


def declared_outcomes(tx: Tx, reader: SnapshotScope, most: int) -> list[tuple[str, str]]:
    """Return the outcomes that clients declared, each after its time, newest first.

    Gathered outcomes are in the log and are read there.
    """
    condition = "AND gathered = 0 AND outcome_count > 0"
    rows = [row for run_id in _runs(tx, reader) for row in _rows(tx, reader, run_id, condition)]
    rows.sort(key=lambda row: row["seq"], reverse=True)
    found: list[tuple[str, str]] = []
    for snapshot in _readable(tx, reader, iter(rows)):
        at = snapshot.created_at
        found += [(at, _outcome(each)) for each in reversed(snapshot.command_outcomes)]
        if len(found) >= most:
            break
    return found[:most]


def _runs(tx: Tx, reader: SnapshotScope) -> list[str]:
    """Return the runs whose snapshots may count as an agent's, the one recorded last first."""
    rows = tx.all(
        "SELECT r.id, coalesce((SELECT max(s.seq) FROM snapshots s WHERE s.run_id = r.id), 0)"
        f" AS newest FROM runs r WHERE r.agent_id IN ({inside_of('author', reader.whose)})"
        " ORDER BY newest DESC LIMIT :most",
        most=RUNS,
        **named_params("author", reader.whose),
    )
    return [row["id"] for row in rows]


def _rows(tx: Tx, reader: SnapshotScope, run_id: str, more: str = "") -> list[Row]:
    return tx.all(
        f"SELECT * FROM snapshots WHERE run_id = :run AND {LIVE} AND seq <= :until {more}"
        " ORDER BY seq DESC LIMIT :most",
        run=run_id,
        until=reader.until,
        most=TRIED,
    )


def _readable(tx: Tx, reader: SnapshotScope, rows: Iterator[Row]) -> Iterator[Snapshot]:
    """Yield readable snapshots that count as the agent's; others report and repair damage."""
    for row in rows:
        try:
            snapshot = from_row(row)
        except Corrupt:
            continue
        if snapshot.agent_id in reader.whose and _of_mission(tx, reader, snapshot):
            yield snapshot


def _of_mission(tx: Tx, reader: SnapshotScope, snapshot: Snapshot) -> bool:
    """Return whether a snapshot can be about a mission: its agent may have changed missions."""
    if snapshot.created_at < reader.mission["created_at"]:
        return False
    step_id = snapshot.step_state.step_id
    elsewhere = step_id and tx.value("SELECT mission_id FROM sorties WHERE id = :id", id=step_id)
    return elsewhere in (None, "", reader.mission["id"])


def with_next_actions(
    tx: Tx,
    reader: SnapshotScope,
    sorties: Sequence[SortieState],
    live: RecoveryContext,
    titles: Titles,
) -> RecoveryContext:
    """Return a recovery context with the next actions of its agent's newest snapshot first.

    A step that already has its own line, or is closed, is not repeated.
    """
    actions = _actions(tx, reader, sorties, live, titles)
    steps = dict.fromkeys([*actions, *live.next_steps]) if actions else live.next_steps
    return msgspec.structs.replace(live, next_steps=[*steps])


def _actions(
    tx: Tx,
    reader: SnapshotScope,
    sorties: Sequence[SortieState],
    live: RecoveryContext,
    titles: Titles,
) -> list[str]:
    """Return the next actions that add something to the plan.

    An automatic snapshot repeats the plan. Actions that a client declared before it apply until the
    plan changes.
    """
    stated: list[str] | None = None
    for snapshot in _snapshots(tx, reader):
        if stated is None:
            stated = _stated_titles(sorties, live, titles)
        hints = snapshot.step_state.resume_hints
        if not hints.eligible or _plan_moved(tx, reader, snapshot, sorties):
            break
        actions = [
            _attributed(reader, snapshot, action)
            for action in hints.next_actions
            if not _names(action, stated) and not _made_good(tx, reader, snapshot, action)
        ]
        if actions:
            return actions
    return []


def _stated_titles(
    sorties: Sequence[SortieState], live: RecoveryContext, titles: Titles
) -> list[str]:
    """Return the titles of steps that already have their own line, or are closed.

    They include titles that another agent wrote: those may only appear in quotes.
    """
    steps, waits = set(live.next_steps), waits_in(sorties)
    return [
        s.title
        for s in sorties
        if s.status in CLOSED_SORTIE
        or titles.other(s)
        or step(s, titles, waits.get(s.id, ())) in steps
    ]


def _outcome(outcome: CommandOutcome) -> str:
    about = outcome.summary or outcome.reason_code or ""
    error = f" — {quote(about, NAME_CHARS)}" if about and outcome.result != "PASS" else ""
    return f"- {short(outcome.name, NAME_CHARS)}: {outcome.result}{error}"


def _attributed(reader: SnapshotScope, snapshot: Snapshot, action: str) -> str:
    """Return an action for its reader: the reader's own words unchanged, others' in quotes.

    The output of a failed command is no agent's words, so it is in quotes too.
    """
    if snapshot.agent_id != reader.agent_id:
        return _quoted(f"{snapshot.agent_id}: ", action)
    if action.startswith(FAILED_FIRST):
        return _quoted(FAILED_FIRST, action.removeprefix(FAILED_FIRST))
    return action


def _quoted(before: str, words: str) -> str:
    """Return a line with words in quotes, short enough that the closing quote fits."""
    return before + quote(words, LINE_CHARS - len(before) - len("“”"))


def _names(action: str, titles: list[str]) -> bool:
    """Return whether an action only names one of these sorties, perhaps with its title cut."""
    found = _OF_A_STEP.fullmatch(action)
    name = _plain(found[1] if found else action)
    return any(name == _plain(short(title, NAME_CHARS)) for title in titles)


def _plain(text: str) -> str:
    return text.strip(" .").casefold()


def _plan_moved(
    tx: Tx, reader: SnapshotScope, snapshot: Snapshot, sorties: Sequence[SortieState]
) -> bool:
    """Return whether the agent's plan has changed: a step was begun, closed or removed since.

    A rewind reopens steps that a snapshot saw closed.
    """
    state = snapshot.step_state
    present = next((s for s in sorties if s.id == state.step_id), None)
    if present is not None and (present.status in CLOSED_SORTIE) != (state.step_status in _CLOSED):
        return True
    # The event of a sortie's new status has the agent that the sortie belongs to.
    return any(
        tx.one(
            "SELECT 1 AS moved FROM events WHERE agent_id = :agent AND seq > :seq"
            f" AND seq <= :until AND type IN {_MOVES} LIMIT 1",
            agent=author,
            seq=seq_of(snapshot.snapshot_id),
            until=reader.until,
        )
        for author in reader.whose
    )


def _made_good(tx: Tx, reader: SnapshotScope, snapshot: Snapshot, action: str) -> bool:
    """Return whether an action is about a failure after which something succeeded."""
    if not action.startswith(FAILED_FIRST):
        return False
    rows = tx.all(
        "SELECT data_json FROM events WHERE agent_id = :agent AND seq > :seq"
        f" AND type IN {_PASSES} ORDER BY seq DESC LIMIT :most",
        agent=snapshot.agent_id,
        seq=seq_of(snapshot.snapshot_id),
        most=_MOST_CALLS,
    )
    return any(data_of(row).get("result", "PASS") == "PASS" for row in rows)
