"""Imports every module that answers by more than one transaction, so that all are registered."""

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
