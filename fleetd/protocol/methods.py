"""Every method of the protocol by its name, in the order of the nouns."""

from typing import Any

from .request import Request
from .requests import (
    agent,
    attention,
    checkpoint,
    commit,
    event,
    handoff,
    hook,
    lock,
    machine,
    message,
    mission,
    note,
    recovery,
    report,
    search,
    session,
    snapshot,
    sortie,
    stats,
    system,
    timeline,
    usage,
)

_NOUNS = (
    system,
    mission,
    sortie,
    agent,
    session,
    attention,
    machine,
    lock,
    commit,
    message,
    note,
    event,
    search,
    checkpoint,
    snapshot,
    recovery,
    handoff,
    stats,
    timeline,
    report,
    usage,
    hook,
)
METHODS: dict[str, type[Request[Any]]] = {
    thing.method: thing
    for noun in _NOUNS
    for thing in vars(noun).values()
    if isinstance(thing, type) and issubclass(thing, Request) and thing.method
}
