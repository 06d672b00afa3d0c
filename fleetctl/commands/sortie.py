"""``fleetctl sortie``: the pieces of a mission, from the first idea to done."""

from collections.abc import Callable
from functools import partial
from typing import get_args

from fleetd.protocol.patterns import Priority, SortieStatus

from ..args import (
    SUPPRESS,
    CommandParser,
    Namespace,
    Run,
    Subparsers,
    UsageError,
    agent_option,
    command,
    group,
    mission_option,
    whole_number,
)
from ..client import Fleet, call
from ..client.models import (
    Mutation,
    Sortie,
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieGet,
    SortieList,
    SortieProgress,
    SortieRemove,
    SortieStart,
    SortieUnblock,
    SortieUpdate,
)
from ..context import mission_id, this_agent
from ..output import console, tables
from ..output.tables import Column

EXAMPLES = """\
  fleetctl sortie create "Write the form" --file src/form.ts --assign-to alice
  fleetctl sortie start srt-1a2b3c4d --agent specialist-1
  fleetctl sortie progress srt-1a2b3c4d --percent 40 --note "Fields are there"
  fleetctl sortie complete srt-1a2b3c4d"""
UPDATE_EXAMPLES = """\
  fleetctl sortie update srt-1a2b3c4d --after srt-5e6f7a8b
  fleetctl sortie update srt-1a2b3c4d --no-after --priority high"""
LIST_EXAMPLES = """\
  fleetctl sortie list --ready
  fleetctl sortie list --status blocked
  fleetctl sortie list --agent alice"""
COLUMNS = (
    Column("ID"),
    Column("STATUS", matters=3, styles=console.STATES),
    Column("PROGRESS", matters=1),
    Column("AGENT", matters=2, cut="middle", least=10),
    Column("TITLE", cut="end", least=18),
)
WAITS_FOR = Column("WAITS FOR", matters=1, cut="end", least=12)

# The commands that report on a sortie: name, summary, what completes its id, request, outcome.
REPORTS: tuple[tuple[str, str, str, Callable[..., Mutation[Sortie]], str], ...] = (
    ("block", "Mark a sortie as blocked.", "sortie.begun", SortieBlock, "blocked"),
    (
        "unblock",
        "Mark a blocked sortie as in progress again.",
        "sortie.blocked",
        SortieUnblock,
        "unblocked",
    ),
    ("complete", "Complete a sortie.", "sortie.open", SortieComplete, "completed"),
    ("fail", "End a sortie as failed.", "sortie.open", SortieFail, "failed"),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "sortie", "Add, assign and complete the sorties of a mission.")
    create = command(actions, "create", _run_create, "Add a sortie to a mission.", EXAMPLES)
    create.add_argument("title", metavar="TITLE", help="the title of the sortie")
    mission_option(create)
    create.add_argument("--description", metavar="TEXT", help="a longer description")
    create.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help="a file that the sortie changes; may be repeated",
    )
    create.add_argument(
        "--after",
        action="append",
        default=[],
        completes="sortie.open",
        metavar="ID",
        help="a sortie to complete first; may be repeated",
    )
    create.add_argument("--assign-to", completes="agent", help="the agent for the sortie")
    create.add_argument(
        "--priority",
        choices=get_args(Priority),
        default="medium",
        help="the priority (default: medium)",
    )
    update = _sortie_command(
        actions, "update", _run_update, "Change fields of a sortie.", "sortie.open", UPDATE_EXAMPLES
    )
    update.add_argument("--title", metavar="TEXT", help="the new title")
    update.add_argument("--description", metavar="TEXT", help="the new description")
    update.add_argument("--priority", choices=get_args(Priority), help="the new priority")
    update.add_argument(
        "--after",
        action="append",
        completes="sortie.open",
        metavar="ID",
        help="the sortie waits for this one, and no longer for others; may be repeated",
    )
    update.add_argument(
        "--no-after", action="store_true", help="the sortie waits for no other sortie"
    )
    assign = _sortie_command(
        actions, "assign", _run_assign, "Assign a sortie to an agent.", "sortie.waiting"
    )
    assign.add_argument("agent", metavar="AGENT", help="the agent's name")
    start = _sortie_command(actions, "start", _run_start, "Start a sortie.", "sortie.waiting")
    start.add_argument("--agent", completes="agent", help="the agent (default: the assigned one)")
    progress = _sortie_command(
        actions, "progress", _run_progress, "Report the progress of a sortie.", "sortie.begun"
    )
    progress.add_argument(
        "--percent",
        type=whole_number(0, 100),
        metavar="N",
        help="the completed part of the work in percent",
    )
    progress.add_argument("--note", metavar="TEXT", help="the state of the work in words")
    # The earlier spelling.
    progress.add_argument("--notes", dest="note", metavar="TEXT", help=SUPPRESS)
    progress.add_argument(
        "--file",
        action="append",
        metavar="PATH",
        help="a file that the sortie changes; may be repeated",
    )
    reports = {
        name: _sortie_command(actions, name, partial(_report, request, verb), summary, completes)
        for name, summary, completes, request, verb in REPORTS
    }
    reports["block"].add_argument("--reason", metavar="TEXT", required=True, help="the reason")
    reports["complete"].add_argument("--result", metavar="TEXT", help="the result in words")
    reports["fail"].add_argument("--reason", metavar="TEXT", required=True, help="the reason")
    for parser in (progress, *reports.values()):
        parser.add_argument(
            "--agent", completes="agent", help="the reporting agent (default: the assigned one)"
        )
    summary = "Remove a sortie that has not started."
    _sortie_command(actions, "remove", _run_remove, summary, "sortie.waiting")
    _sortie_command(actions, "show", _run_show, "Show a sortie.", "sortie")
    listing = command(actions, "list", _run_list, "List the sorties of a mission.", LIST_EXAMPLES)
    mission_option(listing)
    listing.add_argument(
        "--status", choices=get_args(SortieStatus), help="only sorties in this state"
    )
    listing.add_argument(
        "--ready",
        action="store_true",
        help="only open sorties that are not blocked and wait for no other sortie",
    )
    agent_option(listing, "only sorties of this agent")
    # The earlier spelling.
    listing.add_argument("--assigned-to", dest="agent", completes="agent", help=SUPPRESS)


def _sortie_command(
    actions: Subparsers, name: str, run: Run, summary: str, completes: str, examples: str = ""
) -> CommandParser:
    parser = command(actions, name, run, summary, examples)
    parser.add_argument("sortie_id", completes=completes)
    return parser


def _done(args: Namespace, sortie: Sortie, verb: str) -> int:
    suffix = f" by {sortie.assigned_to}" if sortie.assigned_to else ""
    return console.result(args, sortie, f"Sortie {verb}: {sortie.id}  {sortie.title}{suffix}")


def _report(request: Callable[..., Mutation[Sortie]], verb: str, args: Namespace) -> int:
    more = {name: getattr(args, name) for name in ("reason", "result") if name in args}
    return _done(args, call(request(sortie_id=args.sortie_id, agent_id=args.agent, **more)), verb)


def _run_create(args: Namespace) -> int:
    with Fleet() as client:
        sortie = client.call(
            SortieCreate(
                mission_id=mission_id(client, args.mission),
                title=args.title,
                description=args.description,
                files=args.file,
                assigned_to=args.assign_to,
                priority=args.priority,
                agent_id=this_agent(),
                depends_on=args.after,
            )
        )
    return console.result(args, sortie, f"Sortie created: {sortie.id}", f"Title: {sortie.title}")


def _run_update(args: Namespace) -> int:
    given = (args.title, args.description, args.priority, args.after)
    if given == (None, None, None, None) and not args.no_after:
        raise UsageError(
            "There is nothing to change. Use --title, --description, --priority, --after or"
            " --no-after."
        )
    if args.no_after and args.after:
        raise UsageError("--after and --no-after exclude each other.")
    sortie = call(
        SortieUpdate(
            sortie_id=args.sortie_id,
            title=args.title,
            description=args.description,
            priority=args.priority,
            depends_on=[] if args.no_after else args.after,
            agent_id=this_agent(),
        )
    )
    return console.result(args, sortie, f"Sortie updated: {_named(sortie)}")


def _run_assign(args: Namespace) -> int:
    sortie = call(SortieAssign(sortie_id=args.sortie_id, agent_id=args.agent))
    return console.result(args, sortie, f"Sortie assigned: {sortie.id} to {sortie.assigned_to}")


def _run_start(args: Namespace) -> int:
    with Fleet() as client:
        agent = args.agent or _assigned_agent(client, args.sortie_id)
        sortie = client.call(SortieStart(sortie_id=args.sortie_id, agent_id=agent))
    return _done(args, sortie, "started")


def _assigned_agent(client: Fleet, sortie_id: str) -> str:
    agent = client.call(SortieGet(sortie_id=sortie_id)).assigned_to
    if agent is None:
        raise UsageError(f"Sortie {sortie_id} has no agent. Name one: --agent ID.")
    return agent


def _run_progress(args: Namespace) -> int:
    if args.percent is None and args.note is None and args.file is None:
        raise UsageError("There is nothing to report. Use --percent, --note or --file.")
    sortie = call(
        SortieProgress(
            sortie_id=args.sortie_id,
            percent=args.percent,
            notes=args.note,
            files=args.file,
            agent_id=args.agent,
        )
    )
    return console.result(args, sortie, f"Sortie progress: {sortie.id}  {sortie.progress}%")


def _run_remove(args: Namespace) -> int:
    deleted = call(SortieRemove(sortie_id=args.sortie_id))
    return console.result(args, deleted, f"Sortie removed: {args.sortie_id}")


def _run_show(args: Namespace) -> int:
    return console.show(args, call(SortieGet(sortie_id=args.sortie_id)), _show)


def _show(sortie: Sortie) -> None:
    console.fields(
        (
            ("Sortie", sortie.id),
            ("Mission", sortie.mission_id),
            ("Title", sortie.title),
            ("Description", sortie.description),
            ("Status", sortie.status),
            ("Priority", sortie.priority),
            ("Assigned to", sortie.assigned_to),
            ("Progress", f"{sortie.progress}%"),
            ("Depends on", ", ".join(sortie.depends_on)),
            ("Waits for", ", ".join(sortie.waits_for)),
            ("Notes", sortie.progress_notes),
            ("Blocked", sortie.blocked_reason),
            ("Result", sortie.result),
            ("Files", console.paths(sortie.files)),
            ("Started", console.ago(sortie.started_at)),
            ("Ended", console.ago(sortie.completed_at)),
        )
    )


def _named(sortie: Sortie) -> str:
    waits = f", waits for {', '.join(sortie.waits_for)}" if sortie.waits_for else ""
    return f"{sortie.id}  {sortie.title}{waits}"


def _run_list(args: Namespace) -> int:
    with Fleet() as client:
        chosen = mission_id(client, args.mission)
        page = client.call(
            SortieList(
                mission_id=chosen, status=args.status, assigned_to=args.agent, ready=args.ready
            )
        )
    # Most plans have no dependencies, and then need no column for them.
    waits = any(each.waits_for for each in page.sorties)
    rows = [
        (
            each.id,
            each.status,
            console.percent_bar(each.progress),
            each.assigned_to or "",
            *([", ".join(each.waits_for)] if waits else []),
            each.title,
        )
        for each in page.sorties
    ]
    columns = (*COLUMNS[:-1], *([WAITS_FOR] if waits else []), COLUMNS[-1])
    return tables.show(args, page.sorties, columns, rows, "No sorties found.")
