"""The tools for working beside others: locks, mail, and who else is there."""

from typing import Annotated

from msgspec import Meta

from fleetd.protocol.errors import FleetError, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.lock import LockAcquire, LockList, LockRelease, Purpose
from fleetd.protocol.requests.message import (
    MessageAck,
    MessageInbox,
    MessageSend,
    Recipients,
    ThreadId,
)
from fleetd.protocol.types import LONGEST_LEASE_MS, MessageId, Path, Text, Title

from ..context import repository_root
from . import formatting
from .error_messages import until
from .schema import Arguments
from .session import Desk, absolute

# Agent CLIs give up on a tool after a minute.
LONGEST_WAIT_S = 50
DEFAULT_LEASE_S = 600
LETTERS = 20

Lease = Annotated[
    int, Meta(ge=1, le=LONGEST_LEASE_MS // 1_000, description=f"default {DEFAULT_LEASE_S}")
]
Wait = Annotated[int, Meta(ge=0, le=LONGEST_WAIT_S, description="wait for its holder so long")]


class Locking(Arguments, frozen=True, kw_only=True):
    """A file to hold."""

    file: Path
    purpose: Purpose = "edit"
    lease_s: Lease | None = None
    wait_s: Wait = 0


async def lock(desk: Desk, asked: Locking) -> str:
    """Take a lock, or renew the agent's own."""
    agent = await desk.me()
    held = await desk.ask(
        LockAcquire(
            asked.file,
            agent.id,
            cwd=desk.cwd,
            purpose=asked.purpose,
            timeout_ms=None if asked.lease_s is None else asked.lease_s * 1_000,
            wait_ms=asked.wait_s * 1_000,
        )
    )
    return (
        f"You hold {formatting.path(asked.file)} {until(held.expires_at)},"
        f" fencing token {held.fencing_token}."
        " What you do renews it. unlock it when you are done."
    )


class Unlocking(Arguments, frozen=True, kw_only=True):
    """What to give back."""

    file: Path | None = None


async def unlock(desk: Desk, asked: Unlocking) -> str:
    """Give back a lock, or all of them."""
    agent = await desk.me()
    page = await desk.ask(LockList(held_by=agent.id, cwd=desk.cwd))
    mine = page.locks
    if asked.file is not None and not (mine := [each for each in mine if each.id == asked.file]):
        # Not by the words of whoever locked it: they may have meant a file of another repository.
        wanted = absolute(desk, asked.file)
        page = await desk.ask(LockList(held_by=agent.id, file=wanted, cwd=desk.cwd))
        mine = page.locks
    for each in mine:
        await desk.ask(LockRelease(each.id, agent.id))
    if not mine:
        return f"You held no lock{f' on {asked.file}' if asked.file else ''}."
    names = ", ".join(formatting.path(page.paths[each.id]) for each in mine)
    return f"Released: {formatting.cut(names, 2_000)}."


class WhichLocks(Arguments, frozen=True, kw_only=True):
    """The file to ask about."""

    file: Path | None = None


async def locks(desk: Desk, asked: WhichLocks) -> str:
    """Say who holds a file, or all that is held in this repository."""
    agent = await desk.known()
    file = None if asked.file is None else absolute(desk, asked.file)
    page = await desk.ask(LockList(file=file, cwd=desk.cwd, here=file is None))
    me = agent.id if agent else None
    if not page.locks:
        return f"Nobody holds {asked.file}." if asked.file else "Nobody holds a lock here."
    root = repository_root(desk.real_cwd)
    below = [] if root == desk.real_cwd else [f"Paths are from {formatting.cut(root)}."]
    lines = (formatting.lock_line(each, page.paths[each.id], me) for each in page.locks)
    return formatting.listed([*below, *lines])


class Letter(Arguments, frozen=True, kw_only=True):
    """A letter to write."""

    to: Recipients
    subject: Title
    body: Text | None = None
    thread_id: ThreadId | None = None


async def send(desk: Desk, asked: Letter) -> str:
    """Post a letter."""
    agent = await desk.me()
    mission = await desk.mission(agent)
    # Asked before: what fails after the letter was sent would have it sent again.
    known = {each.id for each in (await desk.ask(AgentList())).agents}
    sent = await desk.ask(
        MessageSend(
            agent.id,
            asked.to,
            asked.subject,
            body=asked.body,
            mission_id=mission.id if mission else None,
            thread_id=asked.thread_id,
        ),
        once=True,
    )
    unknown = ", ".join(each for each in sent.to if each not in known)
    waits = f" Nobody is known as {unknown} yet: it waits; agents has the names." if unknown else ""
    return f"Sent {sent.id} to {', '.join(sent.to)}.{waits} Answers come into your inbox."


async def inbox(desk: Desk, _asked: Arguments) -> str:
    """Show the agent's mail, oldest first."""
    agent = await desk.me()
    found = (await desk.ask(MessageInbox(agent.id, limit=LETTERS))).messages
    if not found:
        return "No mail."
    letters = [f"{formatting.letter(each, agent.id)}\n" for each in found]
    return f"{formatting.listed(letters)}\nack what you dealt with, by its id."


class Acking(Arguments, frozen=True, kw_only=True):
    """Letters that are dealt with."""

    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=100)]


async def ack(desk: Desk, asked: Acking) -> str:
    """Acknowledge letters; one that cannot be keeps none of the others from it."""
    agent = await desk.me()
    done: list[str] = []
    refused: list[FleetError] = []
    for message_id in asked.message_ids:
        try:
            done.append((await desk.ask(MessageAck(message_id, agent.id))).id)
        except (InvalidState, NotFound) as error:
            refused.append(error)
    if not done:
        raise refused[0]
    lines = [f"Acknowledged: {', '.join(done)}."] + [each.message for each in refused]
    return formatting.listed(lines)


async def agents(desk: Desk, _asked: Arguments) -> str:
    """Say who else works."""
    agent = await desk.known()
    found = (await desk.ask(AgentList())).agents
    here = [each for each in found if each.status != "gone"]
    me = agent.id if agent else None
    return (
        formatting.listed(formatting.agent_line(each, me) for each in here) or "Nobody works here."
    )
