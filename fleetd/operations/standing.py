"""Where somebody reads of files: what the repository around a directory is called."""

import os.path

from .. import places
from ..domain.context import Here
from ..engine import Engine


async def standing_in(engine: Engine, directory: str | None) -> Here:
    """Return what files are called in a directory; without one, as from no repository.

    Git that does not answer in time leaves the name of the project out.
    """
    root, home = await engine.outbox.in_thread(lambda: _looked_up(directory))
    project = await engine.projects.prefix(root) if root else ""
    return Here(root=root, project=project, home=home)


def _looked_up(directory: str | None) -> tuple[str, str]:
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    return places.project_root(directory) or "", home
