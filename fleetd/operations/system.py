"""The daemon about itself: who it is, how it is, what it costs."""

import os

from .. import __version__
from ..domain.context import Caller
from ..domain.copies import OutboxGet
from ..domain.overview import OverviewGet
from ..engine import Engine, operation
from ..wire.base import PROTOCOL
from ..wire.errors import Incompatible
from ..wire.requests.system import (
    Check,
    Health,
    Hello,
    Metrics,
    Paths,
    Settings,
    Status,
    SystemConfig,
    SystemHealth,
    SystemHello,
    SystemMetrics,
    SystemStatus,
)
from ..wire.times import iso


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
    checks.append(Check(name="backups", ok=True, detail=f"files still to write: {backlog}"))
    return Health(ok=all(check.ok for check in checks), checks=checks)


@operation
async def config(engine: Engine, request: SystemConfig, caller: Caller) -> Settings:
    """Return the settings in force."""
    return Settings(settings=engine.loaded.settings())


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
