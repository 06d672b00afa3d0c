"""Text sanitising: without the one character that not every store holds.

Whatever a checksum is made of has to be what the store gives back, so a NUL is replaced before a
rule sees it, not on its way to the table.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
NUL, SIGN_OF_NUL = "\0", "\u2400"
# As JSON has it.
_NUL_IN_JSON = b"\\u0000"
_encode = msgspec.json.Encoder().encode


def without_nul(value: T) -> T:
    """Return a value with the sign for a NUL wherever a text in it has one.

    The same one when there is none. Looks into Structs, lists, tuples and dicts, keys included.
    """
    found: T = _cleaned(value) if _may_have_nul(value) else value
    return found


def _may_have_nul(value: object) -> bool:
    """Whether to look for one: hardly any value has it, and an encoder is quick."""
    try:
        return _NUL_IN_JSON in _encode(value)
    except (TypeError, ValueError):  # no JSON, or no Unicode
        return True


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(NUL, SIGN_OF_NUL) if NUL in value else value
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if isinstance(value, dict):
        pairs = {_cleaned(name): _cleaned(each) for name, each in value.items()}
        same = all(name in pairs and pairs[name] is each for name, each in value.items())
        return value if same else pairs
    if isinstance(value, list | tuple):
        items = [_cleaned(each) for each in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return items if isinstance(value, list) else tuple(items)
    return value


def _struct(value: msgspec.Struct) -> msgspec.Struct:
    changes = {}
    for name in value.__struct_fields__:
        given = getattr(value, name)
        cleaned = _cleaned(given)
        if cleaned is not given:
            changes[name] = cleaned
    return msgspec.structs.replace(value, **changes) if changes else value
