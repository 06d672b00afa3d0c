"""Recovery with what it needs from outside: living processes, Git, and the files of checkpoints."""

import msgspec

from .. import places, processes
from ..domain.context import Caller, Facts
from ..domain.takeover import ProcessesGet
from ..engine import Engine, operation
from ..wire.errors import Corrupt, FleetError, NotFound
from ..wire.model import RestoreResult
from ..wire.requests import MissionGet, RecoveryContextGet, RecoveryRestore
from ..wire.requests.recovery import Briefing
from .checkpoints import heal


@operation
async def restore(engine: Engine, request: RecoveryRestore, caller: Caller) -> RestoreResult:
    """Restore from a checkpoint; a damaged row is healed from its file first.

    When both copies of the newest one are damaged, the one before it is used, with a warning;
    a checkpoint that was named is never replaced by another.
    """
    facts = await _facts(engine, request.cwd, request.mission_id)
    unreadable: set[str] = set()
    healed_warnings: list[str] = []
    while True:
        known = msgspec.structs.replace(facts, unreadable=frozenset(unreadable))
        try:
            result = await engine.execute(request, caller, known)
        except (Corrupt, NotFound) as error:
            damaged = _damaged(request, error)
            if damaged is None or damaged in unreadable:
                raise
            checkpoint = await heal(engine, damaged, error)
            if checkpoint is None and request.checkpoint_id:
                raise
            if checkpoint is None:
                unreadable.add(damaged)
            else:
                healed_warnings += checkpoint.warnings[-1:]
        else:
            return msgspec.structs.replace(result, warnings=[*healed_warnings, *result.warnings])


def _damaged(request: RecoveryRestore, error: FleetError) -> str | None:
    """Return the checkpoint that an error is about, if healing it could help."""
    if isinstance(error, Corrupt):
        return error.values.get("checkpoint_id")
    return request.checkpoint_id if error.values.get("noun") == "checkpoint" else None


@operation
async def context(engine: Engine, request: RecoveryContextGet, caller: Caller) -> Briefing:
    """Brief without restoring, with what Git says about the project."""
    facts = await _facts(engine, request.cwd, request.mission_id)
    return await engine.execute(request, caller, facts)


async def _facts(engine: Engine, cwd: str | None, mission_id: str | None) -> Facts:
    running = await engine.execute(ProcessesGet())
    dead = frozenset(p.agent_id for p in running.processes if not processes.same(p.pid, p.started))
    directory = cwd
    if mission_id:
        directory = (await engine.execute(MissionGet(mission_id))).project_dir or cwd
    return Facts(dead_agents=dead, repository=await places.repository(directory))
