"""Imports every module that registers rules, so that the registry is complete; holds none."""

from . import (
    activity,
    agents,
    checkpoints,
    copies,
    current,
    cursors,
    deletion,
    events,
    failures,
    forgetting,
    importing,
    lock_queue,
    locks,
    mailbox,
    missions,
    overview,
    pruning,
    recovery,
    returning,
    sortie_work,
    sorties,
    takeover,
    upkeep,
)
from .registry import HANDLERS

__all__ = ["HANDLERS"]
