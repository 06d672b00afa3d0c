"""``fleetctl conflicts``: the files that several agents changed within the last hour."""

import os
from collections import defaultdict

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import (
    AttentionConflicts,
    ConflictEdit,
    ConflictPage,
    EditConflict,
    OutsideEdit,
)
from ..context import cwd_or_root, repository_root
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
    root = os.path.realpath(repository_root(cwd_or_root()))
    for conflict in page.conflicts:
        _show_one(conflict, root)
    if page.more:
        console.line(f"and {console.plural(page.more, 'more file')}")
    _show_outside(page.outside)


def _show_one(conflict: EditConflict, root: str) -> None:
    remarks = [remark] if conflict.at_merge and (remark := _in_one_directory(conflict)) else []
    remarks += [AT_MERGE] if conflict.at_merge else []
    console.line("  ".join(filter(None, (_name(conflict, root), "; ".join(remarks)))))
    for edit in conflict.edits:
        start = f"  {edit.agent_id}  {console.ago(edit.at)}"
        if conflict.at_merge:
            console.headed(f"{start}  ", _place(edit))
        else:
            console.line(start)


def _show_outside(edits: list[OutsideEdit]) -> None:
    if edits:
        console.heading("Changed outside of the agent's own work tree")
    for edit in edits:
        start = f"  {edit.agent_id}  {console.ago(edit.at)}  "
        console.headed(start, f"{_place(edit)}  (began in {console.path(edit.began_in)})")


def _in_one_directory(conflict: EditConflict) -> str:
    """Return which agents changed the very same file, though others did so in another worktree."""
    agents = defaultdict(list)
    for edit in conflict.edits:
        agents[edit.machine, edit.path].append(edit.agent_id)
    together = [each for each in agents.values() if len(each) > 1]
    return "; ".join(f"{' and '.join(sorted(each))} in one directory" for each in together)


def _name(conflict: EditConflict, root: str) -> str:
    """Return a file's name for the reader: relative to the repository, else from ~ or /."""
    for edit in conflict.edits:
        if not edit.machine and edit.path.startswith(f"{root}/"):
            return console.path(edit.path[len(root) + 1 :])
    return _place(conflict.edits[0])


def _place(edit: ConflictEdit | OutsideEdit) -> str:
    """Return where an agent changed a file."""
    if edit.machine:
        return f"{console.path(edit.path)} on {edit.machine}"
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    inside = edit.path.startswith(f"{home}/")
    return console.path(f"~{edit.path[len(home) :]}" if inside else edit.path)
