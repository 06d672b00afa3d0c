"""Agents for clients, with the process behind a caller."""

import msgspec

from ...domain.agents import agents
from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...host import processes
from ...protocol.errors import InvalidParams
from ...protocol.requests.agent import AgentCurrent, AgentRegister, CurrentAgent, Registration
from ..engine import Engine
from ..jobs.liveness import scan


def facts_of(caller: Caller, places: tuple[str, ...] = ()) -> Facts:
    """Return the agent's process behind a caller; ``places`` are its directory's names."""
    pid, started = (caller.pid and processes.agent_behind(caller.pid)) or (None, None)
    return Facts(agent_pid=pid, pid_started=started, places=places)


@method(AgentRegister)
async def register(engine: Engine, request: AgentRegister, caller: Caller) -> Registration:
    """Register an agent; a pid that no process has is refused."""
    known = await engine.earlier_answer(request)
    if known is not None:
        return known
    started = None
    if request.pid is not None and (started := processes.started(request.pid)) is None:
        raise InvalidParams(
            f"pid is {request.pid}, but no such process exists.",
            hint="Register with the pid of the agent itself, or without one.",
            field="pid",
        )
    await scan(engine)
    places = await engine.projects.shared_names(request.cwd)
    facts = Facts(pid_started=started, places=places)
    registration = await engine.run(agents.register, request, caller, facts)
    # The agent may have excused the silence of its earlier mission, and does so no longer.
    await scan(engine)
    return registration


@method(AgentCurrent)
async def current(engine: Engine, request: AgentCurrent, caller: Caller) -> CurrentAgent:
    """Return the agent that the caller's process belongs to, according to the kernel.

    Every call of an agent asks this, so a call that changes nothing does not write.
    """
    facts = facts_of(caller)
    found = await engine.on_behalf_of(caller, facts).read(agents.find_current, request.agent_id)
    if found.agent is not None or not request.register:
        return found
    await scan(engine)
    places = await engine.projects.shared_names(request.cwd)
    facts = msgspec.structs.replace(facts, places=places)
    joined = await engine.on_behalf_of(caller, facts).write(agents.find_or_register, request)
    await scan(engine)
    return joined
