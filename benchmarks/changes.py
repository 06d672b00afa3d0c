"""The comparison of two sets of blocks: is a change more than noise; must not measure anything."""

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from .report import aligned
from .rows import Row, Run

# A smaller change is not reported, however certain it is.
WORTH = 0.05
# Blocks are separated by chance: one time in 10 of three each, in 126 of five each.
BLOCKS_AT_LEAST = 4
HEAD = ("path", "figure", "old", "new", "new / old", "spread", "")
SPEEDUP = "x one commit each"
RIGHT = frozenset({2, 3, 4, 5})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a row in the blocks of both revisions; the spread is that of pairs of blocks."""

    name: str
    figure: str
    old: float
    new: float
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: str


def changes(old: Sequence[Run], new: Sequence[Run]) -> list[Change]:
    """Compare the rows that both have measured, in the order of the new rows."""
    before, after = _collected(old), _collected(new)
    return [
        change(name, figure, before[name, figure], values)
        for (name, figure), values in after.items()
        if (name, figure) in before
    ]


def change(name: str, figure: str, old: Sequence[float], new: Sequence[float]) -> Change:
    """Compare a figure, with one value for each block; the blocks of a pair ran in succession."""
    pairs = [after / before for before, after in zip(old, new, strict=False)]
    ratio = statistics.median(new) / statistics.median(old)
    return Change(
        name=name,
        figure=figure,
        old=statistics.median(old),
        new=statistics.median(new),
        ratio=ratio,
        ratio_low=min(pairs),
        ratio_high=max(pairs),
        verdict=_verdict(figure, ratio, old, new),
    )


def _verdict(figure: str, ratio: float, old: Sequence[float], new: Sequence[float]) -> str:
    """Return better or worse when all blocks of one revision are beyond all of the other's."""
    apart = max(old) < min(new) or max(new) < min(old)
    enough = min(len(old), len(new)) >= BLOCKS_AT_LEAST
    if not apart or not enough or abs(ratio - 1) < WORTH:
        return ""
    more_is_better = figure == SPEEDUP
    return "better" if (ratio > 1) == more_is_better else "WORSE"


def _collected(runs: Sequence[Run]) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for row in run.rows:
            for figure, value in _figures(row):
                found.setdefault((row.name, figure), []).append(value)
    return found


def _figures(row: Row) -> Iterator[tuple[str, float]]:
    yield f"x {row.reference}", row.ratio_p50
    if row.speedup is not None:
        yield SPEEDUP, row.speedup
    if row.promise.max_ms is not None:
        yield "longest, ms", row.max_ms
    if row.size_bytes is not None:
        yield "KB", row.size_bytes / 1_000


def table(found: Sequence[Change]) -> str:
    """Return the changes in aligned columns."""
    return aligned([HEAD, *(_cells(each) for each in found)], RIGHT)


def _cells(each: Change) -> tuple[str, ...]:
    return (
        each.name,
        each.figure,
        f"{each.old:.3g}",
        f"{each.new:.3g}",
        f"{each.ratio:.2f}",
        f"{each.ratio_low:.2f}-{each.ratio_high:.2f}",
        each.verdict,
    )
