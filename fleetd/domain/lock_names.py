"""What the file of a lock is called for somebody who reads of it; must not look at any file.

``file`` in a lock's row is what its holder said, which means something else wherever another one
reads it. Its key is the same for everybody, and what is told here can be handed back to a request.
"""

import re

from .context import Context
from .current import within
from .elsewhere import on_another
from .lock_keys import whose
from .tx import Row, Tx

# A project that is known by its repository's own directory: what is beside that is a working tree.
_BY_PLACE = re.compile(r"project:(/.*)/\.git:(.+)")


def file_from_here(tx: Tx, ctx: Context, row: Row) -> str:
    """Return a lock's file as it is called where ``ctx.facts.here`` is.

    It is the path inside the repository there, else one from the home directory or from the root;
    of a project that has no known place the key; of another machine with that one's name.
    """
    here, key = ctx.facts.here, row["normalized_path"]
    if here.project and key.startswith(here.project):
        return str(key[len(here.project) :])
    owner, rest = whose(key)
    if there := on_another(tx, ctx, owner):
        return f"{rest}{there}"
    if placed := _BY_PLACE.fullmatch(rest):
        rest = f"{placed[1]}/{placed[2]}"
    if rest.startswith("/"):
        return _path(rest, here.root, here.home)
    # A legacy store names relative paths, which are no keys.
    return str(key if rest.startswith("project:") else row["file"])


def _path(path: str, root: str, home: str) -> str:
    """Return a path as it is called in a directory, if it lies below it; else from home."""
    for directory, begin in ((root, ""), (home, "~/")):
        if directory not in ("", "/", path) and within(directory, path):
            return begin + path[len(directory) + 1 :]
    return path
