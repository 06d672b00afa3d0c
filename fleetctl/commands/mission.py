"""``fleetctl mission``: create, start and end missions, and show what happened in one."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, get_args

from fleetd.protocol import endings
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.patterns import OnOff, Priority

from ..args import (
    CommandParser,
    Namespace,
    Subparsers,
    UsageError,
    agent_option,
    command,
    group,
    limit_option,
    since_option,
    whole_number,
    yes_option,
)
from ..client import Fleet, call
from ..client.models import (
    Event,
    Mission,
    MissionAt,
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionDelete,
    MissionFail,
    MissionGet,
    MissionList,
    MissionStart,
    MissionUpdate,
    Mutation,
    NewSortie,
    SortieList,
)
from ..client.pagination import newest_events
from ..context import (
    absolute,
    machine_name,
    machine_names,
    mission_id,
    project_dir,
    select_mission,
    this_agent,
)
from ..output import console, tables
from ..output.progress import call_with_bar
from ..output.tables import Column
from ..output.views.mission import show_mission, show_moment, state, titled
from ..prompts import confirm_or_cancel

if TYPE_CHECKING:
    from ..output.views.timeline import Entry

CREATE_EXAMPLES = """\
  fleetctl mission create "Add login" --sortie "Write the form" --sortie "Test"
  fleetctl mission create "Fix the build" --priority critical --json"""
TIMELINE_EXAMPLES = """\
  fleetctl mission timeline
  fleetctl mission timeline msn-1a2b3c4d --since 2h
  fleetctl mission timeline --all --full"""
SHOW_EXAMPLES = """\
  fleetctl mission show --at 14:05
  fleetctl mission show msn-1a2b3c4d --at 2h"""
LIST_EXAMPLES = """\
  fleetctl mission list --status in_progress
  fleetctl mission list --agent claude-1a2b3c4d"""
ENTRIES = 40
# Nearly always enough for the entries that are shown, without reading a mission of weeks.
EVENTS = 5_000
COLUMNS = (
    Column("ID"),
    Column("STATUS", matters=3, styles=console.STATES),
    Column("PROGRESS", matters=2),
    Column("PRIORITY", matters=1, styles={"critical": "red", "high": "yellow"}),
    Column("TITLE", cut="end", least=18),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "mission", "Create, start and end missions.")
    create = command(actions, "create", _run_create, "Create a pending mission.", CREATE_EXAMPLES)
    create.add_argument("title", metavar="TITLE", help="the goal of the mission")
    _detail_options(create)
    create.add_argument(
        "--project-dir",
        metavar="DIR",
        help="the project's directory (default: the git repository here, else this directory)",
    )
    create.add_argument(
        "--sortie",
        action="append",
        default=[],
        metavar="TITLE",
        help="a piece of the mission for one agent; may be repeated",
    )
    _briefing_option(create)
    start = command(actions, "start", _run_start, "Start a pending mission.")
    _id_argument(start, "mission.pending", "the mission (default: the newest pending one here)")
    ways_to_end: tuple[tuple[str, str, str, Callable[..., Mutation[Mission]], str], ...] = (
        ("complete", "Complete a mission.", "mission.begun", MissionComplete, "completed"),
        ("fail", "End a mission as failed.", "mission.open", MissionFail, "failed"),
        ("cancel", "Cancel a mission.", "mission.open", MissionCancel, "cancelled"),
    )
    for name, summary, completes, request, verb in ways_to_end:
        ending = command(actions, name, partial(_end, request, verb), summary)
        _id_argument(ending, completes)
        if name != "complete":
            ending.add_argument("--reason", metavar="TEXT", required=True, help="the reason")
    show = command(actions, "show", _run_show, "Show a mission and its sorties.", SHOW_EXAMPLES)
    _id_argument(show, "mission")
    show.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="show its state at this time: 14:05, 2h (ago) or 2026-01-05T14:05",
    )
    summary = "Show the events of a mission as a story, newest last."
    parser = command(actions, "timeline", _run_timeline, summary, TIMELINE_EXAMPLES)
    _id_argument(parser, "mission")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "--limit",
        type=whole_number(1, 100_000),
        metavar="N",
        help=f"show at most the newest N lines (default: {ENTRIES})",
    )
    how_much.add_argument("--all", action="store_true", help="show all lines from the beginning")
    since_option(parser, "only events")
    parser.flag("--full", help="show each event on its own line, uncut")
    listing = command(actions, "list", _run_list, "List missions, newest first.", LIST_EXAMPLES)
    listing.add_argument("--status", choices=endings.STATES, help="only missions in this state")
    listing.add_argument("--project-dir", metavar="DIR", help="only missions of this directory")
    agent_option(listing, "only missions that this agent works on, gave a title or has sorties in")
    limit_option(listing, 50)
    update = command(
        actions,
        "update",
        _run_update,
        "Change the title, the description, the priority or the briefing of a mission.",
    )
    update.add_argument("mission_id", completes="mission")
    _briefing_option(update)
    update.add_argument(
        "--title",
        metavar="TEXT",
        help="the goal of the mission. A mission that a session made becomes yours",
    )
    _detail_options(update)
    command(actions, "current", _run_current, "Show the mission of this directory.")
    delete = command(
        actions,
        "delete",
        _run_delete,
        "Delete an ended mission with its sorties and checkpoints.",
    )
    delete.add_argument("mission_id", completes="mission.ended")
    yes_option(delete)


def _id_argument(
    parser: CommandParser,
    completes: str,
    meaning: str = "the mission (default: the one of this directory)",
) -> None:
    parser.add_argument("mission_id", completes=completes, nargs="?", help=meaning)


def _detail_options(parser: CommandParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="a longer description")
    parser.add_argument(
        "--priority",
        choices=get_args(Priority),
        help="the priority (default: medium for a new mission)",
    )


def _briefing_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--briefing",
        choices=get_args(OnOff),
        help="off: hooks give its agents no briefing after a compaction, for a comparison"
        " (fleetctl stats recovery)",
    )


def _run_create(args: Namespace) -> int:
    mission = call(
        MissionCreate(
            title=args.title,
            description=args.description,
            priority=args.priority or "medium",
            project_dir=absolute(args.project_dir) if args.project_dir else project_dir(),
            sorties=[NewSortie(title=title) for title in args.sortie],
            briefing=args.briefing or "on",
            agent_id=this_agent(),
        )
    )
    return console.result(
        args,
        mission,
        f"Mission created: {mission.id}",
        f"Title: {mission.title}",
        f"Sorties: {mission.total_sorties}",
        f"Directory: {console.path(mission.project_dir or 'None')}",
    )


def _run_start(args: Namespace) -> int:
    with Fleet() as client:
        mission = client.call(MissionStart(mission_id=args.mission_id or _newest_pending(client)))
    return console.result(args, mission, f"Mission started: {mission.id}  {mission.title}")


def _newest_pending(client: Fleet) -> str:
    here = project_dir()
    page = client.call(MissionList(status="pending", project_dir=here, limit=1))
    if not page.missions:
        raise InvalidState(
            f"No pending mission found in {here}.",
            hint="Name one (fleetctl mission list --status pending) or create one.",
        )
    return page.missions[0].id


def _end(request: Callable[..., Mutation[Mission]], verb: str, args: Namespace) -> int:
    more = {"reason": args.reason} if "reason" in args else {}
    with Fleet() as client:
        mission = client.call(request(mission_id=mission_id(client, args.mission_id), **more))
    return console.result(args, mission, f"Mission {verb}: {mission.id}  {mission.title}")


def _moment(text: str) -> str:
    # Imported here: no other command of the group needs it.
    from ..moments import moment

    return moment(text)


def _show_at(args: Namespace) -> int:
    with Fleet() as client:
        request = MissionAt(mission_id=mission_id(client, args.mission_id), time=args.at)
        found = client.call(request)
    return console.show(args, found, show_moment)


def _run_show(args: Namespace) -> int:
    if args.at is not None:
        return _show_at(args)
    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=mission_id(client, args.mission_id)))
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        directory = _directory(client, mission)
    return console.show(args, mission, lambda _: show_mission(mission, directory, sorties))


def _directory(client: Fleet, mission: Mission) -> str | None:
    """Return a mission's directory, with its machine where several share the store."""
    if not mission.project_dir or not mission.machine:
        return mission.project_dir and console.path(mission.project_dir)
    known = machine_names(client)
    return f"{console.path(mission.project_dir)} on {machine_name(known, mission.machine)}"


def _run_list(args: Namespace) -> int:
    directory = absolute(args.project_dir) if args.project_dir else None
    status, why = endings.of_state(args.status) if args.status else (None, None)
    wanted = MissionList(
        status=status,
        project_dir=directory,
        closed_reason=why,
        agent_id=args.agent,
        limit=args.limit,
    )
    missions = call(wanted).missions
    rows = [
        (
            each.id,
            state(each),
            console.percent_bar(each.progress_percent),
            each.priority,
            titled(each),
        )
        for each in missions
    ]
    return tables.show(args, missions, COLUMNS, rows, "No missions found.")


def _run_update(args: Namespace) -> int:
    if (args.title, args.description, args.priority, args.briefing) == (None,) * 4:
        options = "--title, --description, --priority or --briefing"
        raise UsageError(f"There is nothing to change. Use {options}.")
    mission = call(
        MissionUpdate(
            mission_id=args.mission_id,
            title=args.title,
            description=args.description,
            priority=args.priority,
            briefing=args.briefing,
            agent_id=this_agent(),
        )
    )
    return console.result(args, mission, f"Mission updated: {mission.id}  {mission.title}")


def _run_current(args: Namespace) -> int:
    with Fleet() as client:
        mission = select_mission(client, "work").mission
        directory = _directory(client, mission)
    return console.show(args, mission, lambda _: show_mission(mission, directory))


def _run_delete(args: Namespace) -> int:
    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=args.mission_id))
        if not args.yes:
            title = console.clean(mission.title)
            question = f"Delete {mission.id} ({title}) with its checkpoints?"
            confirm_or_cancel(question, "Deletion cancelled.")
        deleted = call_with_bar(args, "Deleting", client, MissionDelete(mission_id=mission.id))
    return console.result(args, deleted, f"Mission deleted: {mission.id}  {mission.title}")


def _run_timeline(args: Namespace) -> int:
    # Imported here: no other command of the group needs it.
    from fleetd.protocol.timestamps import iso

    from ..output.views.timeline import show_timeline

    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=mission_id(client, args.mission_id)))
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        now = console.now_ms()
        entries, complete = _entries(
            args, mission, newest_events(client, mission_id=mission.id), now
        )
    if args.since is not None:
        entries = [entry for entry in entries if entry.ended >= now - args.since]
    limit = len(entries) if args.all or args.since is not None else ENTRIES
    left_out = max(len(entries) - (args.limit or limit), 0)
    entries = entries[left_out:]
    if args.json:
        console.print_json(
            [
                {
                    "kind": entry.kind,
                    "begun_at": iso(entry.begun),
                    "ended_at": iso(entry.ended),
                    "agent_id": entry.agent,
                    "text": entry.text,
                    "events": [event.seq for event in entry.events],
                }
                for entry in entries
            ]
        )
        return 0
    show_timeline(mission, sorties, entries, whole=args.full)
    if not entries:
        console.line(
            "There are no events in that time." if args.since else "There are no events yet."
        )
    elif left_out and console.human_readable():
        print()
        known = console.plural(left_out, "line") if complete else f"More than {left_out} lines"
        console.line(f"{known} before these; --all shows them.")
    return 0


def _entries(
    args: Namespace, mission: Mission, events: Iterator[Event], now: int
) -> "tuple[list[Entry], bool]":
    """Return entries of the newest events, and of twice as many until they go back far enough.

    The oldest entry may be incomplete, so there has to be one more. Also returns whether those
    are all events that exist.
    """

    from ..output.views.timeline import timeline_entries

    known: list[Event] = []
    while True:
        most = 2 * len(known) or EVENTS
        known += islice(events, most - len(known))
        entries = timeline_entries(
            known[::-1],
            now,
            inside=mission.project_dir,
            full=args.full,
            goes_on=mission.status == "in_progress",
        )
        if len(known) < most:
            return entries, True
        if args.since is not None and args.limit is None:
            enough = bool(entries) and entries[0].ended < now - args.since
        else:
            enough = len(entries) > (args.limit or ENTRIES)
        if enough and not args.all:
            return entries, False
