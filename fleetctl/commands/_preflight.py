"""What can be examined without a daemon: settings, the socket's path, permissions of the roots."""

import os
import stat
from pathlib import Path

from fleetd.config import Config, ConfigError, load
from fleetd.host import paths
from fleetd.protocol.errors import FleetError

from ..client.models import Finding

_SQLITE = b"SQLite format 3\0"


def findings() -> list[Finding]:
    """Examine what the next start of fleetd would meet; changes nothing."""
    try:
        loaded = load()
    except ConfigError as error:
        wrong = Finding(check="settings", ok=False, detail=str(error))
        return [wrong, *_socket(paths.socket_path())]
    origin = f"{loaded.file}" if loaded.file.exists() else "defaults, no file"
    return [
        Finding(check="settings", ok=True, subject=origin, detail="every value can stand"),
        *_server(loaded.config),
        *_socket(loaded.config.socket),
        *_stores(loaded.config),
    ]


def _server(config: Config) -> list[Finding]:
    """Say what the daemon's program meets at the server of a shared store."""
    if not config.store:
        return []
    # Imported here: most stores are files of this machine.
    from fleetd.protocol.migration import MigrationRequest

    from ._store_job import carry

    try:
        found = carry(MigrationRequest(what="look")).done or ""
    except FleetError as error:
        return [Finding(check="store", ok=False, detail=error.message)]
    return [Finding(check="store", ok=True, detail=found)]


def _socket(path: Path) -> list[Finding]:
    try:
        paths.check_socket_length(path)
    except paths.PathRefused as error:
        return [Finding(check="socket", ok=False, subject=str(path), detail=str(error))]
    wrong = _in_the_way(path)
    detail = wrong or "its path fits"
    if path.is_socket() and not wrong:
        detail += "; a daemon that ended left it, the next one takes its place"
    return [
        Finding(check="socket", ok=not wrong, subject=str(path), detail=detail),
        _permissions(path.parent),
    ]


def _in_the_way(path: Path) -> str:
    """Say why fleetd could not listen there; nothing when it could."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if not stat.S_ISSOCK(info.st_mode):
        return "is no socket, so fleetd cannot listen there; move it away"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to us; check FLEET_SOCKET and XDG_RUNTIME_DIR"
    return ""


def _stores(config: Config) -> list[Finding]:
    looked_at = (config.database.parent, config.database, config.checkpoints)
    permissions = [_permissions(path) for path in dict.fromkeys(looked_at)]
    return [*_database(config.database), *permissions]


def _database(path: Path) -> list[Finding]:
    """Say what stands in the place of the database, if it is anything but one."""
    try:
        if not path.exists():
            return []
        detail = "is no regular file; move it away"
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(len(_SQLITE))
            if head in (_SQLITE, b""):
                return []
            detail = "is not a SQLite database; move it away: missions come back from their files"
    except OSError as error:
        detail = f"cannot be looked at: {error.strerror}"
    return [Finding(check="database", ok=False, subject=str(path), detail=detail)]


def _permissions(path: Path) -> Finding:
    try:
        info = path.stat()
    except FileNotFoundError:
        return _missing(path)
    except OSError as error:
        return _permission(path, ok=False, detail=f"cannot be looked at: {error.strerror}")
    if info.st_uid != os.getuid():
        return _permission(path, ok=False, detail=f"belongs to uid {info.st_uid}, not to us")
    mode = stat.S_IMODE(info.st_mode)
    # A home directory may be open for others to enter.
    loose = mode & (0o022 if Path.home().is_relative_to(path) else 0o077)
    detail = f"mode {mode:04o}" + (f", open to others; run: chmod go= {path}" if loose else "")
    return _permission(path, ok=not loose, detail=detail)


def _missing(path: Path) -> Finding:
    above = next(each for each in path.parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        told = f"is not there, and {above} is no directory that you may write into"
        return _permission(path, ok=False, detail=told)
    return _permission(path, ok=True, detail="is not there yet; fleetd makes it")


def _permission(path: Path, *, ok: bool, detail: str) -> Finding:
    return Finding(check="permissions", ok=ok, subject=str(path), detail=detail)
