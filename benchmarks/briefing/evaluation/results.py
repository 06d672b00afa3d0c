"""The scores of many texts, as a table and as the promises that they must keep."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from benchmarks.machine import revision
from benchmarks.marks import put
from benchmarks.performance import NAME

from .scoring import Score
from .session import BUDGETS, Cli, Kind
from .sources import NOTHING, OURS, SOURCES

ALL = "all"
# The promises for a briefing: the share of facts at these budgets, and nothing wrong.
PROMISED = {4_000: 0.85, 9_500: 0.95}
EMPTY = ""


class Result(msgspec.Struct, frozen=True):
    """The score of one source in one session at one budget."""

    session: str
    cli: str
    source: str
    budget: int
    score: Score


class Cell(msgspec.Struct, frozen=True):
    """The score of one source in several sessions at one budget."""

    facts: float
    wrong: int
    characters: float
    carrying: float
    """Share of all characters that carry a fact."""

    def __str__(self) -> str:
        """Return what a table shows."""
        return f"{self.facts:.0%} · {self.wrong} · {self.characters:,.0f} · {self.carrying:.0%}"


def cell(results: Iterable[Result]) -> Cell | None:
    """Return the combined results, None where there are none: weight facts, not sessions."""
    scores = [each.score for each in results]
    if not scores:
        return None
    characters = sum(each.characters for each in scores)
    return Cell(
        facts=sum(len(each.present) for each in scores) / sum(each.total for each in scores),
        wrong=sum(len(each.wrong) for each in scores),
        characters=characters / len(scores),
        carrying=sum(each.carrying for each in scores) / characters if characters else 0.0,
    )


def rows(results: list[Result]) -> Iterator[tuple[str, int, dict[str, Cell | None]]]:
    """Yield the results of each source, by CLI and budget; the total of all CLIs comes last."""
    present = {each.cli for each in results}
    for cli in (*(name for name in get_args(Cli) if name in present), ALL):
        for budget in BUDGETS:
            some = [r for r in results if r.budget == budget and cli in (r.cli, ALL)]
            yield (
                cli,
                budget,
                {source: cell(r for r in some if r.source == source) for source in SOURCES},
            )


def table(results: list[Result]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| CLI | budget | {' | '.join(SOURCES)} |",
        f"|---|---:|{'---:|' * len(SOURCES)}",
    ]
    for cli, budget, cells in rows(results):
        shown = " | ".join(EMPTY if each is None else str(each) for each in cells.values())
        lines.append(f"| {cli} | {budget:,} | {shown} |")
    return "\n".join(lines)


def kinds(results: list[Result]) -> str:
    """Return the kinds of facts that our briefing states, as Markdown."""
    lines = [
        f"| kind | facts | {' | '.join(f'{budget:,}' for budget in BUDGETS)} |",
        f"|---|---:|{'---:|' * len(BUDGETS)}",
    ]
    ours = [each for each in results if each.source == OURS]
    for kind in get_args(Kind):
        shares, total = [], 0
        for budget in BUDGETS:
            scores = [each.score for each in ours if each.budget == budget]
            present = sum(fact.kind == kind for s in scores for fact in s.present)
            here = present + sum(fact.kind == kind for s in scores for fact in s.missing)
            shares.append(f"{present / here:.0%}" if here else EMPTY)
            total = max(total, here)
        lines.append(f"| {kind} | {total} | {' | '.join(shares)} |")
    return "\n".join(lines)


def broken(results: list[Result]) -> list[str]:
    """Return the promises that our briefing breaks, one sentence each."""
    found = []
    for cli, budget, cells in rows(results):
        ours = cells[OURS]
        if ours is None:
            continue
        where = f"{cli} at {budget:,} characters"
        others = {name: c for name, c in cells.items() if c is not None and name != OURS}
        if ours.wrong:
            found.append(f"{where}: {ours.wrong} facts are stale or wrong")
        for name, other in others.items():
            if other.facts > ours.facts:
                found.append(f"{where}: {name} states {other.facts:.0%}, fleetd {ours.facts:.0%}")
            elif cli == ALL and name != NOTHING and other.facts == ours.facts:
                found.append(f"{where}: {name} states as much")
        promised = PROMISED.get(budget, 0.0)
        if cli == ALL and ours.facts < promised:
            found.append(f"{where}: {ours.facts:.1%} of the facts, promised are {promised:.0%}")
    return found


def details(results: list[Result]) -> Iterator[str]:
    """Yield the missing facts and the errors of our briefings, session by session."""
    for each in results:
        score = each.score
        if each.source != OURS or not (score.missing or score.wrong):
            continue
        yield f"{each.session} at {each.budget:,}: {len(score.present)} of {score.total}"
        yield from (f"  missing ({fact.kind}): {fact.what}" for fact in score.missing)
        yield from (f"  WRONG: {wrong.what}" for wrong in score.wrong)


def text(results: list[Result]) -> str:
    """Return both tables, each below an explanation of its numbers."""
    return "\n\n".join(
        (
            "Share of facts · stale or wrong · characters · share of characters that carry a fact:",
            table(results),
            "Share of the facts that fleetd states, by their kind and the budget:",
            kinds(results),
        )
    )


def write(page: Path, results: list[Result], which: str) -> None:
    """Put the tables between the marks of a page; raises ValueError when it has none."""
    number = len({each.session for each in results})
    head = f"`make eval-briefing`, {number} sessions ({which}), revision {revision()}."
    put(page, NAME, f"{head}\n\n{text(results)}")
