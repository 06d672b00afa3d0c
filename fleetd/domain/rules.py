"""Imports every module that registers rules, so that the registry is complete; holds none."""

from . import (
    activity,
    agents,
    backlog,
    catching_up,
    choosing,
    comparing,
    copies,
    cursors,
    deletion,
    episodes,
    forgetting,
    healing,
    importing,
    lock_queue,
    locks,
    losing,
    mailbox,
    missions,
    moves,
    overview,
    owing,
    portions,
    presence,
    pruning,
    recovery,
    recovery_states,
    returning,
    rounds,
    selection,
    sortie_reports,
    sorties,
    streams,
    takeover,
    taking_in,
    upkeep,
    verifying,
    watching,
)
from .checkpoints import checkpoints, diff, on_error
from .cluster import failover, membership, names
from .core.registry import HANDLERS
from .sessions import deliveries, left_behind, recording
from .sessions import overview as hook_overview
from .snapshots import compressing, finding, spent, taking

__all__ = ["HANDLERS"]
