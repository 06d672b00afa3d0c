"""``fleetctl doctor``: all checks, by the daemon or without it.

Without a daemon, they cover the settings, the socket's path, and the permissions of the roots.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fleetd import __version__
from fleetd.host import paths
from fleetd.protocol.errors import Denied, FleetError, InvalidParams, Unavailable

from ..args import Namespace, Subparsers, command
from ..client import Fleet, TooSlow
from ..client.models import Finding, Findings, Hello, SystemDoctor, SystemHello
from ..output import console
from ..output.progress import call_with_bar

if TYPE_CHECKING:
    from fleetd.config import Config

_SQLITE = b"SQLite format 3\0"


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    examining = command(
        subparsers,
        "doctor",
        run,
        "Find damage, copies that differ, loose permissions, leftover files and a full disk. "
        "Exit status 1 when a problem remains.",
        "  fleetctl doctor\n  fleetctl doctor --fix",
    )
    examining.flag("--fix", help="repair each problem that can be repaired")


def run(args: Namespace) -> int:
    """Let the daemon check itself; without one, check what its start would find."""
    try:
        with Fleet() as client:
            hello = client.call(SystemHello())
            found = call_with_bar(args, "Checking", client, SystemDoctor(fix=args.fix)).findings
        daemon = _daemon(hello)
    except TooSlow as error:
        # The daemon still runs, so the checks for its start are left out.
        daemon = Finding(check="daemon", ok=False, detail=f"{error.message} {error.hint}")
        found = []
    except (Unavailable, Denied, InvalidParams) as error:
        daemon = Finding(check="daemon", ok=False, detail=error.message)
        found = _preflight()
    findings = [daemon, *_service(args), *found]
    ok = all(each.ok or each.fixed for each in findings)
    return console.findings(args, Findings(ok=ok, findings=findings))


def _service(args: Namespace) -> list[Finding]:
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from ..service import status

    found = status.of_this_machine()
    for warning in status.to_warn_of(found):
        if not args.json:
            console.warn(warning)
    return found


def _daemon(hello: Hello) -> Finding:
    detail = f"fleetd {hello.version} runs (pid {hello.pid})"
    same = hello.version == __version__
    if not same:
        detail += f"; fleetctl is of version {__version__}: restart fleetd after an upgrade"
    return Finding(check="daemon", ok=same, detail=detail)


def _preflight() -> list[Finding]:
    """Check what the next start of fleetd would find; changes nothing."""
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from fleetd.config import ConfigError, load

    try:
        loaded = load()
    except ConfigError as error:
        wrong = Finding(check="settings", ok=False, detail=str(error))
        return [wrong, *_socket(paths.socket_path())]
    origin = f"{loaded.file}" if loaded.file.exists() else "defaults, no file"
    database = loaded.config.database
    roots = (database.parent, database, loaded.config.checkpoints)
    return [
        Finding(check="settings", ok=True, subject=origin, detail="every value can stand"),
        *_server(loaded.config),
        *_socket(loaded.config.socket),
        *_database(database),
        *map(_permissions, dict.fromkeys(roots)),
    ]


def _server(config: "Config") -> list[Finding]:
    """Return what the daemon's program finds at the server of a shared store."""
    if not config.store:
        return []
    # Imported here: most stores are files of this machine.
    from fleetd.protocol.migration import MigrationRequest

    from .migrate import run_job

    try:
        found = run_job(MigrationRequest(what="look")).done or ""
    except FleetError as error:
        return [Finding(check="store", ok=False, detail=error.message)]
    return [Finding(check="store", ok=True, detail=found)]


def _socket(path: Path) -> list[Finding]:
    try:
        paths.check_socket_length(path)
    except paths.PathRefused as error:
        return [Finding(check="socket", ok=False, subject=str(path), detail=str(error))]
    wrong = _obstacle(path)
    detail = wrong or "its path fits"
    if path.is_socket() and not wrong:
        detail += "; a daemon that ended left it, the next one takes its place"
    finding = Finding(check="socket", ok=not wrong, subject=str(path), detail=detail)
    return [finding, _permissions(path.parent)]


def _obstacle(path: Path) -> str:
    """Return why fleetd could not listen there; empty when it could."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be examined: {error.strerror}"
    if not stat.S_ISSOCK(info.st_mode):
        return "is no socket, so fleetd cannot listen there; move it away"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to you; check FLEET_SOCKET and XDG_RUNTIME_DIR"
    return ""


def _database(path: Path) -> list[Finding]:
    """Return the findings about the file of the database."""
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
        detail = f"cannot be examined: {error.strerror}"
    return [Finding(check="database", ok=False, subject=str(path), detail=detail)]


def _permissions(path: Path) -> Finding:
    def found(detail: str, *, ok: bool = False) -> Finding:
        return Finding(check="permissions", ok=ok, subject=str(path), detail=detail)

    try:
        info = path.stat()
    except FileNotFoundError:
        above = next(each for each in path.parents if each.exists())
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return found("does not exist yet; fleetd creates it", ok=True)
        return found(f"does not exist, and {above} is no directory that you can write to")
    except OSError as error:
        return found(f"cannot be examined: {error.strerror}")
    if info.st_uid != os.getuid():
        return found(f"belongs to uid {info.st_uid}, not to you")
    mode = stat.S_IMODE(info.st_mode)
    # A home directory may be open for others to enter.
    if mode & (0o022 if Path.home().is_relative_to(path) else 0o077):
        return found(f"mode {mode:04o}, open to others; run: chmod go= {path}")
    return found(f"mode {mode:04o}", ok=True)
