"""The errors a client can meet: code, kind, exit status, hint."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    Values = dict[str, Any]


class FleetError(Exception):
    """Something the caller should know about; becomes a JSON-RPC error and an exit status.

    ``message`` is one sentence for a person, ``hint`` says what to do next, ``values`` are the
    things concerned (they stand in ``error.data``). ``record`` holds rules, ``(tx, ctx)``, that the
    engine runs after the rollback and before the reply, so that a refusal can leave a trace.
    """

    code: ClassVar[int] = -32603
    kind: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(
        self, message: str, *, hint: str = "", record: tuple[Any, ...] = (), **values: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.record = record
        self.values: Values = values

    def data(self) -> Values:
        """Return ``error.data`` as it stands on the wire."""
        return {"kind": self.kind, "hint": self.hint, **self.values}


class ParseError(FleetError):
    """The line is not JSON."""

    code = -32700
    kind = "parse_error"
    exit_status = 2
    default_hint = "Send one JSON-RPC 2.0 message per line, UTF-8, ended by a line feed."


class InvalidRequest(FleetError):
    """The JSON is not a JSON-RPC 2.0 request."""

    code = -32600
    kind = "invalid_request"
    exit_status = 2
    default_hint = 'A request looks like {"jsonrpc": "2.0", "id": 1, "method": "system.hello"}.'


class MethodNotFound(FleetError):
    """No method has this name."""

    code = -32601
    kind = "method_not_found"
    exit_status = 2
    default_hint = "rpc.discover lists the methods."


class InvalidParams(FleetError):
    """A parameter is missing, unknown, of the wrong type or out of range."""

    code = -32602
    kind = "invalid_params"
    exit_status = 2
    default_hint = "rpc.discover describes the parameters."


class Internal(FleetError):
    """A bug; the incident id stands in the log beside the traceback."""


class NotFound(FleetError):
    """No record has this id."""

    code = -32001
    kind = "not_found"
    exit_status = 4


class InvalidState(FleetError):
    """The rules forbid it now."""

    code = -32002
    kind = "invalid_state"


class LockConflict(FleetError):
    """Somebody else holds the lock; ``existing_lock`` says who, ``file`` what was asked for."""

    code = -32003
    kind = "lock_conflict"


class Corrupt(FleetError):
    """Stored data fails its check and no good copy is left."""

    code = -32004
    kind = "corrupt"


class Storage(FleetError):
    """Disk full, input/output error, read-only; nothing was acknowledged."""

    code = -32005
    kind = "storage"


class Incompatible(FleetError):
    """A schema, protocol or epoch of another version."""

    code = -32006
    kind = "incompatible"


class LimitExceeded(FleetError):
    """Too large, too many, too slow."""

    code = -32007
    kind = "limit"


class Unavailable(FleetError):
    """Starting up, shutting down, or not running."""

    code = -32008
    kind = "unavailable"


class Denied(FleetError):
    """Not the same user."""

    code = -32009
    kind = "denied"


class SchemaInvalid(Corrupt):
    """A snapshot is none, or of a version that nobody knows (source: snapshot-lifecycle)."""

    code = -32010
    kind = "checkpoint_schema_invalid"


class IntegrityMismatch(Corrupt):
    """A snapshot does not match its checksum (source: snapshot-lifecycle)."""

    code = -32011
    kind = "checkpoint_integrity_mismatch"


class AtomicWriteFailed(Storage):
    """A snapshot is stored, but its file could not be written (source: snapshot-lifecycle)."""

    code = -32012
    kind = "checkpoint_atomic_write_failed"


class RetentionPruneFailed(Storage):
    """Files of pruned snapshots could not be removed (source: snapshot-lifecycle)."""

    code = -32013
    kind = "checkpoint_retention_prune_failed"


# Every kind by its code, in the order of their definition.
KINDS: dict[int, type[FleetError]] = {
    kind.code: kind
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, FleetError) and kind is not FleetError
}


def from_wire(code: int, message: str, data: object) -> FleetError:
    """Rebuild the error a client received; an unknown code becomes ``Internal``."""
    values = dict(data) if isinstance(data, dict) else {}
    values.pop("kind", None)
    hint = str(values.pop("hint", ""))
    return KINDS.get(code, Internal)(message, hint=hint, **{str(k): v for k, v in values.items()})
