"""Sorties as clients add them: with the agent that does."""

from ..domain.core.context import Caller
from ..engine.engine import Engine, operation
from ..protocol.records import Sortie
from ..protocol.requests.sortie import SortieCreate
from .asking import facts_of


@operation
async def create(engine: Engine, request: SortieCreate, caller: Caller) -> Sortie:
    """Add a sortie to an open mission."""
    return await engine.execute(request, caller, facts_of(caller))
