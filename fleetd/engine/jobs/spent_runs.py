"""Runs that nobody needs any more: their rows, then the directories that are empty by then."""

import logging
from functools import partial

from ...domain.core.context import Caller
from ...domain.retention.spent import SpentRuns, SpentRunsDrop
from ...domain.system.startup import Done
from ...protocol.request import Mutation
from ...store.files.record_files import RecordFiles
from ..engine import Engine, operation

log = logging.getLogger("fleetd")


class SpentRunsClear(Mutation[Done], frozen=True):
    """Clear away some runs that are over; done as long as there were any. Not on the wire."""


@operation
async def clear(engine: Engine, request: SpentRunsClear, caller: Caller) -> Done:
    """Clear away runs without snapshots whose agents are gone; a file without a row stays."""
    async with engine.outbox.at_work:  # a run that is recorded anew has no file before we are done
        spent = await engine.execute(SpentRunsDrop())
        await engine.outbox.in_thread(partial(_remove_empty, engine.backups["snapshot"], spent))
    return Done(done=bool(spent.ids))


def _remove_empty(backups: RecordFiles, spent: SpentRuns) -> None:
    for run_id in spent.ids:
        try:
            found = backups.list(run_id)
            if not found.files and found.latest_kind == "missing":  # it may be an only copy
                backups.remove(run_id, [], None)
        except OSError as error:
            log.warning("The directory of run %s stays: %s", run_id, error)
