"""What each thing that a hook tells does to the log, the mission and the agent.

Must not know any harness, nor decide what the agent is told in return.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ...harness.report import (
    AnyHappening,
    Compacted,
    Compacting,
    Failed,
    Noted,
    Paused,
    PermissionRequested,
    Planned,
    PromptSubmitted,
    Report,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    ToolFinished,
    ToolStarted,
    WindowUsed,
)
from ...protocol.events import HookNoted, Payload, WindowCompacted
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.requests.event import EventAppend
from ..checkpoints import on_error
from ..checkpoints.checkpoints import HEAD, Reason, latest_row, take
from ..checkpoints.state import capture
from ..core import event_log
from ..core.context import Context
from ..core.ids import find
from ..core.tx import Tx
from ..events import streams
from ..liveness import open_calls
from ..snapshots import triggers
from . import context_window, membership, plan_sync
from .identity import key_of


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that following one report needs.

    ``happened_at`` is when its hook ran, for a report that waited in the spool.
    """

    tx: Tx
    ctx: Context
    report: Report
    agent_id: str
    cwd: str | None
    happened_at: str | None = None

    def tell(self, kind: str, **data: Any) -> None:
        """Append an event that the agent reports; what is not said is left out."""
        told = data | {"happened_at": self.happened_at}
        said = {name: value for name, value in told.items() if value not in (None, (), "")}
        request = EventAppend(kind, agent_id=self.agent_id, data=said)
        streams.append(self.tx, self.ctx, request)

    def note(self, payload: Payload) -> None:
        """Append an event that is no activity of the agent's."""
        mission_id = membership.mission_of(self.tx, self.agent_id)
        event_log.emit(self.tx, self.ctx, payload, mission_id=mission_id, agent_id=self.agent_id)

    def mission(self, title: str | None = None) -> str | None:
        """Return the open mission that the agent works in, a new one if need be."""
        return membership.ensure_mission(
            self.tx, self.ctx, self.report, self.agent_id, self.cwd, title
        )


def follow(scene: Scene, happening: AnyHappening) -> None:
    """Do what one thing that was told means; what failed is a boundary of the run."""
    carry_out(scene, happening)
    if is_failure(happening):
        triggers.error_met(scene.tx, scene.ctx, scene.agent_id)


def carry_out(scene: Scene, happening: AnyHappening) -> None:
    """Do what one thing means for the log, the mission and the agent."""
    act = _ACTS.get(type(happening))
    if act is not None:
        act(scene, happening)


def is_failure(happening: AnyHappening) -> bool:
    """Whether a tool or command is told to have failed."""
    return isinstance(happening, ToolFinished) and happening.passed is False


def _started(scene: Scene, told: SessionStarted) -> None:
    if told.source in ("resume", "compact"):
        membership.resume_mission(scene.tx, scene.ctx, scene.agent_id)
    if told.source != "compact":
        membership.await_user(scene.tx, scene.agent_id)
    if told.source != "resume":
        context_window.keep_used(scene.tx, key_of(scene.report), None)


def _prompted(scene: Scene, told: PromptSubmitted) -> None:
    kept = scene.ctx.config.keep_prompts
    scene.mission(told.prompt if kept else None)
    scene.tell("prompt_submitted", prompt=told.prompt if kept else None)


def _tool_started(scene: Scene, told: ToolStarted) -> None:
    scene.mission()
    kind = "command_started" if told.command else "tool_started"
    scene.tell(kind, tool=told.tool, command=told.command, call_id=told.call_id)


def _tool_finished(scene: Scene, told: ToolFinished) -> None:
    scene.mission()
    for file in told.edited:
        scene.tell("file_modified", file=file, tool=told.tool)
    failed = told.passed is False
    if told.command:
        results = {True: "PASS", False: "FAIL", None: None}
        scene.tell(
            "command_finished",
            command=told.command,
            result=results[told.passed],
            error=told.error,
            call_id=told.call_id,
            duration_ms=told.duration_ms,
        )
    if failed:
        scene.tell("tool_failed", name=told.tool, error=told.error, call_id=told.call_id)
    elif not told.command:
        scene.tell(
            "tool_finished", tool=told.tool, call_id=told.call_id, duration_ms=told.duration_ms
        )


def _planned(scene: Scene, told: Planned) -> None:
    mission_id = scene.mission()
    if mission_id is not None:
        session = membership.parent_of(scene.tx, scene.report) if told.shared else ""
        plan_sync.follow(scene.tx, scene.ctx, mission_id, session or scene.agent_id, told)


def _compacting(scene: Scene, told: Compacting) -> None:
    mission_id = scene.mission()
    if mission_id is not None:
        details = f"Before the {told.trigger} compaction of {scene.agent_id}"
        keep_state(scene, mission_id, details, always=told.certain)
    if told.certain:
        triggers.compacting(scene.tx, scene.ctx, scene.agent_id, told.trigger)


def keep_state(scene: Scene, mission_id: str, details: str, *, always: bool) -> None:
    """Take a checkpoint; one that equals the newest only when it is asked for."""
    tx, ctx = scene.tx, scene.ctx
    state = capture(tx, ctx, find(tx, "mission", mission_id))
    newest = latest_row(tx, mission_id, columns=HEAD)
    if always or newest is None or newest["state_digest"] != state.digest():
        reason = Reason(trigger="compaction", details=details, created_by=scene.agent_id)
        take(tx, ctx, mission_id, reason, state)


def _compacted(scene: Scene, told: Compacted) -> None:
    # A summary repeats what the user said, mostly word for word.
    kept = scene.ctx.config.keep_prompts
    scene.note(WindowCompacted(summary=told.summary if kept else None))
    context_window.keep_used(scene.tx, key_of(scene.report), None)


def _window_used(scene: Scene, told: WindowUsed) -> None:
    # No event: there is a count after every answer, and only the newest matters.
    context_window.keep_used(scene.tx, key_of(scene.report), told)


def _paused(scene: Scene, told: Paused) -> None:
    if told.last_message:
        scene.tell("agent_answered", message=told.last_message)
    scene.tell("agent_paused")
    for subagent in membership.subagents_of(scene.tx, scene.report):
        streams.append(scene.tx, scene.ctx, EventAppend("agent_paused", agent_id=subagent))


def _subagent_ended(scene: Scene, told: SubagentEnded) -> None:
    if told.last_message:
        scene.tell("agent_answered", message=told.last_message)
    membership.leave(scene.tx, scene.ctx, key_of(scene.report), "its task is done")


def _failed(scene: Scene, told: Failed) -> None:
    triggers.broke_off(scene.tx, scene.ctx, scene.agent_id, told.message)
    error = ErrorReport(
        agent_id=scene.agent_id, kind="api_error", name="TurnFailed", message=told.message
    )
    on_error.note(scene.tx, scene.ctx, error)
    # The turn is over, though nobody answered.
    scene.tell("agent_paused")


def _noted(scene: Scene, told: Noted) -> None:
    scene.note(HookNoted(what=told.what, message=told.message))


def _permission_requested(scene: Scene, told: PermissionRequested) -> None:
    """Let the agent wait: no work is done, so it is no activity.

    A reminder that comes too late, or of what a subagent asked for, is of nobody else's request.
    """
    what = "permission_prompt" if told.reminder else "permission_request"
    scene.note(HookNoted(what=what, message=told.message))
    if not told.reminder or membership.may_have_asked(scene.tx, scene.report, scene.agent_id):
        open_calls.await_permission(scene.tx, scene.agent_id, scene.happened_at or scene.ctx.now)


def _session_ended(scene: Scene, told: SessionEnded) -> None:
    reason = told.reason or "the session ended"
    membership.leave(scene.tx, scene.ctx, key_of(scene.report), reason)


_ACTS: dict[type, Callable[[Scene, Any], None]] = {
    SessionStarted: _started,
    PromptSubmitted: _prompted,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    Planned: _planned,
    Compacting: _compacting,
    Compacted: _compacted,
    WindowUsed: _window_used,
    Paused: _paused,
    SubagentEnded: _subagent_ended,
    Failed: _failed,
    Noted: _noted,
    PermissionRequested: _permission_requested,
    SessionEnded: _session_ended,
}
