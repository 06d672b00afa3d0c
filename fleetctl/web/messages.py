"""Requests and responses as the rest of the server sees them, and errors as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fleetd.protocol.errors import (
    Denied,
    FleetError,
    InvalidParams,
    InvalidRequest,
    InvalidState,
    LimitExceeded,
    LockConflict,
    MethodNotFound,
    NotFound,
    ParseError,
    Unavailable,
)

from ..client import TooSlow

JSON = "application/json"
NO_STORE = (("Cache-Control", "no-store"),)
INTERNAL = 500

# The first class that matches an error gives its status.
_STATUSES: tuple[tuple[type[FleetError], int], ...] = (
    (TooSlow, 503),
    (InvalidParams, 400),
    (InvalidRequest, 400),
    (ParseError, 400),
    (NotFound, 404),
    (MethodNotFound, 404),
    (Denied, 403),
    (InvalidState, 409),
    (LockConflict, 409),
    (LimitExceeded, 413),
    (Unavailable, 503),
)

Headers = Sequence[tuple[str, str]]


class WebRequest(NamedTuple):
    """The head of a request. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, Sequence[str]]
    has_body: bool

    def values(self, name: str) -> Sequence[str]:
        """Return the values of a header, in their order."""
        return self.headers.get(name, ())

    def header(self, name: str) -> str | None:
        """Return the value of a header; None where it is missing or given twice."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


class Response(NamedTuple):
    """A whole response; the connection adds the common headers."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Headers = NO_STORE


def json_response(value: Any) -> Response:
    """Return plain data or records as a response."""
    return Response(200, msgspec.json.encode(value))


def error_response(error: FleetError, status: int | None = None, headers: Headers = ()) -> Response:
    """Return an error as a response, with the status of its kind unless another is given."""
    if status is None:
        kinds = (code for kind, code in _STATUSES if isinstance(error, kind))
        status = next(kinds, INTERNAL)
    document = {
        "kind": error.kind,
        "message": error.message.removeprefix("Invalid params: "),
        "hint": error.hint or None,
        "data": error.values,
    }
    body = msgspec.json.encode({"error": document})
    return Response(status, body, headers=(*NO_STORE, *headers))
