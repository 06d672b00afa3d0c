"""The blocking client of the daemon's socket; must not know commands, options or output."""

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fleetd import paths
from fleetd.wire.errors import (
    FleetError,
    InvalidParams,
    LimitExceeded,
    Unavailable,
    from_wire,
)
from fleetd.wire.frames import FrameTooLong, Line, LineDecoder

from .dial import dial
from .protocol import Event, Request
from .records import Record, an_object, decode, encode, not_understood

CONNECT_S = 5.0
# systemd waits a second before it starts a daemon again that failed.
RESTART_S = 8.0
RESTART_PAUSE_S = 0.1
# What makes a daemon fall over is not sent for ever.
LOSSES = 2
REPLY_S = 120.0
# Reading takes milliseconds; a daemon that is silent for so long hangs.
READ_S = 15.0
WAKE_S = 0.5
REPLY_BYTES = 256 * 1024 * 1024

R = TypeVar("R")


class ConnectionLost(Unavailable):
    """The daemon closed the connection before it answered; whether it acted is not known."""


class TooSlow(LimitExceeded):
    """The daemon did not answer in time."""

    def __init__(self) -> None:
        super().__init__("fleetd did not answer in time.", hint="Look at its log, then try again.")


class Client:
    """One connection to the daemon, one call at a time.

    Raises Unavailable when nobody listens, Denied when the server is another user's, Incompatible
    when its words make no sense, and the daemon's own FleetError for a call that it refused.
    """

    def __init__(self, path: Path, *, connect_s: float = CONNECT_S) -> None:
        self._path = path
        self._last_id = 0
        self._events: deque[Event] = deque()
        self._open(time.monotonic() + connect_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        self._socket.close()

    def call(self, request: Request[R], *, reply_s: float | None = None) -> R:
        """Send a request and return its result; waits up to ``reply_s`` seconds.

        By default that is two minutes for what changes something, else 15 seconds.

        A call that may change something carries an idempotency key, so that it can be sent again
        when the daemon went away before it answered, and is applied once all the same.
        """
        if reply_s is None:
            reply_s = REPLY_S if request.changes else READ_S
        result = self._insist(request.method, request.keyed(new_key()).encoded(), reply_s)
        try:
            return request.answer(result)
        except ValueError as error:
            raise not_understood(error) from error

    def call_raw(
        self, method: str, params: Any = None, *, reply_s: float = REPLY_S, again: bool = False
    ) -> Any:
        """Send any method with any parameters and return its result as plain data.

        ``again`` allows it to be sent again over a restart of the daemon: for what changes nothing
        and for what has an idempotency key.
        """
        send = self._insist if again else self._exchange
        return send(method, encode({} if params is None else params), reply_s)

    def notifications(self) -> Iterator[Event]:
        """Yield the events of this connection's subscriptions, for ever.

        Raises ConnectionLost when the daemon goes away.
        """
        # A signal that comes just before the system call does not interrupt it: with a timeout,
        # Ctrl-C is heard a moment later instead of at the next event.
        self._socket.settimeout(WAKE_S)
        while True:
            while self._events:
                yield self._events.popleft()
            with suppress(TooSlow):
                self._take(self._receive())

    def _open(self, deadline: float) -> None:
        self._lines = LineDecoder(REPLY_BYTES)
        self._socket = dial(self._path, deadline)

    def _insist(self, method: str, params: bytes, reply_s: float) -> Any:
        """Exchange a call for its result, over restarts of the daemon.

        Raises ConnectionLost when it does not come back in time, or the error of a daemon that
        ends and goes on saying so.
        """
        deadline, losses = None, 0
        while True:
            try:
                return self._exchange(method, params, reply_s)
            except FleetError as error:
                losses += isinstance(error, ConnectionLost)
                if not _ends(error) or losses > LOSSES:
                    raise
                if deadline is None:
                    deadline = time.monotonic() + RESTART_S
                elif time.monotonic() > deadline:
                    raise
            self._reopen(deadline)

    def _reopen(self, deadline: float) -> None:
        """Wait for a daemon that restarts; raises ConnectionLost when it does not come back."""
        self.close()
        while True:
            # The one that ends listens for a moment yet, and nobody else does.
            time.sleep(RESTART_PAUSE_S)
            try:
                return self._open(deadline)
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise ConnectionLost(
                        "fleetd went away before it answered; whether it acted is not known.",
                        hint="Start it again and look: fleetctl status",
                    ) from error

    def _exchange(self, method: str, params: bytes, reply_s: float) -> Any:
        self._last_id += 1
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":' % (self._last_id, encode(method))
        self._socket.settimeout(reply_s)
        self._send(head + params + b"}\n")
        while (reply := self._take(self._receive())) is None:
            pass
        if (error := reply.get("error")) is not None:
            raise _refusal(error)
        return reply.get("result")

    def _send(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except TimeoutError as error:
            raise TooSlow from error
        except (BrokenPipeError, ConnectionResetError):
            # A daemon that refused the line says why before it closes: go on to read that.
            return

    def _receive(self) -> Line:
        try:
            while (line := self._lines.next_line()) is None:
                if not (data := self._socket.recv(262_144)):
                    raise ConnectionLost("fleetd closed the connection before it answered.")
                self._lines.feed(data)
        except TimeoutError as error:
            raise TooSlow from error
        except ConnectionResetError as error:
            raise ConnectionLost("fleetd closed the connection before it answered.") from error
        except FrameTooLong as error:
            raise LimitExceeded(f"The reply is longer than {REPLY_BYTES} bytes.") from error
        return line

    def _take(self, line: Line) -> Record | None:
        """Keep a notification for later; return the reply to the call that is under way."""
        try:
            incoming: Any = decode(line)
        except (ValueError, RecursionError) as error:
            raise not_understood(error) from error
        an_object(incoming, "a message")
        if incoming.get("method") == "event":
            told = an_object(incoming.params, "what a notification tells")
            event: Any = an_object(told.event, "an event")
            self._events.append(event)
        # An error without id answers a line that the daemon could not read.
        number = incoming.get("id")
        unaddressed = number is None and incoming.get("error") is not None
        return incoming if number == self._last_id or unaddressed else None


def _refusal(told: Any) -> FleetError:
    """Return the error that the daemon answered with; raises Incompatible when it is none."""
    error = an_object(told, "an error")
    code, message = error.code, error.message
    if not isinstance(code, int) or not isinstance(message, str):
        raise not_understood("an error has a number and a sentence")
    return from_wire(code, message, error.get("data"))


def new_key() -> str:
    """Return an idempotency key that nobody else uses."""
    return os.urandom(16).hex()


def _ends(error: FleetError) -> bool:
    """Whether the daemon went away, or says that it does and what was sent may be sent again."""
    return isinstance(error, ConnectionLost) or error.values.get("retry") is True


def connect(*, connect_s: float = CONNECT_S) -> Client:
    """Open a connection to this user's daemon."""
    path = paths.socket_path()
    try:
        paths.check_socket_length(path)
    except paths.PathRefused as error:
        raise InvalidParams(
            str(error), hint="A socket path must fit the kernel's limit."
        ) from error
    return Client(path, connect_s=connect_s)
