"""The rows as a table or as one JSON document; must not measure anything."""

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from .rows import Row, Run, in_bytes

HEAD = (
    *("path", "runs", "p50 ms", "p95 ms", "beside", "p50 x", "spread", "p95 x"),
    *("promise", "", "also"),
)
RIGHT = frozenset({1, 2, 3, 5, 6, 7})
# Faster than any disk: the measured files are in memory.
NO_DISK_MS = 0.005
SMALL = 0.1


def document(run: Run) -> dict[str, Any]:
    """Return all results as plain data."""
    rows = [
        {**msgspec.to_builtins(row), "kept": row.kept, "within_spec": row.within_spec}
        for row in run.rows
    ]
    return {**msgspec.to_builtins(run), "rows": rows}


def table(rows: Sequence[Row]) -> str:
    """Return the rows in aligned columns."""
    return aligned([HEAD, *(cells(row) for row in rows)], RIGHT)


def aligned(lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """Return lines of cells in columns; those in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def remarks(run: Run) -> list[str]:
    """Return remarks for a reader of the table."""
    lines = [
        "fsync: write+fdatasync of 4 KB at the end of a file on the same disk, in turn with each",
        f"run. Who comes first in a turn is left to chance, seed {run.seed}.",
        "Ratios compare equal percentiles; promises without a percentile hold for the median.",
        "spread: the lowest and the highest ratio of medians among the tenths of the run, which is",
        "how far the same ratio moved within minutes on this machine.",
        f"Measured in {run.seconds:.0f} s with a fleetd process of its own, synchronous=FULL.",
        conditions(run),
    ]
    lines += [f"Not measured: {name}, {why}." for name, why in run.absent.items()]
    if any(row.reference == "fsync" and row.reference_p50_ms < NO_DISK_MS for row in run.rows):
        lines.append(
            "An fsync takes no time here, so the directory lies in memory and the ratios "
            "mean nothing: name another with --directory."
        )
    broken = [row.name for row in run.rows if not row.within_spec]
    if broken:
        lines.append(f"Beyond the specification's limit: {'; '.join(broken)}")
    return lines


def conditions(run: Run) -> str:
    """Return the conditions of a run in one line."""
    of = run.machine
    return (
        f"{run.date}, revision {run.revision}: {of.cores} x {of.cpu}, {of.kernel}, "
        f"{of.file_system}, Python {of.python}, SQLite {of.sqlite}, load {of.load:g} before."
    )


def shown(ratio: float) -> str:
    """Return a ratio with two significant digits."""
    return f"{ratio:.2f}" if ratio >= SMALL else f"{ratio:.2g}"


def spread(row: Row) -> str:
    """Return how far the ratio of a row moved during the run."""
    return f"{shown(row.ratio_low)}-{shown(row.ratio_high)}"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as the table shows it, one text for each part of ``HEAD``."""
    kept = {True: "kept", False: "MISSED", None: ""}[row.kept]
    return (
        row.name,
        str(row.runs),
        f"{row.p50_ms:.3f}",
        f"{row.p95_ms:.3f}",
        row.reference,
        shown(row.ratio_p50),
        spread(row),
        shown(row.ratio_p95),
        row.promise.text(row.reference),
        kept,
        _also(row),
    )


def _also(row: Row) -> str:
    parts = []
    if row.promise.max_ms is not None:
        ratio = row.max_ms / row.reference_p50_ms
        parts.append(f"p99 {row.p99_ms:.1f} ms, longest {row.max_ms:.1f} ms or {ratio:.0f} x")
    if row.ops_per_s is not None:
        parts.append(f"{row.ops_per_s:,.0f}/s")
    if row.speedup is not None:
        moved = f"{row.speedup_low:.1f}-{row.speedup_high:.1f}"
        parts.append(f"{row.speedup:.1f} ({moved}) x one commit each")
    if row.size_bytes is not None:
        parts.append(in_bytes(row.size_bytes))
    if row.note is not None:
        parts.append(row.note)
    if row.peer is not None:
        parts.append(f"theirs {row.reference_p50_ms:.3f} ms: {row.peer.text()}")
    return ", ".join(parts)
