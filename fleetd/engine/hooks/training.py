"""What hooks of a first session do, for a shared store that learns it before the first hook comes.

See store/postgres/training.py.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from ...domain.core.context import Caller, Checkout, Context, EditedFile, Facts
from ...domain.core.event_log import settle
from ...domain.core.tx import Tx
from ...domain.missions import missions
from ...domain.sessions.record import HookDelivery, record
from ...harness.detect import recognise
from ...protocol.requests.mission import MissionCreate
from ..engine import Engine

_HARNESS = "claude"
_DIRECTORY = "/training/project"
_FILE = f"{_DIRECTORY}/file.py"
_AGENT_PID = 4_194_304  # the kernel gives no process such a number
_STARTED = "8765432109"
_BEGUN_MS, _AWAKE_MS = 1_700_000_000_000, 5_000_000_000
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
# As Claude Code tells them; an agent's first hook may be any of them.
_EVENTS: tuple[dict[str, Any], ...] = (
    {"hook_event_name": "SessionStart", "source": "startup"},
    {"hook_event_name": "UserPromptSubmit", "prompt": "Change the file."},
    {
        "hook_event_name": "PreToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": _FILE, "content": "text"},
        "tool_use_id": "training-write",
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": _FILE, "content": "text"},
        "tool_response": {"filePath": _FILE, "success": True},
        "tool_use_id": "training-write",
    },
    {
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": "ok", "stderr": "", "interrupted": False},
        "tool_use_id": "training-bash",
    },
    {"hook_event_name": "Stop", "last_assistant_message": "It is done."},
    {"hook_event_name": "SessionEnd", "reason": "exit"},
)
_FIRST = (0, 1, 2, 3)
_CHECKOUTS = (None, None, Checkout(_DIRECTORY, "main", _COMMIT), None)


def training_hooks(engine: Engine) -> Iterator[Callable[[Tx], object]]:
    """Yield what records the hooks of some sessions.

    Each is in and out of a repository, with and without a mission that waits for somebody.
    """
    ids = itertools.count(1)
    for mission in (None, MissionCreate("Training", project_dir=_DIRECTORY, start=True)):
        if mission is not None:
            yield partial(_create, engine, mission, ids)
        for checkout, first in zip(_CHECKOUTS, _FIRST, strict=True):
            session = f"training-{next(ids)}"
            for event in _EVENTS[first:]:
                delivery_id = f"training-delivery-{next(ids)}"
                yield _recording(engine, session, event, delivery_id, checkout, ids)


def _create(engine: Engine, mission: MissionCreate, ids: "itertools.count[int]", tx: Tx) -> None:
    missions.create(tx, tx.context(lambda: _context(engine, Facts(), ids)), mission)


def _recording(
    engine: Engine,
    session: str,
    event: dict[str, Any],
    delivery_id: str,
    checkout: Checkout | None,
    ids: "itertools.count[int]",
) -> Callable[[Tx], object]:
    payload = {"session_id": session, "cwd": _DIRECTORY, **event}
    adapter = recognise(_HARNESS, payload, {})
    delivery = HookDelivery(
        delivery_id=delivery_id,
        report=adapter.read(payload, None),
        cwd=_DIRECTORY,
        checkout=checkout,
    )
    edited = EditedFile(_FILE, _FILE, _FILE, worktree=checkout.worktree if checkout else None)
    facts = Facts(
        agent_pid=_AGENT_PID,
        pid_started=_STARTED,
        project_root=_DIRECTORY,
        edited={_FILE: edited} if "tool_input" in event else {},
    )

    def rule(tx: Tx) -> None:
        ctx: Context = tx.context(lambda: _context(engine, facts, ids))
        record(tx, ctx, delivery)
        if tx.changes or tx.touched:
            settle(tx, ctx)

    return rule


def _context(engine: Engine, facts: Facts, ids: "itertools.count[int]") -> Context:
    """Return a context with ids and times of its own.

    Those of the engine are for what stays, and two times that are equal by chance would count as
    one that comes from the other.
    """
    seconds = next(ids)
    return msgspec.structs.replace(
        engine.context(Caller(kind="client", uid=0), facts, 0),
        new_id=lambda noun: f"training-{noun}-{next(ids)}",
        now_ms=_BEGUN_MS + seconds * 1_000,
        awake_ms=_AWAKE_MS + seconds * 1_000,
    )
