"""Mission selection: the missions of a directory, and the one that an unnamed request means.

The order is: the mission of the agent whose work is taken over; that of the named agent; those of
the directory, and those on which agents work there; the one that another machine has in progress
for the same project. A mission of another directory is never chosen for a recovery: it is a
candidate, which a person may name.
A report also finds the mission that ended last in the directory, and never one from elsewhere.
A request for the mission at work takes the only one that somebody created, and so does a recovery
for a client without a directory. An automatic mission of a session is only a candidate outside its
directory, and no candidate for another session.
"""

import os.path
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

from ...host.file_system import within
from ...protocol.errors import InvalidState
from ...protocol.records import RecoveryCandidate
from ...protocol.requests.mission import (
    CurrentMission,
    MissionCurrent,
    MissionSelect,
    SelectedMission,
)
from ...protocol.types import OPEN_MISSION, SelectionPurpose, SelectionReason
from ..cluster.membership import machine_suffix
from ..core.context import Context
from ..core.mappers import mission_of
from ..core.sql import LIVING, inside_of, named_params
from ..core.tx import Row, Tx
from ..liveness.silence import waiting_missions

# How many candidates are returned, and how many are named in the message.
LISTED, NAMED = 20, 5
_ENDED = ("completed", "failed", "cancelled")


class Selection(NamedTuple):
    """The mission that is meant, and why; ``candidates`` of its directory wait for recovery."""

    row: Row
    reason: SelectionReason
    candidates: tuple[RecoveryCandidate, ...] = ()


def select(tx: Tx, ctx: Context, request: MissionSelect) -> SelectedMission:
    """Return the mission that a request without a name would be about."""
    found = select_row(tx, ctx, request)
    return SelectedMission(
        mission=mission_of(tx, found.row), reason=found.reason, candidates=list(found.candidates)
    )


def current(tx: Tx, ctx: Context, request: MissionCurrent) -> CurrentMission:
    """Return the mission at work in a directory, or None."""
    row = current_row(tx, ctx, request.cwd, request.agent_id)
    if row is None:
        return CurrentMission(mission=None)
    return CurrentMission(mission=mission_of(tx, row), belongs=belongs(ctx, row, request.cwd))


def current_row(tx: Tx, ctx: Context, cwd: str | None, agent_id: str | None = None) -> Row | None:
    """Return the mission at work for a directory or an agent, None without one.

    Raises InvalidState when somebody created several and none belongs to this directory.
    """
    wanted = MissionSelect("work", cwd, agent_id)
    found = _chosen(tx, ctx, wanted)
    if found is None and (elsewhere := _elsewhere(tx, ctx, wanted)):
        _refuse_to_guess(tx, ctx, wanted, elsewhere)
    return found.row if found else None


def select_row(tx: Tx, ctx: Context, wanted: MissionSelect) -> Selection:
    """Return the mission that is meant.

    Raises InvalidState when there is none, and when there are only missions elsewhere, which are
    in ``data.candidates``.
    """
    found = _chosen(tx, ctx, wanted)
    if found is not None:
        return found
    if candidates := _candidates(tx, ctx, wanted):
        _refuse_to_guess(tx, ctx, wanted, candidates)
    if wanted.purpose == "recovery":
        raise InvalidState(
            "No missions need recovery.",
            hint="fleetctl checkpoint list shows all checkpoints.",
        )
    raise InvalidState(
        "No active mission found. Use --mission <id> to specify.",
        hint="fleetctl mission list shows all missions.",
    )


def _chosen(tx: Tx, ctx: Context, wanted: MissionSelect) -> Selection | None:
    """Return the mission that is meant, None if there is none or it would be a guess."""
    found = _of_agents(tx, wanted) or _of_directory(tx, ctx, wanted)
    if found is not None:
        return found
    if wanted.purpose == "report":
        ended = _ended_last(missions_around(tx, ctx, wanted.cwd, [*_ENDED]))
        return Selection(ended, "directory") if ended is not None else None
    elsewhere = _elsewhere(tx, ctx, wanted)
    if len(elsewhere) == 1 and (wanted.purpose != "recovery" or wanted.cwd is None):
        return Selection(elsewhere[0], "only")
    # A person who cleared or closed the window may ask for what was in it.
    row = last_session_mission(tx, ctx, wanted.cwd) if wanted.purpose == "briefing" else None
    return Selection(row, "directory") if row is not None else None


def _of_directory(tx: Tx, ctx: Context, wanted: MissionSelect) -> Selection | None:
    """Return the mission that waits in a directory, for a recovery, or is at work there.

    At work is a mission that somebody created for the directory, else one that agents work on
    there, even of another directory; a recovery cannot choose the latter. The last choice is the
    mission of the directory's project.
    """
    there = missions_around(tx, ctx, wanted.cwd, ["in_progress"])
    ours, others = by_persons(there), list[Row]()
    if wanted.purpose == "recovery":
        known = _with_checkpoint(tx, ctx, wanted, [row["id"] for row in there])
        # In a mission that continues, only some agent's part waits.
        if waits := [each for each in known if each.agent_id is None]:
            first = next(row for row in there if row["id"] == waits[0].mission_id)
            return Selection(first, "directory", tuple(waits))
    elif not ours:
        others = _lived_in(tx, ctx, wanted.cwd)
    if at_work := ours[:1] or _last([*there, *others]):
        return Selection(at_work[0], "directory")
    shared = missions_of_project(tx, ctx)
    return Selection(shared[0], "project") if shared else None


def _lived_in(tx: Tx, ctx: Context, cwd: str | None) -> list[Row]:
    """Return the missions in progress, of any directory, whose agents live around a path."""
    if not cwd:
        return []
    places = places_around(cwd)
    return tx.all(
        "SELECT * FROM missions WHERE status = 'in_progress' AND id IN (SELECT mission_id"
        f" FROM agents WHERE machine = :machine AND cwd IN ({inside_of('place', places)})"
        f" AND status <> 'gone' AND status IN {LIVING})",  # the first status test selects the index
        machine=ctx.machine,
        **named_params("place", places),
    )


def _last(missions: list[Row]) -> list[Row]:
    """Return the most recently active mission in a list, an empty list if there is none."""
    return sorted(missions, key=itemgetter("last_activity_seq", "created_at"))[-1:]


def _elsewhere(tx: Tx, ctx: Context, wanted: MissionSelect) -> list[Row]:
    """Return what could be meant anywhere: waiting missions, for a recovery, else those at work.

    If nothing waits, a client without a directory means the only one at work.
    """
    if wanted.purpose == "recovery":
        waits = [each.mission_id for each in _with_checkpoint(tx, ctx, wanted)]
        rows = (tx.one("SELECT * FROM missions WHERE id = :id", id=each) for each in waits)
        found = [row for row in rows if row is not None]
        if found or wanted.cwd is not None:
            return found
    # An automatic mission is never meant outside its directory.
    found = by_persons(_at_work(tx))
    return found if len(found) == 1 or wanted.purpose != "recovery" else []


def _candidates(tx: Tx, ctx: Context, wanted: MissionSelect) -> list[Row]:
    """Return missions to suggest when none was selected; created ones come first."""
    if wanted.purpose == "recovery":
        return _elsewhere(tx, ctx, wanted)
    return sorted(_at_work(tx), key=is_automatic)


def _at_work(tx: Tx) -> list[Row]:
    """Return the missions in progress, of any directory, the latest at work first."""
    return tx.all(
        "SELECT * FROM missions WHERE status = 'in_progress'"
        " ORDER BY last_activity_seq DESC, created_at DESC"
    )


def _of_agents(tx: Tx, wanted: MissionSelect) -> Selection | None:
    """Return the mission of the agent that is taken over, else of the named agent."""
    # In any state: the work of this agent is meant, and no other's.
    if wanted.take_over_from and (row := _of_agent(tx, wanted.take_over_from)):
        return Selection(row, "take_over")
    row = _of_agent(tx, wanted.agent_id) if wanted.agent_id else None
    states = _STATES[wanted.purpose]
    return Selection(row, "agent") if row and (not states or row["status"] in states) else None


# The states in which an agent's mission is meant by the agent's name alone; empty for any state.
_STATES: dict[SelectionPurpose, tuple[str, ...]] = {
    "work": ("in_progress",),
    "briefing": (),
    "report": (),
    "recovery": OPEN_MISSION,
}


def _of_agent(tx: Tx, agent_id: str) -> Row | None:
    """Return the mission that an agent works on; an unregistered agent may have sorties."""
    return mission_of_agent(tx, agent_id) or tx.one(
        "SELECT m.* FROM missions m WHERE m.status = 'in_progress' AND EXISTS (SELECT 1"
        " FROM sorties s WHERE s.mission_id = m.id AND s.assigned_to = :id"
        " AND s.status NOT IN ('completed', 'failed'))"
        " ORDER BY m.last_activity_seq DESC, m.created_at DESC LIMIT 1",
        id=agent_id,
    )


def _with_checkpoint(
    tx: Tx, ctx: Context, wanted: MissionSelect, among: list[str] | None = None
) -> list[RecoveryCandidate]:
    """Return the missions that wait for recovery and have a checkpoint, the newest first."""
    found = waiting_missions(tx, ctx, wanted.threshold_ms, among)
    return [each for each in found if each.checkpoint_id]


def _refuse_to_guess(tx: Tx, ctx: Context, wanted: MissionSelect, there: list[Row]) -> NoReturn:
    """Refuse to choose one of the missions of other directories; raises InvalidState."""
    one = len(there) == 1
    count = "1 mission" if one else f"{len(there)} missions"
    what = f"{count} {'is' if one else 'are'} in progress"
    if wanted.purpose == "recovery":
        what = f"{count} {'waits' if one else 'wait'} for recovery"
    named = ", ".join(f"{row['id']} ({row['title']})" for row in there[:NAMED])
    more = ", ..." if len(there) > NAMED else ""
    raise InvalidState(
        f"{what} and none belongs to this directory: {named}{more}.",
        hint="Use --mission <id> to specify.",
        candidates=[_candidate(tx, ctx, row) for row in there[:LISTED]],
    )


def _candidate(tx: Tx, ctx: Context, row: Row) -> dict[str, Any]:
    candidate = {"id": row["id"], "project_dir": row["project_dir"]}
    if machine := machine_suffix(tx, ctx, row["machine"]):
        candidate["machine"] = machine.removeprefix(" on ")
    return {**candidate, "title": row["title"]}


def mission_of_directory(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the mission in progress that somebody created for a directory around ``cwd``.

    Without one, return the mission that another machine has in progress for the same project.
    """
    there = missions_around(tx, ctx, cwd, ["in_progress"], automatic=False)
    there = there or missions_of_project(tx, ctx)
    return there[0] if there else None


def mission_of_agent(tx: Tx, agent_id: str) -> Row | None:
    """Return the mission that an agent belongs to."""
    return tx.one(
        "SELECT m.* FROM agents a JOIN missions m ON m.id = a.mission_id WHERE a.id = :id",
        id=agent_id,
    )


def mission_to_join(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the open mission that somebody created for a directory around ``cwd``.

    As for the current mission, a started one comes before pending ones, the latest at work first.
    An automatic mission of another session cannot be joined. Without a mission, it is the one that
    another machine has in progress for the same project.
    """
    there = missions_around(tx, ctx, cwd, [*OPEN_MISSION], automatic=False)
    there = there or missions_of_project(tx, ctx)
    return min(there, key=lambda row: row["status"] != "in_progress", default=None)


def inherited_mission(tx: Tx, agent_id: str | None) -> Row | None:
    """Return the open mission in which an agent took over work that it has not begun.

    If the agent was not there yet, it joins this mission when it comes. ``role`` is that of the
    agent whose work it was.
    """
    return tx.one(
        "SELECT m.id, lost.role FROM recoveries r JOIN missions m ON m.id = r.mission_id"
        " JOIN agents lost ON lost.id = r.taken_over_from AND lost.succeeded_by = r.agent_id"
        " WHERE r.agent_id = :agent AND r.state <> 'resumed' AND r.state <> 'pending'"
        " AND m.status IN ('pending', 'in_progress') ORDER BY r.seq DESC LIMIT 1",
        agent=agent_id,
    )


def last_session_mission(tx: Tx, ctx: Context, cwd: str | None) -> Row | None:
    """Return the last mission that was closed with a session in a directory around ``cwd``.

    A mission that was merged into another one holds nothing that its session would continue.
    """
    there = missions_around(tx, ctx, cwd, ["completed", "cancelled"])
    return _ended_last(filter(is_automatic, there))


def _ended_last(ended: Iterable[Row]) -> Row | None:
    """Return the mission that ended last; merged missions do not count."""
    closed = [row for row in ended if row["closed_reason"] != "merged"]
    return max(closed, key=lambda row: row["completed_at"] or "", default=None)


def by_persons(missions: list[Row]) -> list[Row]:
    """Return the missions that somebody created."""
    return [row for row in missions if not is_automatic(row)]


def missions_around(
    tx: Tx, ctx: Context, cwd: str | None, states: list[str], *, automatic: bool = True
) -> list[Row]:
    """Return this machine's missions of the directories around a path, the latest active first.

    The query names those directories, so other missions cost nothing, however many there are.
    Without ``automatic`` ones, sessions that begin in one directory do not read each other's
    missions.
    """
    if not cwd:
        return []
    places = places_around(cwd)
    return tx.all(
        "SELECT * FROM missions WHERE machine = :machine"
        f" AND project_dir IN ({inside_of('place', places)})"
        f" AND status IN ({inside_of('status', states)})"
        " AND (origin <> 'session' OR :automatic = 1)"
        " ORDER BY last_activity_seq DESC, created_at DESC",
        machine=ctx.machine,
        automatic=int(automatic),
        **named_params("place", places),
        **named_params("status", states),
    )


def missions_of_project(tx: Tx, ctx: Context) -> list[Row]:
    """Return the mission in progress that somebody created for the same project, on any machine.

    If there are several, return none: the choice would be a guess.
    """
    places = ctx.facts.places
    if not places:
        return []
    rows = tx.all(
        f"SELECT * FROM missions WHERE project IN ({inside_of('place', places)})"
        " AND status = 'in_progress' AND origin <> 'session'",
        **named_params("place", places),
    )
    return rows if len(rows) == 1 else []


def places_around(cwd: str) -> list[str]:
    """Return a directory and every one above it, by their names alone."""
    found = [os.path.normpath(cwd)]
    while above := found[-1].rpartition("/")[0]:
        found.append(above)
    return [*found, "/"]


def is_automatic(mission: Row) -> bool:
    """Return whether a mission was made automatically for one session."""
    return bool(mission["origin"] == "session")


def belongs(ctx: Context, mission: Row, cwd: str | None) -> bool:
    """Return whether a directory of this machine is in the mission's directory or project."""
    if mission["project"] is not None and mission["project"] in ctx.facts.places:
        return True
    return ctx.is_here(mission) and is_inside(mission["project_dir"], cwd)


def is_inside(place: str | None, cwd: str | None) -> bool:
    """Return whether a directory is a place, or below it; False if either is missing."""
    if not place or not cwd:
        return False
    return within(place, os.path.normpath(cwd))
