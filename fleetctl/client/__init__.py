"""The client of the daemon's socket, for commands and for other people's tools.

``Fleet`` blocks. What commands do without, such as ``AsyncFleet`` for trio, is loaded for whoever
asks for it.
"""

from typing import TYPE_CHECKING, Any

from .blocking import Fleet as Fleet
from .conversation import ConnectionLost as ConnectionLost
from .conversation import Progress as Progress
from .conversation import TooSlow as TooSlow

if TYPE_CHECKING:
    from .async_client import AsyncFleet as AsyncFleet
    from .async_events import AsyncEvents as AsyncEvents
    from .blocking_events import Events as Events
    from .wanted import EventsMissed as EventsMissed
    from .wanted import Link as Link
    from .wanted import StoreReplaced as StoreReplaced

_ELSEWHERE = {
    "AsyncFleet": "async_client",
    "AsyncEvents": "async_events",
    "Events": "blocking_events",
    "EventsMissed": "wanted",
    "Link": "wanted",
    "StoreReplaced": "wanted",
}


def __getattr__(name: str) -> Any:
    if (module := _ELSEWHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{module}", __package__), name)
