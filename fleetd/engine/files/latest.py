"""What ``latest.json`` ought to be, and mending it; must not touch any other file."""

import contextlib
import logging
from functools import partial

from ...domain.artifacts.inventory import NewestFiled, RowNames
from ...domain.artifacts.kinds import POLICIES, id_of
from ...domain.artifacts.removal import Latest
from ...protocol.errors import Corrupt
from ...protocol.types import Noun
from ...store.files.layout import LATEST
from ...store.files.owner_dir import Listing
from ..engine import Engine
from .verified_read import latest_data

log = logging.getLogger("fleetd")


async def held_by_latest(engine: Engine, noun: Noun, owner_id: str) -> bytes | None:
    """Return what ``latest.json`` holds, where that is a copy."""
    backups = engine.backups[noun]
    if not backups.layout.copies:
        return None
    return await engine.outbox.in_thread(lambda: backups.latest_bytes(owner_id))


def named_in(noun: Noun, data: bytes) -> str | None:
    """Return the record that some bytes are a whole copy of."""
    with contextlib.suppress(Corrupt):
        return id_of(POLICIES[noun].from_file(data, LATEST))
    return None


async def wanted_latest(engine: Engine, noun: Noun, owner_id: str, files: frozenset[str]) -> Latest:
    """Return what ``latest.json`` must be: the newest record that has a file.

    A copy can only be of one that is whole somewhere, if only in ``latest.json`` itself; where
    none is, the newest is returned without its bytes.
    """
    backups = engine.backups[noun]
    newest = wanted = await engine.execute(NewestFiled(noun, owner_id, files))
    while backups.layout.copies and wanted.id is not None:
        data = await engine.outbox.in_thread(partial(latest_data, backups, owner_id, wanted))
        if data is not None:
            return Latest(id=wanted.id, data=data)
        files -= {wanted.id}
        wanted = await engine.execute(NewestFiled(noun, owner_id, files))
    return newest


def copy_trouble(wanted: Latest, held: bytes | None) -> str:
    """Say what is wrong with a ``latest.json`` that ought to hold what the newest file holds.

    It is a file; ``held`` is None when that cannot be read.
    """
    if wanted.data is None or held == wanted.data:
        return ""
    if held is None:
        return "is a file that cannot be read, or too large for one"
    return f"does not hold snapshot {wanted.id}, the newest"


async def mend_latest(
    engine: Engine, noun: Noun, listing: Listing, rows: RowNames, known: str = ""
) -> str:
    """Let a wrong ``latest.json`` be the newest record that has a file.

    Nothing is asked when all is well by the names, and no other trouble is ``known``. Returns what
    was wrong, with what it is now; empty when nothing was.
    """
    if not known and rows.newest in listing.files and not listing.latest_trouble(rows.newest):
        return ""
    owner_id, backups = rows.owner_id, engine.backups[noun]
    wanted = await wanted_latest(engine, noun, owner_id, listing.files)
    trouble = listing.latest_trouble(wanted.id) or known
    if not trouble:
        held = await held_by_latest(engine, noun, owner_id)
        spares = held is not None and named_in(noun, held) in rows.live - listing.files
        trouble = "" if spares else copy_trouble(wanted, held)
    if not trouble or (listing.copies and wanted.id is None and rows.live):
        return ""  # a copy may be all that is left, until a file is written again
    path = backups.root / owner_id / LATEST
    try:
        if listing.copies and wanted.id is not None and wanted.data is None:
            log.warning("%s %s; nothing whole is left to write it from", path, trouble)
            return ""
        await engine.outbox.in_thread(lambda: backups.set_latest(owner_id, wanted.id, wanted.data))
    except OSError as error:
        log.warning("%s %s; it cannot be changed: %s", path, trouble, error)
        return ""
    now = f"it {'holds' if listing.copies else 'names'} {wanted.id} now"
    done = now if wanted.id else "it was removed"
    log.warning("%s %s; %s", path, trouble, done)
    return f"{path} {trouble}; {done}"
