"""``fleetctl checkpoint``: take a checkpoint; list, show, compare, prune and repair them."""

from functools import partial

from fleetd.protocol.errors import InvalidState

from ..args import (
    HERE,
    Namespace,
    Subparsers,
    UsageError,
    agent_option,
    command,
    group,
    limit_option,
    mission_option,
    since_option,
    whole_number,
    with_completion,
)
from ..client import Fleet, call
from ..client.models import (
    CheckpointCompare,
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointList,
    CheckpointPage,
    CheckpointPrune,
    CheckpointPull,
    CheckpointSummary,
    CheckpointVerify,
    PrunedCheckpoint,
)
from ..context import mission_id, prefix_errors, time_before
from ..output import console, tables
from ..output.progress import call_with_bar
from ..output.tables import Column
from ..output.views.checkpoint import show_checkpoint
from ._prune import options, prune

EXAMPLES = """\
  fleetctl checkpoint --note "Before the API refactoring"
  fleetctl checkpoint --json
  fleetctl checkpoint list --limit 20"""
LIST_EXAMPLES = """\
  fleetctl checkpoint list --since 2h
  fleetctl checkpoint list --mission msn-1a2b3c4d --agent claude-1a2b3c4d"""
DIFF_EXAMPLES = """\
  fleetctl checkpoint diff                 # the newest checkpoint and now
  fleetctl checkpoint diff chk-1a2b3c4d    # this checkpoint and now
  fleetctl checkpoint diff chk-1a2b3c4d chk-5e6f7a8b
  fleetctl checkpoint diff --last          # the two newest checkpoints
  fleetctl checkpoint diff 14:05 15:30     # two moments of the mission here
  fleetctl checkpoint diff "2h ago"        # a moment and now"""
# A mission keeps at most this many checkpoints by default, including undo checkpoints.
NEWEST = 100
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
    """Add the command, and the commands below it."""
    parser = command(
        subparsers,
        "checkpoint",
        run,
        "Take a checkpoint of a mission's current state, or list, compare and repair checkpoints.",
        EXAMPLES,
    )
    mission_option(parser)
    parser.add_argument("--note", metavar="TEXT", help="the reason for the checkpoint")
    parser.flag("-q", "--quiet", help="print nothing, except warnings")
    _add_actions(parser.optional_commands("action"))


def register_plural(subparsers: Subparsers) -> None:
    """Add ``fleetctl checkpoints``, another spelling of the commands below ``checkpoint``."""
    summary = "List, show, compare, prune, delete, verify and pull checkpoints."
    _add_actions(group(subparsers, "checkpoints", summary))


def _add_actions(actions: Subparsers) -> None:
    listing = command(
        actions, "list", _run_list, "List a mission's checkpoints, newest first.", LIST_EXAMPLES
    )
    mission_option(listing)
    agent_option(listing, "only those that this agent took")
    since_option(listing, "only those taken")
    limit_option(listing, 10)

    shown = command(actions, "show", _run_show, "Show the contents of a checkpoint.")
    shown.add_argument("checkpoint_id", completes="checkpoint")
    diff = command(
        actions,
        "diff",
        _run_diff,
        "Show the differences between two checkpoints or times, or between one and now.",
        DIFF_EXAMPLES,
    )
    for name, meaning in (
        ("before", "the older checkpoint or time (default: the newest checkpoint)"),
        ("after", "the newer checkpoint or time (default: the mission's current state)"),
    ):
        diff.add_argument(
            name,
            type=_checkpoint_or_moment,
            metavar=name.upper(),
            completes="checkpoint",
            nargs="?",
            help=meaning,
        )
    diff.flag("--last", help="compare the two newest checkpoints")
    mission_option(diff)
    pruning = command(
        actions,
        "prune",
        _run_prune,
        "Delete checkpoints that are past their retention.",
        "  fleetctl checkpoint prune --older-than 30 --dry-run\n"
        "  fleetctl checkpoint prune --mission msn-1a2b3c4d --keep 5 --yes",
    )
    mission_option(pruning, "all missions")
    pruning.add_argument(
        "--older-than",
        type=whole_number(0, 36_500),
        metavar="DAYS",
        help="delete checkpoints older than this (default: the setting retention.days, 7)",
    )
    pruning.add_argument(
        "--keep",
        type=whole_number(1, 100_000),
        metavar="N",
        help="keep at least the newest N of each mission (default: the setting retention.keep, 3)",
    )
    options(pruning)
    deleting = command(
        actions, "delete", _run_delete, "Delete a checkpoint from the database and its file."
    )
    deleting.add_argument("checkpoint_id", completes="checkpoint")

    verifying = command(
        actions,
        "verify",
        _run_verify,
        "Check the checksums of checkpoints in the database and in files. Exit status 1 when a "
        "problem remains.",
        "  fleetctl checkpoint verify --all\n"
        "  fleetctl checkpoint verify --mission msn-1a2b3c4d --repair",
    )
    which = verifying.add_mutually_exclusive_group()
    with_completion(
        which.add_argument("checkpoint_id", metavar="ID", nargs="?", help="only this checkpoint"),
        "checkpoint",
    )
    with_completion(
        which.add_argument("--mission", metavar="ID", help=f"only this mission (default: {HERE})"),
        "mission",
    )
    which.add_argument("--all", action="store_true", help="all missions")
    verifying.flag("--repair", help="restore a damaged copy from the good one")

    pulling = command(
        actions,
        "pull",
        _run_pull,
        "Write the checkpoint files of a mission on this machine, also those of other machines.",
        "  fleetctl checkpoint pull --mission msn-1a2b3c4d",
    )
    mission_option(pulling)


def run(args: Namespace) -> int:
    """Take the checkpoint and print what it contains."""
    with Fleet() as client:
        mission = mission_id(client, args.mission)
        request = CheckpointCreate(mission_id=mission, trigger_details=args.note)
        with prefix_errors("Failed to create checkpoint"):
            checkpoint = client.call(request)
    console.warn(*checkpoint.warnings)
    if args.json:
        console.print_json(checkpoint)
    elif not args.quiet:
        console.lines(
            (
                f"Checkpoint created: {checkpoint.id}",
                f"Mission: {checkpoint.mission_id}",
                f"Progress: {checkpoint.progress_percent}%",
                f"Sorties: {len(checkpoint.sorties)}",
                f"Locks: {len(checkpoint.active_locks)} active",
                f"Messages: {len(checkpoint.pending_messages)} pending",
            )
        )
    return 0


def _run_list(args: Namespace) -> int:
    with Fleet() as client:
        mission = mission_id(client, args.mission)
        wanted = CheckpointList(
            mission_id=mission,
            agent_id=args.agent,
            since_time=time_before(args.since),
            limit=args.limit,
        )
        page = client.call(wanted)
    show = partial(_print_list, page)
    return tables.show_list(args, page.checkpoints, show, "No checkpoints found.")


def _print_list(page: CheckpointPage) -> None:
    if console.human_readable():
        tables.table(COLUMNS, map(_row, page.checkpoints))
    else:
        print(LIST_COLUMNS.format("ID", "TIMESTAMP", "TRIGGER", "PROGRESS", "SORTIES"))
        print("-" * 70)
        console.lines(_list_line(summary) for summary in page.checkpoints)
    tables.footer(page.total, len(page.checkpoints), console.plural(page.total, "checkpoint"))


def _row(summary: CheckpointSummary) -> tuple[str, ...]:
    """Return a checkpoint's cells for a terminal, where there is room for its purpose."""
    return (
        summary.id,
        summary.timestamp,
        f"{summary.trigger} (undo)" if summary.undo else summary.trigger,
        console.percent_bar(summary.progress_percent),
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


def _checkpoint_or_moment(text: str) -> str:
    # Imported here: no other command of the group needs it.
    from ..moments import checkpoint_or_moment

    return checkpoint_or_moment(text)


def _run_diff(args: Namespace) -> int:
    # Imported here: no other command of the group needs it.
    from ..output.views.checkpoint_diff import show_difference

    given = [each for each in (args.before, args.after) if each]
    timed = [each for each in given if each[0].isdecimal()]
    if given and (args.last or (args.mission and len(timed) < len(given))):
        if args.last:
            raise UsageError(
                "--last compares the newest two checkpoints. Leave out BEFORE and AFTER."
            )
        raise UsageError("argument --mission: not allowed with the id of a checkpoint")
    with Fleet() as client:
        before, after = (args.before, args.after) if args.before else _newest(client, args)
        found = client.call(
            CheckpointCompare(
                before=before if before not in timed else None,
                after=after if after not in timed else None,
                before_time=before if before in timed else None,
                after_time=after if after in timed else None,
                mission_id=mission_id(client, args.mission)
                if timed and len(timed) == len(given)
                else None,
            )
        )
    console.warn(*found.warnings)
    return console.show(args, found, show_difference)


def _newest(client: Fleet, args: Namespace) -> tuple[str, str | None]:
    """Return the ids of the newest two, or of the newest and None; raises InvalidState."""
    mission = mission_id(client, args.mission)
    page = client.call(CheckpointList(mission_id=mission, limit=NEWEST))
    found = [each.id for each in page.checkpoints if not each.undo]
    if not found:
        raise InvalidState(
            f"Mission {mission} has no checkpoint.",
            hint=f"fleetctl checkpoint --mission {mission} takes one.",
        )
    if not args.last:
        return found[0], None
    if len(found) == 1:
        raise InvalidState(
            f"Mission {mission} has only one checkpoint.",
            hint="fleetctl checkpoint diff compares it with now.",
        )
    return found[1], found[0]


def _run_prune(args: Namespace) -> int:
    def request(dry_run: bool) -> CheckpointPrune:
        return CheckpointPrune(
            older_than_days=args.older_than,
            keep_per_mission=args.keep,
            mission_id=args.mission,
            dry_run=dry_run,
        )

    return prune(args, "checkpoints", request, _pruned_line)


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
        findings = call_with_bar(args, "Verifying", client, request)
    return console.findings(args, findings)


def _mission_to_verify(client: Fleet, given: str | None) -> str:
    try:
        return mission_id(client, given)
    except InvalidState as none:
        raise InvalidState(
            "No active mission found. Use --mission <id>, or --all for every mission.",
            hint="fleetctl mission list shows the missions.",
        ) from none


def _run_pull(args: Namespace) -> int:
    """Let the daemon write the files, and print where; 1 when a checkpoint's row is damaged."""
    with Fleet() as client:
        request = CheckpointPull(mission_id=mission_id(client, args.mission))
        pulled = call_with_bar(args, "Pulling", client, request)
    console.warn(*pulled.warnings)
    there = console.plural(pulled.written + pulled.unchanged, "checkpoint")
    console.result(
        args,
        pulled,
        f"Pulled {there} of {pulled.mission_id} to {pulled.directory}:"
        f" {pulled.written} written ({console.size(pulled.bytes)}),"
        f" {pulled.unchanged} unchanged, {pulled.removed} removed.",
    )
    return 1 if pulled.warnings else 0
