"""Agents as clients ask for them, with the process behind a caller."""

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
    # The mission that it had before may have been excused by it, and is not any more.
    await scan(engine)
    return registration


@method(AgentCurrent)
async def current(engine: Engine, request: AgentCurrent, caller: Caller) -> CurrentAgent:
    """Tell which agent the caller's process belongs to, as the kernel says it.

    Asked with every call of an agent, so what changes nothing does not write.
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
