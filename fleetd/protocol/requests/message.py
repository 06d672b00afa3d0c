"""Requests about mail."""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from ..records import Message, Record
from ..request import Mutation, Query
from ..types import AgentId, Limit, MessageId, MissionId, Priority, Text, Timestamp, Title

ThreadId = Annotated[str, Meta(min_length=1, max_length=200)]
Recipients = Annotated[list[AgentId], Meta(min_length=1, max_length=1_000)]


class MessageSend(Mutation[Message], frozen=True):
    """Send a message; a recipient that has left makes it fail, and the error names it."""

    method: ClassVar[str] = "message.send"
    sender: AgentId = field(name="from")
    to: Recipients
    subject: Title
    body: Text | None = None
    mission_id: MissionId | None = None
    thread_id: ThreadId | None = None
    priority: Priority = "medium"


class MessagePage(Record, frozen=True, kw_only=True):
    """Messages in the order of sending."""

    messages: list[Message]


class MessageInbox(Mutation[MessagePage], frozen=True):
    """Read an agent's mail, oldest first; queued deliveries become delivered."""

    method: ClassVar[str] = "message.inbox"
    agent_id: AgentId
    limit: Limit = 50
    include_acked: bool = False


class MessageAck(Mutation[Message], frozen=True):
    """Acknowledge a message. A second call is refused; the error names the agent of the first."""

    method: ClassVar[str] = "message.ack"
    message_id: MessageId
    agent_id: AgentId


class MessageGet(Query[Message], frozen=True):
    """Return a message. It stays unread: only ``message.inbox`` delivers it."""

    method: ClassVar[str] = "message.get"
    message_id: MessageId


class MessageList(Query[MessagePage], frozen=True):
    """List messages, oldest first; ``pending`` selects those with (or without) a queued delivery.

    With ``newest`` the newest comes first. ``after`` is the last one of the previous page.
    """

    method: ClassVar[str] = "message.list"
    mission_id: MissionId | None = None
    pending: bool | None = None
    limit: Limit = 1_000
    after: MessageId | None = None
    newest: bool = False
    agent_id: AgentId | None = None
    since_time: Timestamp | None = None
    until_time: Timestamp | None = None


class MessageRequeue(Mutation[Message], frozen=True):
    """Queue a message again for the recipients that have not acknowledged it."""

    method: ClassVar[str] = "message.requeue"
    message_id: MessageId
    agent_id: AgentId | None = None
