"""What the daemon measured of itself, as records of the protocol; must not measure anything."""

import msgspec

from ...host.histogram import Histogram
from ...protocol.status import ConnectionFigures, MethodTiming, Timing, WriterFigures
from ..engine import Engine


def latencies(engine: Engine) -> list[MethodTiming]:
    """Return how long each method took that was called, by name."""
    return [
        MethodTiming(method=method, **msgspec.structs.asdict(_timing(histogram)))
        for method, histogram in sorted(engine.traffic.methods.items())
    ]


def writer(engine: Engine) -> WriterFigures:
    """Return how busy the writer is and was."""
    load = engine.store.load
    return WriterFigures(
        queue=load.waiting,
        queue_max=load.most_waiting,
        batches=load.batches.count,
        batch_mean=round(load.batches.mean, 2),
        batch_p95=load.batches.quantile(0.95),
        batch_max=load.batches.max,
        commit=_timing(load.commits),
    )


def connections(engine: Engine) -> ConnectionFigures:
    """Return how many clients there are and were."""
    traffic = engine.traffic
    return ConnectionFigures(
        open=traffic.open,
        open_max=traffic.most_open,
        limit=engine.config.limits.connections,
        accepted=traffic.accepted,
        refused=traffic.refused,
        cut_off=traffic.cut_off,
    )


def _timing(micros: Histogram) -> Timing:
    return Timing(
        count=micros.count,
        p50_ms=micros.quantile(0.5) / 1_000,
        p95_ms=micros.quantile(0.95) / 1_000,
        max_ms=micros.max / 1_000,
    )
