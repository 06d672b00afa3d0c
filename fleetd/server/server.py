"""Server: accepts clients and serves their connections."""

import contextlib
import errno
import logging
from collections.abc import Mapping
from typing import Never

import trio

from ..config import Limits
from ..engine.engine import Engine
from ..host import trace
from ..protocol.errors import Denied
from . import peer
from .connection import ClientConnection, perform
from .connection_limit import ConnectionLimit
from .reader import LargeLineLimit
from .rpc_dispatch import Dispatcher, Method, error_reply, guarded, methods_for
from .writer import SendBudget

log = logging.getLogger(__name__)

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})
_RETRY_SECONDS = 0.1


class Server:
    """Serves clients on listening sockets; ``extra`` adds methods to the protocol's own."""

    def __init__(
        self, engine: Engine, limits: Limits, extra: Mapping[str, Method] | None = None
    ) -> None:
        self._engine = engine
        self._limits = limits
        added = {name: guarded(name, method) for name, method in (extra or {}).items()}
        self._traffic = engine.traffic
        self._dispatcher = Dispatcher(methods_for(perform) | added, self._traffic)
        self._limit = ConnectionLimit(limits.connections)
        self._large = LargeLineLimit(engine.config.hooks.line_bytes)
        self._unsent = SendBudget()
        self._draining = False

    async def accept(self, listener: trio.socket.SocketType, connections: trio.Nursery) -> Never:
        """Accept clients until cancelled; each is served in the nursery ``connections``.

        When the limit of connections is reached, those that rest give way (``slots``); until
        one does, clients wait in the listener's backlog.
        """
        while True:
            await self._limit.take(listener)
            try:
                sock = await self._accept_one(listener)
            except BaseException:
                self._limit.release()
                raise
            connections.start_soon(self._serve, trio.SocketStream(sock))

    async def _accept_one(self, listener: trio.socket.SocketType) -> trio.socket.SocketType:
        warned = False
        while True:
            try:
                sock, _ = await listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                if not warned:
                    log.warning("No client can be accepted for now: %s", error.strerror)
                warned = True
                await trio.sleep(_RETRY_SECONDS)
            else:
                return sock

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve one client; whatever happens here ends this connection only."""
        # The task is this connection's alone: so is what is said of it.
        trace.enter(trace.TraceContext(connection=self._traffic.opened()))
        try:
            await self._serve_peer(stream)
        except Exception:
            log.exception("A connection failed and was closed")
        finally:
            stream.socket.close()
            self._traffic.closed()
            self._limit.release()

    async def _serve_peer(self, stream: trio.SocketStream) -> None:
        try:
            caller = peer.caller_of(stream.socket)
        except Denied as error:
            self._traffic.refused += 1
            log.warning("A client was refused: %s", error)
            # A stranger who does not stay to hear it is worth no traceback.
            with (
                trio.move_on_after(self._limits.reply_timeout_ms / 1000),
                contextlib.suppress(trio.BrokenResourceError),
            ):
                await stream.send_all(error_reply(error) + b"\n")
            return
        connection = ClientConnection(
            stream, caller, self._engine, self._dispatcher, self._limits, self._large, self._unsent
        )
        self._limit.enter(connection)
        try:
            if self._draining:
                connection.drain()
            await connection.serve()
        finally:
            self._limit.leave(connection)

    def drain(self) -> None:
        """Close idle connections; the others end when what is in flight has been answered."""
        self._draining = True
        for connection in self._limit.connections.copy():
            connection.drain()
