"""Search, in the words of the store that is in use."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.search.search import search
from ...protocol.requests.search import SearchPage, SearchQuery
from ..engine import Engine


@method(SearchQuery)
async def query(engine: Engine, request: SearchQuery, caller: Caller) -> SearchPage:
    """Find what events, messages and notes say."""
    return await engine.read(search, request, engine.store.kind)
