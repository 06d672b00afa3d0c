"""Numbers that the store assigns at the commit, known before it only by their order.

A rule that runs before its turn cannot know the position of an event that it appends. It gets an
``Assigned`` instead, which it can only store and return. A rule that calculates with it, compares
it or writes it into a text fails, and runs again in its turn.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

Counter = Literal["events", "fencing"]
# Random per process, so that no text of a client contains it.
_MARK = f"assigned-{secrets.token_hex(8)}"
_PLACEHOLDER = re.compile(rf'"{_MARK} ([a-z]+) ([0-9]+)"')


class Unpredictable(Exception):
    """A rule needs something that it can only know, or do, in its turn."""


class Assigned:
    """The ``place``-th number that a counter assigns in a transaction, counted from 1."""

    __slots__ = ("counter", "place")

    def __init__(self, counter: Counter, place: int) -> None:
        self.counter: Counter = counter
        self.place = place

    def __lt__(self, other: object) -> bool:
        """Compare places, which have the order of the numbers within one counter."""
        if isinstance(other, Assigned) and other.counter == self.counter:
            return self.place < other.place
        raise Unpredictable("an assigned number was compared")

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same number; only assigned ones can be compared."""
        if isinstance(other, Assigned):
            return (self.counter, self.place) == (other.counter, other.place)
        raise Unpredictable("an assigned number was compared")

    def __hash__(self) -> int:
        """Return the same hash for the same number."""
        return hash((self.counter, self.place))

    def __bool__(self) -> bool:
        """Return True: every assigned number is above zero."""
        return True

    def __str__(self) -> str:
        """Refuse: a text would hold something other than the number."""
        raise Unpredictable("an assigned number was written into a text")

    def __repr__(self) -> str:
        """Return a marked text; a text that contains it is not stored."""
        return f"<{_MARK} {self.counter} {self.place}>"

    def __format__(self, spec: str) -> str:
        """Refuse, as ``__str__`` does."""
        return str(self)


def _placeholder(value: object) -> str:
    if isinstance(value, Assigned):
        return f"{_MARK} {value.counter} {value.place}"
    raise NotImplementedError(f"{type(value).__name__} is no JSON")


encode_json: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_placeholder).encode
"""Encode a value that may hold assigned numbers; ``placeholders`` finds them in the text."""


def placeholders(text: str) -> dict[str, Assigned]:
    """Return the placeholders in a JSON text for numbers that are not known yet.

    Raises Unpredictable for a text that contains one in any other form, such as JSON inside JSON.
    """
    if _MARK not in text:
        return {}
    found = [*_PLACEHOLDER.finditer(text)]
    if len(found) != text.count(_MARK):
        raise Unpredictable("an assigned number was written into a text")
    return {each[0]: Assigned(each[1], int(each[2])) for each in found}  # type: ignore[arg-type]


# The types of most values.
_PLAIN_TYPES = frozenset({str, int, bool, float})


def holds_assigned(value: Any) -> bool:
    """Return whether a result has numbers that are not known yet."""
    return with_numbers(value, dict.fromkeys(get_args(Counter), 0)) is not value


def with_numbers(value: Any, before: Mapping[Counter, int]) -> Any:
    """Return a result with its numbers, given the previous value of each counter."""
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, Assigned):
        return before[value.counter] + value.place
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in value.__struct_fields__:
            known = getattr(value, name)
            if (found := with_numbers(known, before)) is not known:
                changed[name] = found
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        found = {name: with_numbers(each, before) for name, each in value.items()}
        same = all(found[name] is value[name] for name in value)
        return value if same else found
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        some = [with_numbers(each, before) for each in value]
        same = all(new is old for new, old in zip(some, value, strict=True))
        return value if same else type(value)(some)
    return value
