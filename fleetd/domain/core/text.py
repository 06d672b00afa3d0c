"""Text sanitising: replaces NUL, the one character that not every store can hold.

A checksum must be computed from the same text that the store returns. So a NUL is replaced before a
rule sees it, not when it is written to the table.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
NUL, SIGN_OF_NUL = "\0", "\u2400"
# NUL as JSON encodes it.
_NUL_IN_JSON = b"\\u0000"
_encode = msgspec.json.Encoder().encode


def without_nul(value: T) -> T:
    """Return a value with every NUL in its texts replaced by the sign for it.

    Without a NUL, the same object is returned. The search covers Structs, lists, tuples and dicts
    with their keys.
    """
    found: T = _cleaned(value) if _may_have_nul(value) else value
    return found


def _may_have_nul(value: object) -> bool:
    """Return whether a search is needed: hardly any value has a NUL, and encoding is fast."""
    try:
        return _NUL_IN_JSON in _encode(value)
    except (TypeError, ValueError):  # not JSON, or not Unicode
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
