"""Imports of every module that registers rules, so that the registry is complete.

This module contains no rules.
"""

from .agents import agents, mailbox
from .artifacts.kinds import KINDS
from .attention import conflicts
from .checkpoints import checkpoints, diff, moments, on_error
from .events import streams
from .liveness import silence
from .locks import locks, queue
from .missions import missions, selection, sorties
from .notes import notes
from .recovery import handoff, restore
from .sessions import record
from .snapshots import codec, snapshots, triggers
from .timeline import fleet, timeline
from .usage import budgets

__all__ = ["KINDS"]
