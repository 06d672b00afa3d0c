"""``fleetctl snapshot``: record, list, show, verify and prune snapshots of runs."""

import json
import re
import sys
from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path
from typing import Any, get_args

from fleetd.protocol.patterns import (
    OutcomeKind,
    RunStatus,
    SnapshotSource,
    StepStatus,
    WindowPressure,
)

from ..args import (
    Namespace,
    Subparsers,
    UsageError,
    agent_option,
    command,
    group,
    limit_option,
    since_option,
    whole_number,
)
from ..client import Fleet, call
from ..client.models import (
    DeclaredCompliance,
    DeclaredDigest,
    DeclaredHints,
    DeclaredOutcome,
    DeclaredStep,
    PrunedSnapshot,
    Query,
    Snapshot,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotPage,
    SnapshotPrune,
    SnapshotRecord,
    SnapshotSummary,
    SnapshotVerify,
    SystemConfig,
)
from ..client.retry import new_key
from ..context import absolute, cwd, this_agent, time_before
from ..output import console, tables
from ..output.progress import call_with_bar
from ..output.tables import Column
from ..output.views.snapshot import show_snapshot, source_line, step_text
from ._prune import options, prune

EXAMPLES = """\
  fleetctl snapshot record --note "Before the refactoring"
  fleetctl snapshot record --run build-42 --ordinal 2 --step-status done \\
      --outcome 'shell:make test:PASS:1200' --next "Write the docs"
  echo '{"run_id": "build-42"}' | fleetctl snapshot record --json-in -"""
LIST_EXAMPLES = """\
  fleetctl snapshot list build-42
  fleetctl snapshot list --agent claude-1a2b3c4d --since 2h"""
VERIFY_EXAMPLES = """\
  fleetctl snapshot verify
  fleetctl snapshot verify cp_20260105T120000000Z_42 --repair"""
PRUNE_EXAMPLES = """\
  fleetctl snapshot prune --dry-run
  fleetctl snapshot prune build-42 --yes"""
# The prefix of snapshot ids. A run whose name has this prefix is reached by its snapshots' ids.
SNAPSHOT = "cp_"
MINE = "the run of FLEET_AGENT_ID if that is set, else the current run of this directory"
COLUMNS = (
    Column("ID"),
    Column("TIME", matters=8, times="ago"),
    Column("SOURCE", matters=5),
    Column("STATUS", matters=7, styles=console.STATES),
    Column("STEP", matters=4, cut="end", least=10),
    Column("PRESSURE", matters=3, styles={"high": "yellow", "critical": "red"}),
    Column("COMMANDS", matters=1),
    Column("SIZE", matters=2),
    Column("GZ", matters=0),
)
RUN = Column("RUN", matters=6, cut="middle", least=16)
# The daemon accepts no longer line.
MOST_BYTES = 1024 * 1024
# A name may contain colons: it ends where the first result is between two of them.
OUTCOME = re.compile(
    rf"({'|'.join(get_args(OutcomeKind))})"
    r":((?:(?!:(?:PASS|FAIL|WARN)(?::|$)).)+):(PASS|FAIL|WARN)"
    r"(?::([0-9]{0,16})(?::(.*))?)?",
    re.DOTALL,
)
OUTCOME_SHAPE = "KIND:NAME:RESULT[:MS[:SUMMARY]]"
# Options that --json-in replaces.
DESCRIBING = (
    *("source", "status", "plan", "step", "ordinal", "step_status", "next", "violation"),
    *("pressure", "protect", "outcome", "note"),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers, "snapshot", "Record, list, show, verify and prune snapshots of runs."
    )
    parser = command(actions, "record", _run_record, "Record the current state of a run.", EXAMPLES)
    parser.add_argument("--run", dest="run_id", completes="run", help=f"the run (default: {MINE})")
    parser.add_argument(
        "--agent",
        completes="agent",
        help="the agent of the run; without --run, its current run is recorded",
    )
    parser.add_argument(
        "--source",
        choices=get_args(SnapshotSource),
        help="the reason for the snapshot (default: manual)",
    )
    parser.add_argument("--status", choices=get_args(RunStatus), help="the state of the run")
    parser.add_argument("--plan", metavar="PATH", help="the file of the plan")
    parser.add_argument("--step", completes="nothing", help="the step of the plan")
    parser.add_argument(
        "--ordinal",
        type=whole_number(1, 1_000_000),
        metavar="N",
        help="the number of the step in the plan, from 1",
    )
    parser.add_argument("--step-status", choices=get_args(StepStatus), help="the state of the step")
    parser.add_argument(
        "--next", action="append", metavar="TEXT", help="a next step; may be repeated"
    )
    parser.add_argument(
        "--violation",
        action="append",
        metavar="TEXT",
        help="a rule that the plan breaks; may be repeated",
    )
    parser.add_argument(
        "--pressure", choices=get_args(WindowPressure), help="how full the context window is"
    )
    parser.add_argument(
        "--protect",
        action="append",
        metavar="PATH",
        help="a path or an id that a compaction must keep; may be repeated",
    )
    parser.add_argument(
        "--outcome",
        action="append",
        type=outcome,
        metavar=OUTCOME_SHAPE,
        help="the outcome of a command, such as 'shell:make test:FAIL:1200:2 failed'; may be "
        f"repeated. KIND is {_either(OutcomeKind)}. RESULT is PASS, FAIL or WARN",
    )
    parser.add_argument("--note", metavar="TEXT", help="a remark about the snapshot")
    parser.add_argument(
        "--json-in",
        metavar="FILE",
        help="read the parameters of snapshot.record from a JSON file, - for stdin. Only --run and "
        "--agent may be given as well",
    )
    listing = command(actions, "list", _run_list, "List snapshots, newest first.", LIST_EXAMPLES)
    listing.add_argument(
        "run_id",
        metavar="RUN",
        completes="run",
        nargs="?",
        help="only snapshots of this run (default: all runs)",
    )
    agent_option(listing, "only those of this agent's runs")
    since_option(listing, "only those recorded")
    limit_option(listing, 10)

    shown = command(actions, "show", _run_show, "Show the contents of a snapshot.")
    shown.add_argument(
        "which",
        metavar="SNAPSHOT|RUN",
        completes="snapshot",
        nargs="?",
        help=f"a snapshot, or a run for its newest snapshot (default: {MINE})",
    )
    shown.add_argument("--agent", completes="agent", help="the newest snapshot of this agent's run")
    verifying = command(
        actions,
        "verify",
        _run_verify,
        "Check the checksums of snapshots in the database and in files. Exit status 1 when a "
        "problem remains.",
        VERIFY_EXAMPLES,
    )
    verifying.add_argument(
        "which",
        metavar="RUN|SNAPSHOT",
        completes="snapshot",
        nargs="?",
        help="only this run or snapshot (default: all runs)",
    )
    verifying.flag("--repair", help="restore a damaged copy from the good one")

    pruning = command(
        actions,
        "prune",
        _run_prune,
        "Delete snapshots that are past their retention.",
        PRUNE_EXAMPLES,
    )
    pruning.add_argument(
        "run_id",
        metavar="RUN",
        completes="run",
        nargs="?",
        help="only snapshots of this run (default: all runs)",
    )
    options(pruning)


def _either(literal: Any) -> str:
    *names, last = get_args(literal)
    return f"{', '.join(names)} or {last}"


def outcome(text: str) -> DeclaredOutcome:
    """Return the outcome in an argument; raises ArgumentTypeError."""
    if (match := OUTCOME.fullmatch(text)) is None:
        raise ArgumentTypeError(
            f"expected {OUTCOME_SHAPE} with a KIND of {_either(OutcomeKind)}, a RESULT of PASS, "
            f"FAIL or WARN, and whole milliseconds; got {text!r}"
        )
    # Imported here: few command lines have an outcome.
    import msgspec

    from fleetd.protocol.requests import snapshot

    kind, name, result, ms, summary = match.groups()
    parts: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "result": result,
        "duration_ms": int(ms or 0),
        "summary": summary or "",
    }
    try:
        msgspec.convert(parts, snapshot.DeclaredOutcome)
    except ValueError as error:
        raise ArgumentTypeError(f"{error} of the outcome; got {text[:80]!r}") from error
    return DeclaredOutcome(**parts)


def _run_record(args: Namespace) -> int:
    request = _record_request(args)
    with Fleet() as client:
        if isinstance(request, SnapshotRecord):
            snapshot = client.call(request)
        else:
            keyed = {"idempotency_key": new_key(), **request}
            snapshot = client.call_raw(SnapshotRecord.method, keyed, again=True)
        folder = "" if args.json else _folder(client, snapshot)
    console.warn(*snapshot.warnings)
    return console.result(args, snapshot, *_recorded(snapshot, folder))


def _record_request(args: Namespace) -> SnapshotRecord | dict[str, Any]:
    """Return the request, or with ``--json-in`` its parameters unchanged.

    The daemon checks those, because its errors describe best what is wrong.
    """
    if args.json_in is None:
        step = _given(
            plan_path=absolute(args.plan) if args.plan else args.plan,
            step_id=args.step,
            step_ordinal=args.ordinal,
            step_status=args.step_status,
            todo_compliance=DeclaredCompliance(result="FAIL", violations=args.violation)
            if args.violation
            else None,
            resume_hints=DeclaredHints(next_actions=args.next) if args.next else None,
        )
        context = _given(window_pressure=args.pressure, protected_artifacts=args.protect)
        return SnapshotRecord(
            **_run_of(args.run_id, args.agent) | {"cwd": cwd()},
            source=args.source or "manual",
            status=args.status,
            step_state=DeclaredStep(**step) if step else None,
            context_digest=DeclaredDigest(**context) if context else None,
            command_outcomes=args.outcome or [],
            note=args.note,
        )
    for name in DESCRIBING:
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"argument {option}: not allowed with --json-in")
    return _completed(_read(args.json_in), args)


def _run_of(run_id: str | None, agent: str | None) -> dict[str, str]:
    """Return what names the run: the given values, else this shell's agent, else the directory."""
    if given := _given(run_id=run_id, agent_id=agent):
        return given
    return {"agent_id": known} if (known := this_agent()) else {"cwd": cwd()}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read(name: str) -> dict[str, Any]:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"argument --json-in: cannot read {name}: {reason}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"argument --json-in: {name} is longer than {MOST_BYTES} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"argument --json-in: not a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("argument --json-in: not a JSON object")
    return found


def _completed(parameters: dict[str, Any], args: Namespace) -> dict[str, Any]:
    """Return the parameters, and add what names the run if they do not."""
    for name, value in (("run_id", args.run_id), ("agent_id", args.agent)):
        if value is not None and name in parameters:
            raise UsageError(f"argument --json-in: {name} is in the file and among the options")
    named = {"run_id", "agent_id", "cwd"} & parameters.keys()
    # The directory is always sent along: nothing is recorded for an ignored one.
    parameters = {"cwd": cwd(), **parameters}
    if args.run_id is None and args.agent is None and named:
        return parameters
    return {**parameters, **_run_of(args.run_id, args.agent)}


def _folder(client: Fleet, snapshot: Snapshot) -> str:
    """Return the directory of a run, by the daemon's settings."""
    settings = {each.key: each.value for each in client.call(SystemConfig()).settings}
    return f"{settings.get('paths.checkpoints')}/{snapshot.run_id}"


def _recorded(snapshot: Snapshot, folder: str) -> list[str]:
    what = f"{snapshot.snapshot_id} of run {snapshot.run_id}"
    how = f"({snapshot.source}, {snapshot.status})"
    place = f"{snapshot.file_on}: {snapshot.run_id}" if snapshot.file_on else folder
    written = [f"{place}/{each.path}" for each in snapshot.artifacts if each.present]
    return [
        f"Joined snapshot {what} {how}: nothing that matters has changed since."
        if snapshot.source_details
        else f"Snapshot {what} recorded {how}.",
        *(f"Joined by: {source_line(each)}" for each in snapshot.source_details),
        *(f"File: {path}" for path in written or ["not written yet"]),
    ]


def _run_list(args: Namespace) -> int:
    wanted = SnapshotList(
        run_id=args.run_id,
        agent_id=args.agent,
        since_time=time_before(args.since),
        limit=args.limit,
    )
    page = call(wanted)
    show = partial(_print_list, page, of_all=args.run_id is None)
    return tables.show_list(args, page.snapshots, show, "No snapshots found.")


def _print_list(page: SnapshotPage, *, of_all: bool) -> None:
    columns = [*COLUMNS, *([RUN] if of_all else [])]
    tables.table(columns, [_row(each)[: len(columns)] for each in page.snapshots])
    tables.footer(page.total, len(page.snapshots), console.plural(page.total, "snapshot"))


def _row(each: SnapshotSummary) -> tuple[str, ...]:
    return (
        each.snapshot_id,
        each.created_at,
        each.source,
        each.status,
        step_text(each.step_ordinal, each.step_status),
        each.window_pressure,
        str(each.outcome_count),
        console.size(each.size_bytes),
        "gz" if each.compressed_at else "",
        each.run_id,
    )


def _run_show(args: Namespace) -> int:
    request = _named(args)
    with Fleet() as client:
        snapshot = client.call(request)
        folder = "" if args.json else _folder(client, snapshot)
    console.warn(*snapshot.warnings)
    return console.show(args, snapshot, lambda _: show_snapshot(snapshot, folder))


def _named(args: Namespace) -> Query[Snapshot]:
    if args.which is not None and args.agent is not None:
        args.parser.error("argument --agent: not allowed with a snapshot or a run")
    if (args.which or "").startswith(SNAPSHOT):
        return SnapshotGet(snapshot_id=args.which)
    return SnapshotLatest(**_run_of(args.which, args.agent))


def _run_verify(args: Namespace) -> int:
    noun = "snapshot_id" if (args.which or "").startswith(SNAPSHOT) else "run_id"
    request = SnapshotVerify(**{noun: args.which}, repair=args.repair)
    with Fleet() as client:
        return console.findings(args, call_with_bar(args, "Verifying", client, request))


def _run_prune(args: Namespace) -> int:
    def request(dry_run: bool) -> SnapshotPrune:
        return SnapshotPrune(run_id=args.run_id, dry_run=dry_run)

    return prune(args, "snapshots", request, _pruned_line)


def _pruned_line(each: PrunedSnapshot) -> str:
    size = console.size(each.size_bytes)
    return f"{each.id}  {each.run_id}  {console.ago(each.timestamp)}  {each.source}  {size}"
