"""Trace context: on whose behalf the daemon does what it does, for its log.

The origin goes with the task, and with what the task leaves to others: jobs for the writer and
reader threads, effects after a commit, files that are written later.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

import msgspec

from ..protocol.display import shown

_NAME = re.compile(r"[a-z_.]{1,40}")


class TraceContext(msgspec.Struct, frozen=True):
    """A client's request, its connection alone, or what a hook left in the spool.

    ``connection`` counts from 1 since the start of the daemon. ``request`` is the JSON-RPC id, any
    text or number that the client chose; a notification has none. Becomes text only when a line of
    the log needs it.
    """

    connection: int = 0
    method: str = ""
    request: str | int | None = None
    notification: bool = False
    about: str = ""

    def __str__(self) -> str:
        """Return ``connection 12, request 7 checkpoint.create``."""
        parts = [f"connection {self.connection}"] if self.connection else []
        if self.method:
            what = "notification" if self.notification else f"request {shown(self.request)}"
            known = _NAME.fullmatch(self.method)
            parts.append(f"{what} {self.method if known else shown(self.method)}")
        if self.about:
            parts.append(self.about)
        return ", ".join(parts)


_current: ContextVar[TraceContext | None] = ContextVar("origin", default=None)

current = _current.get


def enter(origin: TraceContext | None) -> Token[TraceContext | None]:
    """Say on whose behalf the task goes on, until ``leave`` is given the token."""
    return _current.set(origin)


def leave(token: Token[TraceContext | None]) -> None:
    """Go back to what was said before."""
    _current.reset(token)


@contextmanager
def on_behalf_of(origin: TraceContext | None) -> Iterator[None]:
    """Carry out a block on somebody's behalf."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


def tell(about: str) -> None:
    """Add to the origin what became known of it, such as a hook's session."""
    origin = _current.get() or TraceContext()
    joined = f"{origin.about}, {about}" if origin.about else about
    _current.set(msgspec.structs.replace(origin, about=joined))
