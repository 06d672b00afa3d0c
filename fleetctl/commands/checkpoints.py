"""``fleetctl checkpoints``: list, show, compare, prune, delete, verify and pull checkpoints."""

from argparse import Namespace

from fleetd.protocol.errors import InvalidState

from ..args import (
    HERE,
    Subparsers,
    command,
    group,
    limit_option,
    marked,
    mission_option,
    whole,
)
from ..client import Fleet, call
from ..client.models import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointList,
    CheckpointPage,
    CheckpointPrune,
    CheckpointPull,
    CheckpointSummary,
    CheckpointVerify,
    PrunedCheckpoint,
    PulledCheckpoints,
)
from ..context import mission_id
from ..output import console, tables
from ..output.progress import bar
from ..output.tables import Column
from ..output.views.checkpoint import show_checkpoint
from ..output.views.findings import show
from . import _checkpoint_diff
from ._prune import Pruning, options

LIST_COLUMNS = "{:<15} {:<25} {:<10} {:<8} {}"
COLUMNS = (
    Column("ID"),
    Column("TAKEN", matters=5, times="ago"),
    Column("TRIGGER", matters=4, styles={"error": "red", "progress": "green"}),
    Column("PROGRESS", matters=3),
    Column("SORTIES", matters=1),
    Column("DETAILS", matters=2, cut="end", least=14),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers,
        "checkpoints",
        "List, show, compare, prune, delete, verify and pull checkpoints.",
    )
    listing = command(actions, "list", _run_list, "List a mission's checkpoints, newest first.")
    mission_option(listing)
    limit_option(listing, 10)

    shown = command(actions, "show", _run_show, "Show what a checkpoint holds.")
    shown.add_argument("checkpoint_id", completes="checkpoint")
    _checkpoint_diff.options(
        command(
            actions,
            "diff",
            _checkpoint_diff.run,
            _checkpoint_diff.SUMMARY,
            _checkpoint_diff.EXAMPLES,
        )
    )
    _register_prune(actions)
    deleting = command(actions, "delete", _run_delete, "Delete a checkpoint, row and file.")
    deleting.add_argument("checkpoint_id", completes="checkpoint")

    verifying = command(
        actions,
        "verify",
        _run_verify,
        "Check rows and files against their digests; exit status 1 when something wrong is left.",
        "  fleetctl checkpoints verify --all\n"
        "  fleetctl checkpoints verify --mission msn-1a2b3c4d --repair",
    )
    which = verifying.add_mutually_exclusive_group()
    marked(
        which.add_argument("checkpoint_id", metavar="ID", nargs="?", help="one checkpoint only"),
        "checkpoint",
    )
    marked(
        which.add_argument("--mission", metavar="ID", help=f"the mission (default: {HERE})"),
        "mission",
    )
    which.add_argument("--all", action="store_true", help="every mission")
    verifying.flag("--repair", help="heal one copy from the other")

    pulling = command(
        actions,
        "pull",
        _run_pull,
        "Write the files of a mission's checkpoints on this machine, also those that others keep.",
        "  fleetctl checkpoints pull --mission msn-1a2b3c4d",
    )
    mission_option(pulling)


def _register_prune(actions: Subparsers) -> None:
    pruning = command(
        actions,
        "prune",
        _run_prune,
        "Delete checkpoints past their retention.",
        "  fleetctl checkpoints prune --older-than 30 --dry-run\n"
        "  fleetctl checkpoints prune --mission msn-1a2b3c4d --keep 5 --yes",
    )
    mission_option(pruning, "all missions")
    pruning.add_argument(
        "--older-than",
        type=whole(0, 36_500),
        metavar="DAYS",
        help="delete those older than this many days (default: the daemon's setting, 7)",
    )
    pruning.add_argument(
        "--keep",
        type=whole(1, 100_000),
        metavar="N",
        help="keep at least the newest N of each mission (default: the daemon's setting, 3)",
    )
    options(pruning)


def _run_list(args: Namespace) -> int:
    with Fleet() as client:
        mission = mission_id(client, args.mission)
        page = client.call(CheckpointList(mission_id=mission, limit=args.limit))
    if args.json:
        console.print_json(page.checkpoints)
    elif page.checkpoints:
        _print_list(page)
    else:
        tables.nothing("No checkpoints found.")
    return 0


def _print_list(page: CheckpointPage) -> None:
    if console.humane():
        tables.table(COLUMNS, map(_row, page.checkpoints))
    else:
        print(LIST_COLUMNS.format("ID", "TIMESTAMP", "TRIGGER", "PROGRESS", "SORTIES"))
        print("-" * 70)
        console.lines(_list_line(summary) for summary in page.checkpoints)
    print(f"\nTotal: {page.total} checkpoints")
    if page.total > len(page.checkpoints):
        print(f"Showing the newest {len(page.checkpoints)}; --limit N shows more.")


def _row(summary: CheckpointSummary) -> tuple[str, ...]:
    """Return the cells of a checkpoint on a terminal, where there is room to say what it is for."""
    return (
        summary.id,
        summary.timestamp,
        f"{summary.trigger} (undo)" if summary.undo else summary.trigger,
        console.bar(summary.progress_percent),
        str(summary.sortie_count),
        summary.trigger_details or "",
    )


def _list_line(summary: CheckpointSummary) -> str:
    progress = f"{summary.progress_percent}%"
    columns = LIST_COLUMNS.format(
        summary.id, summary.timestamp, summary.trigger, progress, summary.sortie_count
    )
    return f"{columns}  (undo)" if summary.undo else columns


def _run_show(args: Namespace) -> int:
    checkpoint = call(CheckpointGet(checkpoint_id=args.checkpoint_id))
    console.warn(*checkpoint.warnings)
    return console.show(args, checkpoint, show_checkpoint)


def _run_prune(args: Namespace) -> int:

    def request(dry_run: bool) -> CheckpointPrune:
        return CheckpointPrune(
            older_than_days=args.older_than,
            keep_per_mission=args.keep,
            mission_id=args.mission,
            dry_run=dry_run,
        )

    return Pruning("checkpoints", request, _pruned_line).run(args)


def _pruned_line(each: PrunedCheckpoint) -> str:
    size = console.size(each.size_bytes)
    return f"{each.id}  {each.mission_id}  {console.ago(each.timestamp)}  {each.trigger}  {size}"


def _run_delete(args: Namespace) -> int:
    deleted = call(CheckpointDelete(checkpoint_id=args.checkpoint_id))
    return console.result(args, deleted, f"Deleted checkpoint: {args.checkpoint_id}")


def _run_verify(args: Namespace) -> int:
    with Fleet() as client:
        mission = None
        if args.checkpoint_id is None and not args.all:
            mission = _mission_to_verify(client, args.mission)
        request = CheckpointVerify(
            mission_id=mission, checkpoint_id=args.checkpoint_id, repair=args.repair
        )
        with bar(args, "Verifying") as progress:
            findings = client.call(request, progress=progress)
    return show(args, findings)


def _run_pull(args: Namespace) -> int:
    with Fleet() as client:
        request = CheckpointPull(mission_id=mission_id(client, args.mission))
        with bar(args, "Pulling") as progress:
            pulled = client.call(request, progress=progress)
    console.warn(*pulled.warnings)
    console.result(args, pulled, _pulled(pulled))
    return 1 if pulled.warnings else 0


def _pulled(pulled: PulledCheckpoints) -> str:
    there = console.plural(pulled.written + pulled.unchanged, "checkpoint")
    written = f"{pulled.written} written ({console.size(pulled.bytes)})"
    return (
        f"Pulled {there} of {pulled.mission_id} to {pulled.directory}:"
        f" {written}, {pulled.unchanged} unchanged, {pulled.removed} removed."
    )


def _mission_to_verify(client: Fleet, given: str | None) -> str:
    try:
        return mission_id(client, given)
    except InvalidState as none:
        raise InvalidState(
            "No active mission found. Use --mission <id>, or --all for every mission.",
            hint="fleetctl mission list shows the missions.",
        ) from none
