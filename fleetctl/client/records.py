"""Plain stand-ins for the Structs of the protocol; must not know any method, nor import msgspec.

msgspec and its Structs take longer to import than all else that a command does. A command needs
neither: the daemon checks what it is sent, and what it answers is printed.
"""

import json
from typing import Any, ClassVar, Self

from fleetd.protocol.errors import Incompatible

# Fields that go by another name on the wire, since Python has no room for it.
WIRE_NAMES = {"sender": "from"}


class Missing(Incompatible, AttributeError):
    """The daemon's answer has no member of this name, so that ``hasattr`` is false."""


class Record(dict[str, Any]):
    """A JSON object whose members are attributes as well; one that is absent is Missing."""

    def __init__(self, *told: Any, **fields: Any) -> None:
        super().__init__(*told, **fields)
        for name in WIRE_NAMES.keys() & fields.keys():
            self[WIRE_NAMES[name]] = self.pop(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[WIRE_NAMES.get(name, name)]
        except KeyError:
            raise not_understood(f"it has no {name}", Missing) from None


class Asked(Record):
    """A request: the parameters of one method."""

    method: ClassVar[str]
    changes: ClassVar[bool]
    long: ClassVar[bool]

    def keyed(self, key: str) -> Self:
        """Return the request with an idempotency key, if it needs one and has none."""
        return type(self)({"idempotency_key": key, **self}) if self.changes else self

    def tracked(self, token: str) -> Self:
        """Return the request as it tells how far it is, if it may take long."""
        return type(self)({"progress_token": token, **self}) if self.long else self

    def encoded(self) -> bytes:
        """Return the parameters as JSON."""
        return encode(self)

    def answer(self, result: Any) -> Record:
        """Return what the daemon answered; raises Incompatible for what no method answers with."""
        return an_object(result, "a result")


def encode(value: Any) -> bytes:
    """Return plain data and records as JSON, in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes | bytearray) -> Any:
    """Return what JSON says, its objects as records; raises ValueError or RecursionError."""
    return json.loads(data, object_hook=Record)


def an_object(told: Any, what: str) -> Record:
    """Return a part of a message that must be an object; raises Incompatible when it is none."""
    if isinstance(told, Record):
        return told
    raise not_understood(f"{what} is an object")


def not_understood(why: object, kind: type[Incompatible] = Incompatible) -> Incompatible:
    """Return what is said of an answer that has not the form which was expected."""
    return kind(
        f"fleetd answered something this fleetctl does not understand: {why}.",
        hint="Are both of the same version? Compare: fleetctl --version; "
        "fleetctl call system.hello",
    )
