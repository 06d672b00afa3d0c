"""How far the event log has come, asked of a daemon that can tell; must not read any event."""

from fleetd.wire.errors import Unavailable

from .client import Fleet
from .protocol import SystemStatus


def position_of(client: Fleet) -> int:
    """Return the ``seq`` of the newest event; raises Unavailable while the store is away."""
    status = client.call(SystemStatus())
    if status.position is None:
        why = status.store.away.message if status.store and status.store.away else "it starts"
        raise Unavailable(f"The store is away: {why}", hint="Look again: fleetctl status")
    return status.position
