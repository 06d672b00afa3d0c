"""JSON-RPC 2.0: requests in, one reply line out; the only file that imports jsonrpcserver.

The library brings the method table, argument binding, results and errors, element by element.
Its own dispatch would need asyncio and would put exception texts on the wire, so neither is used.
"""

import functools
import inspect
import logging
import secrets
import time
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..domain.core import registry
from ..engine.metrics.counters import Traffic
from ..host import trace
from ..host.trace import TraceContext
from ..protocol.display import shown
from ..protocol.errors import FleetError, Internal, InvalidParams, MethodNotFound, from_wire
from ..protocol.methods import METHODS
from ..protocol.request import Request
from . import rpc_params
from .rpc_envelope import Id, RefusedElement, RpcElement, RpcMessage

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

SLOW_MICROS = 1_000_000
_encode = msgspec.json.Encoder().encode


class _AnyParams(inspect.Signature):
    """The signature of a method that takes any parameters: whatever is bound to it fits."""

    def bind(self, /, *_args: Any, **_named: Any) -> inspect.BoundArguments:
        """Bind nothing: the library only wants to know whether that could be done."""
        return _BOUND


_ANY_PARAMS = _AnyParams()
_BOUND = inspect.BoundArguments(_ANY_PARAMS, OrderedDict())


def methods_for(
    perform: Perform, methods: Mapping[str, type[Request[Any]]] = METHODS
) -> dict[str, Method]:
    """Return the method table: each method converts its parameters and calls ``perform``.

    ``perform`` gets the request and the context that was given to ``Dispatcher.answer``.
    """
    return {name: _handler(request, perform) for name, request in methods.items()}


def _handler(request: type[Request[Any]], perform: Perform) -> Method:
    async def handle(context: Any, /, *args: Any, **named: Any) -> Result:
        return Success(await perform(rpc_params.convert(request, args, named), context))

    handler = guarded(request.method, handle)
    # The library reads the signature of every call and binds it: a stored one is found ten times
    # faster, and the parameters are checked by their Struct, whatever they are.
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
    """Answers messages from a table of methods, and counts them."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        traffic: Traffic,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._slow = {each.request.method for each in registry.REGISTERED.values() if each.slow}
        self._methods = dict(methods)
        self._traffic = traffic
        self._clock_ns = clock_ns

    async def answer(self, message: RpcMessage, context: Any, since_ns: int) -> bytes | None:
        """Run the message's requests one after the other; None when nobody waits for a reply.

        ``since_ns`` is when the message was understood and had its place, by the same clock.
        """
        spoken = []
        for element in message.elements:
            if isinstance(element, RefusedElement):
                self._traffic.failed(element.error.kind)
                reply: bytes | None = error_reply(element.error, element.id)
            else:
                reply, since_ns = await self._on_its_behalf(element, context, since_ns)
            if reply is not None:
                spoken.append(reply)
        if not spoken:
            return None
        return (b"[" + b",".join(spoken) + b"]" if message.batch else spoken[0]) + b"\n"

    async def _on_its_behalf(
        self, element: RpcElement, context: Any, since_ns: int
    ) -> tuple[bytes | None, int]:
        """Answer a request; returns its reply and when that was ready."""
        client = trace.current()
        token = trace.enter(
            TraceContext(
                client.connection if client else 0,
                element.method,
                element.id,
                element.notification,
            )
        )
        try:
            reply, error = await self._reply(element, context)
            ready_ns = self._clock_ns()
            self._count(element.method, (ready_ns - since_ns) // 1_000, error)
        except BaseException:
            log.debug("Given up: its client is gone, or fleetd ends")
            raise
        finally:
            trace.leave(token)
        return reply, ready_ns

    def _count(self, method: str, micros: int, error: str | None) -> None:
        """Count a request, and say in the log how it ended."""
        if method in self._methods:
            self._traffic.answered(method, micros)
        if error is not None:
            self._traffic.failed(error)
        if micros >= SLOW_MICROS and method not in self._slow:
            log.warning("Slow: %d ms, %s", micros // 1_000, error or "ok")
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("Answered in %.3f ms: %s", micros / 1_000, error or "ok")

    async def _reply(self, element: RpcElement, context: Any) -> tuple[bytes | None, str | None]:
        """Return the reply, None for a notification, and the kind of the error if there was one."""
        result = await self._result(element, context)
        if isinstance(result, ErrorResult):
            error = _fleet_error(result, element)
            return None if element.notification else error_reply(error, element.id), error.kind
        if element.notification:
            return None, None
        try:
            return _encode({"jsonrpc": "2.0", "result": result.result, "id": element.id}), None
        except Exception:
            incident = _incident()
            number = incident.values["incident"]
            log.exception("Incident %s in a result of %s", number, element.method)
            return error_reply(incident, element.id), incident.kind

    async def _result(self, element: RpcElement, context: Any) -> SuccessResult | ErrorResult:
        identity = NOID if element.notification else element.id
        request = LibraryRequest(element.method, element.params, identity)
        _, outcome = await dispatch_request(self._methods, context, request)
        # The library's own serializer reads these attributes too; it offers no other way.
        if isinstance(outcome, Left):
            return outcome._error  # type: ignore[no-any-return]  # noqa: SLF001
        return outcome._value  # type: ignore[no-any-return]  # noqa: SLF001


def _fleet_error(result: ErrorResult, element: RpcElement) -> FleetError:
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
