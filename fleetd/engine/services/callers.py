"""What is known of a caller: its agent's process, and what files are called where it stands."""

import os.path

from ...domain.core.context import Caller, Facts, Here
from ...host import processes
from ...host.file_system import HOOK_SECONDS, PathUnanswered, PathWalk
from ..engine import Engine


def facts_of(caller: Caller, places: tuple[str, ...] = ()) -> Facts:
    """Return what is known of a caller beside its request; ``places`` are its directory's."""
    pid, started = (caller.pid and processes.agent_behind(caller.pid)) or (None, None)
    return Facts(agent_pid=pid, pid_started=started, places=places)


async def standing_in(engine: Engine, directory: str | None, *, any_place: bool = False) -> Here:
    """Return what files are called in a directory; without one, as from no repository.

    A project's directory is its root without Git, too; of ``any_place`` that is only a repository.
    Git that does not answer in time leaves the name of the project out; so does a file system,
    with all the rest.
    """
    try:
        root, place, home = await engine.files.run(
            lambda walk: _looked_up(walk, directory), directory or "~", seconds=HOOK_SECONDS
        )
    except PathUnanswered:
        return Here()
    project = await engine.projects.prefix(place) if place else ""
    return Here(root=root if any_place else place, place=place, project=project, home=home)


def _looked_up(walk: PathWalk, directory: str | None) -> tuple[str, str, str]:
    home = walk.facts(os.path.expanduser("~")).real  # noqa: PTH111
    if directory is None or not directory.startswith("/"):
        return "", "", home
    real = walk.facts(directory).real
    root = walk.root(real) or ""
    return root, root or real, home
