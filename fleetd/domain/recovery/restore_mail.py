"""One step of recovery: letters queued again for those who have not had them."""

import msgspec

from ...protocol.events import MessageRequeued
from ...protocol.records import PendingMessage
from ..agents import mailbox
from ..core.event_log import emit
from ..core.tx import LogLine, Row
from .restore_context import Case


def restore_mail(case: Case) -> int:
    """Queue the checkpoint's letters again; return how many letters the recovery put in queues."""
    for letter in case.checkpoint.pending_messages:
        if letter.delivered:
            continue
        waiting = [_requeue(case, letter, agent) for agent in letter.to if case.covers(agent)]
        if any(waiting):
            case.ledger.letters.add(letter.id)
    return len(case.ledger.letters)


def _requeue(case: Case, letter: PendingMessage, agent_id: str) -> bool:
    tx = case.tx
    # Also a take-over of long ago: who has taken the work over has the letters too.
    recipient = mailbox.reader(tx, case.holder(agent_id))
    row = tx.one("SELECT * FROM messages WHERE id = :id", id=letter.id) or _repost(case, letter)
    status = _delivery(case, letter.id, agent_id) or _delivery(case, letter.id, recipient)
    if status in ("delivered", "acked"):
        text = f"Message {letter.id} not queued again for {recipient}: it was {status} already"
        tx.after_commit(LogLine("INFO", text))
        return False
    if status != "queued":
        mailbox.queue(tx, letter.id, recipient, row["seq"])
        case.ledger.changed("message", letter.id, status or "missing", "queued")
        payload = MessageRequeued(message_id=letter.id, to=[recipient])
        emit(tx, case.ctx, payload, mission_id=case.mission_id)
    return True


def _delivery(case: Case, message_id: str, agent_id: str) -> str | None:
    status: str | None = case.tx.value(
        "SELECT status FROM deliveries WHERE message_id = :id AND agent_id = :agent",
        id=message_id,
        agent=agent_id,
    )
    return status


def _repost(case: Case, letter: PendingMessage) -> Row:
    """Write a letter back that the store has lost."""
    columns: Row = {
        "id": letter.id,
        "seq": case.checkpoint.seq,
        "mission_id": case.mission_id,
        "thread_id": letter.thread_id,
        "sender": letter.sender,
        "to_json": msgspec.json.encode(letter.to).decode(),
        "subject": letter.subject,
        "body": letter.body,
        "priority": letter.priority,
        "sent_at": letter.sent_at,
    }
    case.tx.insert("messages", columns)
    return columns
