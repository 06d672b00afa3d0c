"""Waiting for the file of a record that was just taken; must not take one, nor write a file."""

from typing import TypeVar, cast

import msgspec
import trio

from ...domain.artifacts.kinds import Kept, id_of, noun_of
from ...protocol.errors import NotFound
from ..engine import Engine
from ..files.read_repair import get

K = TypeVar("K", bound=Kept)
BACKUP_WAIT_S = 1.0


async def as_written(engine: Engine, record: K) -> K:
    """Return a record as it is once its file was tried, a second later at most.

    While the file is not there a warning says so; what somebody deleted meanwhile is returned as
    it was taken.
    """
    record_id = id_of(record)
    with trio.move_on_after(BACKUP_WAIT_S):
        await engine.outbox.attempted(record_id)
    try:
        now = cast("K", await get(engine, noun_of(record), record_id))
    except NotFound:
        return record
    if now.backed_up_at is not None:
        return now
    late = "its file is not written yet; fleetd goes on trying"
    return msgspec.structs.replace(now, warnings=[*now.warnings, late])
