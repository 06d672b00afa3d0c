"""Checkpoints with their files: taking, reading and deleting both copies."""

import logging

import trio

from ...domain.artifacts import inventory
from ...domain.checkpoints.diff import Compare
from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...protocol.checkpoint_diff import CheckpointDifference
from ...protocol.errors import InvalidParams, NotFound
from ...protocol.records import Checkpoint
from ...protocol.requests.checkpoint import (
    CheckpointCompare,
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
)
from ...protocol.requests.mission import Deleted, MissionGet, MissionSelect
from ..engine import Engine
from ..files.read_repair import read, read_latest
from .missions import select
from .written import BACKUP_WAIT_S, as_written

log = logging.getLogger("fleetd")


@method(CheckpointCreate)
async def create(engine: Engine, request: CheckpointCreate, caller: Caller) -> Checkpoint:
    """Take a checkpoint and, if wanted, wait until its file is written, for a second at most."""
    checkpoint = await engine.recalled(request)
    if checkpoint is None:
        checkpoint = await engine.execute(request, caller, await _facts(engine, request, caller))
    if not request.wait_for_backup:
        return checkpoint
    return await as_written(engine, checkpoint)


async def _facts(engine: Engine, request: CheckpointCreate, caller: Caller) -> Facts:
    """Find the mission that a directory belongs to, where none is named."""
    if request.mission_id is not None or request.cwd is None:
        return Facts()
    found = await select(engine, MissionSelect("work", request.cwd), caller)
    return Facts(mission_id=found.mission.id)


@method(CheckpointGet)
async def get(engine: Engine, request: CheckpointGet, caller: Caller) -> Checkpoint:
    """Return a checkpoint from its row, else from its file, with a warning."""
    return await read(engine, "checkpoint", request, caller)


@method(CheckpointLatest)
async def latest(engine: Engine, request: CheckpointLatest, caller: Caller) -> Checkpoint:
    """Return a mission's newest checkpoint, from either copy; also one that lost its row."""
    mission_id = await _mission_id(engine, request.mission_id)
    return await read_latest(engine, "checkpoint", mission_id, request, caller)


@method(CheckpointCompare)
async def compare(
    engine: Engine, request: CheckpointCompare, caller: Caller
) -> CheckpointDifference:
    """Return what differs between two checkpoints, each read from its row, else from its file."""
    before = await read(engine, "checkpoint", CheckpointGet(request.before), caller)
    after = None
    if request.after is not None:
        after = await read(engine, "checkpoint", CheckpointGet(request.after), caller)
    return await engine.execute(Compare(before, after), caller)


async def _mission_id(engine: Engine, given: str) -> str:
    """Return a mission's whole id; one that has no row may still have files."""
    try:
        return (await engine.execute(MissionGet(given))).id
    except NotFound:
        return given


@method(CheckpointDelete, frees_space=True)
async def delete(engine: Engine, request: CheckpointDelete, caller: Caller) -> Deleted:
    """Delete a checkpoint; returns when its file is gone too, or a second later."""
    try:
        whole = await engine.read(inventory.whole_id, "checkpoint", request.checkpoint_id)
    except (NotFound, InvalidParams):  # so is the request, unless it was sent before
        whole = request.checkpoint_id
    deleted = await engine.execute(request, caller)
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.attempted(whole)
    return deleted
