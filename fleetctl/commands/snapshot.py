"""``fleetctl snapshot``: record, list, show, verify and prune snapshots of runs."""

from argparse import Namespace

from ..args import CommandParser, Subparsers, command, group, limit_option
from ..client import Fleet, call
from ..client.models import (
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
from ..output import console, tables
from ..output.progress import bar
from ..output.tables import Column
from ..output.views.findings import show
from ..output.views.snapshot import joined, show_snapshot, step_told
from . import _snapshot_options
from ._prune import Pruning, options

EXAMPLES = """\
  fleetctl snapshot record --note "Before the refactoring"
  fleetctl snapshot record --run build-42 --ordinal 2 --step-status done \\
      --outcome 'shell:make test:PASS:1200' --next "Write the docs"
  echo '{"run_id": "build-42"}' | fleetctl snapshot record --json-in -"""
VERIFY_EXAMPLES = """\
  fleetctl snapshot verify
  fleetctl snapshot verify cp_20260105T120000000Z_42 --repair"""
PRUNE_EXAMPLES = """\
  fleetctl snapshot prune --dry-run
  fleetctl snapshot prune build-42 --yes"""
# As a snapshot's id begins; a run that is called so is reached by its snapshots' ids.
SNAPSHOT = "cp_"
MINE = "the run of FLEET_AGENT_ID if that is set, else the one under way in this directory"
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


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers, "snapshot", "Record, list, show, verify and prune snapshots of runs."
    )
    recording = command(actions, "record", _run_record, "Record where a run stands.", EXAMPLES)
    _run_options(recording)
    _snapshot_options.options(recording)

    listing = command(actions, "list", _run_list, "List snapshots, newest first.")
    listing.add_argument(
        "run_id", metavar="RUN", completes="run", nargs="?", help="of one run (default: of all)"
    )
    limit_option(listing, 10)

    shown = command(actions, "show", _run_show, "Show what a snapshot holds.")
    shown.add_argument(
        "which",
        metavar="SNAPSHOT|RUN",
        completes="snapshot",
        nargs="?",
        help=f"a snapshot, or a run for its newest (default: {MINE})",
    )
    shown.add_argument("--agent", completes="agent", help="the newest of this agent's run")
    _register_upkeep(actions)


def _run_options(parser: CommandParser) -> None:
    parser.add_argument("--run", dest="run_id", completes="run", help=f"the run (default: {MINE})")
    parser.add_argument(
        "--agent",
        completes="agent",
        help="whose run it is; its present one, unless --run names one",
    )


def _register_upkeep(actions: Subparsers) -> None:
    verifying = command(
        actions,
        "verify",
        _run_verify,
        "Check rows and files against their checksums; exit status 1 when something wrong is left.",
        VERIFY_EXAMPLES,
    )
    verifying.add_argument(
        "which",
        metavar="RUN|SNAPSHOT",
        completes="snapshot",
        nargs="?",
        help="only this one (default: every run)",
    )
    verifying.flag("--repair", help="heal one copy from the other")

    pruning = command(
        actions, "prune", _run_prune, "Delete snapshots past their retention.", PRUNE_EXAMPLES
    )
    pruning.add_argument(
        "run_id", metavar="RUN", completes="run", nargs="?", help="only its (default: of all)"
    )
    options(pruning)


def _run_record(args: Namespace) -> int:
    request = _snapshot_options.request(args)
    with Fleet() as client:
        snapshot = _record(client, request)
        folder = "" if args.json else _folder(client, snapshot)
    console.warn(*snapshot.warnings)
    return console.result(args, snapshot, *_recorded(snapshot, folder))


def _record(client: Fleet, request: SnapshotRecord | dict[str, object]) -> Snapshot:
    if isinstance(request, SnapshotRecord):
        return client.call(request)
    keyed = {"idempotency_key": new_key(), **request}
    found: Snapshot = client.call_raw(SnapshotRecord.method, keyed, again=True)
    return found


def _folder(client: Fleet, snapshot: Snapshot) -> str:
    """Return the directory of a run as the daemon sees it."""
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
        *(f"Joined by: {joined(each)}" for each in snapshot.source_details),
        *(f"File: {path}" for path in written or ["not written yet"]),
    ]


def _run_list(args: Namespace) -> int:
    page = call(SnapshotList(run_id=args.run_id, limit=args.limit))
    if args.json:
        console.print_json(page.snapshots)
    elif page.snapshots:
        _print_list(page, of_all=args.run_id is None)
    else:
        tables.nothing("No snapshots found.")
    return 0


def _print_list(page: SnapshotPage, *, of_all: bool) -> None:
    columns = [*COLUMNS, *([RUN] if of_all else [])]
    tables.table(columns, [_row(each)[: len(columns)] for each in page.snapshots])
    print(f"\nTotal: {console.plural(page.total, 'snapshot')}")
    if page.total > len(page.snapshots):
        print(f"Showing the newest {len(page.snapshots)}; --limit N shows more.")


def _row(each: SnapshotSummary) -> tuple[str, ...]:
    return (
        each.snapshot_id,
        each.created_at,
        each.source,
        each.status,
        step_told(each.step_ordinal, each.step_status),
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
    return SnapshotLatest(**_snapshot_options.run_of(args.which, args.agent))


def _run_verify(args: Namespace) -> int:
    noun = "snapshot_id" if (args.which or "").startswith(SNAPSHOT) else "run_id"
    request = SnapshotVerify(**{noun: args.which}, repair=args.repair)
    with Fleet() as client, bar(args, "Verifying") as progress:
        findings = client.call(request, progress=progress)
    return show(args, findings)


def _run_prune(args: Namespace) -> int:

    def request(dry_run: bool) -> SnapshotPrune:
        return SnapshotPrune(run_id=args.run_id, dry_run=dry_run)

    return Pruning("snapshots", request, _pruned_line).run(args)


def _pruned_line(each: PrunedSnapshot) -> str:
    size = console.size(each.size_bytes)
    return f"{each.id}  {each.run_id}  {console.ago(each.timestamp)}  {each.source}  {size}"
