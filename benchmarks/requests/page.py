"""The additions of fleetd to requests, as tables and in a sentence; must not measure anything."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from math import floor, log10
from pathlib import Path

import msgspec

from tests.agents.added import Request
from tests.agents.cost import Cost

from ..marks import put

NAME, WIDTH = "requests", 120
NAMES = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "OpenCode",
    "copilot": "Copilot CLI",
}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one run; ``absent`` has the CLIs that were not measured, and why."""

    costs: list[Cost]
    absent: dict[str, str]
    date: str
    revision: str
    seconds: float


def write(directory: Path, measured: Measured) -> None:
    """Put the tables into ``docs/performance.md``, and the sentence into ``README.md``."""
    put(directory / "docs" / "performance.md", NAME, text(measured))
    put(directory / "README.md", NAME, sentence(measured))


def text(measured: Measured) -> str:
    """Return the tables."""
    intro = (
        f"`python -m benchmarks.requests`, {measured.seconds:.0f} s. {measured.date}, revision"
        f" {measured.revision}."
    )
    parts = [intro, _kinds(measured.costs), "### Request by request", _sessions(measured.costs)]
    parts += [f"Not measured: {_name(cli)}, {why}." for cli, why in measured.absent.items()]
    return "\n\n".join(parts)


def sentence(measured: Measured) -> str:
    """Return the sentence in README, with rounded numbers."""
    costs = measured.costs
    ordinary = max((more for cost in costs for more in _ordinary(cost)), default=0)
    hooks = f"up to {_rounded(ordinary)} characters" if ordinary else "nothing"
    lines = _about(
        chars
        for cost in costs
        for kind in ("mail line", "conflict line")
        for chars in _chars(cost.among_others, kind)
    )
    briefings = _about(chars for cost in costs for chars in _chars(cost.alone, "briefing"))
    tools = _about(cost.tools for cost in costs)
    summary = (
        f"Hooks add {hooks} to an ordinary request to the model. A line about mail or a conflict"
        f" adds {lines} characters, a briefing in a short session {briefings}, and the optional"
        f" tools {tools}."
    )
    return textwrap.fill(summary, WIDTH, break_long_words=False, break_on_hyphens=False)


def _kinds(costs: Sequence[Cost]) -> str:
    head = [
        "agent CLI",
        "a request without fleetd",
        "added to an ordinary request",
        "by a conflict line",
        "by a mail line",
        "by a briefing",
        "by the tools",
    ]
    rows = [
        [
            f"{_name(cost.cli)} {cost.version}",
            _range(each.chars for each in cost.alone if each.kind == "turn"),
            _range(_ordinary(cost)),
            _range(_chars(cost.among_others, "conflict line")),
            _range(_chars(cost.among_others, "mail line")),
            _range(_chars(cost.alone, "briefing")),
            f"{cost.tools:,}",
        ]
        for cost in costs
    ]
    return _table(head, rows)


def _sessions(costs: Sequence[Cost]) -> str:
    head = ["agent CLI", "all requests", "of that fleetd", "share", "added to each, in order"]
    rows = []
    for cost in costs:
        added = sum(each.more for each in cost.among_others)
        whole = added + sum(each.chars for each in cost.among_others)
        each_more = ", ".join(
            f"({each.more:,})" if each.kind == "compaction" else f"{each.more:,}"
            for each in cost.among_others
        )
        share = f"{100 * added / whole:.1f} %"
        rows.append([_name(cost.cli), f"{whole:,}", f"{added:,}", share, each_more])
    return _table(head, rows)


def _ordinary(cost: Cost) -> list[int]:
    """Return the additions to each request that precede any notice to the agent."""
    kinds = [each.kind for each in cost.alone]
    return [each.more for each in cost.alone[: kinds.index("compaction")]]


def _chars(requests: Sequence[Request], kind: str) -> list[int]:
    """Return the characters of one kind in each turn's request that has it."""
    return [each.added[kind] for each in requests if each.kind == "turn" and kind in each.added]


def _range(numbers: Iterable[int], shown: Callable[[int], str] = "{:,}".format) -> str:
    found = sorted(numbers)
    if not found:
        return ""
    least, most = shown(found[0]), shown(found[-1])
    return least if least == most else f"{least} to {most}"


def _about(numbers: Iterable[int]) -> str:
    return _range(numbers, _rounded)


def _rounded(number: int) -> str:
    """Return a number rounded to its first two digits."""
    return f"{round(number, 1 - floor(log10(number))):,}" if number else "0"


def _name(cli: str) -> str:
    return NAMES.get(cli, cli)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = [":--", *(":--" if name.endswith("in order") else "--:" for name in head[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))
