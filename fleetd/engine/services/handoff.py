"""Hand-offs with facts from outside the store: living processes, and Git's report."""

from msgspec.structs import replace

from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...domain.recovery import handoff as rules
from ...domain.recovery.restore_context import surroundings
from ...protocol.requests.handoff import HandoffBegin, HandoffBegun
from ...protocol.requests.recovery import RecoveryContextGet
from ..engine import DAEMON, Engine
from . import agents, recovery


@method(HandoffBegin)
async def begin(engine: Engine, request: HandoffBegin, caller: Caller) -> HandoffBegun:
    """Take a checkpoint, and await the successor; the briefing contains Git's report."""
    asked = RecoveryContextGet(agent_id=request.agent_id)
    near = await engine.on_behalf_of(DAEMON, Facts()).read(surroundings, asked, None)
    facts = await recovery.facts_of(engine, asked, near, ())
    behind = agents.facts_of(caller)
    facts = replace(facts, agent_pid=behind.agent_pid, pid_started=behind.pid_started)
    return await engine.run(rules.begin, request, caller, facts)
