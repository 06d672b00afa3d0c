"""Deleting a mission with everything that belongs to it, files first."""

from ..domain.context import Caller
from ..domain.copies import CheckpointRows
from ..engine import Engine, operation
from ..wire.errors import NotFound
from ..wire.requests.checkpoint import CheckpointDelete
from ..wire.requests.mission import Deleted, MissionDelete, MissionGet
from ..wire.types import OPEN_MISSION
from .forgetting import clear


@operation
async def delete(engine: Engine, request: MissionDelete, caller: Caller) -> Deleted:
    """Delete a finished mission; its checkpoints and their files go before its own row."""
    known = await engine.recalled(request)
    if known is not None:
        return known
    mission = await engine.execute(MissionGet(request.mission_id))
    if mission.status not in OPEN_MISSION:
        rows = await engine.execute(CheckpointRows(mission.id))
        for checkpoint_id in rows.ids:
            try:
                await engine.execute(CheckpointDelete(checkpoint_id), caller)
            except NotFound:  # pruned meanwhile
                continue
        await engine.outbox.settled()
        # Also what has no row, such as a file that a crash left: it would bring the mission back.
        async with engine.outbox.at_work:
            await clear(engine, mission.id)
    return await engine.execute(request, caller)
