"""Requests about the event log and its consumers."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from ..records import Event, Record
from ..request import Mutation, Query
from ..types import AgentId, EventType, Limit, MissionId, Seq, Stream, Timestamp

Epoch = Annotated[str, Meta(min_length=1, max_length=64)]
EventTypes = Annotated[list[EventType], Meta(min_length=1, max_length=100)]


class EventAppend(Mutation[Event], frozen=True):
    """Append an event; one that names an agent counts as activity."""

    method: ClassVar[str] = "event.append"
    type: EventType
    mission_id: MissionId | None = None
    agent_id: AgentId | None = None
    data: dict[str, Any] = {}


class EventPage(Record, frozen=True, kw_only=True):
    """Events in order; ``position`` is the last ``seq`` that was examined."""

    events: list[Event]
    position: int
    epoch: str


class EventList(Query[EventPage], frozen=True):
    """List the events after ``since``, or with ``newest`` those before ``before``, newest first.

    A page holds about 1 MiB at most. To read all events, pass ``position`` as ``since`` of the next
    page (with ``newest`` as its ``before``) until a page is empty and ``position`` stays the same.
    With ``agent_id`` and a type or a mission, a page may be empty before the end.
    """

    method: ClassVar[str] = "event.list"
    mission_id: MissionId | None = None
    type: EventType | None = None
    since: Seq = 0
    limit: Limit = 200
    types: EventTypes | None = None
    agent_id: AgentId | None = None
    since_time: Timestamp | None = None
    newest: bool = False
    before: Seq | None = None


class Subscription(Record, frozen=True, kw_only=True):
    """A subscription; ``position`` is the ``seq`` it starts after."""

    subscription_id: str
    position: int
    epoch: str


class EventSubscribe(Query[Subscription], frozen=True):
    """Receive events as notifications ``event {subscription_id, event}``, without gaps.

    Without ``since`` it starts at the end of the log. An ``epoch`` of another store is
    ``incompatible``: subscribe again without ``since``.
    """

    method: ClassVar[str] = "event.subscribe"
    since: Seq | None = None
    types: EventTypes | None = None
    mission_id: MissionId | None = None
    epoch: Epoch | None = None
    agent_id: AgentId | None = None


class Unsubscribed(Record, frozen=True, kw_only=True):
    """Confirms the end of a subscription."""

    unsubscribed: bool


class EventUnsubscribe(Query[Unsubscribed], frozen=True):
    """End a subscription of this connection."""

    method: ClassVar[str] = "event.unsubscribe"
    subscription_id: Annotated[str, Meta(min_length=1, max_length=64)]


class CursorGap(Record, frozen=True, kw_only=True):
    """Events that were deleted unread, because the consumer had not used its cursor for long.

    ``missed_until`` is the newest of them. ``first_available`` is the first ``seq`` of the stream
    that can still be read, or the next one of the log if none can.
    """

    first_available: int
    missed_until: int


class CursorPosition(Record, frozen=True, kw_only=True):
    """The position up to which a consumer has read a stream; 0 if it never did.

    ``gap`` reports deleted events after that position, until the cursor moves.
    """

    position: int
    epoch: str
    gap: CursorGap | None = None


class CursorGet(Query[CursorPosition], frozen=True):
    """Return a consumer's position in a stream.

    A cursor that is neither moved nor read for ``retention.event_days`` no longer keeps events.
    """

    method: ClassVar[str] = "cursor.get"
    consumer: AgentId
    stream: Stream


class CursorAdvance(Mutation[CursorPosition], frozen=True):
    """Move a cursor forward; backwards is refused.

    A ``gap`` in the answer is after the previous position; it is reported once.
    """

    method: ClassVar[str] = "cursor.advance"
    consumer: AgentId
    stream: Stream
    position: Seq
