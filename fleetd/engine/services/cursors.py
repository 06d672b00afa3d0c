"""Cursors: a read of a cursor counts as a use of it."""

import logging

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.events import streams
from ...protocol.errors import FleetError
from ...protocol.requests.event import CursorGet, CursorPosition
from ..engine import Engine

log = logging.getLogger("fleetd")


@method(CursorGet)
async def get(engine: Engine, request: CursorGet, caller: Caller) -> CursorPosition:
    """Return a consumer's position, and note that it was read."""
    found, to_note = await engine.read(streams.read_cursor, request.consumer, request.stream)
    if to_note:
        try:
            await engine.write(streams.touch_cursor, request.consumer, request.stream)
        except FleetError as error:  # a full disk, for example: the next read may succeed
            log.warning("The use of a cursor could not be recorded: %s", error.message)
    return found
