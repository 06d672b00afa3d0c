"""The server: listens, and keeps to the limit of connections."""

import traceback
from http import HTTPStatus

import trio

from fleetd.protocol.errors import Denied, FleetError, LimitExceeded

from .connection import Connection, Handler, Limits
from .peer import check_user


class Server:
    """Answers the clients of some listeners, a bounded number at a time."""

    def __init__(self, handle: Handler, limits: Limits | None = None) -> None:
        self._handle = handle
        self._limits = limits or Limits()
        self._connections: set[Connection] = set()
        self._refused: set[Connection] = set()

    async def take(self, stream: trio.SocketStream) -> None:
        """Answer one client until it leaves; the caller closes the stream."""
        connection = Connection(stream, self._handle, self._limits)
        try:
            check_user(stream.socket)
        except Denied as error:  # it must not take the place of this user's pages
            await self._refuse(connection, error, HTTPStatus.FORBIDDEN)
            return
        if not self._has_room():
            full = LimitExceeded(
                f"{self._limits.connections} connections are open already.",
                hint="Close other pages of the fleet, then load this one again.",
            )
            await self._refuse(connection, full, HTTPStatus.SERVICE_UNAVAILABLE)
            return
        self._connections.add(connection)
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001 - a bug ends one connection, and no other
            traceback.print_exception(error)
        finally:
            self._connections.discard(connection)

    def _has_room(self) -> bool:
        """Return whether there is room for one more client; closes an idle one if necessary."""
        if len(self._connections) < self._limits.connections:
            return True
        idle = [each for each in self._connections if each.idle_since is not None]
        if not idle:
            return False
        longest = min(idle, key=lambda each: each.idle_since or 0.0)
        longest.scope.cancel()
        self._connections.discard(longest)
        return True

    async def _refuse(self, connection: Connection, error: FleetError, status: HTTPStatus) -> None:
        """Send the reason; while many are being refused, further ones get none."""
        if len(self._refused) >= self._limits.connections:
            return
        self._refused.add(connection)
        try:
            await connection.refuse(error, status)
        finally:
            self._refused.discard(connection)
