"""JSON through the C functions below the ``json`` package, without the package itself.

The package compiles regular expressions that only other programs need. This takes as long as a
third of a command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_in_c: Any
try:
    import _json as _in_c
except ImportError:  # another Python than CPython
    _in_c = None

_SPACE = " \t\n\r"


class _Reading:
    """The scanner's settings, under the names that it looks up."""

    strict = True
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float

    def __init__(self, object_hook: Callable[[dict[str, Any]], Any]) -> None:
        self.object_hook = object_hook
        self.memo: dict[str, str] = {}


def dumps(value: Any) -> str:
    """Return plain data as JSON in one line, with non-ASCII characters unescaped."""
    if _in_c is None:
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    escaped = _in_c.encode_basestring
    encode = _in_c.make_encoder({}, _refuse, escaped, None, ":", ",", False, False, True)
    return "".join(encode(value, 0))


def loads(data: bytes | bytearray, object_hook: Callable[[dict[str, Any]], Any]) -> Any:
    """Return decoded JSON, with objects built by a hook; raises ValueError, RecursionError."""
    if _in_c is not None:
        try:
            text = data.decode().strip(_SPACE)
            value, end = _in_c.make_scanner(_Reading(object_hook))(text, 0)
        except (ValueError, StopIteration, SystemError):  # SystemError: Python 3.11
            end, text = 0, "wrong"
        if end == len(text):
            return value
    # The package reports what is wrong, and where.
    import json

    return json.loads(data, object_hook=object_hook)


def _refuse(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
