"""The daemon about itself: who it is, how it is, what its settings are."""

import os

from .. import __version__
from ..domain.context import Caller
from ..domain.overview import OverviewGet
from ..engine import Engine, operation
from ..wire.base import PROTOCOL
from ..wire.errors import Incompatible
from ..wire.requests.system import (
    Hello,
    Paths,
    Settings,
    Status,
    SystemConfig,
    SystemHello,
    SystemStatus,
)
from ..wire.times import iso
from . import figures


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
        latencies=figures.latencies(engine),
        errors=dict(sorted(engine.traffic.errors.items())),
        writer=figures.writer(engine),
        connections=figures.connections(engine),
        machine=engine.machine or None,
        machines=seen.machines,
    )


@operation
async def config(engine: Engine, request: SystemConfig, caller: Caller) -> Settings:
    """Return the settings in force."""
    return Settings(settings=engine.loaded.settings())
