"""Retry over a restart of the daemon: deadlines, timeouts and idempotency keys.

The clients pass in the functions that wait. The trio client passes functions that trio waits for.
The blocking client passes functions that block, so that ``run_blocking`` runs them to their end.
"""

from __future__ import annotations

import os

from fleetd.host import socket_place
from fleetd.protocol.errors import FleetError, InvalidParams, Unavailable

from .models import Request, incompatible
from .protocol import ConnectionLost, OutgoingCall, Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, TypeVar

    from .subscription import Clock

    R = TypeVar("R")


CONNECT_S = 5.0
# systemd waits a second before it restarts a failed daemon.
RESTART_S = 8.0
RESTART_PAUSE_S = 0.1
# A request that crashes the daemon is not resent for ever.
LOSSES = 2
REPLY_S = 120.0
# Reads take milliseconds: a daemon that is silent for this long hangs.
READ_S = 15.0
# The duration of some calls grows with the store. A daemon that hangs is stopped anyway.
LONG_S = 86_400.0


async def retried(
    exchange: Callable[[], Awaitable[R]],
    open_one: Callable[[float], Awaitable[Any]],
    time: Clock,
    restart_s: float,
) -> R:
    """Return a call's result; retries over restarts of the daemon within ``restart_s``.

    Raises ConnectionLost when the daemon does not come back in time, or the error of a daemon that
    is stopping and keeps reporting it.
    """
    deadline, losses = None, 0
    while True:
        try:
            return await exchange()
        except FleetError as error:
            losses += isinstance(error, ConnectionLost)
            if not is_going_away(error) or losses > LOSSES:
                raise
            if deadline is None:
                # The store may have been away for a while: the timeout starts when it went away.
                away_ms = error.values.get("away_ms")
                away_s = away_ms / 1_000 if isinstance(away_ms, int) else 0.0
                deadline = time.now() + max(0.0, restart_s - away_s)
            elif time.now() > deadline:
                raise
        try:
            await reconnect(open_one, time, deadline)
        except Unavailable as error:
            raise ConnectionLost(
                "The connection to fleetd ended before the reply. The request may have been"
                " carried out.",
                hint="Start fleetd, then check the result: fleetctl status",
            ) from error


async def reconnect(open_one: Callable[[float], Awaitable[R]], time: Clock, deadline: float) -> R:
    """Wait for a daemon that restarts; raises Unavailable when it does not come back."""
    while True:
        # The daemon that is stopping still listens for a moment, and no other one does.
        await time.sleep(RESTART_PAUSE_S)
        try:
            return await open_one(deadline)
        except Unavailable:
            if time.now() > deadline:
                raise


def is_going_away(error: FleetError) -> bool:
    """Return whether the daemon went away, or reports that it does and allows a retry."""
    return isinstance(error, ConnectionLost) or error.values.get("retry") is True


def outgoing(
    request: Request[Any], reply_s: float | None, progress: Callable[[Progress], None] | None
) -> OutgoingCall:
    """Return the call for a request; with ``progress``, a token tracks it."""
    token = new_key()
    if progress is not None:
        request = request.tracked(token)
    wait_s = reply_timeout(request, reply_s)
    return OutgoingCall(request.method, request.encoded(), wait_s, token, progress)


def run_blocking(steps: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that waits only by blocking, and return its result."""
    try:
        steps.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    raise RuntimeError("a blocking coroutine cannot wait")


def reply_timeout(request: Request[Any], reply_s: float | None) -> float:
    """Return the timeout of a reply in seconds, counted from when the request was sent."""
    if reply_s is not None:
        return reply_s
    if not request.changes:
        return READ_S
    wait_ms = getattr(request, "wait_ms", None) or 0
    return mutation_timeout(long=request.long, wait_ms=wait_ms)


def mutation_timeout(*, long: bool, wait_ms: int) -> float:
    """Return the timeout in seconds of a call that may change something.

    ``wait_ms`` is how long the request tells the daemon to wait.
    """
    return LONG_S if long else REPLY_S + wait_ms / 1_000


def answer(request: Request[R], result: Any) -> R:
    """Return a call's result; raises Incompatible when it does not fit the method."""
    try:
        return request.answer(result)
    except ValueError as error:
        raise incompatible(error) from error


def keyed(request: Request[R], key: str | None = None) -> Request[R]:
    """Return a request that may be sent twice: with its own key, the given key or a new one.

    Raises TypeError for anything but a request.
    """
    if not hasattr(request, "keyed"):
        raise TypeError(
            f"call() takes a request, such as MissionList(), and got {request!r}; "
            "call_raw() takes the name of a method and its parameters"
        )
    return request.keyed(key or new_key())


def new_key() -> str:
    """Return a new, unique idempotency key."""
    return os.urandom(16).hex()


def default_socket() -> str:
    """Return the path of this user's socket; raises InvalidParams when it is too long."""
    path = socket_place.socket_path()
    try:
        socket_place.check_socket_length(path)
    except socket_place.PathRefused as error:
        raise InvalidParams(
            str(error), hint="A socket path must fit the kernel's limit."
        ) from error
    return path
