"""Compressing the history of runs: from the verified row, one file at a time.

What a crash leaves half done is done again: the row says that a file is compressed only when it is.
"""

import hashlib
import logging

from ...domain.artifacts.outbox import BackupGet
from ...domain.core.context import Caller
from ...domain.snapshots.compression import Compressed, PlainFind
from ...protocol.errors import Corrupt, NotFound
from ...protocol.records import Record
from ...protocol.request import Mutation
from ...store.files.forms import packed
from ..engine import Engine, operation

log = logging.getLogger("fleetd")


class CompressedCount(Record, frozen=True, kw_only=True):
    """How many files were compressed."""

    compressed: int


class SnapshotsCompress(Mutation[CompressedCount], frozen=True):
    """Compress the history files that are old enough; not on the wire."""


@operation
async def compress(engine: Engine, request: SnapshotsCompress, caller: Caller) -> CompressedCount:
    """Compress what is old; a damaged row or a file that cannot be written is left for later.

    Raises FleetError when the store refuses.
    """
    done, since, passed_over = 0, "", set[str]()
    while not engine.closing:
        found = await engine.execute(PlainFind(since))
        new = [each for each in found.ids if each not in passed_over]
        for snapshot_id in new:
            if await _compress(engine, snapshot_id):
                done += 1
            else:
                passed_over.add(snapshot_id)
        if found.until is None or not new:
            break
        since = found.until
    if done:
        log.info("Compressed %d snapshot files", done)
    return CompressedCount(compressed=done)


async def _compress(engine: Engine, snapshot_id: str) -> bool:
    backups = engine.backups["snapshot"]
    async with engine.outbox.at_work:
        try:
            backup = await engine.execute(BackupGet("snapshot", snapshot_id))
        except NotFound:  # pruned meanwhile
            return False
        except Corrupt as error:
            log.warning("A snapshot is not compressed: %s", error.message)
            return False
        if backup.data is None:
            return False
        data = await engine.outbox.in_thread(lambda: packed(backup.data or b""))
        try:
            await engine.outbox.in_thread(
                lambda: backups.compress(backup.owner_id, snapshot_id, data)
            )
        except OSError as error:
            log.warning("The file of %s could not be compressed: %s", snapshot_id, error)
            return False
        note = Compressed(
            snapshot_id=snapshot_id, digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data)
        )
        return (await engine.execute(note)).done
