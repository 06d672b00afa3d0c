"""Methods that take more than one transaction: files, waiting, Git; imports all of them."""

from . import (
    agents,
    backup,
    checkpoints,
    compressing,
    delivering,
    doctor,
    forgetting,
    hooks,
    locks,
    missions,
    pruning,
    recovery,
    snapshots,
    system,
    verification,
    watching,
)

__all__ = [
    "agents",
    "backup",
    "checkpoints",
    "compressing",
    "delivering",
    "doctor",
    "forgetting",
    "hooks",
    "locks",
    "missions",
    "pruning",
    "recovery",
    "snapshots",
    "system",
    "verification",
    "watching",
]
