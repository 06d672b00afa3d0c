"""The daemon itself: its identity, its status and its settings."""

import contextlib
import os

from ... import __version__
from ...domain.attention.conflicts import count_conflicts
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...protocol.errors import Incompatible
from ...protocol.request import PROTOCOL
from ...protocol.requests.system import (
    Hello,
    Paths,
    Settings,
    SystemConfig,
    SystemHello,
    SystemStatus,
)
from ...protocol.status import AwayStatus, Status, StoreStatus
from ...protocol.timestamps import iso
from ...store.api import StoreAway
from ..engine import Engine
from ..metrics import report


@method(SystemHello, without_store=True)
async def hello(engine: Engine, request: SystemHello, caller: Caller) -> Hello:
    """Return the daemon's identity; raises Incompatible for a client with another protocol."""
    if request.protocol not in (None, PROTOCOL):
        raise Incompatible(
            f"fleetd uses protocol {PROTOCOL}, the client {request.protocol}.",
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


@method(SystemStatus, without_store=True)
async def status(engine: Engine, request: SystemStatus, caller: Caller) -> Status:
    """Show the state of the fleet."""
    seen = await report.overview_now(engine)
    conflicts = 0
    with contextlib.suppress(StoreAway):
        conflicts = await engine.read(count_conflicts) if seen else 0
    spool = await engine.outbox.in_thread(engine.spool.size)
    database_bytes, wal_bytes = engine.store.sizes()
    return Status(
        version=__version__,
        pid=os.getpid(),
        started_at=iso(engine.started_ms),
        uptime_ms=max(0, engine.clock() - engine.started_ms),
        counts=seen.counts if seen else None,
        missions=seen.missions if seen else [],
        candidates=seen.candidates if seen else [],
        recoveries=seen.recoveries if seen else [],
        backup_backlog=seen.backup_backlog if seen else 0,
        database_bytes=database_bytes,
        wal_bytes=wal_bytes,
        position=seen.position if seen else None,
        epoch=seen.epoch if seen else None,
        latencies=report.latencies(engine),
        errors=dict(sorted(engine.traffic.errors.items())),
        writer=report.writer(engine),
        connections=report.connections(engine),
        machine=engine.machine or None,
        machines=seen.machines if seen else [],
        store=_store(engine),
        spool_files=spool.files,
        spool_bytes=spool.size_bytes,
        conflicts=conflicts,
    )


def _store(engine: Engine) -> StoreStatus:
    store, away = engine.store, engine.store.availability.away
    return StoreStatus(
        kind=store.kind,
        where=store.where,
        version=store.engine_version,
        since=iso(engine.ready_ms) if engine.ready_ms is not None else None,
        reconnects=store.availability.reconnects,
        away=AwayStatus(
            since_at=iso(away.since_ms),
            for_ms=max(0, engine.clock() - away.since_ms),
            step=away.step,
            message=away.message,
        )
        if away
        else None,
        lost=store.lost.why if store.lost else None,
    )


@method(SystemConfig, without_store=True)
async def config(engine: Engine, request: SystemConfig, caller: Caller) -> Settings:
    """Return the settings in force."""
    return Settings(settings=engine.loaded.settings())
