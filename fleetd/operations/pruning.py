"""Pruning in small pieces: find, mark, let the files go, and only then the next piece.

Nobody waits for a whole pruning: each piece is a transaction of a few milliseconds, and its files
are gone before the next begins. One that breaks off has deleted whole pieces; the next goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator

import trio

from ..domain.context import Caller
from ..domain.pruning import Place, PruneDone, PruneLook, PruneMark, PruneTerms, Terms
from ..engine import Engine, operation
from ..wire.errors import FleetError, Unavailable
from ..wire.requests.checkpoint import CheckpointPrune, Pruned, PrunedCheckpoint

log = logging.getLogger("fleetd")
# Large checkpoints take longer to free than small ones: then a transaction marks fewer.
PORTION_BYTES = 4_000_000
FILES_WAIT_S = 1.0


@operation
async def prune(engine: Engine, request: CheckpointPrune, caller: Caller) -> Pruned:
    """Delete what is past its retention, or only say what would be.

    Returns when the files are gone too, or soon after. An error names in ``deleted`` and
    ``freed_bytes`` what went before it; that stays deleted.
    """
    return await engine.remembered(request, lambda: _prune(engine, request))


async def _prune(engine: Engine, request: CheckpointPrune) -> Pruned:
    terms = await engine.execute(
        PruneTerms(
            days=request.older_than_days,
            keep=request.keep_per_mission,
            mission_id=request.mission_id,
        )
    )
    run = _Run(engine, terms)
    if request.dry_run:
        await run.through(run.count)
        return run.result()
    try:
        await run.through(run.delete)
    except FleetError as error:
        raise run.told_by(error) from error
    finally:
        await run.announce()
    return run.result()


class _Run:
    """One pruning, and what it has found or deleted so far."""

    def __init__(self, engine: Engine, terms: Terms) -> None:
        self._engine = engine
        self._terms = terms
        self._details: list[PrunedCheckpoint] = []
        self._freed_bytes = 0

    def result(self) -> Pruned:
        details = self._details
        return Pruned(deleted=len(details), freed_bytes=self._freed_bytes, details=details)

    async def through(self, take: Callable[[list[PrunedCheckpoint]], Awaitable[None]]) -> None:
        """Have everything that is past its time taken, in portions for one short transaction."""
        place: Place | None = Place()
        while place is not None:
            if self._engine.closing:
                raise Unavailable("fleetd is shutting down.", hint="Prune again when it runs.")
            found = await self._engine.execute(PruneLook(terms=self._terms, place=place))
            for portion in _portions(found.candidates):
                await take(portion)
            place = found.place

    async def count(self, portion: list[PrunedCheckpoint]) -> None:
        """Note what is there to be deleted."""
        self._details += portion
        self._freed_bytes += sum(each.size_bytes for each in portion)

    async def delete(self, portion: list[PrunedCheckpoint]) -> None:
        """Mark a portion, as far as it is still past its time, and see its files off."""
        marked = await self._engine.execute(PruneMark(terms=self._terms, candidates=portion))
        if marked.checkpoints:
            await self.count(marked.checkpoints)
            with trio.move_on_after(FILES_WAIT_S):
                await self._engine.outbox.settled()

    async def announce(self) -> None:
        """Say what was deleted, however it ended; nothing when that is nothing."""
        deleted, freed = len(self._details), self._freed_bytes
        if not deleted:
            return
        log.info("Pruned %d checkpoints, %d bytes", deleted, freed)
        with trio.CancelScope(shield=True):
            try:
                await self._engine.execute(PruneDone(deleted=deleted, freed_bytes=freed))
            except FleetError as error:
                log.warning("No event tells of the pruning: %s", error.message)

    def told_by(self, error: FleetError) -> FleetError:
        """Return an error that also says how far the pruning had come."""
        deleted = len(self._details)
        before = f" {deleted} checkpoints were pruned before that." if deleted else ""
        values = {**error.values, "deleted": deleted, "freed_bytes": self._freed_bytes}
        return type(error)(error.message + before, hint=error.hint, **values)


def _portions(candidates: list[PrunedCheckpoint]) -> Iterator[list[PrunedCheckpoint]]:
    portion: list[PrunedCheckpoint] = []
    size = 0
    for each in candidates:
        if portion and size + each.size_bytes > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each.size_bytes
    if portion:
        yield portion
