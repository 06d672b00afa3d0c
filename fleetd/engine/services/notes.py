"""Notes that clients add, withdraw and pin: the caller's process identifies the agent."""

from msgspec.structs import replace

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.notes import notes
from ...protocol.records import Note
from ...protocol.requests.mission import MissionSelect
from ...protocol.requests.note import NoteAdd, NotePin, NoteWithdraw
from ..engine import Engine
from .agents import facts_of
from .missions import select


@method(NoteAdd)
async def add(engine: Engine, request: NoteAdd, caller: Caller) -> Note:
    """Add a note to the named mission, else to the mission of the caller's directory."""
    known = await engine.earlier_answer(request)
    if known is not None:
        return known
    facts = facts_of(caller)
    if request.mission_id is None and request.cwd is not None:
        wanted = MissionSelect("work", request.cwd, agent_id=request.agent_id)
        found = await select(engine, wanted, caller)
        facts = replace(facts, mission_id=found.mission.id)
    return await engine.run(notes.add, request, caller, facts)


@method(NoteWithdraw)
async def withdraw(engine: Engine, request: NoteWithdraw, caller: Caller) -> Note:
    """Withdraw a note; an agent withdraws its own only."""
    return await engine.run(notes.withdraw, request, caller, facts_of(caller))


@method(NotePin)
async def pin(engine: Engine, request: NotePin, caller: Caller) -> Note:
    """Pin a note; a caller in an agent's shell counts as that agent."""
    return await engine.run(notes.pin, request, caller, facts_of(caller))
