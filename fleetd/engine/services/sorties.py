"""Sorties as clients add them: with the agent that does."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...protocol.records import Sortie
from ...protocol.requests.sortie import SortieCreate
from ..engine import Engine
from .caller_facts import facts_of


@method(SortieCreate)
async def create(engine: Engine, request: SortieCreate, caller: Caller) -> Sortie:
    """Add a sortie to an open mission."""
    return await engine.execute(request, caller, facts_of(caller))
