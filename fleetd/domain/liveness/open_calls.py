"""Open tool calls of agents, by the events that they report.

A turn is what an agent does between two prompts of its user. Inside it, tool calls are open from
``command_started`` or ``tool_started`` to ``command_finished``, ``tool_finished`` or
``tool_failed`` with the same ``call_id`` in their data; after ``agent_paused`` the agent waits for
its user.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from ...protocol.records import Event
from ..core.context import Context
from ..core.history import agent_changed
from ..core.tx import Tx

# A build or a test run may take long. A call that is open for longer than this was forgotten.
LONGEST_CALL_MS = 3_600_000
BEGINS_A_CALL = ("command_started", "tool_started")
BEGINS_WORK = ("prompt_submitted", *BEGINS_A_CALL)
ENDS_A_CALL = ("command_finished", "tool_finished", "tool_failed")
ENDS_THE_TURN = ("agent_paused", "prompt_submitted")


def track_calls(tx: Tx, ctx: Context, agent_id: str, event: Event) -> None:
    """Update the agent's open calls from an event that it just reported."""
    call_id = _call_id(event.data.get("call_id"))
    if event.type in BEGINS_A_CALL:
        tx.run(
            "INSERT INTO tool_calls (agent_id, call_id, started_at, started_awake_ms)"
            " SELECT id, :call, :now, :awake FROM agents WHERE id = :agent"
            " ON CONFLICT (agent_id, call_id) DO UPDATE SET started_at = excluded.started_at,"
            " started_awake_ms = excluded.started_awake_ms",
            call=call_id,
            now=ctx.now,
            awake=ctx.awake_ms,
            agent=agent_id,
        )
    elif event.type in ENDS_A_CALL:
        tx.run(
            "DELETE FROM tool_calls WHERE agent_id = :agent AND call_id = :call",
            agent=agent_id,
            call=call_id,
        )
    elif event.type in ENDS_THE_TURN:
        end_turn(tx, agent_id)
    if event.type == "agent_paused":
        waits = "UPDATE agents SET status = 'waiting' WHERE id = :id AND status = 'active'"
        if tx.one(f"{waits} RETURNING id", id=agent_id):
            agent_changed(tx, agent_id)


def note_files(tx: Tx, agent_id: str, call_id: str | None, paths: Iterable[str]) -> None:
    """Note the files that an open call is about to change."""
    tx.run(
        "UPDATE tool_calls SET files_json = :files WHERE agent_id = :agent AND call_id = :call",
        files=msgspec.json.encode([*paths]).decode(),
        agent=agent_id,
        call=_call_id(call_id),
    )


def _call_id(call_id: Any) -> str:
    """Return the harness's id of a tool call; calls without an id count as one call."""
    return str(call_id or "")[:200]


def end_turn(tx: Tx, agent_id: str) -> None:
    """Delete the open calls of an agent whose turn or process is over."""
    tx.run("DELETE FROM tool_calls WHERE agent_id = :agent", agent=agent_id)
