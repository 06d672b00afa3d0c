"""``fleetctl conflicts``: the files that several agents changed within the last hour."""

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import AttentionConflicts, ConflictEdit, ConflictPage, EditConflict
from ..output import console

EXAMPLES = """\
  fleetctl conflicts
  fleetctl conflicts --agent alice
  fleetctl conflicts --json"""
AT_MERGE = "will meet at merge"


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "conflicts",
        run,
        "Show the files that several living agents changed within the last hour, also in different"
        " worktrees of one repository.",
        EXAMPLES,
    )
    parser.add_argument(
        "--agent", completes="agent", help="only the files that this agent changed too"
    )


def run(args: Namespace) -> int:
    """Print each file, with the agents that changed it."""
    with Fleet() as client:
        page = client.call(AttentionConflicts(agent_id=args.agent))
    return console.show(args, page, _show)


def _show(page: ConflictPage) -> None:
    if not page.conflicts:
        console.line("No two agents changed the same file within the last hour.")
    for conflict in page.conflicts:
        _show_one(conflict)
    if page.more:
        console.line(f"and {console.plural(page.more, 'more file')}")


def _show_one(conflict: EditConflict) -> None:
    console.line(console.path(conflict.file) + (f"  {AT_MERGE}" if conflict.at_merge else ""))
    for edit in conflict.edits:
        where = console.path(_place(edit)) if conflict.at_merge else ""
        start = f"  {edit.agent_id}  {console.ago(edit.at)}"
        if where:
            console.headed(f"{start}  ", where)
        else:
            console.line(start)


def _place(edit: ConflictEdit) -> str:
    return f"{edit.path} on {edit.machine}" if edit.machine else edit.path
