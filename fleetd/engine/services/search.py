"""Search service: answers queries with the full-text index of the store in use."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.search.search import search
from ...protocol.requests.search import SearchPage, SearchQuery
from ..engine import Engine


@method(SearchQuery)
async def query(engine: Engine, request: SearchQuery, caller: Caller) -> SearchPage:
    """Find text in events, messages and notes."""
    return await engine.read(search, request, engine.store.kind)
