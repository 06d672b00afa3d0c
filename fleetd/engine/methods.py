"""Service registration: imports every module that answers with more than one transaction."""

from .files import pull
from .hooks import deliver
from .metrics import health, report
from .services import (
    agents,
    attention,
    backup,
    checkpoints,
    commits,
    cursors,
    doctor,
    erasure,
    handoff,
    locks,
    missions,
    notes,
    pruning,
    recovery,
    reports,
    search,
    sessions,
    snapshots,
    stats,
    system,
    usage,
    verify,
)
