"""JSON-RPC 2.0: requests in, one reply line out; the only file that imports jsonrpcserver.

The library brings the method table, argument binding, results and errors, element by element.
Its own dispatch would need asyncio and would put exception texts on the wire, so neither is used.
"""

import functools
import inspect
import logging
import secrets
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from . import params
from .envelope import Element, Id, Message, Refused, shown
from .wire.base import Request
from .wire.errors import FleetError, Internal, InvalidParams, MethodNotFound, from_wire
from .wire.methods import METHODS

with warnings.catch_warnings():
    # The library reads its schema with a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jsonrpcserver.async_dispatcher import dispatch_request
    from jsonrpcserver.request import Request as LibraryRequest
    from jsonrpcserver.result import Error, ErrorResult, Result, Success, SuccessResult
    from jsonrpcserver.sentinels import NOID
    from oslash.either import Left

log = logging.getLogger(__name__)

Method = Callable[..., Awaitable[Result]]
Perform = Callable[[Request[Any], Any], Awaitable[Any]]

_encode = msgspec.json.Encoder().encode
_ANY_PARAMS = inspect.signature(lambda _context, /, *_args, **_named: None)


def methods_for(
    perform: Perform, methods: Mapping[str, type[Request[Any]]] = METHODS
) -> dict[str, Method]:
    """Return the method table: each method converts its parameters and calls ``perform``.

    ``perform`` gets the request and the context that was given to ``Dispatcher.answer``.
    """
    return {name: _handler(request, perform) for name, request in methods.items()}


def _handler(request: type[Request[Any]], perform: Perform) -> Method:
    async def handle(context: Any, /, *args: Any, **named: Any) -> Result:
        return Success(await perform(params.convert(request, args, named), context))

    handler = guarded(request.method, handle)
    # The library reads the signature of every call; a stored one is found ten times faster.
    handler.__signature__ = _ANY_PARAMS  # type: ignore[attr-defined]
    return handler


def guarded(name: str, method: Method) -> Method:
    """Wrap a method so that whatever it raises becomes an error of ours.

    The library would catch it too, and send the exception's text to the client.
    """

    @functools.wraps(method)
    async def call(context: Any, /, *args: Any, **named: Any) -> Result:
        try:
            return await method(context, *args, **named)
        except FleetError as error:
            return Error(error.code, error.message, error.data())
        except Exception:
            incident = _incident()
            log.exception("Incident %s in %s", incident.values["incident"], name)
            return Error(incident.code, incident.message, incident.data())

    return call


def _incident() -> Internal:
    """Return the error for a bug; its random id goes into the log beside the traceback."""
    incident = secrets.token_hex(4)
    return Internal(
        "Internal error",
        hint=f"This is a bug in fleetd. Its log has the details under incident {incident}.",
        incident=incident,
    )


class Dispatcher:
    """Answers messages from a table of methods."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = dict(methods)

    async def answer(self, message: Message, context: Any) -> bytes | None:
        """Run the message's requests one after the other; None when nobody waits for a reply."""
        replies = [await self._reply(element, context) for element in message.elements]
        spoken = [reply for reply in replies if reply is not None]
        if not spoken:
            return None
        return (b"[" + b",".join(spoken) + b"]" if message.batch else spoken[0]) + b"\n"

    async def _reply(self, element: Element | Refused, context: Any) -> bytes | None:
        if isinstance(element, Refused):
            return error_reply(element.error, element.id)
        result = await self._result(element, context)
        if element.notification:
            return None
        if isinstance(result, ErrorResult):
            return error_reply(_fleet_error(result, element), element.id)
        return _success_reply(result.result, element)

    async def _result(self, element: Element, context: Any) -> SuccessResult | ErrorResult:
        identity = NOID if element.notification else element.id
        request = LibraryRequest(element.method, element.params, identity)
        _, outcome = await dispatch_request(self._methods, context, request)
        # The library's own serializer reads these attributes too; it offers no other way.
        if isinstance(outcome, Left):
            return outcome._error  # type: ignore[no-any-return]  # noqa: SLF001
        return outcome._value  # type: ignore[no-any-return]  # noqa: SLF001


def _fleet_error(result: ErrorResult, element: Element) -> FleetError:
    """Give the library's own two refusals the data that all our errors have."""
    if isinstance(result.data, dict):
        return from_wire(result.code, result.message, result.data)
    if result.code == MethodNotFound.code:
        return MethodNotFound(result.message, method=shown(element.method))
    return InvalidParams(result.message, method=element.method, detail=result.data)


def error_reply(error: FleetError, identity: Id = None) -> bytes:
    """Return the reply that refuses a request, without its line feed."""
    body = {"code": error.code, "message": error.message, "data": error.data()}
    return _encode({"jsonrpc": "2.0", "error": body, "id": identity})


def _success_reply(result: Any, element: Element) -> bytes:
    try:
        return _encode({"jsonrpc": "2.0", "result": result, "id": element.id})
    except Exception:
        incident = _incident()
        log.exception("Incident %s in a result of %s", incident.values["incident"], element.method)
        return error_reply(incident, element.id)
