"""JSON-RPC envelope: a line becomes checked requests, in bounds."""

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from ..protocol.display import shown
from ..protocol.errors import FleetError, InvalidRequest, LimitExceeded, ParseError
from ..protocol.framing import Line

Id = str | int | None
Params = list[Any] | dict[str, Any]

_MEMBERS = frozenset({"jsonrpc", "method", "params", "id"})
# A container costs some 60 bytes and is the dearest thing a byte on the wire can ask for.
_CONTAINERS = 100_000
# Brackets that are followed in one go: what nests too deep shows early, and others come between.
_AT_ONCE = 4_096

# How the hook client writes what stands around a payload, and how much that can be.
_PAYLOAD = b'"payload":"'
_AFTER_PAYLOAD = b'"},"id":'
_AROUND_BYTES = 65_536
_PIECE_BYTES = 1_048_576
_ESCAPE_BYTES = len(r"\u0000")
# A part of an escape, or the first of two that make a character together.
_UNFINISHED = re.compile(rb"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?\Z")

# Opening brackets become +1, closing ones -1 (0xff as a signed byte).
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[{]}"'))
_STRING = re.compile(rb'"[^"]*+"?')


class RpcElement(msgspec.Struct, frozen=True):
    """One request of a line; without an id (``notification``) nobody waits for a reply."""

    method: str
    params: Params
    id: Id = None
    notification: bool = False


class RefusedElement(msgspec.Struct, frozen=True):
    """An element that is no request, with the id it could be answered under."""

    error: FleetError
    id: Id = None


class RpcMessage(msgspec.Struct, frozen=True):
    """What one line of ``size`` bytes holds: a request, or a batch of them."""

    elements: list[RpcElement | RefusedElement]
    batch: bool
    size: int


def read(line: Line, *, depth: int, batch: int) -> RpcMessage:
    """Turn one line into requests.

    Raises ParseError when it is not JSON, InvalidRequest for an empty batch, and LimitExceeded
    when it nests deeper than ``depth`` or holds more than ``batch`` requests.
    """
    _check_structure(line, depth, batch)
    content = _parse(line)
    if not isinstance(content, list):
        return RpcMessage([_element(content)], batch=False, size=len(line))
    if not content:
        raise InvalidRequest("Invalid Request", detail="the batch is empty")
    if len(content) > batch:
        raise _too_many(batch)
    return RpcMessage([_element(item) for item in content], batch=True, size=len(line))


def read_large(line: Line, *, depth: int, batch: int) -> RpcMessage:
    """Turn a large line of the hook client into a request, without looking for structure in it.

    Nearly all of it is one string, the payload, and comes last; what is around it is checked as
    any other line. Raises what ``read`` raises, LimitExceeded for a line of another form.
    """
    begin = line.find(_PAYLOAD, 0, _AROUND_BYTES) + len(_PAYLOAD) - 1
    end = line.rfind(_AFTER_PAYLOAD, -_AROUND_BYTES) + 1
    if not len(_PAYLOAD) <= begin < end:
        raise _beyond("line_bytes", _AROUND_BYTES, "Of a large line only the payload may be large.")
    message = read(line[:begin] + b'""' + line[end:], depth=depth, batch=batch)
    with memoryview(line) as whole:
        payload = "".join(_pieces(whole[begin + 1 : end - 1]))
    for element in message.elements:
        if isinstance(element, RpcElement) and isinstance(element.params, dict):
            element.params["payload"] = payload
    return message


def _pieces(text: memoryview) -> Iterator[str]:
    """Read what stands within the quotes of a large string, so much at a time.

    Who parses keeps the interpreter for himself: 16 MiB at once would be up to 20 ms.
    """
    at = 0
    while len(text) - at > _PIECE_BYTES:
        piece = bytes(text[at : at + _PIECE_BYTES + 1])
        end = _whole(piece)
        yield _parse(b'"%b"' % piece[:end], str)
        at += end
    yield _parse(b'"%b"' % bytes(text[at:]), str)


def _whole(piece: bytes) -> int:
    """Return where a piece of a string can end, before its last byte, so that it can be read.

    An escape may be half there, and is one of two if it is half a character.
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
    """Refuse by counting brackets, before a parser builds anything from them."""
    if line.count(b"[") + line.count(b"{") <= min(depth, batch):
        return
    brackets = _brackets(line)
    if len(brackets) > 2 * _CONTAINERS:
        raise _beyond("containers", _CONTAINERS, "The message holds too many objects and arrays.")
    level, ones = 0, 0
    for at in range(0, len(brackets), _AT_ONCE):
        steps = array("b", brackets[at : at + _AT_ONCE])
        levels = array("i", accumulate(steps, initial=level))
        if max(levels) > depth:
            raise _beyond("depth", depth, f"The message nests deeper than {depth} levels.")
        level, ones = levels[-1], ones + levels.count(1) - (level == 1)
    # Every container within the outermost array leads back to level 1 when it ends.
    if line.lstrip()[:1] == b"[" and ones - 1 > batch:
        raise _too_many(batch)


def _brackets(line: Line) -> bytes:
    """Return a step up or down for each bracket that is not within a string."""
    unescaped = line.replace(rb"\\", b"").replace(rb"\"", b"")
    # A string that ends where the next begins changes nothing about what is within strings.
    bare = unescaped.translate(_STEPS, _NO_STRUCTURE).replace(b'""', b"")
    return _STRING.sub(b"", bare)


def _too_many(batch: int) -> LimitExceeded:
    return _beyond("batch", batch, f"The batch holds more than {batch} requests.")


def _beyond(limit: str, allowed: int, message: str) -> LimitExceeded:
    return LimitExceeded(
        message, hint="Send smaller messages, several if need be.", limit=limit, allowed=allowed
    )


def _parse(line: Line | memoryview, kind: Any = Any) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except UnicodeDecodeError as error:
        raise ParseError("Parse error", detail=f"not UTF-8: {error.reason}") from error
    except msgspec.DecodeError as error:
        raise ParseError("Parse error", detail=str(error)) from error
    except RecursionError as error:
        # Only where limits.depth was set near to what the parser itself can bear.
        raise ParseError("Parse error", detail="nested too deep to be read") from error


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
