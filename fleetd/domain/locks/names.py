"""What the file of a lock is called for somebody who reads of it; must not look at any file.

``file`` in a lock's row is what its holder said, which means something else wherever another one
reads it. Its key is the same for everybody, and what is told here can be handed back to a request.
"""

import re

from ...host.path_walk import within
from ..cluster.names import on_another
from ..core.context import Context
from ..core.tx import Row, Tx
from .keys import whose

# A project that is known by its repository's own directory: what is beside that is a working tree.
_BY_PLACE = re.compile(r"project:(/.*)/\.git:(.+)")


def file_from_here(tx: Tx, ctx: Context, row: Row) -> str:
    """Return the file of a lock's row as it is called where ``ctx.facts.here`` is."""
    return name_from_here(tx, ctx, row["normalized_path"], row["file"])


def name_from_here(tx: Tx, ctx: Context, key: str, said: str) -> str:
    """Return what the file of a key is called where ``ctx.facts.here`` is; its holder ``said`` it.

    It is the path inside the repository there, else one from the home directory or from the root;
    of a project that has no known place the key; of another machine with that one's name.
    """
    here = ctx.facts.here
    if here.project and key.startswith(here.project):
        return key[len(here.project) :]
    owner, rest = whose(key)
    if there := on_another(tx, ctx, owner):
        return f"{rest}{there}"
    if placed := _BY_PLACE.fullmatch(rest):
        rest = f"{placed[1]}/{placed[2]}"
    if rest.startswith("/"):
        return _path(rest, here.root, here.home)
    # A legacy store names relative paths, which are no keys.
    return key if rest.startswith("project:") else said


def _path(path: str, root: str, home: str) -> str:
    """Return a path as it is called in a directory, if it lies below it; else from home."""
    for directory, begin in ((root, ""), (home, "~/")):
        if directory not in ("", "/", path) and within(directory, path):
            return begin + path[len(directory) + 1 :]
    return path
