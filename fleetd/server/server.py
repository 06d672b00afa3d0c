"""Server: accepts clients up to the limit of connections, and serves them.

A client that connects and sends nothing keeps its connection until another client needs the place.
"""

import contextlib
import errno
import logging
import os
import select
import socket
from collections.abc import Mapping
from typing import Never

import trio

from ..config import Limits
from ..domain.core.context import Caller
from ..engine.engine import Engine
from ..host import trace
from ..protocol.errors import Denied
from ..protocol.framing import credentials
from .connection import ClientConnection
from .lines import LargeLineLimit, SendBudget
from .rpc import Dispatcher, Method, error_reply, guarded, methods_for

log = logging.getLogger(__name__)

_TRANSIENT = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
)
_RETRY_SECONDS = 0.1
# No connection is evicted sooner: a request of its client may be on its way.
IDLE_S = 0.1
# Unread data does not protect an idle connection for longer: the daemon reads it immediately unless
# it is late, and a client that sends junk always has some.
UNREAD_S = 1.0
_WARN_EVERY_S = 60.0


class Server:
    """Serves clients on listening sockets; ``extra`` adds methods to the protocol's own."""

    def __init__(
        self, engine: Engine, limits: Limits, extra: Mapping[str, Method] | None = None
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._traffic = engine.traffic
        methods = methods_for(lambda request, call: call.perform(request))
        for name, method in (extra or {}).items():
            methods[name] = guarded(name, method)
        self._dispatcher = Dispatcher(methods, self._traffic)
        self._limit = ConnectionLimit(limits.connections)
        self._large = LargeLineLimit(engine.config.hooks.line_bytes)
        self._unsent = SendBudget()
        self._draining = False

    async def accept(self, listener: trio.socket.SocketType, connections: trio.Nursery) -> Never:
        """Accept clients until cancelled; each is served in the nursery ``connections``.

        At the limit of connections an idle one is evicted; until there is one, clients wait in the
        listener's backlog.
        """
        while True:
            await self._limit.take(listener)
            try:
                sock = await _accept(listener)
            except BaseException:
                self._limit.release()
                raise
            connections.start_soon(self._serve, trio.SocketStream(sock))

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve one client; whatever happens here ends this connection only."""
        # This task serves only this connection, and so does its trace context.
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
            caller = caller_of(stream.socket)
        except Denied as error:
            self._traffic.refused += 1
            log.warning("A client was refused: %s", error)
            # A refused client that leaves before it reads the error needs no traceback.
            with (
                trio.move_on_after(self._limits.reply_timeout_ms / 1000),
                contextlib.suppress(trio.BrokenResourceError),
            ):
                await stream.send_all(error_reply(error) + b"\n")
            return
        connection = ClientConnection(
            stream, caller, self._engine, self._dispatcher, self._limits, self._large, self._unsent
        )
        self._limit.connections.add(connection)
        try:
            if self._draining:
                connection.drain()
            await connection.serve()
        finally:
            self._limit.forget(connection)

    def drain(self) -> None:
        """Close idle connections; the others end when what is in flight has been answered."""
        self._draining = True
        for connection in self._limit.connections.copy():
            connection.drain()


async def _accept(listener: trio.socket.SocketType) -> trio.socket.SocketType:
    """Accept one client, as soon as the process and the kernel have room for it."""
    warned = False
    while True:
        try:
            return (await listener.accept())[0]
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
            if not warned:
                log.warning("No connection can be accepted now: %s", error.strerror)
            warned = True
            await trio.sleep(_RETRY_SECONDS)


def caller_of(sock: socket.socket | trio.socket.SocketType) -> Caller:
    """Return who connected; raises Denied unless it is the user the daemon runs as."""
    uid, pid = credentials(sock)
    if uid != os.getuid():
        raise Denied(
            f"This fleetd belongs to uid {os.getuid()}; uid {uid} may not use it.",
            hint="Start your own fleetd.",
            uid=uid,
        )
    return Caller(kind="client", uid=uid, pid=pid)


class ConnectionLimit:
    """Connection limit with idle eviction."""

    def __init__(self, count: int) -> None:
        self.connections: set[ClientConnection] = set()
        self._count = count
        self._free = trio.Semaphore(count)
        self._evicted: set[ClientConnection] = set()
        self._warned_at = float("-inf")

    async def take(self, listener: trio.socket.SocketType) -> None:
        """Take a place; when there is none, wait for a client and evict an idle connection."""
        try:
            self._free.acquire_nowait()
        except trio.WouldBlock:
            # Evict nothing until a client waits.
            await trio.lowlevel.wait_readable(listener.fileno())
            await self._evict_one()

    def release(self) -> None:
        """Give a place to the next in line."""
        self._free.release()

    def forget(self, connection: ClientConnection) -> None:
        """Note that a connection has ended."""
        self.connections.discard(connection)
        self._evicted.discard(connection)

    async def _evict_one(self) -> None:
        while True:
            # Tried each time: a client may have left meanwhile.
            with contextlib.suppress(trio.WouldBlock):
                return self._free.acquire_nowait()
            if not self._evicted and (found := self._longest_idle()):
                self._evicted.add(found)
                found.evict()
                if trio.current_time() - self._warned_at >= _WARN_EVERY_S:
                    self._warned_at = trio.current_time()
                    log.warning(
                        "All %d connections are in use; the longest idle ones are closed for new"
                        " ones",
                        self._count,
                    )
            with trio.move_on_after(IDLE_S / 4):
                return await self._free.acquire()

    def _longest_idle(self) -> ClientConnection | None:
        """Return the connection to evict; those that never sent a request come first.

        While one of these may soon be evictable, no answered connection is evicted.
        """
        idle = [
            (since, each) for each in self.connections if (since := each.idle_since) is not None
        ]
        silent = [pair for pair in idle if not pair[1].answered]
        if not idle:
            return None
        since, found = min(silent or idle, key=lambda pair: pair[0])
        rest = trio.current_time() - since
        evictable = rest >= UNREAD_S or (rest >= IDLE_S and not _has_unread(found.socket))
        return found if evictable else None


def _has_unread(sock: trio.socket.SocketType) -> bool:
    """Return whether the socket has unread data."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
