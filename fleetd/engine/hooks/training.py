"""Training hooks: the hooks of first sessions, from which a shared store learns before real ones.

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
_AGENT_PID = 4_194_304  # the kernel gives no process this number
_STARTED = "8765432109"
_BEGUN_MS, _AWAKE_MS = 1_700_000_000_000, 5_000_000_000
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
# As Claude Code sends them; an agent's first hook may be any of them.
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
# The first event of each session, and what is checked out in its directory.
_SESSIONS = ((0, None), (1, None), (2, Checkout(_DIRECTORY, "main", _COMMIT)), (3, None))


def training_hooks(engine: Engine) -> Iterator[Callable[[Tx], object]]:
    """Yield rules that record the hooks of some sessions, without and with a mission for them.

    One session is in a repository.
    """
    ids = itertools.count(1)
    for mission in (None, MissionCreate("Training", project_dir=_DIRECTORY, start=True)):
        if mission is not None:
            yield partial(_run, engine, ids, Facts(), missions.create, mission)
        for first, checkout in _SESSIONS:
            session = f"training-{next(ids)}"
            for event in _EVENTS[first:]:
                payload = {"session_id": session, "cwd": _DIRECTORY, **event}
                delivery = HookDelivery(
                    delivery_id=f"training-delivery-{next(ids)}",
                    report=recognise(_HARNESS, payload, {}).read(payload, None),
                    cwd=_DIRECTORY,
                    checkout=checkout,
                )
                yield partial(_run, engine, ids, _facts(event, checkout), record, delivery)


def _facts(event: dict[str, Any], checkout: Checkout | None) -> Facts:
    edited = EditedFile(_FILE, _FILE, _FILE, worktree=checkout.worktree if checkout else None)
    return Facts(
        agent_pid=_AGENT_PID,
        pid_started=_STARTED,
        project_root=_DIRECTORY,
        edited={_FILE: edited} if "tool_input" in event else {},
    )


def _run(
    engine: Engine,
    ids: "itertools.count[int]",
    facts: Facts,
    rule: Callable[[Tx, Context, Any], object],
    request: MissionCreate | HookDelivery,
    tx: Tx,
) -> None:
    """Run a rule as the engine does (``OnBehalf``)."""
    ctx = tx.context(lambda: _context(engine, facts, ids))
    rule(tx, ctx, request)
    settle(tx, ctx)


def _context(engine: Engine, facts: Facts, ids: "itertools.count[int]") -> Context:
    """Return a context with separate ids and times.

    The engine's own ids are for lasting records. Two times that are equal by chance would count as
    one that is derived from the other.
    """
    seconds = next(ids)
    return msgspec.structs.replace(
        engine.context(Caller(kind="client", uid=0), facts, 0),
        new_id=lambda noun: f"training-{noun}-{next(ids)}",
        now_ms=_BEGUN_MS + seconds * 1_000,
        awake_ms=_AWAKE_MS + seconds * 1_000,
    )
