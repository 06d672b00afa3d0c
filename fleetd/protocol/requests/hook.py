"""Requests about the hooks of agent CLIs."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ..records import Record
from ..request import Mutation, Query

DELIVERY_ID = r"^[A-Za-z0-9_-]{8,64}$(?!\n)"

DeliveryId = Annotated[str, Meta(pattern=DELIVERY_ID, examples=["0f8c2f1e5b7d4a63"])]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)")]

# Among the arguments of a hook: only whether its way is free is to be found out.
DOCTOR = "doctor"


class HookReply(Record, frozen=True, kw_only=True):
    """The output and the exit status of the hook; both may be empty."""

    stdout: str = ""
    exit_code: int = 0


class HookDeliver(Mutation[HookReply], frozen=True):
    """Deliver the payload of an agent CLI's hook; never an error for the agent.

    ``delivery_id`` is chosen by the client: a second delivery under the same id changes nothing.
    ``harness`` is the CLI that the hook was installed for, ``args`` the rest of its command line,
    ``payload`` its input from stdin, unchanged. ``env`` holds the environment variables that
    identify the sender. ``begun_us`` is the client's start, in µs of ``CLOCK_MONOTONIC``.
    """

    method: ClassVar[str] = "hook.deliver"
    delivery_id: DeliveryId
    harness: Word
    payload: str
    args: Annotated[list[str], Meta(max_length=8)] = []
    env: dict[str, str] = {}
    begun_us: Annotated[int, Meta(ge=0)] | None = None


class HeardEvent(Record, frozen=True, kw_only=True):
    """A kind of event that a harness told: how often, and when last.

    An empty name stands for all kinds beyond 64.
    """

    event: str
    count: int
    last_at: str


UnknownKind = Literal["event", "field", "payload"]


class UnknownName(Record, frozen=True, kw_only=True):
    """Something that hooks told within a week and that this fleetd does not know.

    ``kind`` is ``event``, ``field`` (at the top of a payload), or ``payload`` for one of no known
    form; its ``name`` then is what is wrong with it. Names are cut to 64 characters and have no
    control characters. An empty name stands for all names beyond 64.
    """

    kind: UnknownKind
    name: str
    count: int
    last_at: str


class HarnessStatus(Record, frozen=True, kw_only=True):
    """The hooks of one harness. Latencies are ms from the client's start to the reply.

    ``events`` are the kinds of events, the newest first. ``unknown`` is what fleetd did not
    understand, the most frequent first. ``silent_sessions`` is the number of sessions that began
    within a week since any session told more than its beginning or its end (``told_at``); the
    first of them began at ``silent_since``. It ends at 1,000. ``version`` is the newest that the
    harness told.
    """

    harness: str
    deliveries: int
    sessions: int
    last_event: str | None
    last_event_at: str | None
    from_spool: int
    unfit: int
    p50_ms: float | None
    p95_ms: float | None
    version: str | None = None
    told_at: str | None = None
    silent_sessions: int = 0
    silent_since: str | None = None
    events: list[HeardEvent] = []
    unknown: list[UnknownName] = []


class SpoolStatus(Record, frozen=True, kw_only=True):
    """The spool: payloads that no daemon has recorded yet."""

    directory: str
    files: int
    size_bytes: int


class HookStatus(Record, frozen=True, kw_only=True):
    """The hooks by harness, and the spool."""

    harnesses: list[HarnessStatus]
    spool: SpoolStatus


class HookStatusGet(Query[HookStatus], frozen=True):
    """Return the time of the last hook, the number of hooks, and their latency, by harness."""

    method: ClassVar[str] = "hook.status"
