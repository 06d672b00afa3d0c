"""systemd: readiness, watchdog and socket activation."""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Never

import trio

from .paths import PathRefused

log = logging.getLogger(__name__)
_FIRST = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Notifier:
    """Sends states to the socket in ``NOTIFY_SOCKET``; ``watchdog_seconds`` is None without one.

    The variables are removed, since they are meant for this process and not for its children.
    """

    def __init__(self, env: MutableMapping[str, str] = os.environ) -> None:
        address = env.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(env)

    def send(self, *states: str) -> None:
        """Send states such as ``READY=1``; a notification that fails must not stop the daemon."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(states).encode(), self._address)
        except OSError as error:
            log.debug("systemd could not be notified: %s", error)


def _watchdog_seconds(env: MutableMapping[str, str]) -> float | None:
    microseconds, pid = env.pop("WATCHDOG_USEC", ""), env.pop("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None
    return int(microseconds) / 1e6 if microseconds.isdigit() and int(microseconds) else None


async def feed_watchdog(
    notifier: Notifier, interval: float, healthy: Callable[[], Awaitable[bool]]
) -> Never:
    """Feed the watchdog every ``interval`` seconds, each time only after a check that succeeds.

    A check that hangs feeds nothing: systemd then restarts the daemon, and the log says why.
    """
    while True:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_warn_when_late, interval / 2)
            well = await healthy()
            nursery.cancel_scope.cancel()
        if well:
            notifier.send("WATCHDOG=1")
        else:
            log.warning("The daemon is not healthy, so the watchdog is not fed.")
        await trio.sleep(interval)


async def _warn_when_late(seconds: float) -> None:
    await trio.sleep(seconds)
    log.warning("The health check did not answer for %g s, so the watchdog is not fed.", seconds)


def inherited_sockets(env: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Return the sockets passed to this process; raises PathRefused for unfit ones.

    The variables are removed: a child must not believe that the sockets are its own.
    """
    pid, count = (env.get(name, "") for name in _VARIABLES[:2])
    for name in _VARIABLES:
        env.pop(name, None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    return [_take_over(number) for number in range(_FIRST, _FIRST + int(count))]


def _take_over(number: int) -> socket.socket:
    try:
        sock = socket.socket(fileno=number)
    except OSError as error:
        raise PathRefused(
            f"LISTEN_FDS names descriptor {number}, which is not a socket: {error.strerror}. "
            "Check the socket unit."
        ) from error
    sock.set_inheritable(False)
    fit = sock.family == socket.AF_UNIX and sock.type == socket.SOCK_STREAM
    if not fit or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise PathRefused(
            f"Descriptor {number} from LISTEN_FDS is not a listening Unix stream socket. "
            "The socket unit needs ListenStream= with a path."
        )
    return sock
