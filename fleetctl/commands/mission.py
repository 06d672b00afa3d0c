"""``fleetctl mission``: create, start and end missions."""

from argparse import Namespace
from typing import get_args

from fleetd.protocol import endings
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.patterns import Priority

from ..args import CommandParser, Subparsers, UsageError, command, group, limit_option, yes_option
from ..client import Fleet, call
from ..client.models import (
    Mission,
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionDelete,
    MissionFail,
    MissionGet,
    MissionList,
    MissionStart,
    MissionUpdate,
    NewSortie,
    SortieList,
)
from ..context import (
    absolute,
    machine_name,
    machine_names,
    mission_id,
    project_dir,
    selected,
    this_agent,
)
from ..output import console, tables
from ..output.progress import bar
from ..output.tables import Column
from ..output.views.mission import show_mission, state, titled
from ..prompts import Cancelled, confirm
from . import _timeline

CREATE_EXAMPLES = """\
  fleetctl mission create "Add login" --sortie "Write the form" --sortie "Test"
  fleetctl mission create "Fix the build" --priority critical --json"""


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
    _register_create(actions)
    start = command(actions, "start", _run_start, "Start a pending mission.")
    start.add_argument(
        "mission_id",
        completes="mission.pending",
        nargs="?",
        help="default: the newest pending one here",
    )
    complete = command(actions, "complete", _run_complete, "Complete a mission.")
    _id_argument(complete, "mission.begun")
    for name, run, summary in (
        ("fail", _run_fail, "Give a mission up as failed."),
        ("cancel", _run_cancel, "Call a mission off."),
    ):
        ending = command(actions, name, run, summary)
        _id_argument(ending, "mission.open")
        ending.add_argument("--reason", metavar="TEXT", required=True, help="why")
    _id_argument(command(actions, "show", _run_show, "Show a mission and its sorties."), "mission")
    _timeline.options(
        command(actions, "timeline", _timeline.run, _timeline.SUMMARY, _timeline.EXAMPLES)
    )
    _register_list(actions)
    _register_update(actions)
    command(actions, "current", _run_current, "Show the mission of this directory.")
    delete = command(
        actions, "delete", _run_delete, "Delete a finished mission with everything in it."
    )
    delete.add_argument("mission_id", completes="mission.ended")
    yes_option(delete)


def _id_argument(parser: CommandParser, completes: str) -> None:
    parser.add_argument(
        "mission_id", completes=completes, nargs="?", help="default: the mission of this directory"
    )


def _register_create(actions: Subparsers) -> None:
    create = command(actions, "create", _run_create, "Create a pending mission.", CREATE_EXAMPLES)
    create.add_argument("title", metavar="TITLE", help="what is to be reached")
    _detail_options(create)
    create.add_argument(
        "--project-dir",
        metavar="DIR",
        help="where the work is (default: the git repository here, else this directory)",
    )
    create.add_argument(
        "--sortie",
        action="append",
        default=[],
        metavar="TITLE",
        help="a piece of it, done by one agent; may be repeated",
    )


def _detail_options(parser: CommandParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="what it is about")
    parser.add_argument(
        "--priority", choices=get_args(Priority), help="default: medium when it is created"
    )


def _register_list(actions: Subparsers) -> None:
    listing = command(actions, "list", _run_list, "List missions, newest first.")
    listing.add_argument("--status", choices=endings.STATES)
    listing.add_argument("--project-dir", metavar="DIR", help="only those of this directory")
    limit_option(listing, 50)


def _register_update(actions: Subparsers) -> None:
    update = command(actions, "update", _run_update, "Change fields of a mission.")
    update.add_argument("mission_id", completes="mission")
    update.add_argument(
        "--title", metavar="TEXT", help="what is to be reached; makes a session's own mission yours"
    )
    _detail_options(update)


def _run_create(args: Namespace) -> int:
    mission = call(
        MissionCreate(
            title=args.title,
            description=args.description,
            priority=args.priority or "medium",
            project_dir=absolute(args.project_dir) if args.project_dir else project_dir(),
            sorties=[NewSortie(title=title) for title in args.sortie],
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


def _run_complete(args: Namespace) -> int:
    with Fleet() as client:
        mission = client.call(MissionComplete(mission_id=mission_id(client, args.mission_id)))
    return console.result(args, mission, f"Mission completed: {mission.id}  {mission.title}")


def _run_fail(args: Namespace) -> int:
    with Fleet() as client:
        chosen = mission_id(client, args.mission_id)
        mission = client.call(MissionFail(mission_id=chosen, reason=args.reason))
    return console.result(args, mission, f"Mission failed: {mission.id}  {mission.title}")


def _run_cancel(args: Namespace) -> int:
    with Fleet() as client:
        chosen = mission_id(client, args.mission_id)
        mission = client.call(MissionCancel(mission_id=chosen, reason=args.reason))
    return console.result(args, mission, f"Mission cancelled: {mission.id}  {mission.title}")


def _run_show(args: Namespace) -> int:
    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=mission_id(client, args.mission_id)))
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        directory = _directory(client, mission)
    if args.json:
        console.print_json(mission)
        return 0
    show_mission(mission, directory, sorties)
    return 0


def _directory(client: Fleet, mission: Mission) -> str | None:
    """Return a mission's directory, with its machine where several share the store."""
    if not mission.project_dir or not mission.machine:
        return mission.project_dir and console.path(mission.project_dir)
    known = machine_names(client)
    return f"{console.path(mission.project_dir)} on {machine_name(known, mission.machine)}"


def _run_list(args: Namespace) -> int:
    directory = absolute(args.project_dir) if args.project_dir else None
    status, why = endings.of_state(args.status) if args.status else (None, None)
    with Fleet() as client:
        page = client.call(
            MissionList(status=status, project_dir=directory, limit=args.limit, closed_reason=why)
        )
    rows = [
        (each.id, state(each), console.bar(each.progress_percent), each.priority, titled(each))
        for each in page.missions
    ]
    return tables.show(args, page.missions, COLUMNS, rows, "No missions found.")


def _run_update(args: Namespace) -> int:
    if args.title is None and args.description is None and args.priority is None:
        raise UsageError("Nothing to change: use --title, --description or --priority.")
    mission = call(
        MissionUpdate(
            mission_id=args.mission_id,
            title=args.title,
            description=args.description,
            priority=args.priority,
            agent_id=this_agent(),
        )
    )
    return console.result(args, mission, f"Mission updated: {mission.id}  {mission.title}")


def _run_current(args: Namespace) -> int:
    with Fleet() as client:
        mission = selected(client, "work").mission
        directory = _directory(client, mission)
    return console.show(args, mission, lambda _: show_mission(mission, directory))


def _run_delete(args: Namespace) -> int:
    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=args.mission_id))
        question = f"Delete {mission.id} ({console.clean(mission.title)}) with its checkpoints?"
        if not args.yes and not confirm(question):
            raise Cancelled("Deletion cancelled.")
        with bar(args, "Deleting") as progress:
            deleted = client.call(MissionDelete(mission_id=mission.id), progress=progress)
    return console.result(args, deleted, f"Mission deleted: {mission.id}  {mission.title}")
