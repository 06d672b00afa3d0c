"""What follows a commit: files to write, processes to watch, a bell to ring, lines of the log."""

import logging

from ..domain.core.tx import Effect, LogLine, RemoveBackup, Ring, WatchProcess, WriteBackup
from .bell import Bell
from .files.outbox import Outbox
from .process_watcher import Watcher

log = logging.getLogger("fleetd")


def carry_out(effects: list[Effect], outbox: Outbox, watcher: Watcher, bell: Bell) -> None:
    """Carry out effects in their order; one that fails is logged, and takes no other with it."""
    for effect in effects:
        try:
            _carry_out(effect, outbox, watcher, bell)
        except Exception:
            log.exception("%s could not be carried out", type(effect).__name__)


def _carry_out(effect: Effect, outbox: Outbox, watcher: Watcher, bell: Bell) -> None:
    if isinstance(effect, LogLine):
        log.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)
    elif isinstance(effect, WriteBackup | RemoveBackup):
        outbox.post(effect)
    elif isinstance(effect, WatchProcess):
        watcher.post(effect)
    elif isinstance(effect, Ring):
        bell.ring()
