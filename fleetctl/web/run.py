"""The run of ``fleetctl web``: opens the listeners, and serves until a signal."""

import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import trio

from fleetd import __version__
from fleetd.protocol.errors import InvalidState

from . import api, running
from .place import HOSTS, Place
from .raw_results import RawFleet
from .routes import Routes
from .running import Claim, RunningServer
from .security import KeyRing
from .server import Server


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
    listeners, place = _listeners(place)

    def running_server(new_link: bool) -> RunningServer:
        token = f"#token={keys.new_token(trio.current_time())}" if new_link else ""
        own = str(place.socket) if place.socket else None
        url = f"{place.url}{token}"
        return RunningServer(os.getpid(), __version__, url, place.ssh, own, service)

    async def answer(stream: trio.SocketStream) -> None:
        await running.answer(stream, running_server)

    try:
        async with (
            RawFleet(daemon_socket) as fleet,
            trio.open_nursery() as nursery,
        ):
            server = Server(Routes(api.Daemon(fleet), keys))
            nursery.start_soon(trio.serve_listeners, server.take, listeners)
            nursery.start_soon(trio.serve_listeners, answer, [claim.listener()])
            with trio.open_signal_receiver(*_signals()) as signals:
                on_ready(running_server(not service))
                await anext(aiter(signals))
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only(group) from None
    finally:
        if place.socket is not None:
            place.socket.unlink(missing_ok=True)


def _listeners(place: Place) -> tuple[list[trio.SocketListener], Place]:
    """Return the listeners, and the place with the port that it got."""
    if place.socket is not None:
        if place.socket.is_socket() and _is_stale(place.socket):
            place.socket.unlink()
        return [running.unix_listener(place.socket)], place
    try:
        listener = _tcp_listener(place)
    except OSError as error:
        hint = "A port below 1024 belongs to the system." if error.errno == errno.EACCES else ""
        raise InvalidState(
            f"Port {place.port} of {HOSTS[place.host]} cannot be used: {_reason(error)}.",
            hint=hint or "fleetctl web --port 0 picks one that is free.",
        ) from error
    return [listener], place._replace(port=listener.socket.getsockname()[1])


def _tcp_listener(place: Place) -> trio.SocketListener:
    """Return a listener without the look-ups and imports of trio's own function for host names.

    Raises OSError.
    """
    address = HOSTS[place.host].strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Reuse a port whose last connections have just ended.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, place.port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there"
    return error.strerror or str(error)


def _is_stale(path: Path) -> bool:
    """Return whether nobody listens at a socket any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


def _signals() -> list[signal.Signals]:
    """Return the signals that end the server, except for ignored ones, as under nohup."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error inside a group where it is the only one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
