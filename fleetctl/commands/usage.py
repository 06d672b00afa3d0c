"""``fleetctl usage``: the tokens that agents used, their cost, and budgets of missions."""

import os
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fleetd.protocol.errors import InvalidState
from fleetd.protocol.patterns import OPEN_MISSION

from ..args import Namespace, Subparsers, UsageError, agent_option, command, since_option
from ..client import Fleet
from ..client.models import (
    MissionBudget,
    MissionGet,
    ModelUsage,
    UsageBudget,
    UsageGet,
    UsageGroup,
    UsageReport,
)
from ..context import select_mission, time_before
from ..output import console, tables
from ..output.tables import Column

if TYPE_CHECKING:
    from ..output.prices import PriceTable

EXAMPLES = """\
  fleetctl usage
  fleetctl usage --by day --since 7d
  fleetctl usage --by model --mission msn-1a2b3c4d --json
  fleetctl usage --mission msn-1a2b3c4d --budget 5usd
  fleetctl usage --mission msn-1a2b3c4d --budget none"""
BY = ("agent", "sortie", "mission", "model", "day")
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,2})?)\s*(usd|ktok|mtok|tok)", re.IGNORECASE)
_UNITS = {"tok": 1, "ktok": 1_000, "mtok": 1_000_000}
NONE = "none"
FIGURES = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
COLUMNS = (
    Column("INPUT", matters=4),
    Column("OUTPUT"),
    Column("CACHE READ", matters=3),
    Column("CACHE WRITE", matters=2),
    Column("REASONING", matters=1),
)
NOTHING = "No usage found."
NOT_KNOWN = "not known"
LOCALTIME = "/etc/localtime"


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "usage",
        run,
        "Show the tokens that agents took, and what they cost.",
        EXAMPLES,
        details="Counted from the transcripts of Claude Code, Codex, Gemini CLI and OpenCode; the"
        " tokens of other agent CLIs are not known. Subagents count for the agent of their session."
        " Money needs fleetd[cost], and is the list price of the model's API.",
    )
    parser.add_argument("--by", choices=BY, help="count by this (default: agent)")
    since_option(parser, "only requests")
    agent_option(parser, "only this agent")
    parser.add_argument(
        "--mission", metavar="ID", completes="mission", help="only this mission, with its budget"
    )
    parser.add_argument(
        "--timezone",
        metavar="ZONE",
        help="the time zone of days, such as Europe/Berlin (default: that of this shell)",
    )
    parser.add_argument(
        "--budget",
        metavar="AMOUNT",
        help="the most that the mission should take; above it, attention has a line. 5usd,"
        " 500ktok, 2Mtok, or none. Nothing is stopped",
    )


def run(args: Namespace) -> int:
    """Print the usage, or set a budget."""
    if args.budget is not None:
        return _set_budget(args)
    wanted = UsageGet(
        by=args.by or "agent",
        since_time=time_before(args.since),
        agent_id=args.agent,
        mission_id=args.mission,
        time_zone=args.timezone or local_zone(),
    )
    with Fleet() as client:
        report = client.call(wanted)
    prices = _prices(report)
    if args.json:
        console.print_json(_document(report, prices))
    else:
        _show(report, prices)
    return 0


def _set_budget(args: Namespace) -> int:
    for option in ("by", "since", "agent", "timezone"):
        if getattr(args, option) is not None:
            raise UsageError(f"--budget sets the budget of a mission. Leave --{option} out.")
    tokens, cents = amount_of(args.budget)
    with Fleet() as client:
        named = args.mission or _mission_here(client)
        budget = client.call(UsageBudget(mission_id=named, tokens=tokens, usd_cents=cents))
        mission = client.call(MissionGet(mission_id=budget.mission_id))
    amount = budget_text(budget)
    if amount and mission.status not in OPEN_MISSION:
        console.warn("This mission is over, so attention does not show its budget.")
    text = f"Budget of {budget.mission_id}: {amount or NONE}  {console.clean(budget.title)}"
    return console.result(args, budget, text)


def _mission_here(client: Fleet) -> str:
    """Return the mission of this directory; raises InvalidState for one of another."""
    found = select_mission(client, "work")
    if found.reason == "only":
        mission = found.mission
        raise InvalidState(
            f"No mission is in progress in this directory; {mission.id} is of"
            f" {mission.project_dir or 'no directory'}.",
            hint=f"To set its budget, add --mission {mission.id}",
        )
    return found.mission.id


def amount_of(text: str) -> tuple[int | None, int | None]:
    """Return a budget in tokens or in cents; raises UsageError."""
    if text.lower() == NONE:
        return None, None
    found = _BUDGET.fullmatch(text.strip())
    if found is not None:
        number, unit = Decimal(found[1]), found[2].lower()
        amount = int(number * (100 if unit == "usd" else _UNITS[unit]))
        if amount > 0:
            return (None, amount) if unit == "usd" else (amount, None)
    raise UsageError(f"--budget is {text!r}. Give an amount such as 5usd, 500ktok, 2Mtok, or none.")


def local_zone() -> str:
    """Return the time zone of this shell by its name, else by its current offset."""
    named = os.environ.get("TZ", "").lstrip(":")
    if not named:
        linked = os.path.realpath(LOCALTIME)
        named = linked.rpartition("/zoneinfo/")[2] if "/zoneinfo/" in linked else ""
    if named:
        # Imported here: it is only needed for a zone with such a name.
        import zoneinfo

        try:
            return zoneinfo.ZoneInfo(named).key
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    import time

    minutes = (time.localtime().tm_gmtoff or 0) // 60
    sign, minutes = ("-" if minutes < 0 else "+"), abs(minutes)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def _prices(report: UsageReport) -> "PriceTable | None":
    """Return the price table if there is anything to price."""
    if not report.groups and report.budget is None:
        return None
    # Imported here: it takes half a second.
    from ..output.prices import load_prices

    return load_prices()


def _document(report: UsageReport, prices: "PriceTable | None") -> dict[str, Any]:
    """Return the report with its cost, which is null if no price is known."""

    def cost(models: list[ModelUsage]) -> dict[str, Any] | None:
        if prices is None:
            return None
        found = prices.cost(models)
        return {
            "usd": str(round(found.usd, 6)) if found.priced or not found.unknown else None,
            "unknown_models": sorted(found.unknown),
        }

    everything: Any = report  # which is plain data
    groups: Any = report.groups
    table = None
    if prices is not None:
        table = {"name": "genai-prices", "version": prices.version, "date": prices.date}
    return {
        **everything,
        "groups": [{**group, "cost": cost(group.models)} for group in groups],
        "cost": cost([each for group in report.groups for each in group.models]),
        "prices": table,
    }


def _show(report: UsageReport, prices: "PriceTable | None") -> None:
    rows = [_row(report, group, prices) for group in report.groups]
    by_agent = report.by == "agent"
    unknown = report.not_known if by_agent else []
    rows += [
        (each.agent_id, NOT_KNOWN, *[NOT_KNOWN] * len(FIGURES), *[NOT_KNOWN] * bool(prices))
        for each in unknown
    ]
    if not rows:
        console.line(NOTHING)
    else:
        everything = [each for group in report.groups for each in group.models]
        if len(report.groups) > 1:
            rows.append(("total", "", *_figures(everything), *_cost(everything, prices)))
        tables.table(_columns(report, prices), rows)
    _footer(report, prices)


def _columns(report: UsageReport, prices: "PriceTable | None") -> list[str | Column]:
    first: tuple[Column, ...]
    if report.by in ("mission", "sortie"):
        first = (Column(report.by.upper()), Column("TITLE", matters=5, cut="end", least=12))
    else:
        first = (Column(report.by.upper()), Column("MODELS", matters=5, cut="end", least=12))
    cost = (Column("COST"),) if prices else ()
    return [*first, *COLUMNS, *cost]


def _row(report: UsageReport, group: UsageGroup, prices: "PriceTable | None") -> tuple[str, ...]:
    name = group.name or ("unknown" if report.by == "model" else f"no {report.by}")
    models = sorted({each.model or "unknown" for each in group.models})
    second = group.title or "" if report.by in ("mission", "sortie") else ", ".join(models)
    return (name, second, *_figures(group.models), *_cost(group.models, prices))


def _figures(models: list[ModelUsage]) -> tuple[str, ...]:
    return tuple(f"{sum(getattr(each, name) for each in models):,}" for name in FIGURES)


def _cost(models: list[ModelUsage], prices: "PriceTable | None") -> tuple[str, ...]:
    return (prices.cost(models).text,) if prices else ()


def _footer(report: UsageReport, prices: "PriceTable | None") -> None:
    """Print what the figures leave out, and where prices come from."""
    notes = [*_budget_notes(report, prices), *_not_known_notes(report), *_reading_notes(report)]
    if prices:
        notes.append(f"Prices: {prices.label}; list prices of APIs, not what a plan costs.")
        models = [each for group in report.groups for each in group.models]
        if unknown := prices.cost(models).unknown:
            named = ", ".join(console.clean(each) for each in sorted(unknown))
            notes.append(f"The table has no price for: {named}.")
    elif report.groups:
        notes.append("Cost: install fleetd[cost] to see it.")
    if notes:
        console.line()
        for each in notes:
            console.flow("", each)


def _budget_notes(report: UsageReport, prices: "PriceTable | None") -> list[str]:
    if report.budget is None or not (amount := budget_text(report.budget)):
        return []
    return [f"Budget: {amount}, taken {taken_text(report.budget, prices)}."]


def _not_known_notes(report: UsageReport) -> list[str]:
    number = len(report.not_known) + report.not_known_more
    if not number or (report.by == "agent" and not report.not_known_more):
        return []
    harnesses = ", ".join(sorted({each.harness for each in report.not_known}))
    return [f"Not known: what {console.plural(number, 'agent')} took ({harnesses})."]


def _reading_notes(report: UsageReport) -> list[str]:
    reading, notes = report.reading, []
    if reading.outstanding_bytes > 4_096:
        notes.append(f"Still to be read: {console.size(reading.outstanding_bytes)}.")
    if reading.missing:
        notes.append(f"Cannot be read: {console.plural(reading.missing, 'transcript')}.")
    skipped = [
        (reading.broken_lines, "broken line"),
        (reading.long_lines, "overlong line"),
        (reading.repeated, "repeated line"),
    ]
    not_counted = [console.plural(number, what) for number, what in skipped if number]
    if not_counted:
        notes.append(f"Not counted: {', '.join(not_counted)}.")
    return notes


def budget_text(budget: MissionBudget) -> str:
    """Return a budget in words, empty for none."""
    if budget.usd_cents is not None:
        return f"${budget.usd_cents / 100:,.2f}"
    return f"{budget.tokens:,} tokens" if budget.tokens is not None else ""


def taken_text(budget: MissionBudget, prices: "PriceTable | None") -> str:
    """Return a mission's usage, in the unit of its budget."""
    if budget.usd_cents is None:
        return f"{tokens_of(budget.models):,} tokens"
    return prices.cost(budget.models).text if prices else "unknown without fleetd[cost]"


def tokens_of(models: list[ModelUsage]) -> int:
    """Return all tokens of some models; the reasoning is part of the output."""
    return sum(getattr(each, name) for each in models for name in FIGURES[:-1])


def over_budget(budget: MissionBudget, prices: "PriceTable | None") -> bool:
    """Return whether a mission is known to have exceeded its budget."""
    if budget.usd_cents is None:
        return budget.tokens is not None and tokens_of(budget.models) > budget.tokens
    return prices is not None and prices.cost(budget.models).usd * 100 > budget.usd_cents
