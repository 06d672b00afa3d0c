"""Session move: into the mission whose work its agent takes over, and back when that is undone.

The session's plan continues there: open sorties move with their ids, and with what the plan says of
each. Finished sorties stay where they were done. The notes of a mission that ends move along.
"""

import msgspec

from ...protocol.events import MissionCancelled, SortieMoved
from ...protocol.types import OPEN_MISSION, Role
from ..checkpoints import checkpoints
from ..core.changes import fields_of, lock_changed, lock_orphaned, sortie_changed
from ..core.context import Context
from ..core.event_log import emit
from ..core.history import agent_changed, locks_change
from ..core.mappers import lock_of, state_of
from ..core.sql import LIVING, inside_of, named_params
from ..core.tx import Row, Tx
from ..missions import dependencies, missions
from ..missions.milestones import update_sortie_counts
from ..missions.selection import is_automatic
from ..notes import notes
from .session_lifecycle import assign_mission, mission_of

_OPEN = "status NOT IN ('completed', 'failed')"


class SessionMove(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a session's move.

    ``left`` is the mission that the session was in, if any, and ``windows`` are the agents that
    moved. ``ended`` means that this mission ended with the move, ``reopened`` that the mission it
    came back to had ended. ``sorties`` are the rows of the moved sorties, as they were.
    """

    left: str | None
    windows: list[str]
    ended: bool = False
    reopened: bool = False
    sorties: list[Row] = []


def move_in(tx: Tx, ctx: Context, agent_id: str, mission_id: str, role: Role) -> SessionMove | None:
    """Move the session of an agent into a mission, as one of that role; None if it is there.

    Also returns None for an agent that nobody registered. A subagent works where its session does.
    A mission that was made for the session ends, unless others live in it. A person's mission
    continues without the session: only what the session's plan made leaves it.
    """
    agent = tx.one("SELECT * FROM agents WHERE id = :id", id=agent_id)
    inside = "SELECT 1 AS inside FROM sessions WHERE agent_id = :id AND subagent <> ''"
    if agent is None or agent["mission_id"] == mission_id or tx.one(inside, id=agent_id):
        return None
    left = tx.one("SELECT * FROM missions WHERE id = :id", id=agent["mission_id"])
    windows = _windows(tx, agent_id)
    assign_mission(tx, windows, mission_id)
    tx.run("UPDATE agents SET role = :role WHERE id = :id", role=role, id=agent_id)
    agent_changed(tx, agent_id)
    if left is None or left["status"] not in OPEN_MISSION:
        return SessionMove(left=agent["mission_id"], windows=windows)
    own = is_automatic(left)
    living = f"SELECT 1 AS lives FROM agents WHERE mission_id = :id AND status IN {LIVING} LIMIT 1"
    ended = own and tx.one(living, id=left["id"]) is None
    sorties = _sorties_to_move(tx, windows, left["id"], all_of_them=ended, planned=not own)
    _move_work(tx, ctx, windows, sorties, left["id"], mission_id)
    if ended:
        notes.move(tx, left["id"], mission_id)
        _end_mission(tx, ctx, left, mission_id, len(sorties))
    return SessionMove(left=left["id"], windows=windows, ended=ended, sorties=sorties)


def move_back(
    tx: Tx, ctx: Context, agent_id: str, mission_id: str, left: str | None, but: set[str]
) -> SessionMove | None:
    """Move the session of an agent back to the mission that it ``left``; None if it moved on.

    Everything that it has in ``mission_id`` goes with it, ``but`` what was there before it came.
    """
    if mission_of(tx, agent_id) != mission_id:
        return None
    before = tx.one("SELECT * FROM missions WHERE id = :id", id=left)
    windows = _windows(tx, agent_id)
    assign_mission(tx, windows, before["id"] if before else None)
    if before is None or not missions.reopen(tx, ctx, before, "merged"):
        return SessionMove(left=mission_id, windows=windows)
    if is_automatic(before):
        tx.run("UPDATE agents SET role = 'dispatch' WHERE id = :id", id=agent_id)
        agent_changed(tx, agent_id)
    rows = tx.all(
        "SELECT * FROM sorties WHERE mission_id = :mission"
        f" AND assigned_to IN ({inside_of('window', windows)}) ORDER BY position",
        mission=mission_id,
        **named_params("window", windows),
    )
    sorties = [row for row in rows if row["id"] not in but]
    _move_work(tx, ctx, windows, sorties, mission_id, before["id"])
    notes.move_back(tx, mission_id, before["id"])
    reopened = before["status"] not in OPEN_MISSION
    return SessionMove(left=mission_id, windows=windows, reopened=reopened, sorties=sorties)


def _windows(tx: Tx, agent_id: str) -> list[str]:
    """Return an agent and the subagents of its session."""
    rows = tx.all(
        "SELECT DISTINCT s.agent_id AS id FROM sessions own JOIN sessions s"
        " ON s.harness = own.harness AND s.session_id = own.session_id AND s.subagent <> ''"
        " WHERE own.agent_id = :id AND own.subagent = '' ORDER BY id",
        id=agent_id,
    )
    return [agent_id, *(row["id"] for row in rows)]


def _sorties_to_move(
    tx: Tx, windows: list[str], mission_id: str, *, all_of_them: bool, planned: bool
) -> list[Row]:
    """Return the open sorties that move with a session: its own; if ``planned``, only its plan's.

    With ``all_of_them``, unassigned sorties move too.
    """
    nobodys = " OR assigned_to IS NULL" if all_of_them else ""
    made = " AND id IN (SELECT sortie_id FROM plan_items WHERE made = 1)" if planned else ""
    return tx.all(
        f"SELECT * FROM sorties WHERE mission_id = :mission AND {_OPEN}"
        f" AND (assigned_to IN ({inside_of('window', windows)}){nobodys}){made} ORDER BY position",
        mission=mission_id,
        **named_params("window", windows),
    )


def _move_work(
    tx: Tx, ctx: Context, windows: list[str], sorties: list[Row], source: str, target: str
) -> None:
    """Move sorties, the session's plan and its locks from one mission into another.

    The plan keeps its items of sorties that stay behind: to repeat that a step is done reports
    nothing new.
    """
    for row in sorties:
        [moved] = tx.all(
            "UPDATE sorties SET mission_id = :target, briefing_id = NULL, updated_at = :now,"
            " position = (SELECT coalesce(max(s.position), 0) + 1 FROM sorties s"
            " WHERE s.mission_id = :target) WHERE id = :id RETURNING *",
            target=target,
            now=ctx.now,
            id=row["id"],
        )
        sortie_changed(tx, source, row["id"], None)
        sortie_changed(tx, target, row["id"], fields_of(state_of(moved)))
        payload = SortieMoved(sortie_id=row["id"], title=row["title"], from_mission=source)
        emit(tx, ctx, payload, mission_id=target, agent_id=row["assigned_to"])
    locks = tx.all(
        "SELECT * FROM locks WHERE mission_id = :source AND status = 'active'"
        f" AND held_by IN ({inside_of('window', windows)})",
        source=source,
        **named_params("window", windows),
    )
    locks_change(tx, *(lock["id"] for lock in locks))
    for lock in locks:
        lock_changed(tx, source, lock["id"], None)
        lock_changed(tx, target, lock["id"], fields_of(lock_of({**lock, "mission_id": target})))
        if lock["orphaned_at"] is not None:
            lock_orphaned(tx, target, lock["id"], True)
    for table, owner in (("plan_items", "agent_id"), ("locks", "status = 'active' AND held_by")):
        tx.run(
            f"UPDATE {table} SET mission_id = :target WHERE mission_id = :source"
            f" AND {owner} IN ({inside_of('window', windows)})",
            target=target,
            source=source,
            **named_params("window", windows),
        )
    for mission_id in (source, target):
        dependencies.drop_outside(tx, mission_id)
        update_sortie_counts(tx, mission_id)


def _end_mission(tx: Tx, ctx: Context, left: Row, mission_id: str, carried: int) -> None:
    """End a mission whose session continues in another one: completed if nothing was open in it.

    The checkpoint comes after the end, so that its file restores no mission that continues
    elsewhere. No agent does this, so it is no activity.
    """
    open_still = tx.one(
        f"SELECT 1 AS there FROM sorties WHERE mission_id = :id AND {_OPEN} LIMIT 1", id=left["id"]
    )
    if carried or open_still is not None:
        steps = f", with {carried} open sorties" if carried > 1 else ", with 1 open sortie"
        reason = f"Its session goes on in {mission_id}{steps if carried else ''}"
        payload = MissionCancelled(reason=reason, closed_reason="merged", merged_into=mission_id)
        missions.close_unfinished(tx, ctx, left["id"], payload)
        kept = checkpoints.Reason(trigger="manual", details=reason, created_by="fleetd")
        checkpoints.take(tx, ctx, left["id"], kept)
    else:
        missions.close(tx, ctx, left["id"], "merged", mission_id)
