"""Which mission and which directory a command means; must not print."""

import os
import re
from pathlib import Path

from fleetd.wire.errors import InvalidState, NotFound
from fleetd.wire.words import AGENT_ID

from .client import Fleet
from .protocol import Mission, MissionCurrent

# How the key of a lock begins, which is the same on every machine.
KEYS = ("project:", "machine:")


def cwd() -> str:
    """Return the current directory; raises NotFound when it was deleted under the shell."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise NotFound(
            "The current directory does not exist any more.", hint="Change to one that does."
        ) from error


def cwd_or_root() -> str:
    """Return the current directory, that of all when it was deleted under the shell."""
    try:
        return cwd()
    except NotFound:
        return "/"


def project_dir() -> str:
    """Return the root of the git repository around the current directory, else the directory."""
    return repository_root(cwd())


def repository_root(directory: str) -> str:
    """Return the root of the git repository around a directory, else the directory."""
    here = Path(directory)
    for each in (here, *here.parents):
        if (each / ".git").exists():
            return str(each)
    return directory


def absolute(path: str) -> str:
    """Return a path made absolute against the current directory."""
    return path if path.startswith("/") else str(Path(cwd(), path))


def current_mission(client: Fleet) -> Mission | None:
    """Return the mission in progress of the agent in whose shell this is, else of the directory."""
    return client.call(MissionCurrent(cwd=cwd(), agent_id=this_agent())).mission


def this_agent() -> str | None:
    """Return the agent in whose shell this is, as ``FLEET_AGENT_ID`` names it."""
    agent = os.environ.get("FLEET_AGENT_ID", "")
    return agent if re.match(AGENT_ID, agent) else None


def mission_id(client: Fleet, given: str | None) -> str:
    """Return the id that was given, else the current mission's; raises InvalidState without one."""
    if given:
        return given
    if (mission := current_mission(client)) is None:
        raise InvalidState(
            "No active mission found. Use --mission <id> to specify.",
            hint="fleetctl mission list shows the missions.",
        )
    return mission.id
