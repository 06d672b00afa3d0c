"""Deleting a mission with everything that belongs to it, as a forgetting that keeps its agents."""

import trio

from ..domain.context import Caller
from ..domain.forget_scope import Target
from ..engine import Engine, operation
from ..wire.requests.mission import Deleted, MissionDelete, MissionGet
from .forgetting import erase


@operation
async def delete(engine: Engine, request: MissionDelete, caller: Caller) -> Deleted:
    """Delete a finished mission; its checkpoints and their files go before its own row."""
    return await engine.remembered(request, lambda: _delete(engine, request))


async def _delete(engine: Engine, request: MissionDelete) -> Deleted:
    mission = await engine.execute(MissionGet(request.mission_id))
    with trio.CancelScope(shield=True):
        await erase(engine, Target(kind="deletion", name=mission.id), request)
    return Deleted(deleted=True)
