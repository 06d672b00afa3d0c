"""The client of the daemon's socket, for commands and for other people's tools.

``Fleet`` blocks. What commands do without, such as ``AsyncFleet`` for trio, is loaded for whoever
asks for it.
"""

from typing import TYPE_CHECKING, Any

from .protocol import ConnectionLost as ConnectionLost
from .protocol import Progress as Progress
from .protocol import TooSlow as TooSlow
from .sync import Fleet as Fleet

if TYPE_CHECKING:
    from .aio import AsyncFleet as AsyncFleet
    from .async_subscription import AsyncEvents as AsyncEvents
    from .subscription_options import EventsMissed as EventsMissed
    from .subscription_options import Link as Link
    from .subscription_options import StoreReplaced as StoreReplaced
    from .sync_subscription import Events as Events

_ELSEWHERE = {
    "AsyncFleet": "aio",
    "AsyncEvents": "async_subscription",
    "Events": "sync_subscription",
    "EventsMissed": "subscription_options",
    "Link": "subscription_options",
    "StoreReplaced": "subscription_options",
}


def __getattr__(name: str) -> Any:
    if (module := _ELSEWHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{module}", __package__), name)
