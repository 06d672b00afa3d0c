"""Checkpoints with their files: taking, reading and deleting both copies."""

import contextlib
from typing import TypeVar, cast

import msgspec
import trio
from msgspec import Raw

from ...domain.artifacts.kinds import FileRecord, id_of, noun_of
from ...domain.checkpoints import checkpoints, diff, moments
from ...domain.core.context import Caller, Facts
from ...domain.core.ids import resolve_id
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
from ...protocol.requests.mission import Deleted, MissionAt, MissionSelect
from ..engine import Engine
from ..files import read_repair
from ..files.read_repair import read, read_latest
from .missions import select

K = TypeVar("K", bound=FileRecord)
BACKUP_WAIT_S = 1.0


@method(CheckpointCreate)
async def create(engine: Engine, request: CheckpointCreate, caller: Caller) -> Checkpoint:
    """Take a checkpoint and, if requested, wait for its file, for a second at most."""
    checkpoint = await engine.earlier_answer(request)
    if checkpoint is None:
        facts = await _facts(engine, request, caller)
        checkpoint = await engine.run(checkpoints.create, request, caller, facts)
    if not request.wait_for_backup:
        return checkpoint
    return await as_written(engine, checkpoint)


async def _facts(engine: Engine, request: CheckpointCreate, caller: Caller) -> Facts:
    """Find the mission of a directory if the request names none."""
    if request.mission_id is not None or request.cwd is None:
        return Facts()
    found = await select(engine, MissionSelect("work", request.cwd), caller)
    return Facts(mission_id=found.mission.id)


@method(CheckpointGet)
async def get(engine: Engine, request: CheckpointGet, caller: Caller) -> Checkpoint | Raw:
    """Return a checkpoint from its row, else from its file, with a warning."""
    if (stored := await engine.read(checkpoints.get_stored, request.checkpoint_id)) is not None:
        return stored
    checkpoint: Checkpoint = await read(engine, "checkpoint", request.checkpoint_id)
    return checkpoint


@method(CheckpointLatest)
async def latest(engine: Engine, request: CheckpointLatest, caller: Caller) -> Checkpoint | Raw:
    """Return a mission's newest checkpoint, from either copy; also one that lost its row."""
    if (stored := await engine.latest_checkpoints.stored(request.mission_id)) is not None:
        return stored
    mission_id = request.mission_id
    with contextlib.suppress(NotFound):  # a mission without a row may still have files
        mission_id = await engine.read(resolve_id, "mission", mission_id)
    checkpoint: Checkpoint = await read_latest(engine, "checkpoint", mission_id, checkpoints.latest)
    return checkpoint


@method(CheckpointCompare)
async def compare(
    engine: Engine, request: CheckpointCompare, caller: Caller
) -> CheckpointDifference:
    """Return what differs between two checkpoints or moments.

    Each checkpoint is read from its row, else from its file.
    """
    for named, time, field in (
        (request.before, request.before_time, "before"),
        (request.after, request.after_time, "after"),
    ):
        if named is not None and time is not None:
            raise InvalidParams(
                f"{field} and {field}_time exclude each other.",
                hint="Give a checkpoint or a time.",
                field=field,
            )
    known = {
        each: cast("Checkpoint", await read(engine, "checkpoint", each))
        for each in (request.before, request.after)
        if each is not None
    }
    mission_id = request.mission_id or next((each.mission_id for each in known.values()), None)

    async def side(named: str | None, time: str | None) -> diff.Side | None:
        if named is not None:
            return known[named]
        if time is None:
            return None
        if mission_id is None:
            raise InvalidParams(
                "mission_id is missing.",
                hint="Two moments are compared of the mission that it names.",
                field="mission_id",
            )
        return await engine.read(moments.at, MissionAt(mission_id, time=time))

    before = await side(request.before, request.before_time)
    after = await side(request.after, request.after_time)
    if before is None:
        raise InvalidParams(
            "before and before_time are missing.", hint="Give one of them.", field="before"
        )
    return await engine.read(diff.compare, before, after)


@method(CheckpointDelete)
async def delete(engine: Engine, request: CheckpointDelete, caller: Caller) -> Deleted:
    """Delete a checkpoint; returns when its file is gone too, or a second later."""
    checkpoint_id = request.checkpoint_id
    with contextlib.suppress(NotFound, InvalidParams):  # refused below, unless it is repeated
        checkpoint_id = await engine.read(resolve_id, "checkpoint", checkpoint_id)
    deleted = await engine.run(checkpoints.delete, request, caller)
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.attempted(checkpoint_id)
    return deleted


async def as_written(engine: Engine, record: K) -> K:
    """Return a record after the attempt to write its file, a second later at most.

    If the file is not written yet, a warning reports it. A record that was deleted meanwhile is
    returned as it was taken.
    """
    record_id = id_of(record)
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.attempted(record_id)
    try:
        now = cast("K", await read_repair.get(engine, noun_of(record), record_id))
    except NotFound:
        return record
    if now.backed_up_at is not None:
        return now
    late = "its file is not written yet; fleetd keeps trying"
    return msgspec.structs.replace(now, warnings=[*now.warnings, late])
