"""Who may use the last room on a full disk: what makes room; must not know how room is kept."""

from typing import Any

from ..protocol.request import Request
from ..protocol.requests.checkpoint import CheckpointDelete, CheckpointPrune
from ..protocol.requests.mission import MissionDelete
from ..protocol.requests.snapshot import SnapshotPrune

# Everything else is refused while there is no room.
MAKES_ROOM = frozenset(
    {
        *(CheckpointPrune, SnapshotPrune),
        *(CheckpointDelete, MissionDelete),
    }
)


def makes_room(request: Request[Any]) -> bool:
    """Whether a request may use the last room there is."""
    return type(request) in MAKES_ROOM
