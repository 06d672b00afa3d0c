"""Imports every module that registers rules, so that the registry is complete; holds none."""

from . import (
    activity,
    agents,
    checkpoints,
    copies,
    current,
    cursors,
    deletion,
    episodes,
    failures,
    forgetting,
    importing,
    lock_queue,
    locks,
    losing,
    mailbox,
    missions,
    overview,
    pruning,
    recovery,
    recovery_states,
    returning,
    sortie_work,
    sorties,
    streams,
    takeover,
    upkeep,
    watching,
)
from .registry import HANDLERS

__all__ = ["HANDLERS"]
