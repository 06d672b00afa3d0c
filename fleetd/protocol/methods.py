"""Every method of the protocol by its name, in the order of the nouns."""

from typing import Any

from .request import Request
from .requests import (
    agent,
    attention,
    checkpoint,
    event,
    hook,
    lock,
    message,
    mission,
    note,
    recovery,
    snapshot,
    sortie,
    stats,
    system,
)

_NOUNS = (
    system,
    mission,
    sortie,
    agent,
    attention,
    lock,
    message,
    note,
    event,
    checkpoint,
    snapshot,
    recovery,
    stats,
    hook,
)
METHODS: dict[str, type[Request[Any]]] = {
    thing.method: thing
    for noun in _NOUNS
    for thing in vars(noun).values()
    if isinstance(thing, type) and issubclass(thing, Request) and thing.method
}
