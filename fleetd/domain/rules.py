"""Imports every module that registers rules, so that the registry is complete; holds none."""

from .agents import agents, mailbox
from .artifacts.kinds import KINDS
from .checkpoints import checkpoints, diff, on_error
from .core.registry import HANDLERS
from .events import cursors, streams
from .liveness import silence
from .locks import locks, queue
from .missions import missions, selection, sorties
from .recovery import restore
from .sessions import deliveries, record
from .sessions import overview as hook_overview
from .snapshots import compression, kind, queries, triggers
from .snapshots import record as snapshot_record
from .system import daily_rounds

__all__ = ["HANDLERS", "KINDS"]
