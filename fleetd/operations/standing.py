"""Where somebody reads of files: what the repository around a directory is called."""

import os.path

from ..domain.context import Here
from ..engine import Engine
from ..file_system import HOOK_SECONDS, PathUnanswered
from ..walk import Walk


async def standing_in(engine: Engine, directory: str | None) -> Here:
    """Return what files are called in a directory; without one, as from no repository.

    Git that does not answer in time leaves the name of the project out; so does a file system,
    with all the rest.
    """
    try:
        root, home = await engine.files.run(
            lambda walk: _looked_up(walk, directory), directory or "~", seconds=HOOK_SECONDS
        )
    except PathUnanswered:
        return Here()
    project = await engine.projects.prefix(root) if root else ""
    return Here(root=root, project=project, home=home)


def _looked_up(walk: Walk, directory: str | None) -> tuple[str, str]:
    home = walk.facts(os.path.expanduser("~")).real  # noqa: PTH111
    if directory is None or not directory.startswith("/"):
        return "", home
    real = walk.facts(directory).real
    return walk.root(real) or real, home
