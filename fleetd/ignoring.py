"""Directories of which nothing is recorded: refuses requests about them, before anything is stored.

Source: behaviour, Secrets. What was recorded before the setting stays until it is forgotten.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from .places import real_path
from .wire.base import Request
from .wire.errors import InvalidState, NotFound
from .wire.model import Agent
from .wire.requests.agent import AgentGet
from .wire.requests.system import SystemForget

# How requests name the one who asks.
_WHO = ("agent_id", "sender", "created_by", "requested_by")


async def refuse_ignored(
    request: Request[Any], ignored: list[str], ask: Callable[[AgentGet], Awaitable[Agent]]
) -> None:
    """Raise InvalidState for a request about an ignored directory.

    A request that names no directory is about the one its agent registered with. Forgetting is
    let through: it is what one wants to do with such a directory.
    """
    if isinstance(request, SystemForget):
        return
    cwd = getattr(request, "cwd", None)
    file = getattr(request, "file", None)
    named = [cwd, getattr(request, "project_dir", None), file and real_path(file, cwd)]
    _refuse(named, ignored)
    who = [] if cwd else filter(None, (getattr(request, name, None) for name in _WHO))
    for agent_id in who:
        with contextlib.suppress(NotFound):
            _refuse([(await ask(AgentGet(agent_id))).cwd], ignored)


def _refuse(paths: list[str | None], ignored: list[str]) -> None:
    for path in filter(None, paths):
        for directory in ignored:
            if path == directory or path.startswith(directory.rstrip("/") + "/"):
                raise InvalidState(
                    f"Nothing is recorded of {path}: project_ignore names {directory}.",
                    hint="To have it recorded, take the directory out of project_ignore in the "
                    "configuration (fleetctl config shows where it is) and restart fleetd.",
                    project_ignore=directory,
                )
