"""The context of a command: its directory, its mission, the machines of the store."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetd.protocol.errors import (
    Corrupt,
    Internal,
    InvalidParams,
    InvalidState,
    LimitExceeded,
    NotFound,
    Storage,
)
from fleetd.protocol.patterns import AGENT_ID, SelectionPurpose

from .client import Fleet
from .client.models import MissionSelect, SelectedMission, SystemStatus
from .output import console

if TYPE_CHECKING:
    from fleetd.config import Loaded

    from .client import Link

# How the key of a lock begins that is the same on every machine.
LOCK_KEY_PREFIXES = ("project:", "machine:")


def lock_target(named: str, directory: str, *, pattern: bool = False) -> dict[str, Any]:
    """Return the fields of a request that name what to lock: its file, or its pattern.

    A name with a ``*`` or a ``?`` is a pattern, unless a file has that very name. Brackets are
    common in file names: such a pattern needs ``pattern``.
    """
    wild = "*" in named or "?" in named
    if pattern or (wild and not os.path.lexists(Path(directory, named))):
        return {"pattern": named}
    return {"file": named}


def cwd() -> str:
    """Return the current directory; raises NotFound when it was deleted under the shell."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise NotFound(
            "The current directory does not exist any more.", hint="Change to another directory."
        ) from error


def cwd_or_root() -> str:
    """Return the current directory, or the root when it was deleted under the shell."""
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


def select_mission(
    client: Fleet,
    purpose: SelectionPurpose,
    *,
    agent: str | None = None,
    take_over_from: str | None = None,
    threshold_ms: int | None = None,
) -> SelectedMission:
    """Return the mission to use where none is named; the daemon has the rule.

    ``agent`` is the agent that it is for, by default the one of this shell. Raises InvalidState
    when there is no mission, InvalidParams with a list when there are only some elsewhere.
    """
    request = MissionSelect(
        purpose=purpose,
        cwd=cwd(),
        agent_id=agent or this_agent(),
        take_over_from=take_over_from,
        threshold_ms=threshold_ms,
    )
    try:
        return client.call(request)
    except InvalidState as error:
        if not error.values.get("candidates"):
            raise
        # It works as soon as the command line names one of them.
        raise InvalidParams(error.message, hint=error.hint, **error.values) from error


def loaded_settings() -> "Loaded":
    """Return the settings that apply in this shell; raises InvalidState."""
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from fleetd.config import ConfigError, load

    try:
        return load()
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error


def time_before(age_ms: int | None) -> str | None:
    """Return the time an age ago in the format of records; None for None."""
    if age_ms is None:
        return None
    # Imported here: only lists by time need times of the wire.
    from fleetd.protocol.timestamps import iso

    return iso(console.now_ms() - age_ms)


def print_link_state(link: "Link") -> None:
    """Report on stderr that the connection of a subscription ended, or is back."""
    if link.state == "away":
        console.warn("The connection to fleetd ended; waiting until it is back.")
    elif link.state == "back":
        console.print_stderr("fleetd is back.")


def this_agent() -> str | None:
    """Return the agent of this shell, as ``FLEET_AGENT_ID`` names it."""
    agent = os.environ.get("FLEET_AGENT_ID", "")
    return agent if re.match(AGENT_ID, agent) else None


def mission_id(client: Fleet, given: str | None) -> str:
    """Return the given id, else that of the mission at work, by ``select_mission``."""
    return given or select_mission(client, "work").mission.id


def reported_mission(client: Fleet) -> str:
    """Return the id of this directory's mission to report on, which may have ended.

    It is never one of another directory, because a report is given to others.
    """
    try:
        return select_mission(client, "report").mission.id
    except (InvalidState, InvalidParams) as error:
        message = error.message.removesuffix(" Use --mission <id> to specify.")
        hint = "Give the id of one. fleetctl mission list shows all missions."
        raise type(error)(message, hint=hint, **error.values) from error


@contextmanager
def prefix_errors(what: str) -> Iterator[None]:
    """Prefix errors of the daemon with the failed step; usage errors keep their text."""
    try:
        yield
    except (Storage, Corrupt, Internal, LimitExceeded, InvalidState) as error:
        message = f"{what}: {error.message}"
        raise type(error)(message, hint=error.hint, **error.values) from error


def machine_names(client: Fleet) -> dict[str, str]:
    """Return the names of machines by their ids; empty where one machine has the store alone."""
    return {each.machine_id: each.name for each in client.call(SystemStatus()).machines}


def machine_name(known: dict[str, str], machine: str | None) -> str:
    """Return the name of a machine, its id when it is unknown, nothing for None."""
    return known.get(machine, machine) if machine else ""
