"""Redaction of a request, planned once per type from its annotations.

The annotations show which fields are texts. A string with a pattern (ids, agents, paths) or with
the name of an id stays unchanged; every other string is free text.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ...protocol.request import BY_NAME_ONLY, Mutation
from ...protocol.requests.event import EventAppend
from ...protocol.requests.hook import HookDeliver
from .redact import redact, redact_data

T = TypeVar("T")
Clean = Callable[[Any], Any]
PROMPT = "prompt_submitted"


def without_secrets(request: T) -> T:
    """Return the request with its secrets replaced; the same one when it holds none.

    Raises nothing, and leaves requests that store nothing unchanged.
    """
    if isinstance(request, HookDeliver):
        return request  # its payload is cleaned in the report made from it
    return struct_without_secrets(request) if isinstance(request, Mutation) else request


def without_prompt(request: T) -> T:
    """Return a request that reports a prompt with only the ids in its data.

    The event itself is activity and is kept.
    """
    if not isinstance(request, EventAppend) or request.type != PROMPT:
        return request
    kept = {name: value for name, value in request.data.items() if name.endswith("_id")}
    changed: T = msgspec.structs.replace(request, data=kept)
    return changed


def struct_without_secrets(value: T) -> T:
    """Return a Struct with its secrets replaced; the same one when it holds none."""
    changes = {}
    for name, clean in _plan(type(value)):  # type: ignore[arg-type]
        given = getattr(value, name)
        cleaned = given if given is None else clean(given)
        if cleaned is not given:
            changes[name] = cleaned
    if not changes:
        return value
    changed: T = msgspec.structs.replace(value, **changes)  # type: ignore[type-var]
    return changed


@cache
def _plan(kind: type[Any]) -> tuple[tuple[str, Clean], ...]:
    """Return the fields of a Struct that can hold text, each with its cleaner."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind.__name__} is no Struct")
    found = (
        (field.name, _cleaner(field.type))
        for field in info.fields
        # A changed name would refer to something else.
        if not field.name.endswith("_id") and field.name not in BY_NAME_ONLY
    )
    return tuple((name, clean) for name, clean in found if clean)


def _cleaner(kind: inspect.Type) -> Clean | None:
    """Return the cleaner of a type's values; None for a type that holds no free text."""
    if isinstance(kind, inspect.Metadata):
        return _cleaner(kind.type)
    if isinstance(kind, inspect.StrType):
        return redact if kind.pattern is None else None
    if isinstance(kind, inspect.AnyType | inspect.DictType):
        return redact_data
    if isinstance(kind, inspect.StructType):
        return struct_without_secrets if _plan(kind.cls) else None
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return _each(
            _cleaner(kind.item_type), list if isinstance(kind, inspect.ListType) else tuple
        )
    if isinstance(kind, inspect.UnionType):
        if all(isinstance(each, inspect.StructType) for each in kind.types):
            return struct_without_secrets  # the value's own type selects the cleaner
        cleaners = [clean for each in kind.types if (clean := _cleaner(each))]
        if len(cleaners) > 1:
            raise TypeError(f"cannot tell which member of {kind} a value belongs to")
        return cleaners[0] if cleaners else None
    return None


def _each(clean: Clean | None, kind: type[Any]) -> Clean | None:
    if clean is None:
        return None

    def cleaned(values: Any) -> Any:
        found = kind(clean(value) for value in values)
        return values if all(new is old for new, old in zip(found, values, strict=True)) else found

    return cleaned
