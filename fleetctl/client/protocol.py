"""JSON-RPC on one connection: number the calls, match replies to them, read notifications.

Both the blocking client and the trio client use it.
"""

from __future__ import annotations

from fleetd.protocol.errors import FleetError, LimitExceeded, Unavailable, from_wire
from fleetd.protocol.framing import FrameTooLong, Line, LineDecoder

from .models import PlainRecord, decode, encode, incompatible, require_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

REPLY_BYTES = 256 * 1024 * 1024


class ConnectionLost(Unavailable):
    """The connection ended before the answer came; whether the daemon acted is not known."""


class TooSlow(LimitExceeded):
    """The daemon did not answer in time."""

    def __init__(self) -> None:
        super().__init__("fleetd did not answer in time.", hint="Read its log, then try again.")


class Reply:
    """The reply to a call: its result, or the daemon's error."""

    def __init__(self, number: int, result: Any, error: FleetError | None) -> None:
        self.number = number
        self.result = result
        self.error = error


class Notice:
    """A notification of the daemon."""

    def __init__(self, method: str, params: PlainRecord) -> None:
        self.method = method
        self.params = params


class Progress(tuple[str, int, "int | None"]):
    """The progress of a call: ``done`` of ``total`` ``what``; an unknown total is None."""

    __slots__ = ()

    def __new__(cls, what: str, done: int, total: int | None) -> Self:
        """Return the progress of a call."""
        return super().__new__(cls, (what, done, total))

    what = property(lambda self: self[0])
    done = property(lambda self: self[1])
    total = property(lambda self: self[2])


class OutgoingCall:
    """A call: its parameters, the timeout of its reply, and the listener for its progress."""

    def __init__(
        self,
        method: str,
        params: bytes,
        reply_s: float,
        token: str = "",
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.method = method
        self.params = params
        self.reply_s = reply_s
        self.token = token
        self.progress = progress


def progress_of(notice: Notice) -> tuple[str, Progress] | None:
    """Return the token of a call and its progress; None for another notification.

    Raises Incompatible for a malformed one.
    """
    if notice.method != "progress":
        return None
    token, what = notice.params.token, notice.params.what
    done, total = notice.params.done, notice.params.total
    if not isinstance(token, str) or not isinstance(what, str):
        raise incompatible("a progress notification needs a token and a subject")
    if not isinstance(done, int) or not isinstance(total, int | None):
        raise incompatible("progress needs whole numbers")
    return token, Progress(what, done, total)


class RpcProtocol:
    """Numbers the calls and matches replies to them, over one connection after another."""

    def __init__(self) -> None:
        self._last = 0
        self._lengths: dict[int, int] = {}
        self._lines = LineDecoder(REPLY_BYTES)

    def begin(self) -> None:
        """Start on a new connection: it brings no replies to calls of an earlier one."""
        self._lines = LineDecoder(REPLY_BYTES)
        self._lengths.clear()

    def ask(self, method: str, params: bytes) -> tuple[int, bytes]:
        """Return the number of a call and the line to send."""
        self._last += 1
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":' % (self._last, encode(method))
        line = head + params + b"}\n"
        self._lengths[self._last] = len(line)
        return self._last, line

    def forget(self, number: int) -> None:
        """Stop waiting for a reply; if it still comes, it is ignored."""
        self._lengths.pop(number, None)

    def feed(self, data: bytes) -> None:
        """Buffer received bytes."""
        self._lines.feed(data)

    def next_message(self) -> Reply | Notice | None:
        """Return the daemon's next message, or None when more bytes are needed.

        Raises Incompatible for a malformed message, LimitExceeded for one that is too long. After
        either, no further message can be read.
        """
        try:
            while (line := self._lines.next_line()) is not None:
                if (message := self._decoded(line)) is not None:
                    return message
        except FrameTooLong as error:
            raise LimitExceeded(f"The reply is longer than {REPLY_BYTES} bytes.") from error
        return None

    def _decoded(self, line: Line) -> Reply | Notice | None:
        try:
            incoming: Any = decode(line)
        except (ValueError, RecursionError) as error:
            raise incompatible(error) from error
        require_object(incoming, "a message")
        if isinstance(method := incoming.get("method"), str):
            return Notice(method, require_object(incoming.params, "params"))
        return self._reply(incoming)

    def _reply(self, incoming: PlainRecord) -> Reply | None:
        number, refused = incoming.get("id"), incoming.get("error")
        if number is None and refused is not None and self._lengths:
            # The reply is to a line that the daemon did not read to its end: it exceeded a limit.
            number = max(self._lengths, key=lambda each: self._lengths[each])
        if not isinstance(number, int) or self._lengths.pop(number, None) is None:
            return None
        error = None if refused is None else _error_of(refused)
        return Reply(number, incoming.get("result"), error)


def _error_of(value: Any) -> FleetError:
    """Return the daemon's error as an exception; raises Incompatible when it is none."""
    error = require_object(value, "an error")
    code, message = error.code, error.message
    if not isinstance(code, int) or not isinstance(message, str):
        raise incompatible("an error needs a code and a message")
    return from_wire(code, message, error.get("data"))


def connection_lost() -> ConnectionLost:
    """Return the error of a connection that the daemon closed."""
    return ConnectionLost("fleetd closed the connection before it answered.")
