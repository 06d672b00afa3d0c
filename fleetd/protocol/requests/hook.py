"""Requests about the hooks of agent CLIs."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Record
from ..request import Mutation, Query

DELIVERY_ID = r"^[A-Za-z0-9_-]{8,64}$(?!\n)"

DeliveryId = Annotated[str, Meta(pattern=DELIVERY_ID, examples=["0f8c2f1e5b7d4a63"])]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)")]

# Among the arguments of a hook: only whether its way is free is to be found out.
DOCTOR = "doctor"


class HookReply(Record, frozen=True, kw_only=True):
    """What the hook prints, and how it ends; nothing printed is silence."""

    stdout: str = ""
    exit_code: int = 0


class HookDeliver(Mutation[HookReply], frozen=True):
    """Deliver what an agent CLI told one of its hooks; never an error for the agent.

    ``delivery_id`` is chosen by the client: a second delivery under the same id changes nothing.
    ``harness`` is what the hook was installed for, ``args`` the further words of its command line,
    ``payload`` the text it was given on stdin, as it was. ``env`` holds the few variables of its
    environment that tell who sends. ``begun_us`` is when the client began, in microseconds of
    ``CLOCK_MONOTONIC``.
    """

    method: ClassVar[str] = "hook.deliver"
    delivery_id: DeliveryId
    harness: Word
    payload: str
    args: Annotated[list[str], Meta(max_length=8)] = []
    env: dict[str, str] = {}
    begun_us: Annotated[int, Meta(ge=0)] | None = None


class HarnessStatus(Record, frozen=True, kw_only=True):
    """What came from one harness. Latencies are ms from the client's start to the reply."""

    harness: str
    deliveries: int
    sessions: int
    last_event: str | None
    last_event_at: str | None
    from_spool: int
    unfit: int
    p50_ms: float | None
    p95_ms: float | None


class SpoolStatus(Record, frozen=True, kw_only=True):
    """What waits in the spool: payloads that no daemon has taken yet."""

    directory: str
    files: int
    size_bytes: int


class HookStatus(Record, frozen=True, kw_only=True):
    """What hooks have told, by harness, and the spool."""

    harnesses: list[HarnessStatus]
    spool: SpoolStatus


class HookStatusGet(Query[HookStatus], frozen=True):
    """Tell when hooks were last heard of, how many there were, and how fast they are."""

    method: ClassVar[str] = "hook.status"
