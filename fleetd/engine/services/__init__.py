"""Methods that take more than one transaction: files, waiting, Git; imports all of them."""

from ..files import compress, pull
from ..hooks import deliver, delivering
from ..jobs import cluster, liveness, spent_runs, verification
from ..metrics import health, report
from . import (
    agents,
    backup,
    checkpoints,
    cursors,
    doctor,
    erasure,
    locks,
    missions,
    pruning,
    recovery,
    snapshots,
    sorties,
    system,
    verify,
)

__all__ = [
    "agents",
    "backup",
    "checkpoints",
    "compressing",
    "cursors",
    "daily_verification",
    "delivering",
    "doctor",
    "forgetting",
    "health",
    "hooks",
    "locks",
    "machines",
    "metrics",
    "missions",
    "pruning",
    "pulling",
    "recovery",
    "snapshots",
    "sorties",
    "spent_runs",
    "system",
    "verification",
    "watching",
]
