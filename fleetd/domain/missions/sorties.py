"""Sorties of a mission: adding, assigning, removing, listing; the work itself is elsewhere."""

import msgspec

from ...protocol.errors import InvalidState
from ...protocol.events import SortieAssigned, SortieCreated, SortieRemoved
from ...protocol.records import Sortie
from ...protocol.requests.mission import Deleted, NewSortie
from ...protocol.requests.sortie import (
    SortieAssign,
    SortieCreate,
    SortieGet,
    SortieList,
    SortiePage,
    SortieRemove,
)
from ...protocol.types import OPEN_MISSION
from ..agents.inhabitants import who_asks
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find, fresh_id
from ..core.mappers import ended_as
from ..core.registry import handler, method
from ..core.tx import Row, Tx
from .milestones import reach_milestones
from .progress import recount
from .sortie_records import sortie_of, sorties_of
from .sortie_work import open_row


def add(
    tx: Tx, ctx: Context, mission_id: str, new: NewSortie | SortieCreate, by: str | None = None
) -> Sortie:
    """Append a sortie to a mission; ``by`` is the agent that adds it, where that is known."""
    sortie_id = _put(tx, ctx, mission_id, new, by)
    recount(tx, mission_id)
    return sortie_of(tx, find(tx, "sortie", sortie_id))


def add_all(
    tx: Tx, ctx: Context, mission_id: str, several: list[NewSortie], by: str | None = None
) -> None:
    """Append sorties to a mission, which are counted once: each time, thousands take seconds."""
    for new in several:
        _put(tx, ctx, mission_id, new, by)
    if several:
        recount(tx, mission_id)


def _put(
    tx: Tx, ctx: Context, mission_id: str, new: NewSortie | SortieCreate, by: str | None
) -> str:
    sortie_id = fresh_id(tx, ctx, "sortie")
    tx.run(
        "INSERT INTO sorties (id, mission_id, position, title, description, status, priority,"
        " assigned_to, files_json, created_at, updated_at, author) SELECT :id, :mission,"
        " coalesce(max(position), 0) + 1, :title, :description, :status, :priority, :assigned_to,"
        " :files, :now, :now, :author FROM sorties WHERE mission_id = :mission",
        id=sortie_id,
        mission=mission_id,
        title=new.title,
        description=new.description,
        status="assigned" if new.assigned_to else "pending",
        priority=new.priority,
        assigned_to=new.assigned_to,
        files=msgspec.json.encode(new.files).decode(),
        now=ctx.now,
        author=by,
    )
    payload = SortieCreated(sortie_id=sortie_id, title=new.title)
    emit(tx, ctx, payload, mission_id=mission_id, agent_id=by)
    return sortie_id


@handler
def create(tx: Tx, ctx: Context, request: SortieCreate) -> Sortie:
    """Add a sortie; it may lower the progress, but no milestone fires twice."""
    mission = find(tx, "mission", request.mission_id)
    refuse_over(mission)
    return add(tx, ctx, mission["id"], request, who_asks(tx, ctx, request.agent_id))


def refuse_over(mission: Row) -> None:
    """Raise InvalidState for a mission that is over: nothing is added to it."""
    if mission["status"] not in OPEN_MISSION:
        raise InvalidState(
            f"Mission {mission['id']} is {ended_as(mission)} and takes no more sorties.",
            hint="Create a new mission for further work.",
            status=mission["status"],
        )


@method(SortieAssign)
def assign(tx: Tx, ctx: Context, request: SortieAssign) -> Sortie:
    """Give a sortie to an agent; one that is in progress goes on under its new agent."""
    row = open_row(tx, request.sortie_id, "assigned")
    status = "assigned" if row["status"] == "pending" else row["status"]
    payload = SortieAssigned(sortie_id=row["id"], title=row["title"], assigned_to=request.agent_id)
    # The one who assigns is not known, and the one it is assigned to has done nothing yet.
    tx.run(
        "UPDATE sorties SET status = :status, assigned_to = :agent, updated_at = :now"
        " WHERE id = :id",
        status=status,
        agent=request.agent_id,
        now=ctx.now,
        id=row["id"],
    )
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return sortie_of(tx, find(tx, "sortie", row["id"]))


@method(SortieGet)
def get(tx: Tx, ctx: Context, request: SortieGet) -> Sortie:
    """Return one sortie."""
    return sortie_of(tx, find(tx, "sortie", request.sortie_id))


@method(SortieList)
def list_sorties(tx: Tx, ctx: Context, request: SortieList) -> SortiePage:
    """Return the sorties of a mission in order."""
    mission = find(tx, "mission", request.mission_id)
    return SortiePage(
        sorties=[
            sortie
            for sortie in sorties_of(tx, mission["id"])
            if request.status in (None, sortie.status)
            and request.assigned_to in (None, sortie.assigned_to)
        ]
    )


@method(SortieRemove)
def remove(tx: Tx, ctx: Context, request: SortieRemove) -> Deleted:
    """Take out a sortie that nobody has begun."""
    row = open_row(tx, request.sortie_id, "removed")
    if row["status"] not in ("pending", "assigned"):
        raise InvalidState(
            f"Sortie {row['id']} is {row['status']}; only one that nobody began can be removed.",
            hint=f"Fail it with a reason instead: fleetctl sortie fail {row['id']} --reason …",
            status=row["status"],
        )
    take_out(tx, ctx, row)
    return Deleted(deleted=True)


def take_out(tx: Tx, ctx: Context, row: Row, by: str | None = None) -> None:
    """Remove a sortie that nobody has begun; ``by`` is the agent that does, where it is known."""
    tx.run("DELETE FROM sorties WHERE id = :id", id=row["id"])
    payload = SortieRemoved(sortie_id=row["id"], title=row["title"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=by)
    reach_milestones(tx, ctx, row["mission_id"], by)
