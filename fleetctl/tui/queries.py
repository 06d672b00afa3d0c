"""What is asked of the daemon for each part of the picture; must not change anything there.

Mail is looked at by ``message.list``: ``message.inbox`` would mark it as delivered.
"""

from collections.abc import Callable
from typing import Any

from fleetd.protocol.errors import NotFound
from fleetd.protocol.patterns import AgentStatus

from ..client import Fleet
from ..client.models import (
    AgentList,
    CheckpointList,
    EventList,
    LockList,
    MessageList,
    MissionList,
    Record,
    SortieList,
)
from ..client.pagination import overview, position_of
from ..context import cwd_or_root
from .state import TAIL, Part

LISTED = 50
LETTERS = 200
CHECKPOINTS = 30
LIVING: tuple[AgentStatus, ...] = ("active", "waiting", "idle", "lost")


def _agents(client: Fleet, _: str | None) -> Any:
    return [agent for status in LIVING for agent in client.call(AgentList(status=status)).agents]


def _locks(client: Fleet, _: str | None) -> Any:
    """Return the locks, each with its file as it is called where this runs."""
    page: Any = client.call(LockList(cwd=cwd_or_root()))
    return [Record(each, file=page.paths.get(each.id, each.file)) for each in page.locks]


def _sorties(client: Fleet, mission_id: str | None) -> Any:
    return client.call(SortieList(mission_id=mission_id)).sorties if mission_id else []


def _checkpoints(client: Fleet, mission_id: str | None) -> Any:
    if mission_id is None:
        return []
    return client.call(CheckpointList(mission_id=mission_id, limit=CHECKPOINTS)).checkpoints


def _events(client: Fleet, _: str | None) -> Any:
    since = max(0, position_of(client) - TAIL)
    return client.call(EventList(since=since, limit=TAIL)).events


_READINGS: dict[Part, Callable[[Fleet, str | None], Any]] = {
    "status": lambda client, _: overview(client),
    "missions": lambda client, _: client.call(MissionList(limit=LISTED)).missions,
    "sorties": _sorties,
    "agents": _agents,
    "locks": _locks,
    "mail": lambda client, _: client.call(MessageList(newest=True, limit=LETTERS)).messages,
    "checkpoints": _checkpoints,
    "events": _events,
}


def read(client: Fleet, part: Part, mission_id: str | None) -> Any:
    """Return a part of the picture; nothing of a mission that is not there any more."""
    try:
        return _READINGS[part](client, mission_id)
    except NotFound:
        return []
