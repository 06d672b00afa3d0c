"""The cursor of a consumer of events; must not know the events themselves, nor any connection."""

import time as wall
import warnings

from fleetd.protocol.errors import InvalidState, NotFound, Unavailable
from fleetd.protocol.requests.event import (
    CursorAdvance,
    CursorGap,
    CursorGet,
    CursorPosition,
    EventList,
)

from .subscription_options import Calls, EventsMissed, Wanted

# How often a consumer that gets nothing says that it is still there: its cursor keeps events only
# while it is used, and those that it does not want no longer than it takes to say so.
IN_USE_S = 3_600.0


class Cursor:
    """Remembers with the daemon how far a consumer is; without a consumer it remembers nothing."""

    def __init__(self, wanted: Wanted, call: Calls) -> None:
        self.gap: CursorGap | None = None
        """Events that nobody can give the consumer any more, None when there are none."""
        self._wanted = wanted
        self._call = call
        self._consumer = wanted.consumer or ""
        self._stream = f"mission:{wanted.mission_id}" if wanted.mission_id else "fleet"
        # Up to where nothing came that is wanted, and when that was looked at.
        self._looked = 0
        self._used_at = 0.0

    async def get(self) -> CursorPosition:
        """Return where the consumer is; warns with EventsMissed when it missed events."""
        found = await self._call(CursorGet(self._consumer, self._stream))
        self.gap = found.gap
        if self.gap is not None:
            warnings.warn(
                f"The cursor of {self._consumer} on {self._stream} was not used for long, and"
                f" events up to {self.gap.missed_until} are not there any more that it had not come"
                f" to; the first one that follows is {self.gap.first_available}.",
                EventsMissed,
                stacklevel=2,
            )
        return found

    async def advance(self, position: int | None) -> None:
        """Move the cursor to an event that was dealt with; raises what the daemon refuses."""
        if self._consumer and position is not None:
            await self._call(CursorAdvance(self._consumer, self._stream, position))

    async def stay_in_use(self, position: int | None) -> None:
        """Use the cursor now and then, and let it pass what the consumer does not want."""
        now = wall.time()
        if not self._consumer or position is None or abs(now - self._used_at) < IN_USE_S:
            return
        self._used_at = now
        try:
            looked = await self._unwanted_until(position)
            if looked > max(position, self._looked):
                self._looked = looked
                await self.advance(looked)
            else:
                await self._call(CursorGet(self._consumer, self._stream))
        except (Unavailable, InvalidState, NotFound):
            return  # away, another of the same name is further, or the mission was deleted

    async def _unwanted_until(self, position: int) -> int:
        """Return up to where nothing follows that is wanted; the position where something does."""
        until: int | None = None
        for kind in self._wanted.types or ():
            request = EventList(self._wanted.mission_id, kind, since=position, limit=1)
            page = await self._call(request)
            if page.events:
                return position
            until = page.position if until is None else min(page.position, until)
        return position if until is None else until
