"""Changes of settings: choose agent CLIs, show, ask once, write, report."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fleetd.protocol.errors import FleetError, NotFound

from ..args import CommandParser, Namespace, Run, Subparsers, UsageError, command, yes_option
from ..context import project_dir
from ..output import console
from ..prompts import Cancelled, confirm
from . import config_file
from .hook_plan import PlannedChange
from .registry import HARNESSES, Harness


def add_changing_command(
    actions: Subparsers, name: str, run: Run, summary: str, examples: str
) -> CommandParser:
    """Add a command that changes settings."""
    parser = add_settings_command(actions, name, run, summary, examples)
    parser.add_argument("--all", action="store_true", help="all agent CLIs on this machine")
    parser.add_argument("--diff", action="store_true", help="also show every line that changes")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show every line that would change, and write nothing",
    )
    yes_option(parser)
    return parser


def add_settings_command(
    actions: Subparsers, name: str, run: Run, summary: str, examples: str
) -> CommandParser:
    """Add a command that looks at settings."""
    parser = command(actions, name, run, summary, examples)
    parser.add_argument(
        "harness", metavar="HARNESS", nargs="*", help="one of " + ", ".join(HARNESSES)
    )
    parser.add_argument(
        "--project",
        action="store_true",
        help="use the settings of the project here, not those of the user",
    )
    return parser


def chosen_harnesses(args: Namespace) -> list[Harness]:
    """Return the agent CLIs that were named, or all; raises UsageError."""
    if unknown := [name for name in args.harness if name not in HARNESSES]:
        raise UsageError(f"{unknown[0]!r} is none of: {', '.join(HARNESSES)}.")
    if args.harness and getattr(args, "all", False):
        raise UsageError("Name agent CLIs or give --all, not both.")
    if not args.harness and not getattr(args, "all", True):
        here = ", ".join(each.name for each in HARNESSES.values() if each.is_here())
        raise UsageError(f"Name an agent CLI, or give --all. On this machine: {here or 'none'}.")
    return [each for name, each in HARNESSES.items() if name in args.harness or not args.harness]


def chosen_here(args: Namespace, hint: str) -> list[Harness]:
    """Return the agent CLIs to install for; with --all, those on this machine.

    Raises UsageError, and NotFound with the hint when there is none.
    """
    found = [each for each in chosen_harnesses(args) if each.is_here() or not args.all]
    if not found:
        raise NotFound(
            f"None of these was found on this machine: {', '.join(HARNESSES)}.",
            hint=hint,
        )
    return found


def project(args: Namespace) -> Path | None:
    """Return the project whose settings are meant, None for the user's."""
    return Path(project_dir()) if args.project else None


_STYLES = {"+": "green", "-": "red"}


@dataclass
class ChangeOutcome:
    """The outcome for one harness: a change, or the reason why there is none."""

    harness: Harness
    change: PlannedChange | None = None
    error: FleetError | None = None
    copy: Path | None = None

    @property
    def pending(self) -> PlannedChange | None:
        """Return the change that is to be made."""
        return self.change if self.change and self.change.changes and not self.error else None


class Operation(NamedTuple):
    """An operation on every harness, and its texts.

    ``whole`` names what is installed or removed where no events are counted.
    """

    plan: Callable[[Harness], PlannedChange]
    make: Callable[[PlannedChange], Path | None]
    heading: str
    done: str
    nothing: str
    whole: str


def apply(args: Namespace, harnesses: Sequence[Harness], operation: Operation) -> int:
    """Change the files of these harnesses; a failure of one does not stop the others.

    The status is 1 when anything failed. Raises Cancelled and InvalidParams from the question.
    """
    outcomes = [_planned(each, operation) for each in harnesses]
    pending = [each.pending for each in outcomes if each.pending]
    if pending and not args.json:
        _show(args, pending, operation, sys.stdout)
    if pending and not args.dry_run:
        _ask(args, pending, operation)
        for outcome in outcomes:
            _make(outcome, operation)
    if args.json:
        console.print_json([_as_json(each, dry_run=args.dry_run) for each in outcomes])
    else:
        for outcome in outcomes:
            _print_outcome(outcome, operation, dry_run=args.dry_run)
        if args.dry_run:
            console.line("[DRY RUN] Nothing was written.")
        _print_todo([each.pending for each in outcomes if each.pending])
    return 1 if any(each.error for each in outcomes) else 0


def _planned(harness: Harness, operation: Operation) -> ChangeOutcome:
    try:
        return ChangeOutcome(harness, operation.plan(harness))
    except FleetError as error:
        return ChangeOutcome(harness, error=error)


def _ask(args: Namespace, pending: Sequence[PlannedChange], operation: Operation) -> None:
    if args.yes:
        return
    if args.json:
        _show(args, pending, operation, sys.stderr)
    remarks = [console.clean(each) for change in pending for each in change.remarks]
    if not confirm(config_file.question("Write this?", remarks)):
        raise Cancelled("Nothing was changed.")


def _make(outcome: ChangeOutcome, operation: Operation) -> None:
    if outcome.pending:
        try:
            outcome.copy = operation.make(outcome.pending)
        except FleetError as error:
            outcome.error = error


def _show(
    args: Namespace, changes: Sequence[PlannedChange], operation: Operation, stream: TextIO
) -> None:
    """Print a line per file, and on request every line that changes."""
    print(f"{operation.heading}:", file=stream)
    for change in changes:
        what = console.plural(len(change.events), "event") if change.events else operation.whole
        line = f"  {change.harness.name:<11}  {what:<9}  {change.file.path}"
        print(console.clean(line), file=stream)
    print(file=stream)
    if args.diff or args.dry_run:
        _show_diff(changes, stream)


def _show_diff(changes: Sequence[PlannedChange], stream: TextIO) -> None:
    for change in changes:
        for line in map(console.clean, change.diff()):
            style = _STYLES.get(line[:1])
            print(console.styled(line, style, stream) if style else line, file=stream)
        print(file=stream)


def _print_todo(changes: Sequence[PlannedChange]) -> None:
    """Print the steps that only the user can do."""
    todo = [(each.harness.name, step) for each in changes for step in each.todo]
    if todo:
        console.heading("You still have to do this")
    for name, step in todo:
        console.flow(f"  {name}: ", step, style="yellow")


def _print_outcome(outcome: ChangeOutcome, operation: Operation, *, dry_run: bool) -> None:
    name, change = outcome.harness.name, outcome.change
    if outcome.error:
        sys.stdout.flush()
        print(f"{name}: {console.clean(outcome.error.message)}", file=sys.stderr)
        if outcome.error.hint:
            print("Hint:", console.clean(outcome.error.hint), file=sys.stderr)
    elif change and not change.changes:
        console.line(f"{name}: {operation.nothing} ({change.file.path})")
    elif change:
        if not dry_run:
            as_it_was = f"; as it was: {outcome.copy}" if outcome.copy else ""
            console.line(f"{name}: {operation.done} {change.file.path}{as_it_was}")
        console.lines(f"  {note}" for note in (*change.remarks, *change.notes))


def _as_json(outcome: ChangeOutcome, *, dry_run: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"harness": outcome.harness.name}
    if change := outcome.change:
        document |= {
            "file": str(change.file.path),
            "target": str(change.file.target),
            "changed": bool(outcome.pending) and not dry_run,
            "events": change.events,
            "diff": "\n".join(change.diff()),
            "copy": str(outcome.copy) if outcome.copy else None,
            "notes": change.all_notes,
        }
    if error := outcome.error:
        document["error"] = {"message": error.message, **error.data()}
    return document
