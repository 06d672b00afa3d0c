"""Routes: check a request, and answer it by its path."""

from collections.abc import Callable

import trio

from fleetd.protocol.errors import Denied, FleetError, InvalidRequest, LimitExceeded, NotFound

from . import api, static_files
from .connection import Reply
from .events import EventStream
from .messages import Response, WebRequest, error_response, json_response
from .security import NEW_LINK, KeyRing, check_origin

API = "/api/"
TOKEN_HEADER, KEY_HEADER = "x-fleet-token", "x-fleet-key"
UNAUTHORIZED, NOT_ALLOWED, TOO_LARGE = 401, 405, 413


class Routes:
    """Answers the requests of the page."""

    def __init__(
        self, daemon: api.Daemon, keys: KeyRing, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._daemon = daemon
        self._keys = keys
        self._clock = clock
        self._files = static_files.read_all()

    async def __call__(self, request: WebRequest, reply: Reply) -> None:
        """Answer one request."""
        refused = _refused(request)
        if refused is None and request.path == "/events":
            refused = await self._follow(request, reply)
            if refused is None:
                return
        await reply.send(refused or await self._response(request), close=request.has_body)

    async def _follow(self, request: WebRequest, reply: Reply) -> Response | None:
        """Send events; return a response where none were sent."""
        if (refused := self._without_key(request)) is not None:
            return refused
        try:
            await EventStream(self._daemon.fleet, request).run(reply)
        except FleetError as error:
            if reply.begun:
                return None  # the stream is cut off, and the page asks for another
            return error_response(error)
        return None

    async def _response(self, request: WebRequest) -> Response:
        if (file := self._files.get(request.path)) is not None:
            return static_files.respond(file, request)
        if request.path == "/key":
            return self._key(request)
        if request.path.startswith(API):
            return self._without_key(request) or await self._call(request)
        missing = NotFound("There is no such page.", hint="Open the address without its path.")
        return error_response(missing)

    def _key(self, request: WebRequest) -> Response:
        token = request.header(TOKEN_HEADER)
        try:
            if token is None:
                raise Denied("The request has no token.", hint=NEW_LINK)
            return json_response({"key": self._keys.exchange(token, self._clock())})
        except Denied as error:
            return error_response(error, UNAUTHORIZED)

    def _without_key(self, request: WebRequest) -> Response | None:
        try:
            self._keys.check(request.header(KEY_HEADER))
        except Denied as error:
            return error_response(error, UNAUTHORIZED)
        return None

    async def _call(self, request: WebRequest) -> Response:
        try:
            method = api.method_of(request.path.removeprefix(API))
            return Response(200, await self._daemon.ask(method, api.params_of(request.query)))
        except FleetError as error:
            return error_response(error)


def _refused(request: WebRequest) -> Response | None:
    """Return the refusal of a request that no path accepts."""
    try:
        check_origin(request.values)
    except Denied as error:
        return error_response(error)
    if request.method != "GET":
        only = InvalidRequest("The server only shows the fleet.", hint="Use the method GET.")
        return error_response(only, NOT_ALLOWED, headers=(("Allow", "GET"),))
    if request.has_body:
        body = LimitExceeded("The request has a body.", hint="Send it without one.")
        return error_response(body, TOO_LARGE)
    return None
