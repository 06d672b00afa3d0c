"""Client for the daemon's socket, for commands and for third-party tools.

``Fleet`` blocks. Names that commands do not need, such as ``AsyncFleet`` for trio, are loaded on
first use.
"""

from __future__ import annotations

from .protocol import ConnectionLost as ConnectionLost
from .protocol import Progress as Progress
from .protocol import TooSlow as TooSlow
from .sync import Fleet as Fleet
from .sync import call as call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .aio import AsyncEvents as AsyncEvents
    from .aio import AsyncFleet as AsyncFleet
    from .subscription import Events as Events
    from .subscription import EventsMissed as EventsMissed
    from .subscription import Link as Link
    from .subscription import StoreReplaced as StoreReplaced

_ELSEWHERE = dict.fromkeys(("Events", "EventsMissed", "Link", "StoreReplaced"), "subscription")
_ELSEWHERE |= dict.fromkeys(("AsyncFleet", "AsyncEvents"), "aio")


def __getattr__(name: str) -> Any:
    if (module := _ELSEWHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{module}", __package__), name)
