"""Recovery with facts from outside the store: living processes, Git, and files of checkpoints."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ...domain.core.context import Caller, Context, Facts, WorkingTree
from ...domain.core.registry import method
from ...domain.core.tx import Tx, WriteBackup
from ...domain.recovery import restore as rules
from ...domain.recovery.restore_context import Surroundings, first_look, surroundings
from ...host import processes
from ...host.file_system import HOOK_SECONDS, PathUnanswered
from ...protocol.errors import Corrupt, FleetError, Incompatible, NotFound
from ...protocol.records import RestoreResult
from ...protocol.requests.recovery import Briefing, RecoveryContextGet, RecoveryRestore
from .. import repositories
from ..engine import DAEMON, Engine
from ..files.read_repair import get, kept_on, repaired, warnings_of
from ..files.reconcile import IngestResult, ingest_orphans

log = logging.getLogger("fleetd")
R = TypeVar("R")


@method(RecoveryRestore)
async def restore(engine: Engine, request: RecoveryRestore, caller: Caller) -> RestoreResult:
    """Restore from a checkpoint; a damaged row is repaired from its file first.

    If both copies of the newest checkpoint are damaged, the one before it is used, with a warning.
    A checkpoint that the request names is never replaced by another.
    """
    known = await engine.earlier_answer(request)
    if known is not None:  # its checkpoint may be gone by now
        return known
    result, taken, warnings = await _from_good_copies(engine, rules.restore, request, caller)
    if result.checkpoint_id not in taken.there:
        warnings += await _missing_file(engine, request, result)
    return msgspec.structs.replace(result, warnings=[*warnings, *result.warnings])


@method(RecoveryContextGet)
async def context(engine: Engine, request: RecoveryContextGet, caller: Caller) -> Briefing:
    """Return a briefing without a restore, with Git's report about the project."""
    briefing, _, warnings = await _from_good_copies(engine, rules.context, request, caller)
    return msgspec.structs.replace(briefing, warnings=[*warnings, *briefing.warnings])


async def _from_good_copies(
    engine: Engine,
    rule: Callable[[Tx, Context, Any], R],
    request: Any,
    caller: Caller,
) -> tuple[R, IngestResult, list[str]]:
    """Run a rule that reads a checkpoint, and repair rows from their files on the way.

    Returns the result, the ingestion of files before it, and the warnings about both. A
    checkpoint that cannot be repaired is skipped, unless the request names it.
    """
    named = request.checkpoint_id
    places = await engine.projects.shared_names(request.cwd)
    on_behalf = engine.on_behalf_of(DAEMON, Facts(places=places))
    mission_id, near = await on_behalf.read(first_look, request)
    # Its files may have lost their rows.
    taken = await ingest_orphans(engine, "checkpoint", mission_id) if mission_id else IngestResult()
    healed = warnings_of(taken)
    if taken.ids:
        near = await engine.read(surroundings, request, mission_id)
    facts = await facts_of(engine, request, near, places)
    unreadable: dict[str, FleetError] = {}
    while True:
        reasons = {name: reason.message for name, reason in unreadable.items()}
        known = msgspec.structs.replace(facts, unreadable=reasons)
        try:
            return await engine.run(rule, request, caller, known), taken, healed
        except (Corrupt, NotFound, Incompatible) as error:
            damaged = error.values.get("checkpoint_id")
            if isinstance(error, NotFound):
                damaged = named if error.values.get("noun") == "checkpoint" else None
            if damaged is None or damaged in unreadable:
                raise _reported_error(error, list(unreadable.values())) from error
            try:
                checkpoint = await repaired(engine, "checkpoint", damaged, error)
            except (Corrupt, Incompatible, NotFound) as hopeless:
                if named:
                    raise
                unreadable[damaged] = hopeless
            else:
                healed += checkpoint.warnings[-1:]
                # Only the repaired row contains the place of the work.
                near = await engine.read(surroundings, request, mission_id)
                facts = await facts_of(engine, request, near, places)


def _reported_error(error: FleetError, unreadable: list[FleetError]) -> FleetError:
    """Return the error of a mission without a usable checkpoint; another version is no damage."""
    if unreadable and all(isinstance(reason, Incompatible) for reason in unreadable):
        return Incompatible(error.message, hint=unreadable[0].hint, **error.values)
    return error


async def _missing_file(
    engine: Engine, request: RecoveryRestore, result: RestoreResult
) -> list[str]:
    """Warn when a checkpoint's file is missing, and have it written again from the row.

    A file that another machine keeps is not missing here: the row alone is enough.
    """
    if await kept_on(engine, "checkpoint", result.checkpoint_id) is not None:
        return []
    path = engine.backups["checkpoint"].path_of(result.mission_id, result.checkpoint_id)
    if await engine.outbox.in_thread(path.is_file):
        return []
    checkpoint = await get(engine, "checkpoint", result.checkpoint_id)
    if checkpoint.backed_up_at is None:  # not written yet: nothing is missing
        return []
    warning = f"the file of {result.checkpoint_id} was missing; its database row was used"
    log.warning("%s", warning)
    if not request.dry_run:
        engine.outbox.post(WriteBackup("checkpoint", result.checkpoint_id))
    return [warning]


async def facts_of(
    engine: Engine, request: Any, near: Surroundings, places: tuple[str, ...]
) -> Facts:
    """Gather facts that rules may not look up: which agents are dead, and Git's report."""
    dead = frozenset(p.agent_id for p in near.processes if not processes.same(p.pid, p.started))
    directory = near.project_dir or request.cwd
    return Facts(
        dead_agents=dead,
        working_tree=await _working_tree(engine, near.agent_cwd or directory),
        here=await engine.projects.here(near.agent_cwd or directory),
        places=places,
    )


async def _working_tree(engine: Engine, directory: str | None) -> WorkingTree | None:
    """Return Git's report about a directory, None if its file system does not answer."""
    if directory is not None:
        with contextlib.suppress(PathUnanswered):
            await engine.files.look(directory, seconds=HOOK_SECONDS)
            return await repositories.working_tree(directory)
    return None
