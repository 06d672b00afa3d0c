"""Service status: what runs fleetd, whether it answers, and what is wrong."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fleetd import __version__
from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState

from ..client import Fleet
from ..client.models import Finding, SystemStatus
from . import process, service
from .manager import Service, ServiceState, UnitFile, is_digest_line
from .spec import this_spec

LOOK_S = 3.0
ENDS_AT_LOGOUT = "fleetd ends when you log out; to keep it: fleetctl daemon install --linger"


class ServiceStatus(NamedTuple):
    """What ``fleetctl daemon status`` reports; ``service`` is None without a service manager.

    ``silent`` means that a process listens but did not answer: whether fleetd runs is unknown.
    """

    running: bool
    silent: bool
    pid: int | None
    version: str | None
    started_at: str | None
    socket: str
    log: str
    run_by: str | None
    service: ServiceState | None
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**self._asdict(), "service": self.service and self.service._asdict()}


def service_status() -> ServiceStatus:
    """Return the status, without starting anything."""
    manager = service()
    seen = manager.state() if manager else None
    path = paths.socket_path()
    asleep = seen is not None and seen.listening and not seen.active
    found, trouble = (None, None) if asleep else _answer(path)
    by_manager = found is not None and seen is not None and seen.active
    managed = by_manager or (not found and seen is not None and seen.installed and seen.manager)
    warnings = [trouble.message, *filter(None, [trouble.hint])] if trouble else []
    if found and found.hello.version != __version__:
        warnings.append(
            f"fleetd is of version {found.hello.version}, fleetctl of {__version__}: "
            "fleetctl daemon restart"
        )
    if found and (away := _store_away(path)):
        warnings.append(away)
    if manager and seen:
        found_out = list(findings(manager, seen))
        warnings += [each.detail for each in found_out if not each.ok] + to_warn_of(found_out)
    return ServiceStatus(
        running=found is not None,
        silent=isinstance(trouble, process.Silent),
        pid=found.pid if found else None,
        version=found.hello.version if found else None,
        started_at=found.hello.started_at if found else None,
        socket=str(path),
        log=seen.log if seen and managed else str(process.log_file()),
        run_by=None if not found else manager.KIND if by_manager and manager else "background",
        service=seen,
        warnings=warnings,
    )


def to_warn_of(found: Sequence[Finding]) -> list[str]:
    """Return what is not a fault but worth a warning."""
    return [f"Lingering is {each.detail}" for each in found if each.detail.startswith("off: ")]


def _answer(path: Path) -> tuple[process.Running | None, FleetError | None]:
    try:
        paths.check_socket_length(path)
        return process.look(path), None
    except paths.PathRefused as error:
        return None, InvalidState(str(error))
    except FleetError as error:
        return None, error


def _store_away(path: Path) -> str:
    """Return a warning for a store that cannot be reached, else an empty text."""
    try:
        with Fleet(path, restart_s=0.0) as client:
            store = client.call(SystemStatus(), reply_s=LOOK_S).store
    except FleetError as error:
        return error.message
    return f"The store is away: {store.away.message}" if store and store.away else ""


def of_this_machine() -> list[Finding]:
    """Return what ``fleetctl doctor`` reports about the service; empty if none is installed."""
    manager = service()
    if manager is None or not manager.installed():
        return []
    return list(findings(manager, manager.state()))


def findings(manager: Service, seen: ServiceState) -> Iterator[Finding]:
    """Yield what there is to say about an installed service."""
    if not seen.installed:
        return
    ok, detail = _files(manager)
    yield Finding(check="service", ok=ok, subject=manager.KIND, detail=detail)
    if seen.enabled is False:
        detail = "it does not start by itself; run: fleetctl daemon install"
        yield Finding(check="autostart", ok=False, subject=manager.KIND, detail=detail)
    if seen.lingering is not None:
        # Off is not a fault: on a desktop the agents end at logout, too.
        detail = "on" if seen.lingering else f"off: {ENDS_AT_LOGOUT}"
        yield Finding(
            check="lingering",
            ok=True,
            subject=manager.KIND,
            detail=detail,
            note=not seen.lingering,
        )


def _matters(change: UnitFile) -> bool:
    """Return whether more than the PATH would change, which differs between shells."""
    changed = [
        line
        for line in change.diff()
        if line[:1] in "+-" and not line.startswith(("+++", "---")) and not is_digest_line(line)
    ]
    return change.edited or any(not line[1:].startswith("Environment=PATH=") for line in changed)


def _files(manager: Service) -> tuple[bool, str]:
    """Return whether the files are what would be installed now, and a text about them."""
    if (program := manager.program()) and not os.access(program, os.X_OK):
        return False, f"{program}, which it starts, is not there; run: fleetctl daemon install"
    try:
        differing = [each for each in manager.plan_install(this_spec()) if _matters(each)]
    except FleetError as error:
        return False, error.message
    if not differing:
        return True, "its files are those of this version"
    names = ", ".join(str(each.path) for each in differing)
    why = "edited" if any(each.edited for each in differing) else "of another version or shell"
    return False, f"{names}: {why}; to renew: fleetctl daemon install"
