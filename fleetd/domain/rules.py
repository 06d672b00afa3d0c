"""Imports every module that registers rules, so that the registry is complete; holds none."""

from .agents import agents, mailbox, process_identity
from .artifacts import backlog, ingest, inventory, outbox, repair, verification
from .checkpoints import checkpoints, diff, on_error
from .cluster import failover, membership, names
from .core.registry import HANDLERS
from .erasure import batches, deletion, journal, steps
from .events import cursors, streams
from .liveness import agent_loss, due, episodes, silence
from .locks import locks, queue
from .missions import missions, selection, sortie_reports, sorties
from .recovery import checkpoint_selection, handover, restore, roll_forward, state
from .retention import pruning, sessions, spent
from .sessions import record as session_record
from .snapshots import compression, queries, triggers
from .snapshots import record as snapshot_record
from .system import daily_rounds, epoch, legacy_import, overview, relocation, startup

__all__ = ["HANDLERS"]
