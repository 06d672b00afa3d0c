"""``fleetctl mail``: messages between agents."""

from typing import Any, get_args

from fleetd.protocol.patterns import Priority

from ..args import Namespace, Subparsers, agent_option, command, group, limit_option, since_option
from ..client import Fleet, call
from ..client.models import (
    Message,
    MessageAck,
    MessageGet,
    MessageInbox,
    MessageList,
    MessageRequeue,
    MessageSend,
)
from ..client.pagination import all_pages
from ..context import time_before
from ..output import console, tables
from ..output.tables import Column

EXAMPLES = """\
  fleetctl mail send "Need the endpoint list" --from alice --to dispatch-1
  fleetctl mail inbox dispatch-1
  fleetctl mail ack msg-1a2b3c4d --agent dispatch-1"""
LIST_EXAMPLES = """\
  fleetctl mail list --pending
  fleetctl mail list --agent alice --since 2h"""
COLUMNS = (
    Column("ID"),
    Column("SENT", matters=2, times="ago"),
    Column("FROM", matters=4, cut="middle", least=10),
    Column("TO", matters=3, cut="end", least=10),
    Column("STATE", matters=1, styles=console.STATES),
    Column("SUBJECT", cut="end", least=16),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "mail", "Send and read messages between agents.")
    send = command(actions, "send", _run_send, "Send a message.", EXAMPLES)
    send.add_argument("subject", metavar="SUBJECT", help="the subject, in one line")
    send.add_argument("--from", dest="sender", completes="agent", required=True, help="the sender")
    send.add_argument(
        "--to",
        action="append",
        completes="agent",
        required=True,
        help="a recipient; may be repeated",
    )
    send.add_argument("--body", metavar="TEXT", help="the text of the message")
    send.add_argument("--mission", completes="mission", help="the mission of the message")
    send.add_argument("--thread", completes="thread", help="the thread of the message")
    send.add_argument(
        "--priority",
        choices=get_args(Priority),
        default="medium",
        help="the priority (default: medium)",
    )
    inbox = command(actions, "inbox", _run_inbox, "Read the messages to an agent, oldest first.")
    inbox.add_argument("agent_id", metavar="AGENT", help="the agent's name")
    inbox.flag("--all", help="also acknowledged messages")
    limit_option(inbox, 50)
    ack = command(actions, "ack", _run_ack, "Acknowledge a message.")
    ack.add_argument("message_id", completes="message.open")
    ack.add_argument("--agent", completes="agent", required=True, help="the recipient")
    listing = command(actions, "list", _run_list, "List messages, oldest first.", LIST_EXAMPLES)
    listing.add_argument("--mission", completes="mission", help="only messages of this mission")
    agent_option(listing, "only messages from or to this agent")
    since_option(listing, "only messages sent")
    listing.flag("--pending", help="only messages that are still queued")
    show = command(actions, "show", _run_show, "Show a message; it stays unread.")
    show.add_argument("message_id", completes="message")
    requeue = command(actions, "requeue", _run_requeue, "Queue a message for delivery again.")
    requeue.add_argument("message_id", completes="message.open")
    requeue.add_argument("--agent", completes="agent", help="only for this recipient")


def _run_send(args: Namespace) -> int:
    message = call(
        MessageSend(
            sender=args.sender,
            to=args.to,
            subject=args.subject,
            body=args.body,
            mission_id=args.mission,
            thread_id=args.thread,
            priority=args.priority,
        )
    )
    return console.result(args, message, f"Message sent: {message.id} to {', '.join(message.to)}")


def _run_inbox(args: Namespace) -> int:
    messages = call(
        MessageInbox(agent_id=args.agent_id, limit=args.limit, include_acked=args.all)
    ).messages

    def page() -> None:
        for message in messages:
            _show(message, args.agent_id)

    return tables.show_list(args, messages, page, "No messages found.")


def _show(message: Message, recipient: str | None = None) -> None:
    status = sorted(
        {each.status for each in message.deliveries if recipient in (None, each.agent_id)}
    )
    console.line(f"{message.id}  {console.ago(message.sent_at)}  {', '.join(status)}")
    console.line(f"From: {message.sender}  To: {', '.join(message.to)}")
    console.line(f"Subject: {message.subject}")
    if message.body:
        print(console.clean_block(message.body))
    print()


def _run_show(args: Namespace) -> int:
    return console.show(args, call(MessageGet(message_id=args.message_id)), _show)


def _run_ack(args: Namespace) -> int:
    message = call(MessageAck(message_id=args.message_id, agent_id=args.agent))
    return console.result(args, message, f"Message acknowledged: {message.id}")


def _run_list(args: Namespace) -> int:
    terms: dict[str, Any] = {
        "mission_id": args.mission,
        "pending": True if args.pending else None,
        "agent_id": args.agent,
        "since_time": time_before(args.since),
    }
    with Fleet() as client:
        messages = all_pages(lambda **more: client.call(MessageList(**terms, **more)).messages)
    rows = [
        (
            each.id,
            each.sent_at,
            each.sender,
            ", ".join(each.to),
            ", ".join(sorted({delivery.status for delivery in each.deliveries})),
            each.subject,
        )
        for each in messages
    ]
    return tables.show(args, messages, COLUMNS, rows, "No messages found.")


def _run_requeue(args: Namespace) -> int:
    message = call(MessageRequeue(message_id=args.message_id, agent_id=args.agent))
    return console.result(args, message, f"Message queued again: {message.id}")
