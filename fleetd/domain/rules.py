"""Imports every module that registers rules, so that the registry is complete; holds none."""

from .agents import agents, mailbox
from .artifacts.kinds import KINDS
from .checkpoints import checkpoints, diff, on_error
from .events import cursors, streams
from .liveness import silence
from .locks import locks, queue
from .missions import missions, selection, sorties
from .recovery import restore
from .sessions import record as session_record
from .snapshots import compression, kind, queries, triggers
from .snapshots import record as snapshot_record

__all__ = ["KINDS"]
