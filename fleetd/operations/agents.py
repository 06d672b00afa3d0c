"""Registering an agent: detection first, then the agent with the start time of its process."""

from .. import processes
from ..domain.context import Caller, Facts
from ..engine import Engine, operation
from ..wire.errors import InvalidParams
from ..wire.requests.agent import AgentRegister, Registration
from .watching import ActivityScan


@operation
async def register(engine: Engine, request: AgentRegister, caller: Caller) -> Registration:
    """Register an agent; a pid that no process has is refused."""
    known = await engine.recalled(request)
    if known is not None:
        return known
    started = None if request.pid is None else _started(request.pid)
    await engine.perform(ActivityScan(), caller)
    registration = await engine.execute(request, caller, Facts(pid_started=started))
    # The mission that it had before may have been excused by it, and is not any more.
    await engine.perform(ActivityScan(), caller)
    return registration


def _started(pid: int) -> str:
    """Return when a process was started; raises InvalidParams when there is none."""
    started = processes.started(pid)
    if started is None:
        raise InvalidParams(
            f"pid is {pid}, but there is no such process.",
            hint="Register with the pid of the agent itself, or without one.",
            field="pid",
        )
    return started
