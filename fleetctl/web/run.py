"""The run of ``fleetctl web``: opens the listeners, and serves until a signal."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio

from fleetd import __version__
from fleetd.protocol.errors import InvalidParams, InvalidState

from ..client import AsyncFleet
from . import api, running
from .routes import Routes
from .running import Claim, RunningServer
from .security import KeyRing
from .server import Server

PORT = 8722
HOSTS = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "127.0.0.1"}
"""The addresses that the server may listen on, each as an URL has it."""


class Place(NamedTuple):
    """Where the server listens: at a port of an address, or at a Unix socket."""

    host: str = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None

    @property
    def url(self) -> str:
        """Return the address of the page, as a browser on this computer or behind ssh has it."""
        return f"http://{HOSTS[self.host]}:{self.port}/"

    @property
    def ssh(self) -> str:
        """Return the command that leads to it from another computer."""
        far = self.socket or f"{HOSTS[self.host]}:{self.port}"
        return f"ssh -L {self.port}:{far} HOST"


def checked_host(host: str) -> str:
    """Return an address of this computer alone; raises InvalidParams for another."""
    if host not in HOSTS:
        raise InvalidParams(
            f"fleetctl web listens on this computer only, and {host!r} may be reached by others.",
            hint=f"From another computer: {Place().ssh}",
        )
    return host


async def serve(
    claim: Claim,
    place: Place,
    daemon_socket: str,
    *,
    service: bool,
    on_ready: Callable[[RunningServer], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; ``on_ready`` gets the first link.

    In a ``service`` it gets an address without a token. Raises InvalidState where the place is
    taken.
    """
    keys = KeyRing()
    listeners, place = await _listeners(place)

    def tell(new_link: bool) -> RunningServer:
        token = f"#token={keys.new_token(trio.current_time())}" if new_link else ""
        own = str(place.socket) if place.socket else None
        url = f"{place.url}{token}"
        return RunningServer(os.getpid(), __version__, url, place.ssh, own, service)

    async def answer(stream: trio.SocketStream) -> None:
        await running.answer(stream, tell)

    try:
        async with (
            AsyncFleet(daemon_socket, connect=False) as fleet,
            trio.open_nursery() as nursery,
        ):
            server = Server(Routes(api.Daemon(fleet), keys))
            nursery.start_soon(trio.serve_listeners, server.take, listeners)
            nursery.start_soon(trio.serve_listeners, answer, [claim.listener()])
            with trio.open_signal_receiver(*_signals()) as signals:
                on_ready(tell(not service))
                await anext(aiter(signals))
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only(group) from None
    finally:
        if place.socket is not None:
            place.socket.unlink(missing_ok=True)


async def _listeners(place: Place) -> tuple[list[trio.SocketListener], Place]:
    """Return the listeners, and the place with the port that it got."""
    if place.socket is not None:
        if place.socket.is_socket() and _is_stale(place.socket):
            place.socket.unlink()
        return [running.unix_listener(place.socket)], place
    address = HOSTS[place.host].strip("[]")
    try:
        listeners = await trio.open_tcp_listeners(place.port, host=address)
    except OSError as error:
        hint = "A port below 1024 belongs to the system." if error.errno == errno.EACCES else ""
        raise InvalidState(
            f"Port {place.port} of {address} cannot be used: {_reason(error)}.",
            hint=hint or "fleetctl web --port 0 picks one that is free.",
        ) from error
    return listeners, place._replace(port=listeners[0].socket.getsockname()[1])


def _reason(error: OSError) -> str:
    """Return why a port cannot be used; a message of several lines has its cause at its end."""
    if error.errno == errno.EADDRINUSE:
        return "another program listens there"
    return os.strerror(error.errno) if error.errno else str(error)


def _is_stale(path: Path) -> bool:
    """Return whether nobody listens at a socket any more."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


def _signals() -> list[signal.Signals]:
    """Return the signals that end the server; those that were switched off, as by nohup, stay so."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error inside a group where it is the only one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
