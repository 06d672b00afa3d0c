"""``fleetctl stats``: what agents did after their context windows were compacted."""

from collections.abc import Callable

from ..args import Namespace, Subparsers, command, group, limit_option, since_option
from ..client import call
from ..client.models import CompactionEffect, RecoveryGroup, RecoveryStats, StatsRecovery
from ..context import time_before
from ..output import console, tables
from ..output.tables import Column

EXAMPLES = """\
  fleetctl stats recovery
  fleetctl stats recovery --since 7d
  fleetctl stats recovery --each --limit 20"""
FIGURES = (
    Column("AFTER A COMPACTION", cut="end", least=18),
    Column("WITH BRIEFING"),
    Column("WITHOUT"),
)
EACH = (
    Column("AT", times="ago"),
    Column("AGENT", cut="middle", least=10),
    Column("BRIEFING"),
    Column("CALLS", matters=1),
    Column("UNTIL EDIT"),
    Column("COMMANDS"),
    Column("FILES"),
    Column("SUBAGENTS"),
)
NONE = "No compactions found."
TOO_FEW = "too few"


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "stats", "Show what agents did after compactions.")
    recovery = command(
        actions,
        "recovery",
        _run_recovery,
        "Compare what agents did after compactions, with a briefing and without.",
        EXAMPLES,
        details="Counted from the log, until the next compaction and for an hour at most. Missions"
        " with --briefing off are the group without.",
    )
    since_option(recovery, "only compactions")
    recovery.flag("--each", help="list each compaction")
    limit_option(recovery, 100)


def _run_recovery(args: Namespace) -> int:
    stats = call(StatsRecovery(since_time=time_before(args.since), limit=args.limit))
    return console.show(args, stats, _show_each if args.each else _show_figures)


def _show_figures(stats: RecoveryStats) -> None:
    groups = (stats.with_briefing, stats.without_briefing)
    if not stats.compactions:
        console.line(NONE)
        return
    figures: list[tuple[str, Callable[[RecoveryGroup], str]]] = [
        ("Tool calls until the first edit (median)", _until_edit),
        ("With an edit", lambda group: f"{group.edited * 100 / group.compactions:.0f}%"),
        ("Commands run again (mean)", lambda group: _number(group.commands_again)),
        ("Files read again (mean)", lambda group: _number(group.files_again)),
        ("Subagents started twice (mean)", lambda group: _number(group.subagents_again)),
    ]
    rows = [("Compactions", *(str(group.compactions) for group in groups))]
    for what, figure in figures:
        cells = (
            figure(group) if group.compactions >= stats.fewest else TOO_FEW for group in groups
        )
        rows.append((what, *cells))
    tables.table(FIGURES, rows)
    if stats.not_over:
        began = console.plural(stats.not_over, "compaction")
        console.line(f"Not counted: {began} of the last hour.")
    if stats.unknown:
        unknown = console.plural(stats.unknown, "compaction")
        console.line(f"In neither group: {unknown} of which no briefing is recorded.")


def _until_edit(group: RecoveryGroup) -> str:
    return "no edit" if group.calls_until_edit is None else _number(group.calls_until_edit)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _show_each(stats: RecoveryStats) -> None:
    if not stats.compactions:
        console.line(NONE)
        return
    tables.table(EACH, [_row(each) for each in stats.compactions])
    total = len(stats.compactions) + stats.more
    tables.footer(total, len(stats.compactions), console.plural(total, "compaction"))


def _row(each: CompactionEffect) -> tuple[str, ...]:
    return (
        each.at,
        each.agent_id,
        each.briefing or "",
        str(each.calls),
        "" if each.calls_until_edit is None else str(each.calls_until_edit),
        str(each.commands_again),
        str(each.files_again),
        str(each.subagents_again),
    )
