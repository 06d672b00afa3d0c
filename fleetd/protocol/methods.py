"""Every method of the protocol by its name, in the order of the nouns."""

from typing import Any

from .request import Request
from .requests import (
    agent,
    checkpoint,
    event,
    hook,
    lock,
    message,
    mission,
    recovery,
    snapshot,
    sortie,
    system,
)

_NOUNS = (
    system,
    mission,
    sortie,
    agent,
    lock,
    message,
    event,
    checkpoint,
    snapshot,
    recovery,
    hook,
)


def _requests() -> dict[str, type[Request[Any]]]:
    found: dict[str, type[Request[Any]]] = {}
    for noun in _NOUNS:
        for thing in vars(noun).values():
            if isinstance(thing, type) and issubclass(thing, Request) and thing.method:
                found[thing.method] = thing
    return found


METHODS: dict[str, type[Request[Any]]] = _requests()
