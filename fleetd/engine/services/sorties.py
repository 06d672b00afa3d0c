"""Sorties as clients add them: with the agent that does."""

from ...domain.core.context import Caller
from ...protocol.records import Sortie
from ...protocol.requests.sortie import SortieCreate
from ..engine import Engine, operation
from .caller_facts import facts_of


@operation
async def create(engine: Engine, request: SortieCreate, caller: Caller) -> Sortie:
    """Add a sortie to an open mission."""
    return await engine.execute(request, caller, facts_of(caller))
