"""Missions and sorties for clients: by directory, and by the agent that asks."""

import trio

from ...domain.core.context import Caller, Facts
from ...domain.core.ids import resolve_id
from ...domain.core.registry import frees_space, method
from ...domain.erasure.scope import ErasureTarget
from ...domain.missions import missions, selection, sorties
from ...protocol.records import Mission, Sortie
from ...protocol.requests.mission import (
    CurrentMission,
    Deleted,
    MissionCreate,
    MissionCurrent,
    MissionDelete,
    MissionSelect,
    MissionUpdate,
    SelectedMission,
)
from ...protocol.requests.sortie import SortieCreate, SortieUpdate
from ..engine import Engine
from .agents import facts_of
from .erasure import erase


@method(MissionCreate)
async def create(engine: Engine, request: MissionCreate, caller: Caller) -> Mission:
    """Create a mission; other machines know its directory by the name of the project."""
    places = await engine.projects.shared_names(request.project_dir)
    return await engine.run(missions.create, request, caller, facts_of(caller, places))


@method(MissionUpdate)
async def update(engine: Engine, request: MissionUpdate, caller: Caller) -> Mission:
    """Change fields of a mission; the caller becomes the author of a new title."""
    return await engine.run(missions.update, request, caller, facts_of(caller))


@method(SortieCreate)
async def add_sortie(engine: Engine, request: SortieCreate, caller: Caller) -> Sortie:
    """Add a sortie to an open mission, with the asking agent as the author of its words."""
    return await engine.run(sorties.create, request, caller, facts_of(caller))


@method(SortieUpdate)
async def update_sortie(engine: Engine, request: SortieUpdate, caller: Caller) -> Sortie:
    """Change fields of a sortie; the caller becomes the author of a new title."""
    return await engine.run(sorties.update, request, caller, facts_of(caller))


@method(MissionCurrent)
async def current(engine: Engine, request: MissionCurrent, caller: Caller) -> CurrentMission:
    """Return the mission that a directory belongs to, by its path or by its project."""
    places = await engine.projects.shared_names(request.cwd)
    return await engine.run(selection.current, request, caller, Facts(places=places))


@method(MissionSelect)
async def select(engine: Engine, request: MissionSelect, caller: Caller) -> SelectedMission:
    """Return the mission for a request that names none; other machines find it by project."""
    places = await engine.projects.shared_names(request.cwd)
    return await engine.run(selection.select, request, caller, Facts(places=places))


@method(MissionDelete)
@frees_space
async def delete(engine: Engine, request: MissionDelete, caller: Caller) -> Deleted:
    """Delete a finished mission as an erasure that keeps its agents: its files go first."""

    async def work() -> Deleted:
        mission_id = await engine.read(resolve_id, "mission", request.mission_id)
        with trio.CancelScope(shield=True):
            await erase(engine, ErasureTarget(kind="deletion", name=mission_id), request)
        return Deleted(deleted=True)

    return await engine.run_once(request, work)
