"""One connection: reads requests and sends responses through h11, each within its time limit.

It ends when the client does not finish its request, or does not read.
"""

import time
import traceback
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import h11
import trio

from fleetd.protocol.errors import FleetError, Internal, InvalidRequest, LimitExceeded

from .messages import Headers, Response, WebRequest, error_response
from .security import HEADERS

# A response is sent in pieces of this size. The time limit applies to each piece.
PIECE_BYTES = 65_536
# How long a client that still sends may take to read the last response.
LINGER_S = 1.0


class Limits(NamedTuple):
    """How much a client may ask of the server, and how long it may take."""

    connections: int = 16
    head_bytes: int = 16_384
    head_s: float = 10.0
    write_s: float = 10.0
    idle_s: float = 30.0


class SlowClient(Exception):
    """The client does not read what it asked for."""


Handler = Callable[[WebRequest, "Reply"], Awaitable[None]]


class Reply:
    """The response to one request: sent as a whole, or begun and written in pieces.

    The response to HEAD has no body, whatever its headers state.
    """

    def __init__(
        self, http: h11.Connection, send: Callable[[bytes], Awaitable[None]], method: str = ""
    ) -> None:
        self.begun = False
        self._has_body = method != "HEAD"
        self._http = http
        self._send = send

    async def send(self, response: Response, *, close: bool = False) -> None:
        """Send a whole response; the connection ends after it with ``close``.

        Raises SlowClient, trio.BrokenResourceError.
        """
        headers = [*response.headers]
        if response.status != HTTPStatus.NOT_MODIFIED:
            headers += [("Content-Type", response.content_type)]
            headers += [("Content-Length", str(len(response.body)))]
        if close:
            headers.append(("Connection", "close"))
        data = self._head(response.status, headers)
        if response.body and self._has_body:
            data += self._http.send(h11.Data(data=response.body))
        await self._send(data + self._http.send(h11.EndOfMessage()))

    async def begin(self, content_type: str, headers: Headers) -> None:
        """Begin a response of unknown length, after which the connection ends."""
        every = [*headers, ("Content-Type", content_type), ("Connection", "close")]
        await self._send(self._head(HTTPStatus.OK, every))

    async def write(self, data: bytes) -> None:
        """Send a part of the body."""
        await self._send(self._http.send(h11.Data(data=data)))

    async def end(self) -> None:
        """End the response that was begun."""
        await self._send(self._http.send(h11.EndOfMessage()))

    def _head(self, status: int, headers: Headers) -> bytes:
        self.begun = True
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        every = [("Date", date), *HEADERS, *headers]
        reason = HTTPStatus(status).phrase
        return self._http.send(h11.Response(status_code=status, headers=every, reason=reason))


class Connection:
    """One client; ``run`` answers its requests until it leaves or takes too long."""

    def __init__(self, stream: trio.SocketStream, handle: Handler, limits: Limits) -> None:
        self.idle_since: float | None = trio.current_time()
        """Since when no request has begun; None while one is read or answered."""
        self.scope = trio.CancelScope()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._stream = stream
        self._handle = handle
        self._limits = limits

    async def run(self) -> None:
        """Answer requests, one after the other; the caller closes the stream."""
        with self.scope:
            try:
                while (request := await self._next_request()) is not None:
                    await self._answer(request)
                    if not self._continues():
                        break
                await self._linger()
            except (SlowClient, trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def refuse(self, error: FleetError, status: HTTPStatus) -> None:
        """Refuse a client for which there is no room, whatever it requests."""
        with self.scope:
            try:
                await self._send_error(error, status)
                await self._linger()
            except (SlowClient, trio.BrokenResourceError, trio.ClosedResourceError):
                return

    # Requests

    async def _next_request(self) -> WebRequest | None:
        """Return the next request; None without one, after an error response if one is due."""
        self.idle_since = trio.current_time()
        try:
            with trio.move_on_after(self._limits.idle_s) as waiting:
                return await self._read_head(waiting)
        except h11.RemoteProtocolError as error:
            await self._send_error(_of_protocol(error), HTTPStatus(error.error_status_hint))
            return None
        if self._buffered():
            late = InvalidRequest("The request was not complete in time.", hint="Send it again.")
            await self._send_error(late, HTTPStatus.REQUEST_TIMEOUT)
        return None

    async def _read_head(self, waiting: trio.CancelScope) -> WebRequest | None:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._buffered() and self.idle_since is not None:
                self.idle_since = None
                waiting.deadline = trio.current_time() + self._limits.head_s
            await self._receive()
        self.idle_since = None
        return self._request(event) if isinstance(event, h11.Request) else None

    def _request(self, head: h11.Request) -> WebRequest:
        """Return a request; it records whether there is a body, which is not read."""
        if head.http_version not in (b"1.0", b"1.1"):
            raise h11.RemoteProtocolError(
                "the version is not HTTP/1.1", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
            )
        headers: dict[str, list[str]] = {}
        for name, value in head.headers:
            headers.setdefault(name.decode(), []).append(value.decode("latin-1"))
        path, _, query = head.target.decode().partition("?")
        has_body = not isinstance(self._http.next_event(), h11.EndOfMessage)
        return WebRequest(head.method.decode(), path, query, headers, has_body)

    async def _receive(self) -> None:
        """Receive data, up to the size limit of a request's head."""
        data = await self._stream.receive_some(self._limits.head_bytes + 1 - self._buffered())
        self._http.receive_data(data)

    def _buffered(self) -> int:
        return len(self._http.trailing_data[0])

    def _ended(self) -> bool:
        return self._http.trailing_data[1]

    # Responses

    async def _answer(self, request: WebRequest) -> None:
        """Answer a request, and stop when the client leaves."""
        broken: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                await self._run_handler(request)
            except (SlowClient, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                broken = error
            nursery.cancel_scope.cancel()
        if broken is not None:
            raise broken

    async def _run_handler(self, request: WebRequest) -> None:
        reply = Reply(self._http, self._send, request.method)
        try:
            await self._handle(request, reply)
        except (SlowClient, trio.BrokenResourceError, trio.ClosedResourceError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug ends one request, and no other
            traceback.print_exception(error)
            if not reply.begun:
                why = Internal(
                    "fleetctl web failed to answer.", hint="Its output has the reason. Report it."
                )
                await reply.send(error_response(why), close=True)
            else:
                self._http.send_failed()

    async def _watch(self, answering: trio.CancelScope) -> None:
        """Cancel the answer when the client leaves; buffer what it sends for the next request."""
        try:
            while self._buffered() <= self._limits.head_bytes:
                await self._receive()
                if self._ended():
                    break
            else:
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        answering.cancel()

    async def _send_error(self, error: FleetError, status: HTTPStatus) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = Reply(self._http, self._send)
            await reply.send(error_response(error, status), close=True)

    async def _send(self, data: bytes) -> None:
        with memoryview(data) as view:
            for start in range(0, len(view), PIECE_BYTES):
                with trio.move_on_after(self._limits.write_s) as sending:
                    await self._stream.send_all(view[start : start + PIECE_BYTES])
                if sending.cancelled_caught:
                    raise SlowClient

    # The end

    def _continues(self) -> bool:
        """Return whether another request may follow; get ready for it."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def _linger(self) -> None:
        """Let the client read the last response: closing with unread bytes would discard it."""
        if self._ended():
            return
        with trio.move_on_after(LINGER_S):
            await self._stream.send_eof()
            while await self._stream.receive_some(PIECE_BYTES):
                pass


def _of_protocol(error: h11.RemoteProtocolError) -> FleetError:
    """Return the error of a request that is not HTTP/1.1, or is too large."""
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return LimitExceeded("The head of the request is too large.", hint="Send less than 16 KiB.")
    return InvalidRequest(f"The request is not valid HTTP/1.1: {error}.", hint="Correct it.")
