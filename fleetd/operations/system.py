"""The daemon about itself: who it is, how it is, what it costs."""

import os
import stat
from pathlib import Path

from .. import __version__
from ..domain.context import Caller
from ..domain.copies import OutboxGet
from ..domain.overview import OverviewGet
from ..engine import Engine, operation
from ..store import CopyFailed
from ..wire.base import PROTOCOL
from ..wire.errors import Corrupt, Incompatible, InvalidParams, Storage
from ..wire.model import Finding
from ..wire.requests.checkpoint import CheckpointVerify
from ..wire.requests.system import (
    BackupResult,
    Check,
    Findings,
    Health,
    Hello,
    Metrics,
    Paths,
    Settings,
    Status,
    SystemBackup,
    SystemConfig,
    SystemDoctor,
    SystemHealth,
    SystemHello,
    SystemMetrics,
    SystemStatus,
)
from ..wire.times import iso
from .verification import verify


@operation
async def hello(engine: Engine, request: SystemHello, caller: Caller) -> Hello:
    """Say who answers; a client that speaks another protocol is told."""
    if request.protocol not in (None, PROTOCOL):
        raise Incompatible(
            f"fleetd speaks protocol {PROTOCOL}, the client {request.protocol}.",
            hint="Install the same version of fleetd and fleetctl, then restart fleetd.",
            protocol=PROTOCOL,
        )
    config = engine.config
    return Hello(
        name="fleetd",
        version=__version__,
        protocol=PROTOCOL,
        pid=os.getpid(),
        started_at=iso(engine.started_ms),
        paths=Paths(
            database=str(config.database),
            checkpoints=str(config.checkpoints),
            socket=str(config.socket),
            config=str(engine.loaded.file),
        ),
        sqlite_version=engine.store.sqlite_version,
    )


@operation
async def status(engine: Engine, request: SystemStatus, caller: Caller) -> Status:
    """Show the state of the fleet."""
    seen = await engine.execute(OverviewGet())
    database_bytes, wal_bytes = engine.store.sizes()
    return Status(
        version=__version__,
        pid=os.getpid(),
        started_at=iso(engine.started_ms),
        uptime_ms=max(0, engine.clock() - engine.started_ms),
        counts=seen.counts,
        missions=seen.missions,
        candidates=seen.candidates,
        recoveries=seen.recoveries,
        backup_backlog=seen.backup_backlog,
        database_bytes=database_bytes,
        wal_bytes=wal_bytes,
        position=seen.position,
        epoch=seen.epoch,
    )


@operation
async def health(engine: Engine, request: SystemHealth, caller: Caller) -> Health:
    """Make a round trip through the writer and the reader, and look at the backlog."""
    checks = []
    for name, use in (
        ("database writer", engine.store.write),
        ("database reader", engine.store.read),
    ):
        answer = await use(lambda tx: tx.value("SELECT 1"))
        checks.append(Check(name=name, ok=answer == 1, detail="answers"))
    backlog = len((await engine.execute(OutboxGet())).unwritten)
    checks.append(
        Check(name="backups", ok=True, detail=f"{backlog} checkpoints wait for their file")
    )
    return Health(ok=all(check.ok for check in checks), checks=checks)


@operation
async def config(engine: Engine, request: SystemConfig, caller: Caller) -> Settings:
    """Return the settings in force."""
    return Settings(settings=engine.loaded.settings())


@operation
async def doctor(engine: Engine, request: SystemDoctor, caller: Caller) -> Findings:
    """Look for damage and loose permissions; with ``fix`` mend what can be mended."""
    return await engine.remembered(request, lambda: _examine(engine, request.fix, caller))


async def _examine(engine: Engine, fix: bool, caller: Caller) -> Findings:
    damage = await engine.store.check()
    findings = [
        Finding(check="database", ok=not damage, detail="; ".join(damage) or "intact"),
        *(_permissions(path, fix=fix) for path in _private_places(engine)),
    ]
    try:
        copies = await verify(engine, CheckpointVerify(repair=fix), caller)
    except Corrupt as error:  # the database itself is in the way
        findings.append(Finding(check="checkpoints", ok=False, detail=error.message))
        return Findings(ok=False, findings=findings)
    broken = [finding for finding in copies.findings if not finding.ok]
    intact = len(copies.findings) - len(broken)
    findings.append(Finding(check="checkpoints", ok=True, detail=f"{intact} intact in both stores"))
    findings += broken
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


def _private_places(engine: Engine) -> list[Path]:
    config = engine.config
    places = [config.database, config.checkpoints, config.socket, config.socket.parent]
    return [place for place in places if place.exists()]


def _permissions(path: Path, *, fix: bool) -> Finding:
    """Nobody else may look into what fleetd keeps."""
    mode = stat.S_IMODE(path.stat().st_mode)
    loose = mode & 0o077
    if loose and fix:
        path.chmod(mode & 0o700)
    detail = f"mode {mode:04o}" + (", open to others" if loose else "")
    return Finding(
        check="permissions",
        ok=not loose,
        subject=str(path),
        detail=detail,
        fixed=bool(loose) and fix,
    )


@operation
async def backup(engine: Engine, request: SystemBackup, caller: Caller) -> BackupResult:
    """Write a consistent copy of the database while it is in use."""
    return await engine.remembered(request, lambda: _backup(engine, Path(request.path)))


async def _backup(engine: Engine, target: Path) -> BackupResult:
    if not target.is_absolute():
        raise InvalidParams(
            f"path is {str(target)!r}, which is not absolute.",
            hint="Give the whole path; the daemon has a working directory of its own.",
            field="path",
        )
    _claim_place(target)
    try:
        size = await engine.store.copy_to(target)
    except CopyFailed as error:
        raise Storage(
            f"The copy to {target} failed: {error}.", hint="Check the free space, then try again."
        ) from error
    return BackupResult(path=str(target), size_bytes=size)


def _claim_place(target: Path) -> None:
    """Make the file, exclusively and private: SQLite would write into whatever lies there."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        raise InvalidParams(
            f"{target} exists already.", hint="Name a file that does not exist.", field="path"
        ) from None
    except OSError as error:
        raise Storage(
            f"{target} cannot be written: {error}.", hint="Name a file in a directory of yours."
        ) from error


@operation
async def metrics(engine: Engine, request: SystemMetrics, caller: Caller) -> Metrics:
    """Return figures in the text format that Prometheus reads."""
    seen = await engine.execute(OverviewGet())
    database_bytes, wal_bytes = engine.store.sizes()
    figures = {f"fleetd_{name}": count for name, count in _counts(seen.counts).items()}
    figures |= {
        "fleetd_missions_in_progress": len(seen.missions),
        "fleetd_recovery_candidates": len(seen.candidates),
        "fleetd_backup_backlog": seen.backup_backlog,
        "fleetd_database_bytes": database_bytes,
        "fleetd_wal_bytes": wal_bytes,
        "fleetd_event_position": seen.position,
        "fleetd_uptime_seconds": max(0, engine.clock() - engine.started_ms) // 1000,
    }
    lines = [f"# TYPE {name} gauge\n{name} {value}" for name, value in figures.items()]
    return Metrics(text="\n".join(lines) + "\n")


def _counts(counts: object) -> dict[str, int]:
    fields = getattr(counts, "__struct_fields__", ())
    return {name: getattr(counts, name) for name in fields}
