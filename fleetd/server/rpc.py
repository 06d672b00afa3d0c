"""JSON-RPC 2.0: a line becomes checked requests, and one reply line comes out.

Only this module imports jsonrpcserver. The library brings the method table, argument binding,
results and errors, element by element. Its own dispatch would need asyncio and would put exception
texts on the wire, so neither is used.
"""

import contextlib
import functools
import logging
import re
import secrets
import time
import warnings
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from inspect import BoundArguments, Signature
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ..domain.core import registry
from ..engine.metrics.counters import Traffic
from ..host import trace
from ..host.garbage import uncollected
from ..host.trace import TraceContext
from ..protocol import validation
from ..protocol.display import shown
from ..protocol.errors import (
    FleetError,
    Internal,
    InvalidParams,
    InvalidRequest,
    LimitExceeded,
    MethodNotFound,
    ParseError,
    from_wire,
)
from ..protocol.framing import Line
from ..protocol.methods import METHODS
from ..protocol.request import Request, positional_fields
from ..protocol.types import ID_PREFIXES

with warnings.catch_warnings():
    # The library reads its schema with a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jsonrpcserver.async_dispatcher import dispatch_request
    from jsonrpcserver.request import Request as LibraryRequest
    from jsonrpcserver.result import Error, ErrorResult, Result, Success, SuccessResult
    from jsonrpcserver.sentinels import NOID
    from oslash.either import Left

log = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Request[Any])
Step = str | int
Id = str | int | None
Params = list[Any] | dict[str, Any]
Method = Callable[..., Awaitable[Result]]
Perform = Callable[[Request[Any], Any], Awaitable[Any]]

SLOW_MICROS = 1_000_000
_MEMBERS = frozenset({"jsonrpc", "method", "params", "id"})
# A container costs some 60 bytes, more than anything else that one byte on the wire can create.
_CONTAINERS = 100_000
# Brackets that are counted in one step: deep nesting is found early, and others can run in between.
_AT_ONCE = 4_096

# The text that the hook client writes around a payload, and its maximum size.
_PAYLOAD = b'"payload":"'
_AFTER_PAYLOAD = b'"},"id":'
_AROUND_BYTES = 65_536
_PIECE_BYTES = 262_144
_ESCAPE_BYTES = len(r"\u0000")
# A part of an escape, or the first half of a surrogate pair.
_UNFINISHED = re.compile(rb"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?\Z")

# Longer text can contain more than a few hundred objects.
_MANY_OBJECTS_BYTES = 32_768
_NOTHING = contextlib.nullcontext()

# Opening brackets become +1, closing ones -1 (0xff as a signed byte).
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[{]}"'))
_STRING = re.compile(rb'"[^"]*+"?')

_STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_ABSENT = object()
_encode = msgspec.json.Encoder().encode

# The envelope: a line becomes requests.


class RpcElement(msgspec.Struct, frozen=True):
    """One request of a line; without an id (``notification``) nobody waits for a reply."""

    method: str
    params: Params
    id: Id = None
    notification: bool = False


class RefusedElement(msgspec.Struct, frozen=True):
    """An element that is not a request, with the id for its reply."""

    error: FleetError
    id: Id = None


class RpcMessage(msgspec.Struct, frozen=True):
    """The requests of one line of ``size`` bytes: one, or a batch."""

    elements: list[RpcElement | RefusedElement]
    batch: bool
    size: int


def parse(line: Line, *, depth: int, batch: int) -> RpcMessage:
    """Turn one line into requests.

    Raises ParseError when it is not JSON, InvalidRequest for an empty batch, and LimitExceeded
    when it nests deeper than ``depth`` or holds more than ``batch`` requests.
    """
    _check_structure(line, depth, batch)
    content = _decode(line)
    if not isinstance(content, list):
        return RpcMessage([_element(content)], batch=False, size=len(line))
    if not content:
        raise InvalidRequest("Invalid Request", detail="the batch is empty")
    if len(content) > batch:
        raise _too_many(batch)
    return RpcMessage([_element(item) for item in content], batch=True, size=len(line))


def parse_large(line: Line, *, depth: int, batch: int) -> RpcMessage:
    """Turn a large line of the hook client into a request, without looking for structure in it.

    Nearly all of it is one string, the payload, which comes last. The rest is checked like any
    other line. Raises what ``parse`` raises, and LimitExceeded for a line of another form.
    """
    begin = line.find(_PAYLOAD, 0, _AROUND_BYTES) + len(_PAYLOAD) - 1
    end = line.rfind(_AFTER_PAYLOAD, -_AROUND_BYTES) + 1
    if not len(_PAYLOAD) <= begin < end:
        raise _limit_exceeded(
            "line_bytes", _AROUND_BYTES, "In a large line only the payload may be large."
        )
    message = parse(line[:begin] + b'""' + line[end:], depth=depth, batch=batch)
    with memoryview(line) as whole:
        payload = "".join(_pieces(whole[begin + 1 : end - 1]))
    for element in message.elements:
        if isinstance(element, RpcElement) and isinstance(element.params, dict):
            element.params["payload"] = payload
    return message


def _pieces(text: memoryview) -> Iterator[str]:
    """Yield the decoded content of a large string in pieces.

    The parser holds the GIL meanwhile: 16 MiB in one call would take up to 20 ms.
    """
    at = 0
    while len(text) - at > _PIECE_BYTES:
        piece = bytes(text[at : at + _PIECE_BYTES + 1])
        end = _piece_end(piece)
        yield _decode(b'"%b"' % piece[:end], str)
        at += end
    yield _decode(b'"%b"' % bytes(text[at:]), str)


def _piece_end(piece: bytes) -> int:
    """Return where a piece of a string can end, before its last byte, so that it can be decoded.

    The last escape of the piece may be incomplete, or the first half of a surrogate pair.
    """
    end = len(piece) - 1
    for _ in range(2):
        found = _UNFINISHED.search(piece, end - _ESCAPE_BYTES, end)
        before = piece[: found.start() + 1] if found else b""
        if found and (len(before) - len(before.rstrip(b"\\"))) % 2:
            end = found.start()
    for _ in range(3):
        end -= piece[end] & 0xC0 == 0x80  # within a character of UTF-8
    return end


def _check_structure(line: Line, depth: int, batch: int) -> None:
    """Refuse a line by its number of brackets, before a parser builds anything from them."""
    if line.count(b"[") + line.count(b"{") <= min(depth, batch):
        return
    brackets = _brackets(line)
    if len(brackets) > 2 * _CONTAINERS:
        raise _limit_exceeded(
            "containers", _CONTAINERS, "The request has too many objects and arrays."
        )
    level, ones = 0, 0
    for at in range(0, len(brackets), _AT_ONCE):
        steps = array("b", brackets[at : at + _AT_ONCE])
        levels = array("i", accumulate(steps, initial=level))
        if max(levels) > depth:
            raise _limit_exceeded("depth", depth, f"The request nests deeper than {depth} levels.")
        level, ones = levels[-1], ones + levels.count(1) - (level == 1)
    # Every container within the outermost array leads back to level 1 when it ends.
    if line.lstrip()[:1] == b"[" and ones - 1 > batch:
        raise _too_many(batch)


def _brackets(line: Line) -> bytes:
    """Return a step up or down for each bracket that is not within a string."""
    unescaped = line.replace(rb"\\", b"").replace(rb"\"", b"")
    # Removing two adjacent quotes does not change what is within strings.
    bare = unescaped.translate(_STEPS, _NO_STRUCTURE).replace(b'""', b"")
    return _STRING.sub(b"", bare)


def _too_many(batch: int) -> LimitExceeded:
    return _limit_exceeded("batch", batch, f"The batch has more than {batch} requests.")


def _limit_exceeded(limit: str, allowed: int, message: str) -> LimitExceeded:
    return LimitExceeded(
        message, hint="Send several smaller requests.", limit=limit, allowed=allowed
    )


def _decode(line: Line, kind: Any = Any) -> Any:
    try:
        with uncollected() if len(line) > _MANY_OBJECTS_BYTES else _NOTHING:
            return msgspec.json.decode(line, type=kind)
    except UnicodeDecodeError as error:
        raise ParseError("Parse error", detail=f"not UTF-8: {error.reason}") from error
    except msgspec.DecodeError as error:
        raise ParseError("Parse error", detail=str(error)) from error
    except RecursionError as error:
        # Only if limits.depth is close to the limit of the parser itself.
        raise ParseError("Parse error", detail="nested too deeply") from error


def _element(item: Any) -> RpcElement | RefusedElement:
    if not isinstance(item, dict):
        return _refused(f"expected an object, got {shown(item)}")
    identity = item.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        return _refused(f"id must be a string, an integer or null, got {shown(identity)}")
    if problem := _problem(item):
        return _refused(problem, identity)
    return RpcElement(item["method"], item.get("params", {}), identity, "id" not in item)


def _problem(item: dict[str, Any]) -> str | None:
    if item.get("jsonrpc") != "2.0":
        return f'jsonrpc must be "2.0", got {shown(item.get("jsonrpc"))}'
    if not isinstance(item.get("method"), str):
        return f"method must be a string, got {shown(item.get('method'))}"
    if not isinstance(item.get("params", {}), list | dict):
        return f"params must be an object or an array, got {shown(item['params'])}"
    if unknown := item.keys() - _MEMBERS:
        return f"unknown member {shown(min(unknown))}"
    return None


def _refused(detail: str, identity: Id = None) -> RefusedElement:
    return RefusedElement(InvalidRequest("Invalid Request", detail=detail), identity)


# Parameters become a request's Struct.


def convert(request: type[Q], args: Sequence[Any], named: dict[str, Any]) -> Q:
    """Build the request from by-position or by-name parameters.

    Raises InvalidParams with the field, what was expected in words, and the value, cut short.
    """
    if args:
        names = positional_fields(request)
        if len(args) > len(names):
            expected = f"at most {len(names)} by position ({', '.join(names) or 'none'})"
            raise InvalidParams(
                f"Invalid params: expected {expected}, got {len(args)}.",
                method=request.method,
                expected=expected,
            )
        named = dict(zip(names, args, strict=False))
    try:
        converted: Q = msgspec.convert(named, request)
    except msgspec.ValidationError as error:
        raise _explain(request, named, str(error)) from error
    return converted


def _explain(request: type[Request[Any]], named: dict[str, Any], text: str) -> InvalidParams:
    """Turn a text of msgspec into a helpful message."""
    problem, where = validation.split(text)
    steps = [name or int(index) for name, index in _STEP.findall(where)]
    if match := re.match(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _unknown(request, steps, match[1])
    if match := re.match(r"Object missing required field `(.*)`", problem):
        field = _dotted([*steps, match[1]])
        return InvalidParams(
            f"Invalid params: {field} is required.",
            hint=f"Add {field}; rpc.discover describes the parameters.",
            field=field,
        )
    field, value = _dotted(steps), _value_at(named, steps)
    expected = _expectation(request, steps, problem)
    values: dict[str, Any] = {"field": field, "expected": expected}
    got = ""
    if value is not _ABSENT:
        values["value"] = shown(value)
        got = f", got {values['value']}"
    return InvalidParams(f"Invalid params: {field}: expected {expected}{got}.", **values)


def _unknown(request: type[Request[Any]], steps: list[Step], name: str) -> InvalidParams:
    owner = _type_at(request, steps)
    known = (
        [field.encode_name for field in owner.fields]
        if isinstance(owner, inspect.StructType)
        else []
    )
    field = _dotted([*steps, name[:80]])
    return InvalidParams(
        f"Invalid params: {field} is not a parameter of {request.method}.",
        hint=f"The parameters are: {', '.join(known) or 'none'}.",
        field=field,
        expected=known,
    )


def _expectation(request: type[Request[Any]], steps: list[Step], problem: str) -> str:
    if problem.startswith("Invalid enum value"):
        literal = _type_at(request, steps)
        if isinstance(literal, inspect.LiteralType):
            return "one of " + ", ".join(map(str, literal.values))
    noun = str(steps[0]).removesuffix("_id") if steps else ""
    # A name without a noun, such as after, belongs to the method's noun.
    prefix = ID_PREFIXES.get(noun) or ID_PREFIXES.get(request.method.partition(".")[0], "msn")
    return validation.expected(problem).replace("msn-", f"{prefix}-")


def _dotted(steps: Sequence[Step]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.lstrip(".") or "params"


def _value_at(value: Any, steps: list[Step]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return value


def _type_at(request: type[Request[Any]], steps: list[Step]) -> inspect.Type | None:
    """Follow a path through the types; None where it leaves the declared types."""
    here: inspect.Type | None = inspect.type_info(request)
    for step in steps:
        here = _unwrapped(here)
        if isinstance(here, inspect.StructType):
            here = next((field.type for field in here.fields if field.encode_name == step), None)
        else:
            here = here.item_type if isinstance(here, inspect.ListType) else None
    return _unwrapped(here)


def _unwrapped(here: inspect.Type | None) -> inspect.Type | None:
    """Return the type itself where it was wrapped as annotated or optional."""
    if isinstance(here, inspect.Metadata):
        return _unwrapped(here.type)
    if isinstance(here, inspect.UnionType):
        return next(
            (_unwrapped(t) for t in here.types if not isinstance(t, inspect.NoneType)), None
        )
    return here


# Dispatch: requests are answered from the table of methods.


class _AnyParams(Signature):
    """The signature of a method that accepts any parameters."""

    def bind(self, /, *_args: Any, **_named: Any) -> BoundArguments:
        """Bind nothing: the library only checks whether binding is possible."""
        return _BOUND


_ANY_PARAMS = _AnyParams()
_BOUND = BoundArguments(_ANY_PARAMS, OrderedDict())


def methods_for(
    perform: Perform, methods: Mapping[str, type[Request[Any]]] = METHODS
) -> dict[str, Method]:
    """Return the method table: each method converts its parameters and calls ``perform``.

    ``perform`` gets the request and the context that was given to ``Dispatcher.answer``.
    """
    return {name: _handler(request, perform) for name, request in methods.items()}


def _handler(request: type[Request[Any]], perform: Perform) -> Method:
    async def handle(context: Any, /, *args: Any, **named: Any) -> Result:
        return Success(await perform(convert(request, args, named), context))

    handler = guarded(request.method, handle)
    # The library reads the signature at every call and binds the parameters. A stored signature is
    # ten times faster, and the Struct checks the parameters in any case.
    handler.__signature__ = _ANY_PARAMS  # type: ignore[attr-defined]
    return handler


def guarded(name: str, method: Method) -> Method:
    """Wrap a method so that every exception becomes one of fleetd's errors.

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

        ``since_ns`` is when the message was parsed and had its place, by the same clock.
        """
        spoken = []
        for element in message.elements:
            if isinstance(element, RefusedElement):
                self._traffic.failed(element.error.kind)
                reply: bytes | None = error_reply(element.error, element.id)
            else:
                reply, since_ns = await self._traced(element, context, since_ns)
            if reply is not None:
                spoken.append(reply)
        if not spoken:
            return None
        return (b"[" + b",".join(spoken) + b"]" if message.batch else spoken[0]) + b"\n"

    async def _traced(
        self, element: RpcElement, context: Any, since_ns: int
    ) -> tuple[bytes | None, int]:
        """Answer a request; returns its reply and when that was ready."""
        client = trace.current()
        connection = client.connection if client else 0
        token = trace.enter(
            TraceContext(connection, element.method, element.id, element.notification)
        )
        try:
            reply, error = await self._reply(element, context)
            ready_ns = self._clock_ns()
            self._count(element.method, (ready_ns - since_ns) // 1_000, error)
        except BaseException:
            log.debug("Cancelled: the client disconnected, or fleetd stops")
            raise
        finally:
            trace.leave(token)
        return reply, ready_ns

    def _count(self, method: str, micros: int, error: str | None) -> None:
        """Count a request, and log how it ended."""
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
