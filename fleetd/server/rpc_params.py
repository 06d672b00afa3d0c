"""JSON-RPC parameters become a request's Struct.

Wrong ones are refused with the field, what was expected in words, and the value, cut short.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ..protocol import validation
from ..protocol.display import shown
from ..protocol.errors import InvalidParams
from ..protocol.request import Request, positional_fields
from ..protocol.types import ID_PREFIXES

Q = TypeVar("Q", bound=Request[Any])
Step = str | int

_STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_ABSENT = object()


def convert(request: type[Q], args: Sequence[Any], named: dict[str, Any]) -> Q:
    """Build the request from by-position or by-name parameters; raises InvalidParams."""
    if args:
        named = _name(request, args)
    try:
        converted: Q = msgspec.convert(named, request)
    except msgspec.ValidationError as error:
        raise _explain(request, named, str(error)) from error
    return converted


def _name(request: type[Request[Any]], args: Sequence[Any]) -> dict[str, Any]:
    names = positional_fields(request)
    if len(args) > len(names):
        expected = f"at most {len(names)} by position ({', '.join(names) or 'none'})"
        raise InvalidParams(
            f"Invalid params: expected {expected}, got {len(args)}.",
            method=request.method,
            expected=expected,
        )
    return dict(zip(names, args, strict=False))


def _explain(request: type[Request[Any]], named: dict[str, Any], text: str) -> InvalidParams:
    """Turn what msgspec says into a message that helps."""
    problem, where = validation.split(text)
    steps = [name or int(index) for name, index in _STEP.findall(where)]
    if match := re.match(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _unknown(request, steps, match[1])
    if match := re.match(r"Object missing required field `(.*)`", problem):
        return _missing(_dotted([*steps, match[1]]))
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
        hint=f"Known here: {', '.join(known) or 'none'}.",
        field=field,
        expected=known,
    )


def _missing(field: str) -> InvalidParams:
    return InvalidParams(
        f"Invalid params: {field} is required.",
        hint=f"Add {field}; rpc.discover describes the parameters.",
        field=field,
    )


def _expectation(request: type[Request[Any]], steps: list[Step], problem: str) -> str:
    if problem.startswith("Invalid enum value"):
        literal = _type_at(request, steps)
        if isinstance(literal, inspect.LiteralType):
            return "one of " + ", ".join(map(str, literal.values))
    noun = str(steps[0]).removesuffix("_id") if steps else ""
    # A name without a noun, such as after, is of the method's own.
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
    """Follow a path through the types; None where it leads out of what is declared."""
    here: inspect.Type | None = inspect.type_info(request)
    for step in steps:
        here = _inner(here, step)
    return _concrete(here)


def _inner(here: inspect.Type | None, step: Step) -> inspect.Type | None:
    here = _concrete(here)
    if isinstance(here, inspect.StructType):
        return next((field.type for field in here.fields if field.encode_name == step), None)
    return here.item_type if isinstance(here, inspect.ListType) else None


def _concrete(here: inspect.Type | None) -> inspect.Type | None:
    """Return the type itself where it was wrapped as annotated or optional."""
    if isinstance(here, inspect.Metadata):
        return _concrete(here.type)
    if isinstance(here, inspect.UnionType):
        return next((_concrete(t) for t in here.types if not isinstance(t, inspect.NoneType)), None)
    return here
