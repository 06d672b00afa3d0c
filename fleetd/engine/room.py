"""Who may use the last room on a full disk: what makes room; must not know how room is kept."""

from typing import Any

from ..domain.artifacts.removal import Purge
from ..domain.erasure.batches import PieceDrop
from ..domain.erasure.journal import BytesScrubbed, ForgetWithdraw
from ..domain.erasure.steps import ForgetBegin, ForgetStep
from ..domain.retention.events_and_locks import OldEventsDrop, OldLocksDrop
from ..domain.retention.pruning import PruneDone, PruneMark
from ..domain.retention.sessions import OldSessionsDrop
from ..domain.retention.spent import SpentRunsDrop
from ..domain.system.startup import DropOldKeys, StartUp
from ..protocol.request import Request
from ..protocol.requests.checkpoint import CheckpointDelete, CheckpointPrune
from ..protocol.requests.mission import MissionDelete
from ..protocol.requests.snapshot import SnapshotPrune
from ..protocol.requests.system import SystemForget

# Everything else is refused while there is no room. The start is among them because without it
# nobody could prune.
MAKES_ROOM = frozenset(
    {
        *(CheckpointPrune, SnapshotPrune, PruneMark, PruneDone, Purge),
        *(CheckpointDelete, MissionDelete),
        *(SystemForget, ForgetBegin, PieceDrop, ForgetStep, ForgetWithdraw, BytesScrubbed),
        *(OldEventsDrop, OldLocksDrop, DropOldKeys, OldSessionsDrop),
        SpentRunsDrop,
        StartUp,
    }
)


def makes_room(request: Request[Any]) -> bool:
    """Whether a request may use the last room there is."""
    return type(request) in MAKES_ROOM
