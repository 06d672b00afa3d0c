"""One row of the table: a measurement, its reference and its promise; knows no fleetd."""

import statistics
from collections.abc import Sequence

import msgspec

from .machine import Machine
from .measure import Samples, stretches


def in_bytes(size: int) -> str:
    """Return a size in readable form."""
    return f"{size / 1_000_000:.3g} MB" if size >= 1_000_000 else f"{size / 1_000:.3g} KB"


class Promise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of a path; the ratio is of medians, the times are in ms.

    ``spec_p95_ms`` is the specification's own absolute limit.
    """

    ratio: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    spec_p95_ms: float | None = None
    speedup: float | None = None
    ops_per_s: float | None = None
    size_bytes: int | None = None

    def text(self, reference: str) -> str:
        """Return the promise as the table shows it."""
        parts = [
            ("≤ {:g} x " + reference, self.ratio),
            ("≤ {:g} ms", self.p50_ms),
            ("p95 < {:g} ms", self.p95_ms),
            ("p99 < {:g} ms", self.p99_ms),
            ("never > {:g} ms", self.max_ms),
            ("spec p95 < {:g} ms", self.spec_p95_ms),
            ("≥ {:g} x one commit each", self.speedup),
            ("≥ {:g}/s", self.ops_per_s),
            ("≤ {}", self.size_bytes and in_bytes(self.size_bytes)),
        ]
        return ", ".join(text.format(limit) for text, limit in parts if limit is not None) or "-"


NOTHING = Promise()


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """The peer of a comparison, its operation, and the durability that its own connection reports.

    ``does`` is the peer's own name for the work, ``way`` how it was reached.
    """

    name: str
    does: str
    version: str
    way: str
    journal_mode: str | None = None
    synchronous: str | None = None
    sqlite: str | None = None

    def text(self) -> str:
        """Return the peer as the table shows it."""
        settings = ""
        if self.journal_mode is not None:
            settings = f", {self.journal_mode}, synchronous={self.synchronous}"
        if self.sqlite is not None:
            settings += f", SQLite {self.sqlite}"
        return f"{self.version} {self.does}, {self.way}{settings}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured path. Times are in ms, ratios are to the same percentile of the reference.

    The lowest and the highest ratio are those of the stretches of the run; likewise for speedups.
    """

    name: str
    runs: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    reference: str
    reference_p50_ms: float
    reference_p95_ms: float
    ratio_p50: float
    ratio_p95: float
    ratio_low: float
    ratio_high: float
    promise: Promise
    ops_per_s: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    size_bytes: int | None = None
    peer: Beside | None = None
    note: str | None = None

    @property
    def within_spec(self) -> bool:
        """Return whether the specification's absolute limit holds, if there is one."""
        return self.promise.spec_p95_ms is None or self.p95_ms < self.promise.spec_p95_ms

    @property
    def kept(self) -> bool | None:
        """Return whether the promise holds in this run; None without a promise."""
        promise = self.promise
        checks = [
            (promise.ratio, self.ratio_p50 <= (promise.ratio or 0)),
            (promise.p50_ms, self.p50_ms <= (promise.p50_ms or 0)),
            (promise.p95_ms, self.p95_ms < (promise.p95_ms or 0)),
            (promise.p99_ms, self.p99_ms < (promise.p99_ms or 0)),
            (promise.max_ms, self.max_ms <= (promise.max_ms or 0)),
            (promise.spec_p95_ms, self.within_spec),
            (promise.speedup, (self.speedup or 0) >= (promise.speedup or 0)),
            (promise.ops_per_s, (self.ops_per_s or 0) >= (promise.ops_per_s or 0)),
            (promise.size_bytes, (self.size_bytes or 0) <= (promise.size_bytes or 0)),
        ]
        asked = [held for limit, held in checks if limit is not None]
        return all(asked) if asked else None


def row(
    name: str,
    samples: Samples,
    beside: Samples,
    *,
    reference: str,
    promise: Promise = NOTHING,
    ops_per_s: float | None = None,
    speedups: Sequence[float] = (),
    size_bytes: int | None = None,
    peer: Beside | None = None,
    note: str | None = None,
) -> Row:
    """Return a row from the samples of a path and of its reference."""
    ratios = stretches(samples, beside)
    return Row(
        name=name,
        runs=len(samples.times_ms),
        p50_ms=samples.p50,
        p95_ms=samples.p95,
        p99_ms=samples.percentile(99),
        max_ms=samples.percentile(100),
        reference=reference,
        reference_p50_ms=beside.p50,
        reference_p95_ms=beside.p95,
        ratio_p50=samples.p50 / beside.p50,
        ratio_p95=samples.p95 / beside.p95,
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        promise=promise,
        ops_per_s=ops_per_s,
        speedup=statistics.median(speedups) if speedups else None,
        speedup_low=min(speedups, default=None),
        speedup_high=max(speedups, default=None),
        size_bytes=size_bytes,
        peer=peer,
        note=note,
    )


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one run, with its machine, time, duration and command.

    ``seed`` decided the order in each turn; runs from before the order was random have 0.
    """

    machine: Machine
    date: str
    revision: str
    command: str
    seconds: float
    seed: int = 0
    absent: dict[str, str]
    rows: list[Row]
