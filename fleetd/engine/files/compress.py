"""Compression of the history of runs: from the verified row, one file at a time.

What a crash leaves half done is done again: the row says that a file is compressed only when it is.
"""

import hashlib
import logging

from ...domain.artifacts import outbox
from ...domain.snapshots import snapshots
from ...protocol.errors import Corrupt, NotFound
from ...store.files.forms import packed
from ..engine import Engine

log = logging.getLogger("fleetd")


async def compress(engine: Engine) -> int:
    """Compress the history files that are old enough; returns how many.

    A damaged row or a file that cannot be written is left for later. Raises FleetError when the
    store refuses.
    """
    done, since, passed_over = 0, "", set[str]()
    while not engine.closing:
        old, until = await engine.read(snapshots.uncompressed, since)
        new = [each for each in old if each not in passed_over]
        for snapshot_id in new:
            if await _compress(engine, snapshot_id):
                done += 1
            else:
                passed_over.add(snapshot_id)
        if until is None or not new:
            break
        since = until
    if done:
        log.info("Compressed %d snapshot files", done)
    return done


async def _compress(engine: Engine, snapshot_id: str) -> bool:
    backups = engine.backups["snapshot"]
    async with engine.outbox.at_work:
        try:
            backup = await engine.read(outbox.backup, "snapshot", snapshot_id)
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
        digest = hashlib.sha256(data).hexdigest()
        return await engine.write(snapshots.note_compressed, snapshot_id, digest, len(data))
