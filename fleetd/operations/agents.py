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
    await engine.perform(ActivityScan(), caller)
    if request.pid is None:
        return await engine.execute(request, caller)
    started = processes.started(request.pid)
    if started is None:
        raise InvalidParams(
            f"pid is {request.pid}, but there is no such process.",
            hint="Register with the pid of the agent itself, or without one.",
            field="pid",
        )
    return await engine.execute(request, caller, Facts(pid_started=started))
