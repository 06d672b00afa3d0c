"""The tables of ``docs/performance.md``, between marks; keeps the text around them."""

from collections.abc import Sequence
from pathlib import Path

from .marks import marks, put
from .report import cells, conditions, shown, spread
from .rows import Row, Run

NAME = "measured"
BEGIN, END = marks(NAME)
OURS = ("path", "runs", "p50 ms", "p95 ms", "beside", "ratio", "spread", "target", "", "also")
PEERS = (
    *("path", "beside", "ours ms", "theirs ms", "ours / theirs", "spread", "target", ""),
    "what they do",
)
NUMBERS = frozenset({"runs", "p50 ms", "p95 ms", "ratio", "ours ms", "theirs ms", "ours / theirs"})


def write(page: Path, run: Run) -> None:
    """Put a run between the marks of a page; raises ValueError when it has no marks."""
    put(page, NAME, text(run))


def text(run: Run) -> str:
    """Return a run as Markdown: the conditions, our table, and the comparison with the peers."""
    ours = [row for row in run.rows if row.peer is None]
    beside = [row for row in run.rows if row.peer is not None]
    parts = [
        f"`{run.command}`, {run.seconds:.0f} s, seed {run.seed}. {conditions(run)}",
        _table(OURS, [_ours(row) for row in ours]),
    ]
    if beside:
        parts += ["### Beside others", _table(PEERS, [_theirs(row) for row in beside])]
    parts += [f"Not measured: {name}, {why}." for name, why in run.absent.items()]
    return "\n\n".join(parts)


def _ours(row: Row) -> Sequence[str]:
    *first, _p95_ratio, promise, kept, also = cells(row)
    return (*first, promise, kept, also)


def _theirs(row: Row) -> Sequence[str]:
    assert row.peer is not None
    *_, promise, kept, _also = cells(row)
    return (
        row.name,
        row.peer.name,
        f"{row.p50_ms:.3f}",
        f"{row.reference_p50_ms:.3f}",
        shown(row.ratio_p50),
        spread(row),
        promise,
        kept,
        row.peer.text(),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["--:" if name in NUMBERS else ":--" for name in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))
