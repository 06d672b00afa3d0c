"""Restored mail: messages queued again for those who have not had them."""

import msgspec

from ...protocol.events import MessageRequeued
from ...protocol.records import PendingMessage
from ..agents import mailbox
from ..core.event_log import emit
from ..core.tx import LogLine, Row
from .restore_context import RestoreContext


def restore_mail(restore: RestoreContext) -> int:
    """Queue the checkpoint's messages again; return how many the recovery put in queues."""
    for message in restore.checkpoint.pending_messages:
        if message.delivered:
            continue
        waiting = [
            _requeue(restore, message, agent) for agent in message.to if restore.covers(agent)
        ]
        if any(waiting):
            restore.report.messages.add(message.id)
    return len(restore.report.messages)


def _requeue(restore: RestoreContext, message: PendingMessage, agent_id: str) -> bool:
    tx = restore.tx
    # Also a take-over of long ago: who has taken the work over has the messages too.
    recipient = mailbox.mail_reader(tx, restore.holder(agent_id))
    row = tx.one("SELECT * FROM messages WHERE id = :id", id=message.id) or _repost(
        restore, message
    )
    status = _delivery(restore, message.id, agent_id) or _delivery(restore, message.id, recipient)
    if status in ("delivered", "acked"):
        text = f"Message {message.id} not queued again for {recipient}: it was {status} already"
        tx.after_commit(LogLine("INFO", text))
        return False
    if status != "queued":
        mailbox.enqueue_delivery(tx, message.id, recipient, row["seq"])
        restore.report.changed("message", message.id, status or "missing", "queued")
        payload = MessageRequeued(message_id=message.id, to=[recipient])
        emit(tx, restore.ctx, payload, mission_id=restore.mission_id)
    return True


def _delivery(restore: RestoreContext, message_id: str, agent_id: str) -> str | None:
    status: str | None = restore.tx.value(
        "SELECT status FROM deliveries WHERE message_id = :id AND agent_id = :agent",
        id=message_id,
        agent=agent_id,
    )
    return status


def _repost(restore: RestoreContext, message: PendingMessage) -> Row:
    """Write a message back that the store has lost."""
    columns: Row = {
        "id": message.id,
        "seq": restore.checkpoint.seq,
        "mission_id": restore.mission_id,
        "thread_id": message.thread_id,
        "sender": message.sender,
        "to_json": msgspec.json.encode(message.to).decode(),
        "subject": message.subject,
        "body": message.body,
        "priority": message.priority,
        "sent_at": message.sent_at,
    }
    restore.tx.insert("messages", columns)
    return columns
