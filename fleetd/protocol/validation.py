"""Validation messages: what msgspec says of a wrong value, in words for people.

msgspec has no other form than text for it; this is the one place that reads it.
"""

import re

from .types import PATTERN_MEANINGS

_PLACE = re.compile(r"(.*) - at `\$\.?([^`]*)`", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)
_TYPE = re.compile(r"`(\w+(?: \| \w+)*)`")
_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_BOUNDS = (
    (re.compile(r"^a string of length >= 1$"), "a string that is not empty"),
    (re.compile(r"^(a string.*) of length >= (\d+)$"), r"\1 of at least \2 characters"),
    (re.compile(r"^(a string.*) of length <= (\d+)$"), r"\1 of at most \2 characters"),
    (re.compile(r"^(an (?:array|object).*) of length >= 1$"), r"\1 with at least one item"),
    (re.compile(r"^(an (?:array|object).*) of length >= (\d+)$"), r"\1 with at least \2 items"),
    (re.compile(r"^(an (?:array|object).*) of length <= (\d+)$"), r"\1 with at most \2 items"),
    (re.compile(r" >= (\S+)$"), r" of at least \1"),
    (re.compile(r" <= (\S+)$"), r" of at most \1"),
)


def split(message: str) -> tuple[str, str]:
    """Return the problem, and the value's path (``sorties[0].title``; empty at the top)."""
    found = _PLACE.fullmatch(message)
    return (found[1], found[2]) if found else (message, "")


def expected(problem: str) -> str:
    """Return what msgspec expected: ``a string of at most 80 characters``."""
    if found := _PATTERN.match(problem):
        # msgspec shows the pattern as a Python literal, with its backslashes doubled.
        pattern = found[1].replace("\\\\", "\\")
        return PATTERN_MEANINGS.get(pattern, f"a string that matches {pattern}")
    words, _, _ = problem.removeprefix("Expected ").partition(", got ")
    words = _TYPE.sub(_in_words, words)
    for machine, plain in _BOUNDS:
        words = machine.sub(plain, words)
    return words


def in_words(problem: str) -> str:
    """Return a problem as a clause: ``expected an object, got an array``."""
    if found := re.match(r"Object missing required field `(.*)`", problem, re.DOTALL):
        return f"{found[1]} is missing"
    got = problem.partition(", got ")[2].replace("`bool`", "a boolean")
    return f"expected {expected(problem)}" + (f", got {_TYPE.sub(_in_words, got)}" if got else "")


def _in_words(found: re.Match[str]) -> str:
    *most, last = (_TYPES.get(word, word) for word in found[1].split(" | "))
    return f"{', '.join(most)} or {last}" if most else last
