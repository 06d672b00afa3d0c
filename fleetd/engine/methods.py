"""Imports every module that answers by more than one transaction, so that all are registered."""

from .files import compress, pull
from .hooks import deliver
from .jobs import cluster, liveness, spent_runs, verification
from .metrics import health, report
from .services import (
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
