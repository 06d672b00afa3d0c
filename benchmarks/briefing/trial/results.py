"""The combined results of a trial's runs, as a table or as one document."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...report import aligned
from .arms import ARMS, Arm
from .intervals import LEVEL, Interval, Share, newcombe, wilson
from .run import Outcome

ALL = "all"
_HEAD = ("task", "on", "off", "difference", "void", "seconds", "cost")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, and their conditions."""

    cli: str
    version: str
    model: str | None
    scripted: bool
    revision: str
    date: str
    seed: int
    interrupted: bool
    outcomes: list[Outcome]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task, or all together: the shares that passed, and their difference."""

    task: str
    on: Share
    off: Share
    on_interval: Interval
    off_interval: Interval
    difference: float | None
    difference_interval: Interval
    void: int


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return a row for each task, and one for all of them if there are several."""
    tasks = list(dict.fromkeys(each.task for each in outcomes))
    found = [_row(task, [each for each in outcomes if each.task == task]) for task in tasks]
    return [*found, _row(ALL, outcomes)] if len(found) > 1 else found


def _row(name: str, outcomes: Sequence[Outcome]) -> Row:
    on, off = (share(outcomes, arm) for arm in ARMS)
    known = on.value is not None and off.value is not None
    return Row(
        task=name,
        on=on,
        off=off,
        on_interval=wilson(on),
        off_interval=wilson(off),
        difference=(on.value or 0.0) - (off.value or 0.0) if known else None,
        difference_interval=newcombe(on, off),
        void=sum(each.verdict == "void" for each in outcomes),
    )


def share(outcomes: Iterable[Outcome], arm: Arm) -> Share:
    """Return how many runs of an arm passed, among those that could be judged."""
    judged = [each for each in outcomes if each.arm == arm and each.verdict != "void"]
    return Share(sum(each.verdict == "passed" for each in judged), len(judged))


def document(trial: Trial) -> dict[str, Any]:
    """Return everything as plain data."""
    found: dict[str, Any] = msgspec.to_builtins(trial)
    return {**found, "level": LEVEL, "rows": msgspec.to_builtins(rows(trial.outcomes))}


def text(trial: Trial) -> str:
    """Return the table, and remarks for its reader."""
    found = rows(trial.outcomes)
    lines = [_HEAD, *(_cells(row, trial.outcomes) for row in found)]
    return "\n".join([aligned(lines, {4, 5, 6}), "", *remarks(trial, found)])


def _cells(row: Row, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    of_row = [each for each in outcomes if row.task in (ALL, each.task)]
    costs = [each.cost_usd for each in of_row if each.cost_usd is not None]
    return (
        row.task,
        _shown(row.on, row.on_interval),
        _shown(row.off, row.off_interval),
        _points(row),
        str(row.void),
        f"{sum(each.seconds for each in of_row) / len(of_row):.0f}",
        f"${sum(costs):.2f}" if costs else "-",
    )


def _shown(share: Share, interval: Interval) -> str:
    if share.value is None:
        return "-"
    between = f"{interval.low:.0%} to {interval.high:.0%}"
    return f"{share.passed} of {share.runs}, {share.value:.0%} ({between})"


def _points(row: Row) -> str:
    if row.difference is None:
        return "-"
    low, high = row.difference_interval.low, row.difference_interval.high
    return f"{row.difference * 100:+.0f} ({low * 100:+.0f} to {high * 100:+.0f})"


def remarks(trial: Trial, found: Sequence[Row]) -> list[str]:
    """Return remarks on how to read the table."""
    model = "a scripted model" if trial.scripted else trial.model or "its default model"
    on = f"{trial.date}, {trial.cli}, {trial.version}, {model}, fleetd {trial.revision}"
    lines = [
        f"{on}, seed {trial.seed}.",
        "on, off: runs that passed with and without a briefing, with the 95 % interval (Wilson).",
        "difference: on less off, in percentage points, with the 95 % interval (Newcombe).",
        "void: runs that could not be judged and count nowhere. seconds: mean of all runs.",
    ]
    unclear = [
        row.task
        for row in found
        if row.difference_interval.low <= 0 <= row.difference_interval.high
    ]
    if unclear:
        lines.append(f"The interval has 0 in it, so no difference is shown: {', '.join(unclear)}.")
    if trial.scripted:
        lines.append(
            "A scripted model shows that the trial works. It says nothing about briefings."
        )
    if trial.interrupted:
        lines.append("The trial was interrupted: only the runs that ended are in the table.")
    for why, number in _reasons(trial.outcomes).items():
        lines.append(f"Void, {number} x: {why}.")
    return lines


def _reasons(outcomes: Iterable[Outcome]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in outcomes:
        if each.verdict == "void" and each.reason:
            why = f"{each.arm}, {each.reason}".rstrip(".")
            found[why] = found.get(why, 0) + 1
    return found
