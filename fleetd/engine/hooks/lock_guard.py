"""Whether an edit is refused because another agent holds the file; only where that was asked for.

Source: hooks, lock awareness. A daemon that cannot be reached never refuses anything.
"""

import logging
import shlex

from ...domain.cluster.membership import agent_on
from ...domain.core.context import Caller
from ...domain.sessions.deliveries import fingerprint
from ...domain.sessions.record import Recorded
from ...harness.report import Report, ToolStarted
from ...protocol.display import escaped, quote
from ...protocol.errors import Unavailable
from ...protocol.records import Lock
from ...protocol.requests.event import EventAppend
from ...protocol.requests.hook import HookDeliver
from ...protocol.requests.lock import LockList
from ..engine import Engine

log = logging.getLogger("fleetd")
ENFORCE = "enforce-locks"
PURPOSE_CHARS = 120


async def denial(
    engine: Engine, request: HookDeliver, report: Report, recorded: Recorded, caller: Caller
) -> str | None:
    """Return why a tool call must not edit what it is about to edit, None when it may."""
    if ENFORCE not in request.args or not report.denies or recorded.agent_id is None:
        return None
    for call in report.happenings:
        if not isinstance(call, ToolStarted):
            continue
        for file in call.edits:
            other = await _others_lock(engine, file, recorded.agent_id, caller)
            if other is not None:
                holder = await engine.read(agent_on, other.held_by)
                reason = _sentence(file, other, holder, recorded.agent_id)
                await _close(engine, report, call, recorded.agent_id, reason, caller)
                return reason
    return None


async def _others_lock(engine: Engine, file: str, agent_id: str, caller: Caller) -> Lock | None:
    """Return the lock that another agent has on a file.

    None where nobody can say which file it is: what Git does not tell is no reason to refuse.
    """
    try:
        held = await engine.handle(LockList(file=file), caller)
    except Unavailable as error:
        log.warning("An edit of %s is let through: %s", file, error.message)
        return None
    return next((lock for lock in held.locks if lock.held_by != agent_id), None)


def _sentence(file: str, lock: Lock, holder: str, agent_id: str) -> str:
    # Whoever holds it wrote the purpose, and a file can have any name.
    purpose, name = quote(lock.purpose, PURPOSE_CHARS), _word(file)
    return (
        f"{escaped(file)} is locked by {holder} since {lock.acquired_at} (purpose: {purpose},"
        f" until {lock.expires_at}), so it was not edited. Other work can go on meanwhile;"
        f" fleetctl lock acquire {name} --agent {agent_id} --wait-ms 600000 waits for it,"
        f" fleetctl mail send {lock.held_by} asks its holder."
    )


def _word(file: str) -> str:
    """Return a file's name as a word for a shell, in which everything can be seen."""
    if escaped(file) == file:
        return shlex.quote(file)
    literal = file.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{escaped(literal)}'"


async def _close(
    engine: Engine, report: Report, call: ToolStarted, agent_id: str, reason: str, caller: Caller
) -> None:
    """Note that the tool call is over: a harness says nothing more about one that was refused."""
    data = {"name": call.tool, "error": reason, "call_id": call.call_id}
    once = fingerprint(report) if call.call_id else None
    failed = EventAppend("tool_failed", agent_id=agent_id, data=data, idempotency_key=once)
    await engine.handle(failed, caller)
