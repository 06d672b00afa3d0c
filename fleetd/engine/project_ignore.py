"""Directories of which nothing is recorded: refuses requests about them, before anything is stored.

Source: behaviour, Secrets. What was recorded before the setting stays until it is forgotten. A
request that neither names a place nor comes from an agent with a directory cannot be recognised.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ..domain.agents import agents
from ..domain.snapshots.snapshots import agent_of_run
from ..host.file_system import FileSystem
from ..host.path_walk import absolute, within
from ..protocol.errors import InvalidState, NotFound
from ..protocol.request import Request
from ..protocol.requests.agent import AgentGet
from ..protocol.requests.event import EventAppend
from ..protocol.requests.snapshot import SnapshotRecord
from ..protocol.requests.system import SystemForget

# How requests name the one who asks.
_WHO = ("agent_id", "sender", "created_by", "requested_by")
# How the data of an event names a place.
_WHERE = ("cwd", "file", "path")
# As the protocol bounds paths: nothing longer is looked up, whatever a client puts there.
_PATH_MAX = 4_096


async def refuse_ignored(
    request: Request[Any],
    ignored: list[str],
    machine: str,
    read: Callable[..., Awaitable[Any]],
    files: FileSystem,
) -> None:
    """Raise InvalidState for a request about an ignored directory.

    A request that names no directory is about the one its agent registered with on this
    ``machine``; a snapshot is also about that of its run's agent. Forgetting is let through: it is
    what one wants to do with such a directory.
    """
    if isinstance(request, SystemForget):
        return
    cwd = getattr(request, "cwd", None)
    file = getattr(request, "file", None)
    named = [absolute(file, cwd)] if file else []
    if isinstance(request, EventAppend):
        named += _told(request.data)
    if isinstance(request, SnapshotRecord):
        named += _recorded(request)
    real = [facts.real for facts in await files.look(*filter(None, named))]
    refuse_places([cwd, getattr(request, "project_dir", None), *real], ignored)
    recorded = isinstance(request, SnapshotRecord)
    who = [getattr(request, name, None) for name in _WHO] if recorded or not cwd else []
    if isinstance(request, SnapshotRecord) and request.run_id and not any(who):
        who.append(await read(agent_of_run, request.run_id))
    for agent_id in filter(None, who):
        with contextlib.suppress(NotFound):
            agent = await read(agents.get, AgentGet(agent_id))
            if (agent.machine or "") == machine:
                refuse_places([agent.cwd], ignored)


def _told(data: dict[str, Any]) -> Iterator[str | None]:
    """Yield the places that an event's data names; what is relative starts at its ``cwd``."""
    given = {name: text for name in _WHERE if isinstance(text := data.get(name), str) and text}
    for text in given.values():
        yield absolute(text[:_PATH_MAX], given.get("cwd", "")[:_PATH_MAX])


def _recorded(request: SnapshotRecord) -> Iterator[str | None]:
    """Yield the places that a snapshot would name."""
    step, digest = request.step_state, request.context_digest
    told = [step.plan_path] if step else []
    told += (digest.protected_artifacts or []) if digest else []
    return (absolute(path, request.cwd) for path in told if path)


def refuse_places(paths: list[str | None], ignored: list[str]) -> None:
    """Raise InvalidState when one of these real paths lies in an ignored directory."""
    for path in filter(None, paths):
        for directory in ignored:
            if within(directory, path):
                raise InvalidState(
                    f"Nothing is recorded of {path}: project_ignore names {directory}.",
                    hint="To have it recorded, take the directory out of project_ignore in the "
                    "configuration (fleetctl config shows where it is) and restart fleetd.",
                    project_ignore=directory,
                )
