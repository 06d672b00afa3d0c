"""Mailbox: messages between agents are sent, delivered, acknowledged, queued again."""

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from operator import itemgetter

import msgspec

from ...protocol.errors import InvalidState, NotFound
from ...protocol.events import MessageAcked, MessageDelivered, MessageRequeued, MessageSent
from ...protocol.records import Message
from ...protocol.requests.message import (
    MessageAck,
    MessageGet,
    MessageInbox,
    MessageList,
    MessagePage,
    MessageRequeue,
    MessageSend,
)
from ..checkpoints.on_error import note_delivery_failure
from ..core.changes import queue_changed
from ..core.context import Context
from ..core.event_log import emit, emit_each
from ..core.ids import find, fresh_id
from ..core.mappers import message_of
from ..core.registry import method, optimistic
from ..core.sql import Where, inside_of, named_params
from ..core.tx import Row, Tx
from ..search import index as search_index

_QUEUED = {"status": "queued", "delivered_at": None, "acked_at": None, "attempts": 0}


def _oldest(state: str) -> str:
    return (
        "SELECT * FROM (SELECT m.*, d.status AS delivery, d.seq AS place FROM deliveries d"
        " JOIN messages m ON m.id = d.message_id WHERE d.agent_id = :agent"
        f" AND d.status = '{state}' ORDER BY d.seq LIMIT :limit) AS {state}"
    )


# The oldest of each state: one query for all states would read all mail, perhaps years of it.
_INBOX = f"{_oldest('queued')} UNION ALL {_oldest('delivered')}"
_INBOX_WITH_ACKED = f"{_INBOX} UNION ALL {_oldest('acked')}"


@optimistic
@method(MessageSend)
def send(tx: Tx, ctx: Context, request: MessageSend) -> Message:
    """Send a message; an agent that registers later finds it, one that left is refused."""
    agents = _agents(tx, {request.sender, *request.to})
    if request.mission_id:
        mission_id = find(tx, "mission", request.mission_id)["id"]
    else:
        mission_id = agents[request.sender]["mission_id"] if request.sender in agents else None
    recipients = _readers(tx, agents, request.to)
    _refuse_gone(request, [each for each in recipients if _is(agents, each, "gone")], mission_id)
    message_id = fresh_id(tx, ctx, "message")
    payload = MessageSent(message_id=message_id, to=recipients, subject=request.subject)
    queue_changed(tx, mission_id, message_id, recipients)
    event = emit(tx, ctx, payload, mission_id=mission_id, agent_id=request.sender)
    columns = {
        "id": message_id,
        "seq": event.seq,
        "mission_id": mission_id,
        "to_json": msgspec.json.encode(recipients).decode(),
        "sent_at": ctx.now,
    }
    fields = ("thread_id", "sender", "subject", "body", "priority")
    row = columns | {name: getattr(request, name) for name in fields}
    tx.insert("messages", row)
    search_index.add_message(tx, row)
    _enqueue(tx, message_id, recipients, event.seq)
    return message_of(row, [{"agent_id": each, **_QUEUED} for each in recipients])


def _agents(tx: Tx, agent_ids: Iterable[str]) -> dict[str, Row]:
    """Return the known agents among some by id; an agent may never have registered."""
    wanted = sorted(agent_ids)
    rows = tx.all(
        "SELECT id, status, mission_id, succeeded_by FROM agents"
        f" WHERE id IN ({inside_of('agent', wanted)})",
        **named_params("agent", wanted),
    )
    return {row["id"]: row for row in rows}


def _is(agents: dict[str, Row], agent_id: str, status: str) -> bool:
    return agent_id in agents and agents[agent_id]["status"] == status


def _readers(tx: Tx, agents: dict[str, Row], to: Iterable[str]) -> list[str]:
    """Return the readers of agents' mail, and add successors among them to ``agents``."""
    lost = [
        each
        for each in to
        if any(_is(agents, each, status) for status in ("lost", "gone"))
        and agents[each]["succeeded_by"]
    ]
    heirs = {each: mail_reader(tx, each) for each in lost}
    if heirs:
        agents |= _agents(tx, heirs.values())
    return list(dict.fromkeys(heirs.get(each, each) for each in to))


def mail_reader(tx: Tx, agent_id: str) -> str:
    """Return the reader of an agent's mail: itself, or the agent that took its work over."""
    seen: set[str] = set()
    heir: str | None = agent_id
    while heir is not None and heir not in seen:
        seen.add(agent_id := heir)
        heir = tx.value(
            "SELECT succeeded_by FROM agents WHERE id = :id AND status IN ('lost', 'gone')",
            id=agent_id,
        )
    return agent_id


def _refuse_gone(request: MessageSend, gone: list[str], mission_id: str | None) -> None:
    if gone:
        who = f"{', '.join(gone)} {'has' if len(gone) == 1 else 'have'}"
        failed = partial(
            note_delivery_failure,
            sender=request.sender,
            to=gone,
            subject=request.subject,
            mission_id=mission_id,
        )
        raise InvalidState(
            f"The message was not sent: {who} left the fleet.",
            hint="Send it to present agents; fleetctl agent list shows them.",
            record=(failed,),
            gone=gone,
        )


def enqueue_delivery(tx: Tx, message_id: str, agent_id: str, seq: int) -> None:
    """Put a message into a recipient's queue, again if it was there before."""
    _enqueue(tx, message_id, [agent_id], seq)
    keep_queue(tx, message_id)


def keep_queue(tx: Tx, message_id: str) -> None:
    """Keep in its mission's state the agents that have not received a message yet."""
    rows = tx.all(
        "SELECT m.mission_id, d.agent_id FROM messages m LEFT JOIN deliveries d"
        " ON d.message_id = m.id AND d.status = 'queued' WHERE m.id = :id",
        id=message_id,
    )
    if rows:
        to = [row["agent_id"] for row in rows if row["agent_id"] is not None]
        queue_changed(tx, rows[0]["mission_id"], message_id, to)


def _keep_known_queue(tx: Tx, row: Row, deliveries: list[Row]) -> None:
    """Keep the agents that have not received a message yet, by its current deliveries."""
    to = [each["agent_id"] for each in deliveries if each["status"] == "queued"]
    queue_changed(tx, row["mission_id"], row["id"], to)


def _enqueue(tx: Tx, message_id: str, agent_ids: list[str], seq: int) -> None:
    tx.many(
        "INSERT INTO deliveries (message_id, agent_id, seq, status) VALUES (:id, :agent, :seq,"
        " 'queued') ON CONFLICT (message_id, agent_id) DO UPDATE SET status = 'queued',"
        " delivered_at = NULL",
        [{"id": message_id, "agent": each, "seq": seq} for each in agent_ids],
    )


def _deliveries_of(tx: Tx, rows: list[Row]) -> dict[str, list[Row]]:
    """Return the deliveries of messages by message id, each list sorted by agent."""
    found: dict[str, list[Row]] = {row["id"]: [] for row in rows}
    if found:
        for delivery in tx.all(
            f"SELECT * FROM deliveries WHERE message_id IN ({inside_of('id', [*found])})"
            " ORDER BY message_id, agent_id",
            **named_params("id", [*found]),
        ):
            found[delivery["message_id"]].append(delivery)
    return found


def _page(rows: list[Row], deliveries: dict[str, list[Row]]) -> MessagePage:
    return MessagePage(messages=[message_of(row, deliveries[row["id"]]) for row in rows])


@method(MessageGet)
def get(tx: Tx, ctx: Context, request: MessageGet) -> Message:
    """Return a message with its deliveries, without delivering it."""
    row = find(tx, "message", request.message_id)
    return message_of(row, _deliveries_of(tx, [row])[row["id"]])


@optimistic
@method(MessageInbox)
def inbox(tx: Tx, ctx: Context, request: MessageInbox) -> MessagePage:
    """Return an agent's mail, oldest first, and note that it has been delivered."""
    found = tx.all(
        _INBOX_WITH_ACKED if request.include_acked else _INBOX,
        agent=request.agent_id,
        limit=request.limit,
    )
    rows = sorted(found, key=itemgetter("place"))[: request.limit]
    deliveries = _deliveries_of(tx, rows)
    if queued := [row for row in rows if row["delivery"] == "queued"]:
        own = [
            delivery
            for row in queued
            for delivery in deliveries[row["id"]]
            if delivery["agent_id"] == request.agent_id
        ]
        _deliver(tx, ctx, queued, own, deliveries)
    return _page(rows, deliveries)


def _deliver(
    tx: Tx, ctx: Context, rows: list[Row], own: list[Row], deliveries: dict[str, list[Row]]
) -> None:
    """Note that an agent reads messages, also in the rows of its ``own`` deliveries."""
    for delivery in own:
        attempts = delivery["attempts"] + 1
        delivery |= {"status": "delivered", "delivered_at": ctx.now, "attempts": attempts}
    tx.many(
        "UPDATE deliveries SET status = :status, delivered_at = :delivered_at,"
        " attempts = :attempts WHERE message_id = :message_id AND agent_id = :agent_id",
        own,
    )
    for row in rows:
        _keep_known_queue(tx, row, deliveries[row["id"]])
    reader = own[0]["agent_id"]
    for mission_id, group in groupby(rows, key=itemgetter("mission_id")):
        events = [MessageDelivered(message_id=row["id"]) for row in group]
        if mission_id is not None:
            emit_each(tx, ctx, [(each, reader) for each in events], mission_id=mission_id)
        else:
            for each in events:
                emit(tx, ctx, each, agent_id=reader)


@optimistic
@method(MessageAck)
def ack(tx: Tx, ctx: Context, request: MessageAck) -> Message:
    """Note that a recipient dealt with a message; a second attempt learns who did."""
    row = find(tx, "message", request.message_id)
    deliveries = _deliveries_of(tx, [row])[row["id"]]
    own = [each for each in deliveries if each["agent_id"] == request.agent_id]
    if not own:
        raise NotFound(
            f"Message {row['id']} was not sent to {request.agent_id}.",
            hint="Only a recipient can acknowledge a message.",
            message_id=row["id"],
            agent_id=request.agent_id,
        )
    [delivery] = own
    if delivery["status"] == "acked":
        raise InvalidState(
            f"Message {row['id']} was already acknowledged by {request.agent_id} at "
            f"{delivery['acked_at']}.",
            hint="No further step is needed.",
            acked_by=request.agent_id,
            acked_at=delivery["acked_at"],
        )
    delivered_at = delivery["delivered_at"] or ctx.now
    delivery |= {"status": "acked", "acked_at": ctx.now, "delivered_at": delivered_at}
    tx.run(
        "UPDATE deliveries SET status = :status, acked_at = :acked_at,"
        " delivered_at = :delivered_at WHERE message_id = :message_id AND agent_id = :agent_id",
        **delivery,
    )
    _keep_known_queue(tx, row, deliveries)
    payload = MessageAcked(message_id=row["id"])
    emit(tx, ctx, payload, mission_id=row["mission_id"], agent_id=request.agent_id)
    return message_of(row, deliveries)


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
    where.until("sent_at", request.until_time)
    if request.after:
        last = find(tx, "message", request.after)
        behind = f"seq {beyond}= :seq AND (seq {beyond} :seq OR id {beyond} :after)"
        where.add(behind, seq=last["seq"], after=last["id"])
    rows = tx.all(
        f"SELECT * FROM messages WHERE {where} ORDER BY seq {order}, id {order} LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return _page(rows, _deliveries_of(tx, rows))


@method(MessageRequeue)
def requeue(tx: Tx, ctx: Context, request: MessageRequeue) -> Message:
    """Queue a message again for recipients that have not acknowledged it."""
    row = find(tx, "message", request.message_id)
    deliveries = _deliveries_of(tx, [row])[row["id"]]
    again = [
        delivery
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
    for delivery in again:
        delivery |= {"status": "queued", "delivered_at": None}
    agents = [delivery["agent_id"] for delivery in again]
    _enqueue(tx, row["id"], agents, row["seq"])
    _keep_known_queue(tx, row, deliveries)
    payload = MessageRequeued(message_id=row["id"], to=agents)
    emit(tx, ctx, payload, mission_id=row["mission_id"])
    return message_of(row, deliveries)
