"""Worktrees: what agents change outside the work tree in which they began.

An agent with a work tree of its own may change files of another one by mistake. It gets one notice
for each other tree. Files in no repository belong to no tree. A repository inside a tree belongs to
that tree, but a linked work tree inside it, as agent CLIs create them, is another one.
"""

from collections.abc import Iterable

from ...host.file_system import within
from ...protocol.display import path as shown
from ...protocol.requests.attention import OutsideEdit
from ..core.context import Context
from ..core.sql import LIVING
from ..core.tx import Row, Tx
from ..locks.keys import split_machine

HOUR_MS = 3_600_000
# The limit of files of one agent: the oldest are deleted first.
KEPT = 200
LISTED = 200
NAME_CHARS = 120


def note_outside(
    tx: Tx, ctx: Context, agent_id: str, trees: tuple[str | None, str | None], files: Iterable[str]
) -> bool:
    """Note files that an agent changed outside its ``trees``: where it began, and where it is.

    Returns whether there were any.
    """
    began_in, here = trees
    if began_in is None:
        return False
    found = []
    for file in files:
        edited = ctx.facts.edited.get(file)
        tree = edited.worktree if edited else None
        if edited is None or tree is None or tree in (began_in, here):
            continue
        if edited.linked or not within(began_in, tree):
            found.append((edited.path, tree))
    for path, tree in found:
        tx.run(
            "INSERT INTO outside_edits (agent_id, path, worktree, began_in, at, told)"
            " SELECT id, :path, :tree, :began, :now, CASE WHEN EXISTS (SELECT 1"
            " FROM outside_edits o WHERE o.agent_id = :agent AND o.worktree = :tree)"
            " THEN 1 ELSE 0 END FROM agents WHERE id = :agent"
            " ON CONFLICT (agent_id, path) DO UPDATE SET at = excluded.at",
            agent=agent_id,
            path=path,
            tree=tree,
            began=began_in,
            now=ctx.now,
        )
    if found:
        _bound(tx, agent_id)
    return bool(found)


def _bound(tx: Tx, agent_id: str) -> None:
    tx.run(
        "DELETE FROM outside_edits WHERE agent_id = :agent AND path IN (SELECT path FROM"
        " outside_edits WHERE agent_id = :agent ORDER BY at DESC, path LIMIT :most OFFSET :kept)",
        agent=agent_id,
        most=KEPT,
        kept=KEPT,
    )


def take_notice(tx: Tx, agent_id: str) -> list[str]:
    """Return the lines about other work trees for an agent to read now."""
    rows = tx.all(
        "SELECT * FROM outside_edits WHERE agent_id = :agent AND told = 0", agent=agent_id
    )
    if rows:
        tx.run(
            "UPDATE outside_edits SET told = 1 WHERE agent_id = :agent AND told = 0", agent=agent_id
        )
    of_tree = {row["worktree"]: row for row in sorted(rows, key=lambda row: str(row["path"]))}
    return [_notice(agent_id, row) for row in of_tree.values()]


def _notice(agent_id: str, row: Row) -> str:
    file, tree, began = (
        shown(split_machine(row[name])[1], NAME_CHARS) for name in ("path", "worktree", "began_in")
    )
    return (
        f"{agent_id} began in the work tree {began}, and changed {file} in another one, {tree}."
        " If that was not meant, move the change."
    )


def list_outside(tx: Tx, ctx: Context, agent_ids: set[str] | None) -> list[OutsideEdit]:
    """Return what living agents changed outside of their work trees within the last hour."""
    rows = tx.all(
        "SELECT o.*, a.machine, m.name AS machine_name FROM outside_edits o"
        " JOIN agents a ON a.id = o.agent_id LEFT JOIN machines m ON m.id = a.machine"
        f" WHERE o.at >= :since AND a.status IN {LIVING}"
        " ORDER BY o.at DESC, o.agent_id, o.path LIMIT :most",
        since=ctx.at(-HOUR_MS),
        most=LISTED,
    )
    return [
        OutsideEdit(
            agent_id=row["agent_id"],
            path=split_machine(row["path"])[1],
            worktree=row["worktree"],
            began_in=row["began_in"],
            at=row["at"],
            machine=None if ctx.is_here(row) else row["machine_name"] or row["machine"],
        )
        for row in rows
        if agent_ids is None or row["agent_id"] in agent_ids
    ]
