"""What a subscription is asked for, carried by and told of; must not do any of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from fleetd.protocol.errors import FleetError, Incompatible
from fleetd.protocol.request import Request

from .retry import Waits

R = TypeVar("R")


class StoreReplaced(Incompatible):
    """The store is another one since it was last heard of: positions in its log mean nothing now.

    Whoever keeps a state that he made of events reads it anew, and follows from there.
    """


class EventsMissed(UserWarning):
    """A consumer comes back after so long that events it had not read are not there any more."""


class Link(NamedTuple):
    """How a subscription stands with the daemon, since when (seconds since 1970), and why."""

    state: Literal["connected", "away", "back"]
    since: float
    error: FleetError | None = None


class Carrier(Waits, Protocol):
    """What carries the bytes of one connection at a time."""

    async def dial(self, path: Path, deadline: float) -> None:
        """Open a connection, after closing the one before; raises Unavailable or Denied."""

    async def send(self, data: bytes, wait_s: float) -> None:
        """Send all; raises TooSlow, ConnectionLost."""

    async def receive(self, wait_s: float) -> bytes:
        """Return what comes next; raises TooSlow when nothing does, ConnectionLost at the end."""

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""


class Wanted(NamedTuple):
    """Which events, from where on, and for how long a daemon that is away is waited for."""

    since: int | None
    epoch: str | None
    types: Sequence[str] | None
    mission_id: str | None
    consumer: str | None
    away_s: float | None
    on_link: Callable[[Link], None] | None
    agent_id: str | None = None


class Calls(Protocol):
    """How the consumer's cursor is asked for and moved."""

    async def __call__(self, request: Request[R]) -> R:
        """Carry out a request."""
