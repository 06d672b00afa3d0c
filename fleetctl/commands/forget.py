"""``fleetctl forget``: delete everything about a mission, a session or a project."""

from functools import partial

from ..args import CommandParser, Namespace, Subparsers, command, group, yes_option
from ..client import Fleet
from ..client.models import Forgotten, SystemForget
from ..context import absolute, project_dir
from ..output import console
from ..output.progress import call_with_bar
from ..prompts import confirm_or_cancel, show_preview

EXAMPLES = """\
  fleetctl forget project --dry-run
  fleetctl forget mission msn-1a2b3c4d --yes"""
# What the report counts, in its order.
COUNTED = (
    *("missions", "sorties", "agents", "notes", "locks", "messages", "events"),
    *("checkpoints", "runs", "snapshots", "recoveries", "cursors", "files"),
)
SINGULAR = {"recoveries": "recovery"}


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers,
        "forget",
        "Delete all data about a mission, a session or a project, in the database and in files. "
        "This cannot be undone.",
    )
    _add(
        actions, "mission", "mission_id", "Forget a mission, also a mission in progress."
    ).add_argument("name", completes="mission")
    summary = "Forget a session: its agents and runs, and missions on which no other agent worked."
    _add(actions, "session", "session_id", summary).add_argument(
        "name", completes="session", help="the session's id in the agent CLI, or the id of a run"
    )
    summary = "Forget everything about a directory and the directories below it."
    _add(actions, "project", "project_dir", summary).add_argument(
        "name",
        metavar="DIR",
        nargs="?",
        help="the directory (default: the git repository here, else this directory)",
    )


def _add(actions: Subparsers, name: str, parameter: str, summary: str) -> CommandParser:
    parser = command(actions, name, partial(_forget, parameter), summary, EXAMPLES)
    parser.flag("--dry-run", help="show what would be deleted, and delete nothing")
    yes_option(parser)
    return parser


def _forget(parameter: str, args: Namespace) -> int:
    """Show what will be deleted, ask, delete it, and print a report."""
    name = args.name
    if parameter == "project_dir":
        name = absolute(name) if name else project_dir()
    request = partial(SystemForget, **{parameter: name})
    with Fleet() as client:
        if args.dry_run or not args.yes:
            found = call_with_bar(args, "Looking", client, request(dry_run=True))
            if args.dry_run:
                return _report(args, found)
            show_preview(args, _preview(found))
            confirm_or_cancel("Forget all of this?", "Nothing was forgotten.")
        return _report(args, call_with_bar(args, "Forgetting", client, request()))


def _report(args: Namespace, found: Forgotten) -> int:
    if not args.json:
        console.warn(*found.warnings)
    if found.dry_run:
        return console.result(args, found, *_preview(found), "", "[DRY RUN] Nothing was forgotten.")
    return console.result(args, found, f"Forgotten: {_counted(found)}.", *_shared(found))


def _preview(found: Forgotten) -> list[str]:
    unfinished = [each for each in found.details if each.status in ("pending", "in_progress")]
    return [
        f"This will be forgotten: {_counted(found)}.",
        *(
            f"  {each.mission_id}  {each.status}  {console.size(each.bytes)}  {each.title}"
            for each in found.details
        ),
        *(
            f"  {each.run_id}  {each.status}  {console.size(each.bytes)}"
            f"  {console.plural(each.snapshots, 'snapshot')}"
            for each in found.run_details
        ),
        *([f"Not finished: {console.plural(len(unfinished), 'mission')}."] if unfinished else []),
        *([f"Still at work: {', '.join(found.living_agents)}."] if found.living_agents else []),
        *_shared(found),
    ]


def _counted(found: Forgotten) -> str:
    counts = [(getattr(found, name), name) for name in COUNTED]
    counted = [
        f"{count} {SINGULAR.get(name, name[:-1]) if count == 1 else name}"
        for count, name in counts
        if count
    ]
    size = f" ({console.size(found.bytes)})" if found.bytes else ""
    return (", ".join(counted) or "nothing") + size


def _shared(found: Forgotten) -> list[str]:
    if not found.shared_missions:
        return []
    count = console.plural(found.shared_missions, "mission")
    still = f"{count} in which others worked too will still mention it"
    return [f"{still}: {', '.join(found.shared)}. fleetctl forget mission <id> forgets one."]
