"""Mailbox: messages between agents are sent, delivered, acknowledged, queued again."""

from functools import partial
from operator import itemgetter

import msgspec

from ...protocol.errors import InvalidState, NotFound
from ...protocol.events import MessageAcked, MessageDelivered, MessageRequeued, MessageSent
from ...protocol.records import Message
from ...protocol.requests.message import (
    MessageAck,
    MessageInbox,
    MessageList,
    MessagePage,
    MessageRequeue,
    MessageSend,
)
from ..checkpoints.on_error import note_delivery_failure
from ..core.context import Context
from ..core.event_log import emit
from ..core.ids import find, fresh_id
from ..core.mappers import message_of
from ..core.registry import method
from ..core.sql import Where
from ..core.tx import Row, Tx


@method(MessageSend)
def send(tx: Tx, ctx: Context, request: MessageSend) -> Message:
    """Post a message; an agent that is not there yet finds it later, one that left does not."""
    mission_id = _mission(tx, request)
    recipients = list(dict.fromkeys(mail_reader(tx, agent_id) for agent_id in request.to))
    _refuse_gone(tx, request, recipients, mission_id)
    message_id = fresh_id(tx, ctx, "message")
    payload = MessageSent(message_id=message_id, to=recipients, subject=request.subject)
    event = emit(tx, ctx, payload, mission_id=mission_id, agent_id=request.sender)
    columns = {
        "id": message_id,
        "seq": event.seq,
        "mission_id": mission_id,
        "to_json": msgspec.json.encode(recipients).decode(),
        "sent_at": ctx.now,
    }
    said = ("thread_id", "sender", "subject", "body", "priority")
    tx.insert("messages", columns | {name: getattr(request, name) for name in said})
    for agent_id in recipients:
        enqueue_delivery(tx, message_id, agent_id, event.seq)
    return _get(tx, message_id)


def _mission(tx: Tx, request: MessageSend) -> str | None:
    """Return the mission a message belongs to: the one it names, else its sender's."""
    if request.mission_id:
        return str(find(tx, "mission", request.mission_id)["id"])
    sent_from: str | None = tx.value(
        "SELECT mission_id FROM agents WHERE id = :id", id=request.sender
    )
    return sent_from


def mail_reader(tx: Tx, agent_id: str) -> str:
    """Return who reads an agent's mail: itself, or the agent that took its work over."""
    seen: set[str] = set()
    heir: str | None = agent_id
    while heir is not None and heir not in seen:
        seen.add(agent_id := heir)
        heir = tx.value(
            "SELECT succeeded_by FROM agents WHERE id = :id AND status = 'lost'", id=agent_id
        )
    return agent_id


def _refuse_gone(
    tx: Tx, request: MessageSend, recipients: list[str], mission_id: str | None
) -> None:
    gone = [
        agent_id
        for agent_id in recipients
        if tx.one("SELECT 1 AS gone FROM agents WHERE id = :id AND status = 'gone'", id=agent_id)
    ]
    if gone:
        who = ", ".join(gone)
        failed = partial(
            note_delivery_failure,
            sender=request.sender,
            to=gone,
            subject=request.subject,
            mission_id=mission_id,
        )
        raise InvalidState(
            f"The message was not sent: {who} has left the fleet.",
            hint="Send it to present agents; fleetctl agent list shows them.",
            record=(failed,),
            gone=gone,
        )


def enqueue_delivery(tx: Tx, message_id: str, agent_id: str, seq: int) -> None:
    """Put a message into a recipient's queue, again if it was there before."""
    tx.run(
        "INSERT INTO deliveries (message_id, agent_id, seq, status) VALUES (:id, :agent, :seq,"
        " 'queued') ON CONFLICT (message_id, agent_id) DO UPDATE SET status = 'queued',"
        " delivered_at = NULL",
        id=message_id,
        agent=agent_id,
        seq=seq,
    )


def _get(tx: Tx, message_id: str) -> Message:
    return message_of(tx, find(tx, "message", message_id))


@method(MessageInbox)
def inbox(tx: Tx, ctx: Context, request: MessageInbox) -> MessagePage:
    """Return an agent's mail, oldest first, and note that it has been delivered."""
    states = ["queued", "delivered", *(["acked"] if request.include_acked else [])]
    # Of each state the oldest: together they would all be read, and there may be years of mail.
    found = [
        row
        for state in states
        for row in tx.all(
            "SELECT m.*, d.status AS delivery, d.seq AS place FROM deliveries d"
            " JOIN messages m ON m.id = d.message_id"
            " WHERE d.agent_id = :agent AND d.status = :state ORDER BY d.seq LIMIT :limit",
            agent=request.agent_id,
            state=state,
            limit=request.limit,
        )
    ]
    rows = sorted(found, key=itemgetter("place"))[: request.limit]
    for row in rows:
        if row["delivery"] == "queued":
            _deliver(tx, ctx, row, request.agent_id)
    return MessagePage(messages=[message_of(tx, row) for row in rows])


def _deliver(tx: Tx, ctx: Context, row: Row, agent_id: str) -> None:
    tx.run(
        "UPDATE deliveries SET status = 'delivered', delivered_at = :now, attempts = attempts + 1"
        " WHERE message_id = :id AND agent_id = :agent",
        now=ctx.now,
        id=row["id"],
        agent=agent_id,
    )
    payload = MessageDelivered(message_id=row["id"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=agent_id)


@method(MessageAck)
def ack(tx: Tx, ctx: Context, request: MessageAck) -> Message:
    """Note that a recipient dealt with a message; of two that try, the second learns who did."""
    row = find(tx, "message", request.message_id)
    delivery = tx.one(
        "SELECT * FROM deliveries WHERE message_id = :id AND agent_id = :agent",
        id=row["id"],
        agent=request.agent_id,
    )
    if delivery is None:
        raise NotFound(
            f"Message {row['id']} was not sent to {request.agent_id}.",
            hint="Only a recipient can acknowledge a message.",
            message_id=row["id"],
            agent_id=request.agent_id,
        )
    if delivery["status"] == "acked":
        raise InvalidState(
            f"Message {row['id']} was already acknowledged by {request.agent_id} at "
            f"{delivery['acked_at']}.",
            hint="No further step is needed.",
            acked_by=request.agent_id,
            acked_at=delivery["acked_at"],
        )
    tx.run(
        "UPDATE deliveries SET status = 'acked', acked_at = :now,"
        " delivered_at = coalesce(delivered_at, :now) WHERE message_id = :id"
        " AND agent_id = :agent",
        now=ctx.now,
        id=row["id"],
        agent=request.agent_id,
    )
    payload = MessageAcked(message_id=row["id"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=request.agent_id)
    return _get(tx, row["id"])


@method(MessageList)
def list_messages(tx: Tx, ctx: Context, request: MessageList) -> MessagePage:
    """Return messages in the order of sending, or backwards."""
    beyond, order = ("<", "DESC") if request.newest else (">", "ASC")
    where = Where()
    if request.mission_id:
        where.equal(mission_id=find(tx, "mission", request.mission_id)["id"])
    if request.pending is not None:
        queued = "IN (SELECT d.message_id FROM deliveries d WHERE d.status = 'queued')"
        where.add(f"id {queued}" if request.pending else f"id NOT {queued}")
    if request.agent_id:
        received = "id IN (SELECT message_id FROM deliveries WHERE agent_id = :agent)"
        where.add(f"(sender = :agent OR {received})", agent=request.agent_id)
    where.since("sent_at", request.since_time)
    if request.after:
        last = find(tx, "message", request.after)
        behind = f"seq {beyond}= :seq AND (seq {beyond} :seq OR id {beyond} :after)"
        where.add(behind, seq=last["seq"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM messages WHERE {where} ORDER BY seq {order}, id {order} LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return MessagePage(messages=[message_of(tx, row) for row in rows])


@method(MessageRequeue)
def requeue(tx: Tx, ctx: Context, request: MessageRequeue) -> Message:
    """Queue a message again for those who have not acknowledged it."""
    row = find(tx, "message", request.message_id)
    deliveries = tx.all(
        "SELECT * FROM deliveries WHERE message_id = :id ORDER BY agent_id", id=row["id"]
    )
    again = [
        delivery["agent_id"]
        for delivery in deliveries
        if delivery["status"] in ("delivered", "failed")
        and request.agent_id in (None, delivery["agent_id"])
    ]
    if not again:
        states = ", ".join(f"{d['agent_id']}: {d['status']}" for d in deliveries)
        raise InvalidState(
            f"Message {row['id']} has no delivery to queue again ({states}).",
            hint="Only a delivery that is neither acknowledged nor queued can be queued again.",
            message_id=row["id"],
        )
    for agent_id in again:
        enqueue_delivery(tx, row["id"], agent_id, row["seq"])
    payload = MessageRequeued(message_id=row["id"], to=again)
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return _get(tx, row["id"])
