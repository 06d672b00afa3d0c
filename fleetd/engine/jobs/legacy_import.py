"""Legacy import of squawk.json at start-up, once; it never keeps the daemon from starting."""

import hashlib
import logging

import msgspec

from ...domain.system.legacy_import import LegacyContents, LegacyCounts
from ...domain.system.legacy_import import import_legacy as import_contents
from ...host import progress
from ...host.file_system import PathWalk, absolute
from ...protocol.errors import FleetError
from ...store.api import StoreAway
from ...store.legacy import LegacyFile, LegacyRefused, parse
from ..engine import Engine

log = logging.getLogger("fleetd")
NAME = "squawk.json"
READ_S = 60.0


async def import_legacy(engine: Engine) -> None:
    """Import the file beside the database, if there is one, and put it away afterwards.

    The file is renamed after the commit: after a crash between the two, the next start finds it
    again, and its checksum in the database. A file that cannot be imported stays, with a warning.
    Raises StoreAway, after which the import is to be tried again.
    """
    file = LegacyFile(engine.config.database.with_name(NAME))
    if file.path == engine.config.database:
        return
    try:
        contents = await engine.files.run(
            lambda walk: _contents(walk, file), str(file.path), seconds=READ_S
        )
        if contents is None:
            return
        progress.at(f"importing {file.path}")
        imported = await engine.write(import_contents, await _with_lock_keys(engine, contents))
    except LegacyRefused as refusal:
        _not_imported(file, f"{refusal}. Correct it or move it away, then start fleetd again.")
        return
    except StoreAway:
        raise
    except FleetError as error:
        _not_imported(file, f"{error.message} {error.hint} The next start tries again.")
        return
    try:
        backup = await engine.outbox.in_thread(file.put_away)
    except LegacyRefused as refusal:
        log.warning(
            "%s was imported but could not be renamed (%s). fleetd imports it again only if it "
            "changes. Move it away.",
            file.path,
            refusal,
        )
        return
    log.info("%s; %s is now %s", _summary(imported), file.path, backup.name)


def _contents(walk: PathWalk, file: LegacyFile) -> LegacyContents | None:
    data = file.read()
    if data is None:
        return None

    def real_path(name: str) -> str | None:
        path = absolute(name, None)
        return None if path is None else walk.facts(path).real

    return parse(data, hashlib.sha256(data).hexdigest(), real_path)


async def _with_lock_keys(engine: Engine, contents: LegacyContents) -> LegacyContents:
    """Return the contents with the keys that its locks have here; raises Unavailable."""
    scope, locks = engine.projects.scopes[0], []
    for lock in contents.locks:
        known = lock.path.startswith("/")
        path = await engine.projects.key(lock.path, scope) if known else lock.path
        locks.append(msgspec.structs.replace(lock, path=path))
    return msgspec.structs.replace(contents, locks=locks)


def _not_imported(file: LegacyFile, why: str) -> None:
    log.warning("%s was not imported and stays in place: %s", file.path, why)


def _summary(imported: LegacyCounts) -> str:
    if imported.before:
        return "The file was imported before"
    counts = [
        _counted(imported.mailboxes, "mailbox", "mailboxes"),
        _counted(imported.events, "event", "events"),
        _counted(imported.cursors, "cursor", "cursors"),
        _counted(imported.locks, "active lock", "active locks"),
    ]
    rest = f", left out {_counted(imported.left_out, 'lock', 'locks')}" if imported.left_out else ""
    return f"Imported {', '.join(counts)}{rest}"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
