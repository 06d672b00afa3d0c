"""The state of the fleet, asked of a daemon that can tell; must not show it."""

from fleetd.protocol.errors import Unavailable

from . import Fleet
from .models import Status, SystemStatus


def overview(client: Fleet) -> Status:
    """Return the status; raises Unavailable while the store is away, of which it would tell."""
    status = client.call(SystemStatus())
    if status.counts is None:
        away = status.store.away if status.store else None
        raise Unavailable(
            f"The store is away: {away.message if away else 'the daemon ends'}",
            hint="fleetctl status says since when.",
            away_ms=away.for_ms if away else 0,
        )
    return status


def position_of(client: Fleet) -> int:
    """Return the ``seq`` of the newest event; raises Unavailable while the store is away."""
    return overview(client).position or 0
