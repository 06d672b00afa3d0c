"""The requests and records of ``fleetd.protocol`` as commands use them; imports no msgspec.

Type checkers see the Structs themselves. At run time, plain stand-ins have the same names:
a request holds the given parameters, and a record holds the daemon's answer.
"""

from __future__ import annotations

from fleetd.protocol.errors import Incompatible

from . import plain_json
from .methods import METHODS, RECORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

    from fleetd.protocol.checkpoint_diff import *  # noqa: F403
    from fleetd.protocol.records import Agent as Agent
    from fleetd.protocol.records import Checkpoint as Checkpoint
    from fleetd.protocol.records import CheckpointSummary as CheckpointSummary
    from fleetd.protocol.records import Event as Event
    from fleetd.protocol.records import Finding as Finding
    from fleetd.protocol.records import Handoff as Handoff
    from fleetd.protocol.records import Lock as Lock
    from fleetd.protocol.records import Message as Message
    from fleetd.protocol.records import Mission as Mission
    from fleetd.protocol.records import Note as Note
    from fleetd.protocol.records import Recovery as Recovery
    from fleetd.protocol.records import RecoveryCandidate as RecoveryCandidate
    from fleetd.protocol.records import RecoveryContext as RecoveryContext
    from fleetd.protocol.records import RestoreResult as RestoreResult
    from fleetd.protocol.records import Sortie as Sortie
    from fleetd.protocol.records import SourceDetail as SourceDetail
    from fleetd.protocol.request import Mutation as Mutation
    from fleetd.protocol.request import Query as Query
    from fleetd.protocol.request import Request as Request
    from fleetd.protocol.requests.agent import *  # noqa: F403
    from fleetd.protocol.requests.attention import *  # noqa: F403
    from fleetd.protocol.requests.checkpoint import *  # noqa: F403
    from fleetd.protocol.requests.commit import *  # noqa: F403
    from fleetd.protocol.requests.event import *  # noqa: F403
    from fleetd.protocol.requests.handoff import *  # noqa: F403
    from fleetd.protocol.requests.hook import *  # noqa: F403
    from fleetd.protocol.requests.lock import *  # noqa: F403
    from fleetd.protocol.requests.message import *  # noqa: F403
    from fleetd.protocol.requests.mission import *  # noqa: F403
    from fleetd.protocol.requests.note import *  # noqa: F403
    from fleetd.protocol.requests.recovery import *  # noqa: F403
    from fleetd.protocol.requests.report import *  # noqa: F403
    from fleetd.protocol.requests.search import *  # noqa: F403
    from fleetd.protocol.requests.session import *  # noqa: F403
    from fleetd.protocol.requests.snapshot import *  # noqa: F403
    from fleetd.protocol.requests.sortie import *  # noqa: F403
    from fleetd.protocol.requests.stats import *  # noqa: F403
    from fleetd.protocol.requests.system import *  # noqa: F403
    from fleetd.protocol.requests.usage import *  # noqa: F403
    from fleetd.protocol.snapshots import *  # noqa: F403
    from fleetd.protocol.status import *  # noqa: F403

# Fields with another name on the wire, which Python reserves as a keyword.
WIRE_NAMES = {"sender": "from"}


class MissingMember(Incompatible, AttributeError):
    """The daemon's answer has no such member; an AttributeError, so that ``hasattr`` is false."""


class PlainRecord(dict[str, "Any"]):
    """A JSON object whose members are also attributes; a missing one raises MissingMember."""

    def __init__(self, *members: Any, **fields: Any) -> None:
        super().__init__(*members, **fields)
        for name in WIRE_NAMES.keys() & fields.keys():
            self[WIRE_NAMES[name]] = self.pop(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[WIRE_NAMES.get(name, name)]
        except KeyError:
            raise incompatible(f"it has no {name}", MissingMember) from None


class PlainRequest(PlainRecord):
    """A request: the parameters of one method."""

    method: ClassVar[str]
    changes: ClassVar[bool]
    long: ClassVar[bool]

    def keyed(self, key: str) -> Self:
        """Return the request with an idempotency key, if it needs one and has none."""
        return type(self)({"idempotency_key": key, **self}) if self.changes else self

    def tracked(self, token: str) -> Self:
        """Return the request with a progress token, if it may take long."""
        return type(self)({"progress_token": token, **self}) if self.long else self

    def encoded(self) -> bytes:
        """Return the parameters as JSON.

        It omits parameters that are None: a daemon from before an upgrade may not know them.
        """
        return encode({name: value for name, value in self.items() if value is not None})

    def answer(self, result: Any) -> PlainRecord:
        """Return the daemon's answer as a record; raises Incompatible when it is no object."""
        return require_object(result, "a result")


def encode(value: Any) -> bytes:
    """Return plain data and records as JSON, in one line."""
    return plain_json.dumps(value).encode()


def decode(data: bytes | bytearray) -> Any:
    """Return decoded JSON, with objects as records; raises ValueError or RecursionError."""
    return plain_json.loads(data, PlainRecord)


def require_object(value: Any, what: str) -> PlainRecord:
    """Return a part of a message that must be an object; raises Incompatible when it is not."""
    if isinstance(value, PlainRecord):
        return value
    raise incompatible(f"{what} is an object")


def incompatible(why: object, kind: type[Incompatible] = Incompatible) -> Incompatible:
    """Return the error for an answer in an unexpected form."""
    return kind(
        f"The client cannot read the reply of fleetd: {why}.",
        hint="Compare the versions: fleetctl --version; fleetctl call system.hello",
    )


_REQUESTS = {about[0]: (method, *about[1:]) for method, about in METHODS.items()}


class _Finding(PlainRecord):
    """A finding of a command's own check; commands print it like one of the daemon's."""

    def __init__(
        self,
        *,
        check: str,
        ok: bool,
        detail: str,
        subject: str | None = None,
        fixed: bool = False,
        note: bool = False,
        reason_code: str | None = None,
    ) -> None:
        fields = {"check": check, "ok": ok, "detail": detail, "subject": subject}
        super().__init__(fields, fixed=fixed, note=note, reason_code=reason_code)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "Finding":
        return _Finding
    if name in _REQUESTS:
        about = dict(zip(("method", "changes", "long"), _REQUESTS[name], strict=True))
        globals()[name] = request = type(name, (PlainRequest,), about)
        return request
    if name in RECORDS:
        return PlainRecord
    raise AttributeError(f"fleetd knows no request and no record that is called {name}")
