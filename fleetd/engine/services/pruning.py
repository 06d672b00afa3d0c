"""Pruning in batches: find, mark, remove the files, and only then the next batch.

No request waits for a whole pruning: each batch is a transaction of a few milliseconds, and its
files are removed before the next begins. An interrupted pruning has deleted whole batches; the next
one continues.
"""

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator

import trio

from ...domain.artifacts import inventory
from ...domain.artifacts.kinds import KINDS
from ...domain.core.context import Caller
from ...domain.core.registry import frees_space, method
from ...domain.core.tx import RemoveBackup
from ...domain.retention import pruning
from ...domain.retention.pruning import PruneCandidate, PruneCursor, RetentionPolicy
from ...host import progress
from ...protocol.errors import FleetError, RetentionPruneFailed, Unavailable
from ...protocol.requests.checkpoint import CheckpointPrune, Pruned, PrunedCheckpoint
from ...protocol.requests.snapshot import PrunedSnapshot, PrunedSnapshots, SnapshotPrune
from ...protocol.types import Noun
from ..engine import Engine
from ..files.inventory import owners as all_owners

log = logging.getLogger("fleetd")
# Large records take longer to free than small ones, so a transaction marks fewer of them.
BATCH_BYTES = 4_000_000
FILES_WAIT_S = 1.0
# Records that a reply names, oldest first of each owner. All of 100,000 would be 12 MB, which
# nobody reads, and which would be stored under the request's key as well.
DETAILS_MAX = 1_000
# Ids that an error names.
NAMED = 20


@method(CheckpointPrune)
@frees_space
async def prune(engine: Engine, request: CheckpointPrune, caller: Caller) -> Pruned:
    """Delete checkpoints past their retention, or only report them.

    Returns when the files are gone too, or soon after. An error reports in ``deleted`` and
    ``freed_bytes`` what was deleted before it; that stays deleted.
    """

    async def work() -> Pruned:
        days, keep = request.older_than_days, request.keep_per_mission
        policy = await engine.read(pruning.policy, "checkpoint", request.mission_id, days, keep)
        run = _Pruning(engine, "checkpoint", policy)
        await run.run(dry_run=request.dry_run)
        details = [
            PrunedCheckpoint(
                id=each.id,
                mission_id=each.owner_id,
                timestamp=each.timestamp,
                trigger=each.cause,  # type: ignore[arg-type]
                size_bytes=each.size_bytes,
            )
            for each in run.details
        ]
        return Pruned(deleted=run.deleted, freed_bytes=run.freed_bytes, details=details)

    return await engine.run_once(request, work)


@method(SnapshotPrune)
@frees_space
async def prune_snapshots(
    engine: Engine, request: SnapshotPrune, caller: Caller
) -> PrunedSnapshots:
    """Delete snapshots past their retention, or only report them; as ``prune``.

    Raises RetentionPruneFailed when a file stays, also one of an earlier pruning, whose removal is
    tried once more; the others are deleted. A dry run that finds some leaves this to a pruning.
    """

    async def work() -> PrunedSnapshots:
        policy = await engine.read(pruning.policy, "snapshot", request.run_id, None, None)
        run = _Pruning(engine, "snapshot", policy)
        await run.run(dry_run=request.dry_run)
        details = [
            PrunedSnapshot(
                id=each.id,
                run_id=each.owner_id,
                timestamp=each.timestamp,
                source=each.cause,  # type: ignore[arg-type]
                size_bytes=each.size_bytes,
            )
            for each in run.details
        ]
        if not request.dry_run or not run.deleted:
            await run.check_files()
        return PrunedSnapshots(deleted=run.deleted, freed_bytes=run.freed_bytes, details=details)

    return await engine.run_once(request, work)


class _Pruning:
    """One pruning, and what it has found or deleted so far."""

    def __init__(self, engine: Engine, noun: Noun, policy: RetentionPolicy) -> None:
        self._engine = engine
        self._noun = noun
        self._policy = policy
        self.details: list[PruneCandidate] = []
        self.freed_bytes = 0
        self._ids: set[str] = set()

    @property
    def deleted(self) -> int:
        """Return how many records were found, or deleted; ``details`` names the first of them."""
        return len(self._ids)

    async def run(self, *, dry_run: bool) -> None:
        """Go through all expired records; raises FleetError, which reports how far it came."""
        if dry_run:
            return await self._each_batch(self._count)
        try:
            await self._each_batch(self._delete)
        except FleetError as error:
            deleted = self.deleted
            before = f" {deleted} {self._noun}s were pruned before that." if deleted else ""
            values = {**error.values, "deleted": deleted, "freed_bytes": self.freed_bytes}
            raise type(error)(error.message + before, hint=error.hint, **values) from error
        finally:
            await self._announce()

    async def _each_batch(self, take: Callable[[list[PruneCandidate]], Awaitable[None]]) -> None:
        """Pass all expired records to ``take``, each batch for one short transaction."""
        cursor: PruneCursor | None = PruneCursor()
        owners: list[str] = []  # in the order of their names, if they are several
        if self._policy.owner_id is None:
            owners = await all_owners(self._engine, self._noun)
        while cursor is not None:
            if self._engine.closing:
                raise Unavailable(
                    "fleetd is shutting down.", hint="Prune again after it has started.", retry=True
                )
            page = await self._engine.read(pruning.look, self._noun, self._policy, cursor)
            for batch in _batches(page.found):
                await take(batch)
                if not owners:
                    progress.at(f"{self._noun}s", self.deleted)
            cursor = page.following
            if owners and cursor is not None:
                owner_kind = KINDS[self._noun].whose
                progress.at(f"{owner_kind}s", bisect_left(owners, cursor.owner_id), len(owners))

    async def _count(self, batch: list[PruneCandidate]) -> None:
        self._ids.update(each.id for each in batch)
        self.details += batch[: DETAILS_MAX - len(self.details)]
        self.freed_bytes += sum(each.size_bytes for each in batch)

    async def _delete(self, batch: list[PruneCandidate]) -> None:
        """Mark the records of a batch that are still expired, and wait for their files' removal."""
        if marked := await self._engine.write(pruning.mark, self._noun, self._policy, batch):
            await self._count(marked)
            with trio.move_on_after(FILES_WAIT_S):
                await self._engine.outbox.settled()

    async def _announce(self) -> None:
        """Log and record what was deleted, however it ended."""
        deleted, freed = self.deleted, self.freed_bytes
        if not deleted:
            return
        log.info("Pruned %d %ss, %d bytes", deleted, self._noun, freed)
        with trio.CancelScope(shield=True):
            try:
                await self._engine.write(pruning.announce, self._noun, deleted, freed)
            except FleetError as error:
                log.warning("The event of the pruning could not be written: %s", error.message)

    async def check_files(self) -> None:
        """Raise RetentionPruneFailed when a file of a deleted record could not be removed.

        Files that an earlier pruning left count as well; their removal is tried again first.
        """
        outbox = self._engine.outbox
        for record_id in sorted((await self._stuck()).keys() - self._ids):
            outbox.post(RemoveBackup(self._noun, record_id))
        with trio.move_on_after(FILES_WAIT_S):
            await outbox.settled()
        if not (stuck := await self._stuck()):
            return
        first, why = next(iter(stuck.items()))
        earlier = stuck.keys() - self._ids
        subject = "files of these and of earlier ones" if earlier else "of their files"
        raise RetentionPruneFailed(
            f"{self.deleted} {self._noun}s were deleted, but {len(stuck)} {subject} could"
            f" not be removed: {first} ({why}).",
            hint="Remove the cause; fleetd keeps trying to remove them.",
            stuck=list(stuck)[:NAMED],
            deleted=self.deleted,
            freed_bytes=self.freed_bytes,
        )

    async def _stuck(self) -> dict[str, str]:
        """Return the records, of those gone through, whose files could not be removed, and why."""
        failed = {
            each.work.record_id: each.why
            for each in self._engine.outbox.failures
            if isinstance(each.work, RemoveBackup) and each.work.noun == self._noun
        }
        owner_id = self._policy.owner_id
        if not failed or owner_id is None:
            return failed
        (rows,) = await self._engine.read(inventory.names, self._noun, [owner_id])
        return {name: why for name, why in failed.items() if name in rows.rows}


def _batches(candidates: list[PruneCandidate]) -> Iterator[list[PruneCandidate]]:
    batch: list[PruneCandidate] = []
    size = 0
    for each in candidates:
        if batch and size + each.size_bytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size_bytes
    if batch:
        yield batch
